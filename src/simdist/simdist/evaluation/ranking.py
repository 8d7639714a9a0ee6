"""How well a world model tells apart what would come of different actions from one state.

A planner lives on the differences between its samples: an error that all of them share does not
change which is best, and a small error that they do not share can. What the simulator says of the
same actions is the truth here, and heads that are given the true future latents tell what perfect
dynamics would be worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from scipy.stats import rankdata

from simdist.errors import SimulationError
from simdist.observation import Observation
from simdist.planning.backends import choose
from simdist.planning.backends.torch_backend import score
from simdist.types import Array, Flags
from simdist.world_model import WorldModel
from simdist.world_model.state_encoder import StateEncoder


@dataclass(frozen=True)
class Futures:
    """N continuations of one state over T steps in the simulator; the first one follows the bare
    expert."""

    observation: Observation  #: of the state that they begin in
    actions: Array  #: (N, T, A)
    returns: Array  #: (N,)
    proprioception: np.ndarray  #: (N, T, P) after each step
    scan: np.ndarray  #: (N, T, S) after each step
    standing: Flags  #: (N, T) not fallen up to the end of each step

    @property
    def differ(self) -> bool:
        """Whether there is an order to find."""
        return bool(np.ptp(self.returns) > 0)


@dataclass(frozen=True)
class LatentErrors:
    """Sums by step ahead ``(T,)`` over the samples that still stand, per element of the latent.

    The squared error of predictions is that of their mean over all samples of a state, which no
    ranking notices, plus that of the differences from this mean; ``variance`` is what there is to
    know of the differences.
    """

    samples: Array
    error: Array
    difference_error: Array
    variance: Array

    @staticmethod
    def of(predicted: Array, true: Array, standing: Flags) -> LatentErrors:
        """From latents ``(N, T, D)`` of one state's samples, ``standing (N, T)``."""
        weight = standing[..., None].astype(float)
        count = weight.sum(0)

        def differences(latents: Array) -> Array:
            return latents - (weight * latents).sum(0) / np.maximum(count, 1.0)

        def total(values: Array) -> Array:
            return (weight * np.square(values)).sum(0).mean(-1)

        return LatentErrors(
            samples=count[:, 0],
            error=total(predicted - true),
            difference_error=total(differences(predicted) - differences(true)),
            variance=total(differences(true)),
        )

    @staticmethod
    def sum(errors: Sequence[LatentErrors]) -> LatentErrors:
        """Of several states."""
        return LatentErrors(
            *(
                np.sum([getattr(error, name) for error in errors], axis=0)
                for name in ("samples", "error", "difference_error", "variance")
            )
        )

    @property
    def explained(self) -> Array:
        """Share ``(T,)`` of the variance of differences that is predicted: 1 is all, 0 is no better
        than predicting none, below 0 is worse than that; NaN where samples do not differ."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.variance > 0, 1.0 - self.difference_error / self.variance, np.nan)


@dataclass(frozen=True)
class Judgement:
    """What a model makes of the futures of one state."""

    predicted: Array  #: (N,) returns along predicted latents
    with_true_latents: Array  #: (N,) returns that the heads read out of the true latents
    latents: LatentErrors


@torch.inference_mode()
def judge(model: WorldModel, futures: Futures, discount: float) -> Judgement:
    """Predict ``futures`` with ``model``; raises SimulationError if its returns are not finite."""
    seen = futures.observation
    context, latent = (torch.from_numpy(part)[None] for part in StateEncoder(model).encode(seen))
    command = torch.from_numpy(seen.command.astype(np.float32))[None]
    actions, proprioception, scan = (
        torch.from_numpy(array.astype(np.float32))
        for array in (futures.actions, futures.proprioception, futures.scan)
    )
    problem = choose("torch")(model, discount).prepare(context, latent, command)
    predicted = problem.returns(actions[None])[0]
    latents = model.dynamics(model.prepare_context(context), actions)
    true = model.latent(proprioception, scan)
    horizon = actions.shape[1]
    discounts = discount ** torch.arange(horizon + 1, dtype=torch.float32)
    commands = command[:, None].expand(-1, horizon, -1)
    read = score(model, discounts, latent, true, actions, commands)
    if not (torch.isfinite(predicted).all() and torch.isfinite(read).all()):
        raise SimulationError(
            f"the model's returns at {seen.stamp_ns * 1e-9:.2f} s are not finite; its weights are, "
            "so what it was given lies far outside what it was trained on"
        )
    return Judgement(
        predicted=predicted.double().numpy(),
        with_true_latents=read.double().numpy(),
        latents=LatentErrors.of(latents.double().numpy(), true.double().numpy(), futures.standing),
    )


def rank_correlation(predicted: Array, true: Array) -> float:
    """Spearman's rank correlation of values ``(N,)``; 0 where either tells no differences."""
    if np.ptp(predicted) == 0 or np.ptp(true) == 0:
        return 0.0
    return float(np.corrcoef(rankdata(predicted), rankdata(true))[0, 1])


def gain_of_best(scores: Array, returns: Array, count: int) -> float:
    """What the mean ``returns (N,)`` of the ``count`` samples with the best ``scores (N,)`` is
    above the return of the first sample, the bare expert's."""
    chosen = np.argsort(-scores, kind="stable")[:count]
    return float(returns[chosen].mean() - returns[0])
