"""What to do with a velocity command whose sender fell silent."""

from __future__ import annotations

import numpy as np

from simdist.types import Array


class CommandWatch:
    """The newest command while it is fresh; after ``timeout`` seconds of silence it fades to zero
    within ``ramp`` seconds. A command that is not finite counts as silence."""

    def __init__(self, size: int = 3, timeout: float = 0.5, ramp: float = 0.5) -> None:
        self._zero = np.zeros(size)
        self._timeout, self._ramp = timeout, ramp
        self._command: Array = self._zero
        self._since: float | None = None
        self.refused = 0

    def receive(self, command: Array, now: float) -> bool:
        """Take in a command at steady time ``now``; false when it is not finite."""
        command = np.asarray(command, np.float64)
        if command.shape != self._zero.shape or not np.isfinite(command).all():
            self.refused += 1
            return False
        self._command, self._since = command, now
        return True

    def silent(self, now: float) -> bool:
        """Whether a command was given and its sender has been silent for too long."""
        return self._since is not None and now - self._since > self._timeout

    def command(self, now: float) -> Array:
        """The command to follow at steady time ``now``."""
        if self._since is None:
            return self._zero
        overdue = now - self._since - self._timeout
        if overdue <= 0:
            return self._command
        return self._command * max(0.0, 1.0 - overdue / self._ramp)
