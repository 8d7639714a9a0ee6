"""Acting without a world model: the policy prior alone, and smoothed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from simdist.planning.plan import Numbers, Plan, PlanningError
from simdist.planning.sequences import action_limits, float32, shift
from simdist.robots import RobotSpec

if TYPE_CHECKING:
    from simdist.world_model.network import WorldModel


class PriorController:
    """The policy head alone: what planning has to beat."""

    def __init__(self, model: WorldModel, robot: RobotSpec, action_clip: float = 6.0) -> None:
        self._model = model.eval()
        self._limits = action_limits(robot, action_clip)

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Nothing to forget."""

    def swap(self, model: WorldModel) -> None:
        """Act with other weights from now on."""
        self._model = model.eval()

    @torch.inference_mode()
    def plan(
        self,
        context: Numbers,
        latent: Numbers,
        command: Numbers,
        *,
        elapsed: int = 1,
        committed: Numbers | None = None,
    ) -> Plan:
        """The policy's actions, inside the limits; returns are not computed and read zero."""
        commands = float32(command)[:, None].expand(-1, self._model.config.horizon, -1)
        policy = self._model.policy(float32(context), commands)
        if not policy.isfinite().all():
            self.reset()
            raise PlanningError("cannot act: the policy prior is not finite")
        prior = policy.clamp(*self._limits)
        actions = self._choose(prior, elapsed)
        if committed is not None:
            first = float32(committed)
            actions[:, : first.shape[-2]] = first
        zeros = np.zeros(len(actions), np.float32)
        return Plan(
            actions=actions.numpy(),
            prior=prior.numpy(),
            predicted_return=zeros,
            prior_return=zeros,
            return_spread=zeros,
            dropped=zeros.astype(np.int64),
            reasons=("",) * len(actions),
        )

    def _choose(self, prior: Tensor, elapsed: int) -> Tensor:
        """What to play ``(B, T, A)``, given the present prior of that shape."""
        return prior.clone()


class SmoothedPriorController(PriorController):
    """The policy head, with overlapping answers averaged and no model asked.

    A control: it shows how much of what planning seems to gain is smoothing alone. ``keep`` is the
    weight of what was said before about the same time.
    """

    def __init__(
        self, model: WorldModel, robot: RobotSpec, action_clip: float = 6.0, keep: float = 0.5
    ) -> None:
        super().__init__(model, robot, action_clip)
        self._keep = keep
        self._last: Tensor | None = None

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Forget earlier answers, of all robots or of some."""
        if rows is None:
            self._last = None
        elif self._last is not None:
            # Not finite stands for "nothing was said".
            self._last = self._last.clone()
            self._last[list(rows)] = torch.nan

    def _choose(self, prior: Tensor, elapsed: int) -> Tensor:
        chosen = prior.clone()
        if self._last is not None and self._last.shape == prior.shape:
            known = prior.shape[1] - elapsed  # rows that were spoken of before
            if known > 0:
                earlier = shift(self._last, elapsed)[:, :known]
                mixed = self._keep * earlier + (1 - self._keep) * prior[:, :known]
                chosen[:, :known] = torch.where(mixed.isfinite(), mixed, prior[:, :known])
        self._last = chosen.clone()
        return chosen
