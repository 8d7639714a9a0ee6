"""Keeping simulated time in step with the wall clock."""

from __future__ import annotations


class Pacer:
    """Says when a moment of simulated time is due on the steady clock.

    A simulation that fell behind by more than ``slip_after`` does not race to catch up: a robot
    cannot either, and a burst of control steps would starve those who answer them. Its time slips
    instead, and the slip is counted.
    """

    def __init__(self, slip_after: float = 0.05, late_after: float = 0.01) -> None:
        self._slip_after, self._late_after = slip_after, late_after
        self._origin: float | None = None  # steady time at which simulated time was 0
        self.slipped = 0.0  #: s by which simulated time fell behind for good
        self.slips = 0

    def restart(self) -> None:
        """The next moment is due when it is asked for, as after a pause."""
        self._origin = None

    def remaining(self, simulated: float, steady: float) -> float:
        """Seconds until the moment ``simulated`` (s) is due; negative by how late it is."""
        if self._origin is None:
            self._origin = steady - simulated
        remaining = self._origin + simulated - steady
        if remaining < -self._slip_after:
            self._origin -= remaining
            self.slipped -= remaining
            self.slips += 1
        return remaining

    def is_late(self, remaining: float) -> bool:
        """Whether a control step begun at ``remaining`` missed its deadline."""
        return remaining < -self._late_after
