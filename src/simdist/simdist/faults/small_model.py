"""A world model of the real kind, small enough to plan with in a moment."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from simdist import robots
from simdist.planning import MppiPlanner, PlannerConfig
from simdist.planning.backends import BackendFactory
from simdist.planning.backends.made_up import random_inputs
from simdist.planning.loop import PlanningLoop
from simdist.world_model import WorldModel, WorldModelConfig

ROBOT = robots.get("go1")
CONTRACT = "c"
SIZES = WorldModelConfig(
    latent_dim=16,
    history=3,
    horizon=5,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    scan_shape=(5, 4),
    reactive_hidden=(16,),
)


@functools.cache
def small_model(seed: int = 0) -> WorldModel:
    """Random weights; shared, so not to be changed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return WorldModel(SIZES).eval()


def planner_of(
    model: WorldModel | None = None,
    backend: str | BackendFactory = "torch",
    **settings: Any,
) -> MppiPlanner:
    """A planner with few samples; ``settings`` are those of PlannerConfig."""
    config = PlannerConfig(**{"samples": 64, **settings})
    return MppiPlanner(model or small_model(), ROBOT, config, backend)


def random_inputs_of(seed: int, model: WorldModel | None = None) -> tuple[torch.Tensor, ...]:
    """Context, latent and command of one observation."""
    return random_inputs(model or small_model(), 1, seed)


def random_observation(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Context and latent of one observation, as they come over the wire."""
    context, latent, _ = random_inputs_of(seed)
    return context[0].numpy(), latent[0].numpy()


def planning_loop(seed: int) -> PlanningLoop:
    """What the planner's node plans with."""
    return PlanningLoop(planner_of(seed=seed), ROBOT, contract=CONTRACT, first_sequence=2 * 10**6)
