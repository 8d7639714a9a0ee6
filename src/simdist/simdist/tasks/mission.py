"""What an operator asks of the robot, and when: stand up, walk for a while, lie down."""

from __future__ import annotations

from enum import StrEnum

from simdist.safety.modes import LIES_DOWN, REQUESTED
from simdist.types import Mode

#: s; a refused request is repeated after this
RETRY = 0.5
#: s; a granted request for ACTIVE is repeated after this while the robot still stands
PATIENCE = 5.0


class Request(StrEnum):
    """Requests to the robot side; RESET puts a simulated robot back to its start."""

    STAND_UP = "STAND_UP"
    ACTIVE = "ACTIVE"
    LIE_DOWN = "LIE_DOWN"
    RESET = "RESET"


class Mission:
    """Decides the next request from the robot's mode; one request is under way at a time.

    ``duration`` is in seconds of acting, 0 for no end. A mode that somebody else asked for is left
    alone. After a fault or a protective stop the robot is put back to the start and the mission
    goes on if ``auto_reset`` allows it, which only a simulation may.
    """

    def __init__(self, duration: float = 0.0, auto_reset: bool = False) -> None:
        self._duration, self._auto_reset = duration, auto_reset
        self._pending: Request | None = None
        self._not_before: dict[Request, float] = {}
        self._stood_up = self._wished = self._lying_down = False
        self._ending = False
        self._lap_done = False
        self.acting_seconds = 0.0
        self.finished = False  #: lies damped after its time was over
        self.advice = ""  #: what a person has to do before the mission can go on

    @property
    def ending(self) -> bool:
        """Whether the time is over and the robot is to lie down."""
        return self._ending

    def acted(self, seconds: float) -> None:
        """The robot acted for ``seconds`` more."""
        self.acting_seconds += seconds
        # Half a microsecond of rounding must not cost a whole control step.
        if self._duration and self.acting_seconds >= self._duration - 5e-7:
            self._ending = True

    def course_ended(self) -> None:
        """The robot is at the end of its course: it starts again where it can, or lies down."""
        if self._auto_reset:
            self._lap_done = True
        else:
            self._ending = True

    def next_request(self, mode: Mode, reason: str, now: float) -> Request | None:
        """The request to send now (steady seconds), if any; it must be :meth:`answered`."""
        self.advice = ""
        if self._pending is not None or self.finished:
            return None
        wanted = self._wanted(mode, reason)
        if wanted is None or now < self._not_before.get(wanted, now):
            return None
        self._pending = wanted
        return wanted

    def answered(self, granted: bool, now: float) -> None:
        """The request under way was granted, or refused or lost."""
        request, self._pending = self._pending, None
        if request is None:
            return
        if not granted:
            self._not_before[request] = now + RETRY
            return
        self._wished = request == Request.ACTIVE
        self._lying_down = request == Request.LIE_DOWN
        if request == Request.STAND_UP:
            self._stood_up = True
        elif request == Request.ACTIVE:
            self._not_before[request] = now + PATIENCE
        elif request == Request.RESET:
            self._stood_up = self._lap_done = False
            self._not_before.clear()

    def settled(self, mode: Mode, reason: str) -> bool:
        """Whether a control step in ``mode`` needs no request before it may go on: a simulation
        in lockstep waits for the answer, so that requests always arrive at the same step."""
        if mode == Mode.ACTIVE:
            return not (self._ending or self._lap_done) or self._lying_down
        if mode == Mode.STAND:
            return self._wished or reason == REQUESTED
        return True

    def _wanted(self, mode: Mode, reason: str) -> Request | None:
        if self._ending:
            if mode in (Mode.DAMP, Mode.FAULT):
                self.finished = True
            busy = self.finished or self._lying_down or mode == Mode.LIE_DOWN
            return None if busy else Request.LIE_DOWN
        if mode == Mode.ACTIVE:
            return Request.RESET if self._lap_done else None
        if mode == Mode.STAND and reason != REQUESTED:
            return Request.ACTIVE
        if mode == Mode.FAULT or (mode == Mode.DAMP and self._stood_up):
            return self._after_stop(mode, reason)
        return Request.STAND_UP if mode == Mode.DAMP else None

    def _after_stop(self, mode: Mode, reason: str) -> Request | None:
        # Damped by a person, not by a watchdog: that person decides how to go on.
        by_person = mode == Mode.DAMP and reason in (REQUESTED, LIES_DOWN)
        if self._auto_reset and not by_person:
            return Request.RESET
        if reason.startswith("re-armed"):
            return Request.STAND_UP
        way_out = "request STAND_UP" if by_person else "re-arm"
        self.advice = f"the robot is in {mode.name} ({reason}): {way_out} to go on"
        return None
