"""A world model's policy head driving many simulated robots at once."""

from __future__ import annotations

import numpy as np
import torch

from simdist.types import Array, Rows
from simdist.world_model import WorldModel


class BatchPrior:
    """Keeps the histories of ``count`` robots and answers with the first action of the prior."""

    def __init__(self, model: WorldModel, count: int) -> None:
        self._model, sizes = model.eval(), model.config
        self._proprio = torch.zeros(count, sizes.history + 1, sizes.proprio_dim)
        self._action = torch.zeros(count, sizes.history, sizes.action_dim)
        self._scan = torch.zeros(count, sizes.scan_dim)
        self._command = torch.zeros(count, sizes.command_dim)
        self._fresh = np.ones(count, bool)

    def observe(self, proprio: Array, scan: Array, command: Array) -> None:
        """Present observations ``(N, P)``, scans ``(N, S)`` and commands ``(N, C)``."""
        now = torch.from_numpy(proprio.astype(np.float32))
        self._proprio = torch.cat([self._proprio[:, 1:], now[:, None]], 1)
        # As in training, the past of a new episode is its first observation repeated.
        rows = torch.from_numpy(np.flatnonzero(self._fresh))
        self._proprio[rows] = now[rows, None]
        self._fresh[:] = False
        self._scan = torch.from_numpy(scan.astype(np.float32))
        self._command = torch.from_numpy(command.astype(np.float32))

    @torch.inference_mode()
    def act(self, rows: Rows) -> Array:
        """Actions ``(len(rows), A)`` of the robots ``rows``."""
        context, _ = self._model.encode(self._proprio[rows], self._scan[rows], self._action[rows])
        # The decoder is causal: the first action needs no later commands.
        return self._model.policy(context, self._command[rows, None])[:, 0].numpy()

    def applied(self, action: Array) -> None:
        """The actions ``(N, A)`` that were played after the last observation."""
        now = torch.from_numpy(action.astype(np.float32))
        self._action = torch.cat([self._action[:, 1:], now[:, None]], 1)

    def reset(self, rows: Rows) -> None:
        """New episodes begin for ``rows``."""
        self._action[rows] = 0.0
        self._fresh[rows] = True
