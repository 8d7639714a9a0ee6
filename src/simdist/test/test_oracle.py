"""Planning with MuJoCo itself: what it imagines, and what it makes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist import paths, robots
from simdist.distillation.policy import ExpertPolicy
from simdist.evaluation.drivers import ExpertDriver, PrivilegedDriver
from simdist.evaluation.oracle import OracleConfig, OracleDriver, OraclePlanner, knot_basis
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation.spec import legged_observation
from simdist.simulation.world import RealityGaps, load_world, parse_world

ROBOT = robots.get("go1")
LAYOUT = legged_observation(ROBOT.joint_count)
FLAT = parse_world("flat", {"course": [{"length": 30.0}]})
SLIPPERY = parse_world("slippery", {"course": [{"length": 30.0, "slope": 8.0, "friction": 0.2}]})
TINY = OracleConfig(samples=8, elites=3, horizon=5)


@pytest.fixture(scope="module")
def policy() -> ExpertPolicy:
    return ExpertPolicy.load(paths.models_dir() / "go1" / "expert.safetensors")


class Watched(ExpertDriver):
    """The expert, calling ``look(simulation, observation)`` once, at step ``at``."""

    def __init__(self, policy, at, look) -> None:
        super().__init__(policy, ROBOT, "")
        self._left, self._look = at, look

    def begin(self, simulation) -> None:
        self._simulation = simulation

    def act(self, observation):
        if self._left == 0:
            self._look(self._simulation, observation)
        self._left -= 1
        return super().act(observation)


def walk(policy, world, at: int, look, seconds: float = 1.4) -> Trial:
    trial = Trial(ROBOT, world, LAYOUT, TrialConfig(0.5, seed=3, seconds=seconds))
    trial.run(Watched(policy, at, look))
    return trial


@pytest.mark.parametrize(
    "world",
    [
        FLAT,
        load_world("slope"),
        SLIPPERY,
        replace(FLAT, gaps=RealityGaps(action_delay=0.03)),
        replace(FLAT, gaps=RealityGaps(trunk_mass=3.0, trunk_offset=(-0.1, 0.05, 0.0))),
        replace(FLAT, gaps=RealityGaps(motor_strength={"RR_calf_joint": 0.6})),
    ],
    ids=["flat", "slope", "slippery", "delay", "load", "weak motor"],
)
def test_what_is_imagined_of_the_bare_expert_then_happens(policy, world):
    imagined = {}

    def look(simulation, observation) -> None:
        planner = OraclePlanner(policy, ROBOT, world, LAYOUT, TINY, seed=0)
        planner.imagine(simulation, observation, np.zeros((TINY.samples, 5, 12)))
        imagined["position"] = planner.imagination.position[0].copy()
        imagined["joints"] = planner.imagination.joint_position[0].copy()

    trial = walk(policy, world, at=40, look=look, seconds=45 * ROBOT.control_dt)
    happened = trial.simulation.data.qpos
    np.testing.assert_allclose(happened[:3], imagined["position"], atol=0.01)
    np.testing.assert_allclose(happened[7:], imagined["joints"], atol=0.08)


def test_what_imagined_robots_see_is_then_seen(policy):
    ramp = parse_world("ramp", {"course": [{"length": 0.3}, {"length": 9.0, "slope": 12.0}]})
    sights, seen = [], []

    def look(simulation, observation) -> None:
        planner = OraclePlanner(policy, ROBOT, ramp, LAYOUT, TINY, seed=0)
        planner.imagine(simulation, observation, np.zeros((TINY.samples, 5, 12)), sights.append)

    trial = Trial(ROBOT, ramp, LAYOUT, TrialConfig(0.5, seed=3, seconds=0.92))
    trial.run(Watched(policy, 40, look), lambda observation, _: seen.append(observation))
    assert len(sights) == 5
    pose = np.r_[LAYOUT.slices()["projected_gravity"], LAYOUT.slices()["joint_pos"]]
    for sight, observation in zip(sights, seen[41:46], strict=True):
        assert sight.standing.all()
        np.testing.assert_allclose(sight.scan[0], observation.scan, atol=0.012)
        np.testing.assert_allclose(
            sight.proprioception[0, pose], observation.proprioception[pose], atol=0.08
        )
        clock = LAYOUT.slices()["gait_phase"]
        np.testing.assert_allclose(
            sight.proprioception[0, clock], observation.proprioception[clock], atol=1e-6
        )
    assert np.ptp(seen[45].scan) > 0.05, "the ramp is to be seen"


def test_a_fall_is_seen_when_it_happens(policy):
    sights = []

    def look(simulation, observation) -> None:
        planner = OraclePlanner(policy, ROBOT, FLAT, LAYOUT, TINY, seed=0)
        residuals = np.zeros((TINY.samples, 5, 12))
        simulation.data.qpos[2] = 0.1
        planner.imagine(simulation, observation, residuals, sights.append)
        simulation.data.qpos[2] = 0.3

    walk(policy, FLAT, 5, look, seconds=0.3)
    assert [sight.standing.any() for sight in sights] == [False] * 5


def test_a_plan_beats_the_bare_expert_in_its_own_model(policy):
    gains = []

    def look(simulation, observation) -> None:
        config = OracleConfig(samples=24, elites=4, horizon=6, timid_fraction=0.5)
        for seed in range(4):
            planner = OraclePlanner(policy, ROBOT, SLIPPERY, LAYOUT, config, seed)
            plan = planner.plan(simulation, observation, 0)
            candidates = np.zeros((24, 6, 12))
            candidates[1] = plan.residual
            returns, _ = planner.imagine(simulation, observation, candidates)
            gains.append(returns[1] - returns[0])

    walk(policy, SLIPPERY, 40, look, seconds=0.9)
    assert np.mean(gains) > 0


def test_the_same_seed_plans_the_same_and_another_seed_differently(policy):
    plans = []

    def look(simulation, observation) -> None:
        for seed in (1, 1, 2):
            planner = OraclePlanner(policy, ROBOT, FLAT, LAYOUT, TINY, seed)
            plans.append(planner.plan(simulation, observation, 0))

    walk(policy, FLAT, 20, look, seconds=0.5)
    np.testing.assert_array_equal(plans[0].actions, plans[1].actions)
    assert np.abs(plans[0].actions - plans[2].actions).max() > 1e-3


def test_a_fall_ends_all_reward(policy):
    def look(simulation, observation) -> None:
        planner = OraclePlanner(policy, ROBOT, FLAT, LAYOUT, TINY, seed=0)
        residuals = np.zeros((TINY.samples, 5, 12))
        simulation.data.qpos[2] = 0.1  # below the height that counts as a fall
        returns, _ = planner.imagine(simulation, observation, residuals)
        simulation.data.qpos[2] = 0.3
        np.testing.assert_array_equal(returns, 0.0)

    walk(policy, FLAT, 5, look, seconds=0.3)


def test_the_oracle_drives_a_trial_and_plans_every_second_step(policy):
    driver = OracleDriver(policy, ROBOT, FLAT, LAYOUT, TINY, seed=0)
    assert isinstance(driver, PrivilegedDriver)
    calls = []
    plan = driver.planner.plan

    def counted(*arguments):
        calls.append(arguments[-1])
        return plan(*arguments)

    driver.planner.plan = counted
    result = Trial(ROBOT, FLAT, LAYOUT, TrialConfig(0.5, seed=0, seconds=0.8)).run(driver)
    assert not result.fallen
    assert calls == [0] + [2] * 19


def test_an_oracle_that_was_shown_no_simulation_says_so(policy):
    driver = OracleDriver(policy, ROBOT, FLAT, LAYOUT, TINY, seed=0)
    with pytest.raises(RuntimeError, match="begin"):
        driver.act(None)


@given(st.integers(1, 60), st.integers(1, 20))
@settings(max_examples=60)
def test_knots_interpolate_with_weights_that_sum_to_one(horizon, knot_steps):
    basis = knot_basis(horizon, knot_steps)
    np.testing.assert_allclose(basis.sum(1), 1.0)
    assert (basis >= 0).all()
    np.testing.assert_array_equal(
        basis[::knot_steps].argmax(1), np.arange(len(basis[::knot_steps]))
    )
