"""One writer for everything the launch shows: whole lines only, and a copy in the log file."""

from __future__ import annotations

import datetime
import os
import socket
import sys
import time
from pathlib import Path
from typing import IO

RED, YELLOW, PLAIN = "\033[31m", "\033[33m", "\033[0m"
COLOURS = {"ERROR": RED, "WARNING": YELLOW}


class Console:
    """Writes lines to standard output and to `launch.log` of this run.

    A reader that went away (`ros2 launch ... | head`) or an unwritable log directory must not
    end the launch: processes still have to be stopped in order.
    """

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self._log: IO[str] | None = None
        self.log_directory = log_root() / run_name()
        try:
            self.log_directory.mkdir(parents=True, exist_ok=True)
            self._log = (self.log_directory / "launch.log").open("a", encoding="utf-8")
        except OSError as error:
            self.report("WARNING", "launch", f"no log file is written: {error}")

    def line(self, text: str, *, screen: bool = True, log: bool = True) -> None:
        """Write one line, without its line end, in a single write."""
        if log and self._log is not None:
            try:
                self._log.write(f"{time.time():.7f} {text}\n")
                self._log.flush()
            except OSError:
                self._log = None
        if screen:
            try:
                sys.stdout.write(text + "\n")
                sys.stdout.flush()
            except OSError:
                silence_standard_output()

    def report(self, level: str, logger: str, message: str) -> None:
        """Write a message of the launch itself, in the format of real launch."""
        text = f"[{level}] [{logger}]: {message}"
        colour = COLOURS.get(level) if self._colour else None
        self.line(f"{colour}{text}{PLAIN}" if colour else text)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()
            self._log = None


def silence_standard_output() -> None:
    """Send further output nowhere, so that flushing at exit cannot fail either."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def log_root() -> Path:
    """Return the log directory as ROS 2 chooses it: ROS_LOG_DIR, else ROS_HOME/log."""
    if os.environ.get("ROS_LOG_DIR"):
        return Path(os.environ["ROS_LOG_DIR"]).expanduser()
    return Path(os.environ.get("ROS_HOME") or "~/.ros").expanduser() / "log"


def run_name() -> str:
    stamp = datetime.datetime.now().strftime("%Y-%m-%d-%H-%M-%S-%f")
    return f"{stamp}-{socket.gethostname()}-{os.getpid()}"
