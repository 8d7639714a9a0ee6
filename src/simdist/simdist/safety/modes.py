"""Operating modes of the robot side and the transitions between them.

::

    DAMP -> STAND_UP -> STAND -> ACTIVE          request, completion, fresh chunk
               |          |  <---  |             request
               +----------+--------+-> LIE_DOWN -> DAMP
    any mode -> DAMP     request, or a protective stop (which disarms)
    any mode -> FAULT    latches with its reason; only re-arming leads to DAMP

A protective stop or a fault *disarms*: nothing moves again until somebody re-arms. A robot that
lies damped because its planner died must not stand up because the planner came back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from simdist.types import Mode

#: What an operator may ask for in each mode. ACTIVE is granted as a wish, see ``ModeMachine``.
REQUESTS: dict[Mode, frozenset[Mode]] = {
    Mode.DAMP: frozenset({Mode.STAND_UP, Mode.DAMP, Mode.FAULT}),
    Mode.STAND_UP: frozenset({Mode.ACTIVE, Mode.LIE_DOWN, Mode.DAMP, Mode.FAULT}),
    Mode.STAND: frozenset({Mode.ACTIVE, Mode.LIE_DOWN, Mode.DAMP, Mode.FAULT}),
    Mode.ACTIVE: frozenset({Mode.STAND, Mode.LIE_DOWN, Mode.DAMP, Mode.FAULT}),
    Mode.LIE_DOWN: frozenset({Mode.DAMP, Mode.FAULT}),
    Mode.FAULT: frozenset(),
}

#: What a mode turns into by itself when its work is done.
COMPLETIONS: dict[Mode, frozenset[Mode]] = {
    Mode.DAMP: frozenset(),
    Mode.STAND_UP: frozenset({Mode.STAND}),
    Mode.STAND: frozenset({Mode.ACTIVE}),
    Mode.ACTIVE: frozenset(),
    Mode.LIE_DOWN: frozenset({Mode.DAMP}),
    Mode.FAULT: frozenset(),
}

#: Reason of a mode that somebody asked for, and of the DAMP that ends LIE_DOWN.
REQUESTED = "requested"
LIES_DOWN = "lies down"

#: What to do first when a request is refused.
_WAY_OUT = {
    Mode.DAMP: "request STAND_UP first",
    Mode.STAND_UP: "wait until it stands, or request LIE_DOWN or DAMP",
    Mode.STAND: "request ACTIVE, LIE_DOWN or DAMP",
    Mode.ACTIVE: "request STAND, LIE_DOWN or DAMP",
    Mode.LIE_DOWN: "wait until it lies in DAMP, or request DAMP",
    Mode.FAULT: "remove the cause and re-arm",
}


@dataclass(frozen=True)
class ModeChange:
    """One transition, for the latched topic and the log."""

    stamp_ns: int
    previous: Mode
    mode: Mode
    reason: str


class ModeMachine:
    """Current mode, why it was entered, and whether motion is allowed (``armed``).

    ``wish`` is ACTIVE while an operator's request for it waits for a fresh chunk: a launch can ask
    for STAND_UP and ACTIVE at once, and the robot starts walking when the planner is ready.
    """

    def __init__(self, armed: bool = True) -> None:
        self.mode = Mode.DAMP
        self.reason = "start" if armed else "start: not armed yet"
        self.armed = armed
        self.wish: Mode | None = None
        self._changes: deque[ModeChange] = deque(maxlen=256)

    def request(self, mode: Mode, now_ns: int) -> tuple[bool, str]:
        """An operator's request: whether it was granted, and the reason in words."""
        if mode == self.mode and mode != Mode.FAULT:
            self.wish = None
            return True, f"already in {mode.name}"
        if mode not in REQUESTS[self.mode]:
            reason = f" ({self.reason})" if self.mode == Mode.FAULT else ""
            return False, (
                f"{mode.name} refused in {self.mode.name}{reason}: {_WAY_OUT[self.mode]}"
            )
        if mode == Mode.STAND_UP and not self.armed:
            return False, f"STAND_UP refused: disarmed ({self.reason}); re-arm first"
        if mode == Mode.ACTIVE:
            self.wish = Mode.ACTIVE
            return True, "ACTIVE as soon as the robot stands and a fresh chunk is there"
        if mode == Mode.FAULT:
            self.fault(REQUESTED, now_ns)
        else:
            self._enter(mode, REQUESTED, now_ns)
        return True, f"{mode.name} entered"

    def complete(self, mode: Mode, reason: str, now_ns: int) -> None:
        """The present mode has done its work; ``mode`` must be one of ``COMPLETIONS``."""
        if mode not in COMPLETIONS[self.mode]:
            raise ValueError(f"{self.mode.name} does not complete into {mode.name}")
        self._enter(mode, reason, now_ns)

    def withdraw_wish(self, reason: str, now_ns: int) -> None:
        """Drop the wish for ACTIVE; the mode stays, its reason says why."""
        self.wish = None
        self.reason = reason
        self._changes.append(ModeChange(now_ns, self.mode, self.mode, reason))

    def stop(self, reason: str, now_ns: int) -> None:
        """Protective stop: DAMP and disarmed. FAULT stays FAULT, with its first reason."""
        if self.mode == Mode.FAULT:
            return
        self.armed = False
        self._enter(Mode.DAMP, reason, now_ns)

    def fault(self, reason: str, now_ns: int) -> None:
        """Latch FAULT. The first reason stays: later ones are usually its consequences."""
        if self.mode == Mode.FAULT:
            return
        self.armed = False
        self._enter(Mode.FAULT, reason, now_ns)

    def rearm(self, now_ns: int) -> tuple[bool, str]:
        """Allow motion again: FAULT becomes DAMP. Refused while the robot moves by command."""
        if self.mode not in (Mode.DAMP, Mode.FAULT):
            return False, f"re-arm refused in {self.mode.name}: request DAMP first"
        was_armed, self.armed = self.armed, True
        if not was_armed:
            self._enter(Mode.DAMP, f"re-armed after: {self.reason}", now_ns)
        return True, "armed"

    def take_changes(self) -> list[ModeChange]:
        """Transitions since the last call, oldest first."""
        changes = list(self._changes)
        self._changes.clear()
        return changes

    def reset(self, armed: bool, now_ns: int) -> None:
        """Back to the start, as after a reset of the simulation."""
        self.wish = None
        self._enter(Mode.DAMP, "reset", now_ns)
        self.armed = armed

    def _enter(self, mode: Mode, reason: str, now_ns: int) -> None:
        self._changes.append(ModeChange(now_ns, self.mode, mode, reason))
        # A wish survives only on the way to its fulfilment.
        if mode != Mode.STAND or self.mode != Mode.STAND_UP:
            self.wish = None
        self.mode = mode
        self.reason = reason
