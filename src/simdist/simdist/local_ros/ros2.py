"""The `ros2` command where ROS 2 comes from Python wheels.

Only what starts fast is imported here, so that Ctrl-C right after the start is caught as well.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit status."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    signal.signal(signal.SIGTERM, _end_in_order)
    # A shell script starts `ros2 ... &` with SIGINT ignored; rclpy's own handler, which the real
    # commands have, does not inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        from simdist.local_ros.command_line import run

        status = run(arguments)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        # A launch that is interrupted ends well, also before its event loop takes the signal.
        return 0 if arguments[:1] == ["launch"] else signal.SIGINT
    except BrokenPipeError:
        # The reader had enough (`ros2 topic list | head -1`). Python flushes once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _end_in_order(number: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
