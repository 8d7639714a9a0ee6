"""What the planner tells of a plan when asked: right, and without disturbing planning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from simdist import robots
from simdist.planning import MppiPlanner, PlannerConfig, PlanningError
from simdist.planning.probe import random_inputs
from simdist.world_model import WorldModel, WorldModelConfig

GO1 = robots.get("go1")
NETWORK = WorldModelConfig(latent_dim=8, history=3, horizon=4, ff_factor=1, reactive_hidden=(8,))
SAMPLES = 16


def a_model(seed: int = 0) -> WorldModel:
    torch.manual_seed(seed)
    return WorldModel(NETWORK).eval()


def a_planner(model: WorldModel, **settings) -> MppiPlanner:
    return MppiPlanner(model, GO1, PlannerConfig(samples=SAMPLES, **settings), "torch")


@pytest.mark.parametrize("closed_loop", [False, True])
@pytest.mark.parametrize("robot_count", [1, 3])
@torch.inference_mode()
def test_latents_are_those_of_the_plan_and_of_the_samples_with_the_highest_return(
    robot_count: int, closed_loop: bool
) -> None:
    model = a_model()
    planner = a_planner(model, closed_loop=closed_loop)
    context, latent, command = random_inputs(model, robot_count, seed=1)
    plan = planner.plan(context, latent, command)
    foresight = planner.foresee(plan, elites=5)
    expected = model.dynamics(context, torch.from_numpy(plan.actions))
    np.testing.assert_allclose(foresight.plan, expected, atol=1e-5)
    assert foresight.elites.shape == (robot_count, 5, 4, 8)
    assert (np.diff(foresight.elite_returns, axis=1) <= 0).all(), "the best first"
    assert (foresight.elite_returns[:, 0] >= plan.prior_return - 1e-5).all()
    basis = planner._basis
    assert basis is not None
    for robot in range(robot_count):
        best = basis.returns[robot].argmax()
        latents = model.dynamics(context[robot : robot + 1], basis.actions[robot, best][None])
        np.testing.assert_allclose(foresight.elites[robot, 0], latents[0], atol=1e-5)


def test_asking_does_not_change_later_plans() -> None:
    model = a_model()
    inputs = random_inputs(model, 1, seed=1)
    asked, silent = a_planner(model), a_planner(model)
    for _ in range(3):
        plan = asked.plan(*inputs)
        asked.foresee(plan)
        np.testing.assert_array_equal(plan.actions, silent.plan(*inputs).actions)


def test_a_plan_is_foreseen_by_the_model_that_made_it() -> None:
    old, new = a_model(0), a_model(1)
    planner = a_planner(old)
    inputs = random_inputs(old, 1, seed=1)
    plan = planner.plan(*inputs)
    expected = planner.foresee(plan).plan
    planner.swap(new)
    np.testing.assert_array_equal(planner.foresee(plan).plan, expected)
    assert not np.allclose(planner.foresee(planner.plan(*inputs)).plan, expected)


def test_only_the_last_plan_can_be_foreseen() -> None:
    model = a_model()
    planner, inputs = a_planner(model), random_inputs(model, 1, seed=1)
    first = planner.plan(*inputs)
    planner.plan(*inputs)
    with pytest.raises(PlanningError, match="only the last plan"):
        planner.foresee(first)


def test_there_are_no_more_elites_than_samples() -> None:
    model = a_model()
    planner = a_planner(model)
    plan = planner.plan(*random_inputs(model, 1, seed=1))
    assert planner.foresee(plan, elites=100).elites.shape[1] == SAMPLES
