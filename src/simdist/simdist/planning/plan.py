"""What a planner answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from simdist.errors import SimdistError

Floats = NDArray[np.float32]
Numbers = ArrayLike | torch.Tensor


class PlanningError(SimdistError):
    """There is nothing to play: an input or the policy's own answer is not finite."""


@dataclass(frozen=True)
class Plan:
    """Plans of ``B`` robots; actions are in action units, row 0 is played first.

    ``reasons`` holds one text per robot: empty, or why the robot got the policy's actions instead
    of a plan.
    """

    actions: Floats  #: (B, T, A)
    prior: Floats  #: (B, T, A) the policy's actions, inside the limits
    predicted_return: Floats  #: (B,) return the samples promise, weighted as their actions are
    prior_return: Floats  #: (B,) return the model promises for the prior
    return_spread: Floats  #: (B,) standard deviation of return over the samples
    dropped: NDArray[np.int64]  #: (B,) samples without a finite return, over all iterations
    reasons: tuple[str, ...]

    @property
    def degraded(self) -> bool:
        """Whether any robot got the policy's actions instead of a plan."""
        return any(self.reasons)

    @property
    def deviation(self) -> Floats:
        """Mean distance ``(B,)`` of plan and prior, in action units."""
        return np.abs(self.actions - self.prior).mean(axis=(1, 2))


@dataclass(frozen=True)
class Foresight:
    """What the model expects of plans, and of the E best samples that they were made from."""

    plan: Floats  #: (B, T, D) latents after each action of the plan
    elites: Floats  #: (B, E, T, D) latents of the best samples, the best first
    elite_returns: Floats  #: (B, E); -inf where the model failed


class Controller(Protocol):
    """Anything that turns a latent state into the next actions of ``B`` robots."""

    def plan(
        self,
        context: Numbers,
        latent: Numbers,
        command: Numbers,
        *,
        elapsed: int = 1,
        committed: Numbers | None = None,
    ) -> Plan:
        """See :meth:`simdist.planning.MppiPlanner.plan`."""
        ...

    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Forget earlier plans, of all robots or of some."""
        ...
