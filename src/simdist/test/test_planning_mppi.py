"""The planner on models whose best plan is known, and on models that fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist import robots
from simdist.errors import ConfigError
from simdist.planning import (
    MppiPlanner,
    PlannerConfig,
    PlanningError,
    PriorController,
    SmoothedPriorController,
    action_limits,
    self_test,
)
from simdist.planning.backends import choose
from simdist.planning.mppi import _colouring, _weights
from simdist.planning.probe import random_inputs
from simdist.planning.sequences import shift
from simdist.world_model import WorldModel, WorldModelConfig

HORIZON, WIDTH = 5, 12
GO1 = robots.get("go1")


class FakeModel:
    """Stands for weights: returns are ``level - 10 mean((action - best)^2)``."""

    reactive = None

    def __init__(self, best: float = 0.5, level: float = 0.0, broken: float = 0.0) -> None:
        self.best, self.level, self.broken = best, level, broken
        self.prior = torch.zeros(HORIZON, WIDTH)


class FakeBackend:
    """Scores with a :class:`FakeModel`; a share ``broken`` of the returns is NaN."""

    horizon = HORIZON

    def __init__(self, model: FakeModel, discount: float) -> None:
        self.model = model
        self.scored: list[torch.Tensor] = []

    def prepare(self, context: torch.Tensor, latent: torch.Tensor, command: torch.Tensor):
        self.robots = context.shape[0]
        return self

    def prior(self) -> torch.Tensor:
        return self.model.prior.expand(self.robots, -1, -1).clone()

    def returns(self, actions: torch.Tensor) -> torch.Tensor:
        self.scored.append(actions.clone())
        model = self.model
        returns = model.level - 10.0 * (actions - model.best).square().mean((2, 3))
        returns[:, : round(model.broken * actions.shape[1])] = torch.nan
        return returns


def planner_of(model: FakeModel | None = None, **settings: object) -> MppiPlanner:
    # Few samples, two iterations and a sharp choice: what the tests look at, whatever the defaults.
    plain = {"samples": 128, "iterations": 2, "temperature": 0.03, "anchor": 0.7}
    config = PlannerConfig(**{**plain, **settings})  # type: ignore[arg-type]
    return MppiPlanner(model or FakeModel(), GO1, config, backend=FakeBackend)  # type: ignore


def inputs(batch: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.zeros((batch, 3, 4)), np.zeros((batch, 4)), np.zeros((batch, 3))


def rewards_of(planner: MppiPlanner) -> list[torch.Tensor]:
    return planner._backend.scored  # type: ignore[attr-defined]


# --- warm start ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        (0, [1, 2, 3, 4, 5]),
        (1, [2, 3, 4, 5, 5]),
        (2, [3, 4, 5, 5, 5]),
        (4, [5, 5, 5, 5, 5]),
        (5, [0, 0, 0, 0, 0]),
        (99, [0, 0, 0, 0, 0]),
    ],
)
def test_shift_moves_the_plan_towards_the_present(steps: int, expected: list[int]) -> None:
    sequence = torch.tensor([1.0, 2, 3, 4, 5])[:, None]
    assert shift(sequence, steps)[:, 0].tolist() == expected


def test_shift_refuses_time_running_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        shift(torch.zeros(5, 1), -1)


def test_mean_is_fresh_prior_plus_anchored_deviation_of_the_last_plan() -> None:
    planner = planner_of(anchor=0.7)
    first = planner.plan(*inputs())
    deviation = torch.from_numpy(first.actions - first.prior)
    model = FakeModel()
    model.prior = torch.full((HORIZON, WIDTH), -0.3)
    planner.swap(model)  # type: ignore[arg-type]
    planner.plan(*inputs(), elapsed=2)
    mean = rewards_of(planner)[0][0, 0]  # sample 0 of the first iteration
    torch.testing.assert_close(mean, -0.3 + 0.7 * shift(deviation, 2)[0])


def test_reset_starts_again_at_the_prior_for_the_named_rows_only() -> None:
    planner = planner_of()
    planner.plan(*inputs(2))
    planner.reset([1])
    planner.plan(*inputs(2))
    means = rewards_of(planner)[-2][:, 0]  # first iteration of the second plan
    assert means[0].abs().max() > 0.01
    assert means[1].abs().max() == 0.0
    planner.reset()
    planner.plan(*inputs(2))
    assert rewards_of(planner)[-2][:, 0].abs().max() == 0.0


# --- samples ------------------------------------------------------------------------------------


def test_prior_samples_are_scored_once_and_hold_the_prior_itself() -> None:
    planner = planner_of(samples=64, iterations=3, prior_fraction=0.25)
    planner.plan(*inputs())
    assert [len(batch[0]) for batch in rewards_of(planner)] == [64, 48, 48]
    assert rewards_of(planner)[0][0, -1].abs().max() == 0.0


def test_noise_has_unit_variance_and_the_asked_correlation() -> None:
    colour = _colouring(15, 0.8)
    covariance = colour @ colour.T
    lag = (torch.arange(15)[:, None] - torch.arange(15)[None]).abs()
    torch.testing.assert_close(covariance, 0.8 ** lag.float(), rtol=0, atol=1e-5)
    torch.testing.assert_close(_colouring(4, 0.0), torch.eye(4))


@settings(max_examples=20, deadline=None)
@given(
    prior=st.floats(-20, 20),
    std=st.floats(0.01, 2.0),
    seed=st.integers(0, 99),
    rows=st.integers(0, HORIZON - 1),
)
def test_every_sample_and_plan_stays_inside_the_limits_and_begins_with_committed_actions(
    prior: float, std: float, seed: int, rows: int
) -> None:
    model = FakeModel(best=50.0)
    model.prior = torch.full((HORIZON, WIDTH), prior)
    planner = planner_of(model, std=std, std_max=2.0, seed=seed, samples=32)
    lower, upper = action_limits(GO1, planner.config.action_clip)
    committed = np.linspace(0.1, 0.2, rows * WIDTH, dtype=np.float32).reshape(rows, WIDTH)
    plan = planner.plan(*inputs(), committed=committed)
    for actions in [*rewards_of(planner), torch.from_numpy(plan.actions)]:
        assert (actions >= lower).all()
        assert (actions <= upper).all()
        sequences = actions.reshape(-1, HORIZON, WIDTH)[:, :rows]
        np.testing.assert_allclose(sequences, np.broadcast_to(committed, sequences.shape), 1e-5)


def test_action_limits_are_the_joint_limits_in_action_units() -> None:
    lower, upper = action_limits(GO1, 100.0)
    np.testing.assert_allclose(GO1.target(lower.double().numpy()), GO1.position_lower, atol=1e-5)
    np.testing.assert_allclose(GO1.target(upper.double().numpy()), GO1.position_upper, atol=1e-5)
    assert (upper > lower).all()


@pytest.mark.parametrize("shape", [(HORIZON, WIDTH), (1, WIDTH - 1), (2, 1, WIDTH)])
def test_committed_actions_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(PlanningError, match="committed actions"):
        planner_of().plan(*inputs(), committed=np.zeros(shape))


# --- what comes out -----------------------------------------------------------------------------


def test_plan_approaches_the_optimum_of_a_quadratic_return() -> None:
    planner = planner_of(FakeModel(best=0.5), anchor=1.0, temperature=0.03)
    plans = [planner.plan(*inputs(), elapsed=0) for _ in range(40)]
    distances = [float(np.abs(plan.actions - 0.5).mean()) for plan in plans]
    assert distances[0] < 0.47  # one plan already moves away from the prior, 0.5 from the best
    assert distances[-1] < 0.1
    plan = plans[-1]
    assert plan.predicted_return[0] > plan.prior_return[0] + 2.0


def test_plan_stays_at_the_prior_where_returns_hardly_differ() -> None:
    model = FakeModel(best=0.0)
    flat = planner_of(model, temperature=100.0, samples=1024)
    assert flat.plan(*inputs()).deviation[0] < 0.02


@pytest.mark.parametrize("elites", [0, 8])
def test_weights_do_not_depend_on_the_order_of_samples(elites: int) -> None:
    returns = torch.randn(2, 32, generator=torch.Generator().manual_seed(1))
    order = torch.randperm(32, generator=torch.Generator().manual_seed(2))
    weights = _weights(returns, 0.3, elites)
    torch.testing.assert_close(weights[:, order], _weights(returns[:, order], 0.3, elites))
    torch.testing.assert_close(weights.sum(1), torch.ones(2))
    assert int((weights > 0).sum(1).max()) <= (elites or 32)


def test_same_seed_same_plan_and_another_seed_another_plan() -> None:
    plans = [planner_of(seed=seed).plan(*inputs()).actions for seed in (3, 3, 4)]
    np.testing.assert_array_equal(plans[0], plans[1])
    assert np.abs(plans[0] - plans[2]).max() > 1e-3


def test_a_robot_gets_the_same_plan_alone_and_in_company() -> None:
    alone, together = planner_of(), planner_of()
    one, many = alone.plan(*inputs(1)), together.plan(*inputs(4))
    for _ in range(2):
        one, many = alone.plan(*inputs(1)), together.plan(*inputs(4))
        np.testing.assert_allclose(one.actions[0], many.actions[0], atol=1e-6)
    assert np.abs(many.actions[0] - many.actions[1]).max() > 1e-3


# --- failures -----------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.01, 0.5])
def test_samples_without_a_finite_return_are_dropped(share: float) -> None:
    planner = planner_of(FakeModel(broken=share), samples=128)
    plan = planner.plan(*inputs())
    assert np.isfinite(plan.actions).all()
    assert np.isfinite(plan.predicted_return).all()
    assert not plan.degraded
    assert plan.dropped[0] == round(share * 32) + 2 * round(share * 96)
    assert plan.deviation[0] > 0.02


def test_with_no_finite_return_the_prior_is_played_and_the_plan_says_so() -> None:
    model = FakeModel(broken=1.0)
    model.prior = torch.full((HORIZON, WIDTH), 0.4)
    planner = planner_of(model)
    plan = planner.plan(*inputs())
    np.testing.assert_array_equal(plan.actions, plan.prior)
    assert plan.degraded
    assert "finite return" in plan.reasons[0]
    planner.swap(FakeModel())  # type: ignore[arg-type]
    assert not planner.plan(*inputs()).degraded


@pytest.mark.parametrize("bad", [0, 1, 2])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_inputs_are_refused_by_name_and_the_warm_start_is_forgotten(
    bad: int, value: float
) -> None:
    planner = planner_of()
    planner.plan(*inputs())
    arrays = inputs()
    arrays[bad].flat[0] = value
    with pytest.raises(PlanningError, match=["context", "latent", "command"][bad]):
        planner.plan(*arrays)
    planner.plan(*inputs())
    assert rewards_of(planner)[-2][:, 0].abs().max() == 0.0


def test_a_policy_that_is_not_finite_is_refused() -> None:
    model = FakeModel()
    model.prior[0, 0] = torch.nan
    with pytest.raises(PlanningError, match="policy prior"):
        planner_of(model).plan(*inputs())


def test_swap_during_a_plan_never_mixes_weights_and_keeps_the_warm_start() -> None:
    """The model is swapped while a plan is being scored; all scores of that plan must come from
    the old weights (level 1) and all of the next from the new ones (level 2)."""
    seen: list[float] = []

    class Swapping(FakeBackend):
        def returns(self, actions: torch.Tensor) -> torch.Tensor:
            if self.model.level == 1.0:
                planner.swap(FakeModel(level=2.0))  # type: ignore[arg-type]
            seen.append(self.model.level)
            return super().returns(actions)

    config = PlannerConfig(samples=128, iterations=2, temperature=0.03)
    planner = MppiPlanner(
        FakeModel(level=1.0),  # type: ignore[arg-type]
        GO1,
        config,
        backend=Swapping,  # type: ignore[arg-type]
    )
    deviation = planner.plan(*inputs()).deviation[0]
    assert seen == [1.0, 1.0]
    planner.plan(*inputs())
    assert seen[2:] == [2.0, 2.0]
    assert deviation > 0.02
    assert planner._backend.scored[0][0, 0].abs().max() > 0.01  # type: ignore[attr-defined]


# --- the real model -----------------------------------------------------------------------------


SMALL = WorldModelConfig(
    latent_dim=16,
    history=3,
    horizon=4,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    scan_shape=(5, 4),
)


def small_model(seed: int = 0) -> WorldModel:
    torch.manual_seed(seed)
    return WorldModel(SMALL)


def model_inputs(batch: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(5)
    return (
        torch.randn(batch, SMALL.context_length, SMALL.latent_dim, generator=draw),
        torch.randn(batch, SMALL.latent_dim, generator=draw),
        torch.randn(batch, 3, generator=draw),
    )


def test_torch_returns_equal_the_written_out_sum() -> None:
    model = small_model().eval()
    context, latent, command = model_inputs(2)
    actions = torch.randn(2, 3, 4, 12)
    returns = choose("torch")(model, 0.9).prepare(context, latent, command).returns(actions)
    with torch.inference_mode():
        for robot in range(2):
            for sample in range(3):
                sequence = actions[robot, sample][None]
                commands = command[robot][None, None].expand(1, 4, 3)
                latents = model.dynamics(context[robot][None], sequence)
                rewards = model.reward(latent[robot][None], latents, sequence, commands)[0]
                value = model.value(latents, commands)[0, -1]
                expected = sum(0.9**t * rewards[t] for t in range(4)) + 0.9**4 * value
                torch.testing.assert_close(returns[robot, sample], expected, rtol=1e-5, atol=1e-5)


def test_batched_plans_of_the_real_model_equal_single_ones() -> None:
    model, arrays = small_model(), model_inputs(3)
    many = MppiPlanner(model, GO1).plan(*arrays)
    for row in range(3):
        config = PlannerConfig(seed=row)
        one = MppiPlanner(model, GO1, config).plan(*(array[row : row + 1] for array in arrays))
        np.testing.assert_allclose(many.actions[row], one.actions[0], atol=2e-4)


def test_prior_controller_plays_the_policy_inside_the_limits() -> None:
    model, arrays = small_model(), model_inputs(2)
    plan = PriorController(model, GO1).plan(*arrays)
    np.testing.assert_array_equal(plan.actions, MppiPlanner(model, GO1).plan(*arrays).prior)


def test_self_test_passes_a_sound_model_and_names_what_is_wrong_with_a_broken_one() -> None:
    model = small_model()
    assert self_test(model, GO1) is None
    with torch.no_grad():
        next(iter(model.dynamics.parameters()))[0] = torch.nan
    assert "finite return" in (self_test(model, GO1) or "")


def test_swap_refuses_a_model_of_another_horizon() -> None:
    planner = MppiPlanner(small_model(), GO1)
    with pytest.raises(PlanningError, match="horizon 6"):
        planner.swap(WorldModel(replace(SMALL, horizon=6)))


# --- configuration ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("samples", 1),
        ("samples", 64.0),
        ("samples", True),
        ("temperature", 0.0),
        ("temperature", float("nan")),
        ("discount", 1.1),
        ("std", "0.2"),
        ("anchor", -0.1),
    ],
)
def test_settings_out_of_range_are_refused_with_name_value_and_range(
    name: str, value: object
) -> None:
    with pytest.raises(ConfigError) as caught:
        PlannerConfig.from_mapping({name: value}, "planner.yaml")
    message = str(caught.value)
    assert "planner.yaml" in message
    assert name in message
    assert repr(value) in message
    assert "from" in message
    assert "to" in message


def test_unknown_settings_and_contradictions_are_refused() -> None:
    with pytest.raises(ConfigError, match="temprature"):
        PlannerConfig.from_mapping({"temprature": 1.0})
    with pytest.raises(ConfigError, match="std_max"):
        PlannerConfig(std_min=0.5, std_max=0.3)
    with pytest.raises(ConfigError, match="samples"):
        PlannerConfig(samples=16, elites=17)
    assert PlannerConfig.from_mapping(None) == PlannerConfig()
    assert PlannerConfig.from_mapping({"temperature": 1}).temperature == 1
    with pytest.raises(ConfigError, match="backend"):
        MppiPlanner(FakeModel(), GO1, backend="cuda")  # type: ignore[arg-type]


# --- closed loop --------------------------------------------------------------------------------


def reacting_model(reactive: tuple[int, ...] = (16,)) -> WorldModel:
    torch.manual_seed(1)
    config = WorldModelConfig(
        latent_dim=8, history=2, horizon=HORIZON, ff_factor=1, reactive_hidden=reactive
    )
    return WorldModel(config).eval()


def observed(model: WorldModel, batch: int = 2) -> tuple[torch.Tensor, ...]:
    return random_inputs(model, batch, 0)


@torch.inference_mode()
def test_following_the_policy_and_scoring_its_actions_agree() -> None:
    model = reacting_model()
    context, latent, command = observed(model)
    problem = choose("torch")(model, 0.9).prepare(context, latent, command)
    deviations, first = 0.3 * torch.randn(2, 6, HORIZON, WIDTH), torch.randn(2, 6, 1, WIDTH)
    limits = -2 * torch.ones(WIDTH), 2 * torch.ones(WIDTH)
    actions, returns = problem.follow(deviations, first, limits)
    torch.testing.assert_close(actions[:, :, :1], first)
    torch.testing.assert_close(returns, problem.returns(actions), atol=1e-5, rtol=1e-5)
    assert actions[:, :, 1:].abs().max() <= 2.0


@torch.inference_mode()
def test_the_policy_answers_what_the_model_predicts_at_every_step() -> None:
    model = reacting_model()
    context, latent, command = observed(model, 1)
    problem = choose("torch")(model, 0.9).prepare(context, latent, command)
    wide = -99 * torch.ones(WIDTH), 99 * torch.ones(WIDTH)
    first = torch.randn(1, 1, 1, WIDTH)
    deviations = torch.randn(1, 1, HORIZON, WIDTH)
    actions, _ = problem.follow(deviations, first, wide)
    latents = model.dynamics(context, actions[0])
    assert model.reactive is not None
    for t in range(1, HORIZON):
        answer = model.reactive(latents[:, t - 1], actions[0, :, t - 1], command)
        torch.testing.assert_close(
            actions[0, :, t] - deviations[0, :, t], answer, atol=1e-4, rtol=0
        )


def test_a_closed_loop_plan_begins_with_what_is_committed_and_keeps_the_limits() -> None:
    model = reacting_model()
    config = PlannerConfig(samples=16, iterations=2, closed_loop=True, action_clip=0.5)
    planner = MppiPlanner(model, GO1, config)
    committed = 0.1 * np.ones((2, WIDTH))
    plan = planner.plan(*observed(model), committed=committed)
    np.testing.assert_allclose(plan.actions[:, :2], 0.1, atol=1e-6)
    lower, upper = action_limits(GO1, 0.5)
    assert (plan.actions >= lower.numpy() - 1e-6).all()
    assert (plan.actions <= upper.numpy() + 1e-6).all()
    assert np.isfinite(plan.predicted_return).all()


def test_closed_loop_plans_do_not_depend_on_how_many_robots_are_planned_for() -> None:
    model = reacting_model()
    config = PlannerConfig(samples=16, iterations=2, closed_loop=True)
    both = MppiPlanner(model, GO1, config).plan(*observed(model))
    alone = MppiPlanner(model, GO1, config).plan(*(x[:1] for x in observed(model)))
    np.testing.assert_allclose(both.actions[:1], alone.actions, atol=1e-4)


def test_a_model_without_a_reactive_policy_is_planned_with_around_its_prior() -> None:
    model = reacting_model(())
    plans = [
        MppiPlanner(model, GO1, PlannerConfig(samples=8, closed_loop=closed)).plan(*observed(model))
        for closed in (True, False)
    ]
    np.testing.assert_array_equal(plans[0].actions, plans[1].actions)


def test_closed_loop_is_true_or_false_and_nothing_else() -> None:
    with pytest.raises(ConfigError, match="closed_loop = 1: must be true or false"):
        PlannerConfig(closed_loop=1)  # type: ignore[arg-type]


# --- the prior, smoothed ------------------------------------------------------------------------


def test_smoothing_mixes_what_was_said_before_about_the_same_time() -> None:
    model = reacting_model()
    controller = SmoothedPriorController(model, GO1, keep=0.25)
    first, second = observed(model), random_inputs(model, 2, 1)
    before = controller.plan(*first).actions
    plan = controller.plan(*second, elapsed=2)
    expected = 0.25 * before[:, 2:] + 0.75 * plan.prior[:, :-2]
    np.testing.assert_allclose(plan.actions[:, :-2], expected, atol=1e-6)
    np.testing.assert_allclose(plan.actions[:, -2:], plan.prior[:, -2:], atol=1e-6)


def test_a_robot_that_was_reset_is_not_smoothed_with_its_past() -> None:
    model = reacting_model()
    controller = SmoothedPriorController(model, GO1)
    controller.plan(*observed(model))
    controller.reset([1])
    plan = controller.plan(*random_inputs(model, 2, 1))
    np.testing.assert_allclose(plan.actions[1], plan.prior[1], atol=1e-6)
    assert np.abs(plan.actions[0] - plan.prior[0]).max() > 1e-3
