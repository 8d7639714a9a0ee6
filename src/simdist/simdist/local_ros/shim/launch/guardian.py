"""A helper process that ends what a killed launch would leave behind.

It reads `+GROUP` and `-GROUP` lines: process groups that started and ended. When the pipe
closes, the launch is gone, however it went; every group still in the list gets SIGTERM and,
if it lingers, SIGKILL. Runs as a script with the standard library alone and without `site`.
"""

from __future__ import annotations

import os
import signal
import sys
import time

GRACE = 3.0


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; return False if nothing is left of it."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def end_groups(groups: set[int]) -> None:
    alive = {group for group in groups if signal_group(group, signal.SIGTERM)}
    deadline = time.monotonic() + GRACE
    while alive and time.monotonic() < deadline:
        time.sleep(0.05)
        alive = {group for group in alive if signal_group(group, 0)}
    for group in alive:
        signal_group(group, signal.SIGKILL)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        if line.startswith("+"):
            groups.add(int(line[1:]))
        else:
            groups.discard(int(line[1:]))
    end_groups(groups)


if __name__ == "__main__":
    main()
