"""The recent past that the encoder sees."""

from __future__ import annotations

import numpy as np

from simdist.types import Array


class History:
    """The last ``length`` observations and applied actions, plus the present observation.

    Right after a reset the past is the first observation repeated and the actions are zero, which
    is how training windows at the start of an episode look to a robot that stands still.
    """

    def __init__(self, length: int, proprioception_size: int, action_size: int) -> None:
        self._proprioception = np.zeros((length + 1, proprioception_size), np.float32)
        self._actions = np.zeros((length, action_size), np.float32)
        self._empty = True

    def reset(self) -> None:
        """Forget the past."""
        self._empty = True

    def push(self, proprioception: Array, previous_action: Array | None) -> None:
        """Append the present observation and the action applied since the one before it."""
        if self._empty or previous_action is None:
            self._proprioception[:] = proprioception
            self._actions[:] = 0.0
            self._empty = False
            return
        self._proprioception[:-1] = self._proprioception[1:]
        self._proprioception[-1] = proprioception
        self._actions[:-1] = self._actions[1:]
        self._actions[-1] = previous_action

    def arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Copies of proprioception ``(H + 1, P)`` and actions ``(H, A)``, oldest first."""
        return self._proprioception.copy(), self._actions.copy()
