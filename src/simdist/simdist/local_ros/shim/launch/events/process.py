"""Events of processes, and requests to them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..event import Event
from ..unsupported import unsupported_names

if TYPE_CHECKING:
    from ..actions.execute_process import ExecuteProcess

__all__ = [
    "ProcessExited",
    "ProcessIO",
    "ProcessStarted",
    "RunningProcessEvent",
    "ShutdownProcess",
    "SignalProcess",
]

__getattr__ = unsupported_names(__name__)

ProcessMatcher = Callable[["ExecuteProcess"], bool]


class RunningProcessEvent(Event):
    """Base of what happens to a process of the launch."""

    def __init__(self, *, action: ExecuteProcess, name: str, cmd: list[str], pid: int) -> None:
        self.action = action
        self.process_name = name
        self.cmd = cmd
        self.pid = pid


class ProcessStarted(RunningProcessEvent):
    name = "launch.events.process.ProcessStarted"


class ProcessExited(RunningProcessEvent):
    """A process has ended; `returncode` is negative for a signal, as in subprocess."""

    name = "launch.events.process.ProcessExited"

    def __init__(
        self, *, returncode: int, action: ExecuteProcess, name: str, cmd: list[str], pid: int
    ) -> None:
        super().__init__(action=action, name=name, cmd=cmd, pid=pid)
        self.returncode = returncode


class ProcessIO(RunningProcessEvent):
    """A process wrote a line (with its line end) to file descriptor 1 or 2."""

    name = "launch.events.process.ProcessIO"

    def __init__(
        self,
        *,
        text: bytes,
        fd: int,
        action: ExecuteProcess,
        name: str,
        cmd: list[str],
        pid: int,
    ) -> None:
        super().__init__(action=action, name=name, cmd=cmd, pid=pid)
        self.text = text
        self.fd = fd

    @property
    def from_stdout(self) -> bool:
        return self.fd == 1

    @property
    def from_stderr(self) -> bool:
        return self.fd == 2


class ShutdownProcess(Event):
    """Ask the matching processes to end: SIGINT, later SIGTERM, then SIGKILL."""

    name = "launch.events.process.ShutdownProcess"

    def __init__(self, *, process_matcher: ProcessMatcher) -> None:
        self.process_matcher = process_matcher


class SignalProcess(Event):
    """Send one signal, by number or name, to the matching processes."""

    name = "launch.events.process.SignalProcess"

    def __init__(self, *, signal_number: int | str, process_matcher: ProcessMatcher) -> None:
        self.signal = (
            signal.Signals[signal_number]
            if isinstance(signal_number, str)
            else signal.Signals(signal_number)
        )
        self.process_matcher = process_matcher
