"""The process that holds a robot's SDK: started, watched and ended by the driver.

Vendors' SDKs bring middleware of their own, which must not share an address space with that of
ROS. :class:`ChildLink` is the driver's side, :class:`SdkSide` the child's. Each watches the other:
the driver reports a child that is gone or silent at its next poll; the child damps by itself when
the driver is silent, and ends when it is gone.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from simdist.hardware.channel import Channel, Kind, Layout
from simdist.hardware.link import LinkError, RobotState
from simdist.ranges import Checked, bounded
from simdist.robots import RobotSpec
from simdist.types import JointCommand

_NS = 1_000_000_000
_PR_SET_PDEATHSIG = 1
#: s between two looks at a child that starts or ends
_PAUSE = 0.005


@dataclass(frozen=True)
class ChildConfig(Checked):
    """Times of the two sides. Each has a range: no watchdog can be switched off."""

    start_timeout: float = bounded(10.0, 0.5, 60.0, "s until the robot must be ready")
    stall_after: float = bounded(0.05, 0.01, 0.2, "s; an SDK process silent for longer is stalled")
    damp_after: float = bounded(0.05, 0.01, 0.2, "s; without a command for longer it damps")
    end_timeout: float = bounded(2.0, 0.1, 10.0, "s to damp and end before it is killed")


class ChildLink:
    """A robot behind an SDK process: a :class:`~simdist.hardware.link.RobotLink`.

    ``module`` is run with ``arguments`` and, last, the descriptor of its end of the channel. Only
    the main thread may create one: the child dies with the thread that made it.
    """

    def __init__(
        self,
        robot: RobotSpec,
        module: str,
        arguments: Sequence[str] = (),
        config: ChildConfig | None = None,
    ) -> None:
        self._robot = robot
        self._module = module
        self._config = config or ChildConfig()
        self._layout = Layout(robot)
        self._state: RobotState | None = None
        self._heard_ns = self._polled_ns = self._watching_since_ns = 0
        self._ready = False
        self._closed = False
        self._notes: deque[str] = deque(maxlen=100)
        self._channel, theirs = Channel.pair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def robot(self) -> RobotSpec:
        return self._robot

    @property
    def pid(self) -> int:
        return self._process.pid

    def take_notes(self) -> list[str]:
        """Lines for the log that the child has sent since the last call."""
        notes = list(self._notes)
        self._notes.clear()
        return notes

    def poll(self, now_ns: int) -> RobotState | None:
        """See :class:`~simdist.hardware.link.RobotLink`."""
        self._take_packets()
        limit_ns = round(self._config.stall_after * _NS)
        if now_ns - self._polled_ns > limit_ns // 2:
            # Who was away finds a full queue of old messages, which accuses nobody.
            self._watching_since_ns = now_ns
        self._polled_ns = now_ns
        silent_ns = now_ns - max(self._heard_ns, self._watching_since_ns)
        if silent_ns > limit_ns:
            raise LinkError(
                f"the SDK process ({self._module}, process {self.pid}) has been silent for "
                f"{silent_ns / 1e6:.0f} ms (limit {self._config.stall_after * 1e3:.0f} ms)"
            )
        return self._state

    def send(self, command: JointCommand, now_ns: int) -> None:
        """See :class:`~simdist.hardware.link.RobotLink`."""
        self._channel.send(Kind.COMMAND, now_ns, self._layout.pack_command(command))
        if self._channel.cut:
            self._take_packets()
            raise self._death()

    def close(self) -> None:
        """Damp and end the child; a child that does not end in time is killed."""
        if self._closed:
            return
        self._closed = True
        self._channel.send(Kind.CLOSE, time.monotonic_ns())
        self._channel.close()
        try:
            self._process.wait(self._config.end_timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + self._config.start_timeout
        while not self._ready:
            self._take_packets()
            if time.monotonic() > deadline:
                raise LinkError(
                    f"the SDK process ({self._module}) was not ready within "
                    f"{self._config.start_timeout:g} s"
                )
            time.sleep(_PAUSE)

    def _take_packets(self) -> None:
        for packet in self._channel.receive():
            # The time it was sent, not of this call: what a stalled child left is no sign of life.
            self._heard_ns = packet.stamp_ns
            if packet.kind == Kind.STATE:
                self._state = self._layout.state(packet.payload)
            elif packet.kind == Kind.READY:
                self._ready = True
            elif packet.kind == Kind.NOTE:
                self._notes.append(packet.text)
            elif packet.kind == Kind.REFUSED:
                raise LinkError(packet.text)
        if self._channel.ended:
            raise self._death()

    def _death(self) -> LinkError:
        # The channel ends a moment before the process can be waited for.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_PAUSE)
        code = self._process.returncode
        how = "has closed the channel" if code is None else f"ended with exit code {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        return LinkError(f"the SDK process ({self._module}, process {self.pid}) {how}")


class SdkSide:
    """The child's side of the channel. Creating it binds the life of this process to the driver's.

    In every cycle of the SDK process: :meth:`command`, then :meth:`report`.
    """

    def __init__(
        self, robot: RobotSpec, descriptor: int, config: ChildConfig | None = None
    ) -> None:
        self._config = config or ChildConfig()
        self._layout = Layout(robot)
        self._channel = Channel.of_descriptor(descriptor)
        self._command: JointCommand | None = None
        self._commanded_ns = 0
        self._reported = -1
        self._asked_to_end = False
        # A driver that died before this line shows as the end of the channel.
        end_with_parent(self._end)

    @property
    def over(self) -> bool:
        """Whether to damp the joints and end: the driver asked for it, or is gone."""
        return self._asked_to_end or self._channel.ended

    def _end(self) -> None:
        self._asked_to_end = True

    def ready(self) -> None:
        """The robot is there, and its joints are ours."""
        self._channel.send(Kind.READY, time.monotonic_ns())

    def refuse(self, reason: str) -> None:
        """Tell the user why there is no robot; the process is to end then."""
        self._channel.send(Kind.REFUSED, time.monotonic_ns(), reason.encode()[:4096])

    def note(self, text: str) -> None:
        """A line for the driver's log."""
        self._channel.send(Kind.NOTE, time.monotonic_ns(), text.encode()[:4096])

    def command(self, now_ns: int) -> JointCommand | None:
        """What the motors are to be told now; None: damp. A driver that is silent, stalled or
        gone gives None."""
        for packet in self._channel.receive():
            if packet.kind == Kind.COMMAND:
                self._command = self._layout.command(packet.payload)
                self._commanded_ns = packet.stamp_ns
            elif packet.kind == Kind.CLOSE:
                self._asked_to_end = True
        fresh = now_ns - self._commanded_ns <= round(self._config.damp_after * _NS)
        return self._command if fresh and not self.over else None

    def report(self, state: RobotState | None, now_ns: int) -> None:
        """Pass a state on, or with None or the same state again, tell that this process runs."""
        if state is None or state.received_ns == self._reported:
            self._channel.send(Kind.ALIVE, now_ns)
        elif self._channel.send(Kind.STATE, now_ns, self._layout.pack_state(state)):
            self._reported = state.received_ns


def end_with_parent(on_end: Callable[[], None]) -> None:
    """Call ``on_end`` when this process is asked to end (SIGTERM), and when the thread that started
    it ends. Ctrl-C at the terminal goes to the driver, which decides what becomes of the robot."""
    signal.signal(signal.SIGTERM, lambda number, frame: on_end())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
