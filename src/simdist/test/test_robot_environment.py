"""The robot's environment for learning agrees with the one the expert was trained in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from simdist import robots
from simdist.distillation.environment import LocomotionEnvironment
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ConfigError
from simdist.evaluation.collection import RESET_SECONDS, CollectionPlan, RobotData
from simdist.evaluation.robot_environment import RobotEnvironment, RobotFleet, RobotTime
from simdist.evaluation.trials import TrialConfig
from simdist.paths import model_file
from simdist.simulation.batch import Randomisation
from simdist.simulation.robot_model import BATCH_SOLVER
from simdist.simulation.world import RealityGaps, Strip, WorldSpec
from simdist.tasks import CommandRanges

ROBOT = robots.get("go1")
FLAT = WorldSpec("flat", "", (Strip(60.0),))
SPEED = 0.6


def expert() -> ExpertPolicy:
    return ExpertPolicy.load(Path(model_file("go1/expert")))


def environment_of(
    world: WorldSpec = FLAT, seconds: float = 12.0, seed: int = 0
) -> RobotEnvironment:
    environment = RobotEnvironment(ROBOT, world)
    environment.begin(TrialConfig(SPEED, seed, seconds))
    return environment


def twins() -> tuple[LocomotionEnvironment, RobotEnvironment]:
    """Training's environment and the robot's in the same state, on level ground without gaps."""
    training = LocomotionEnvironment(
        ROBOT,
        1,
        seed=3,
        threads=1,
        solver=BATCH_SOLVER,
        rough_fraction=0.0,
        noise=False,
        commands=CommandRanges((SPEED, SPEED), (0.0, 0.0), (0.0, 0.0), 0.0, 0.0),
        randomisation=Randomisation(
            friction=(0.8, 0.8),
            max_slope=0.0,
            trunk_mass=(0.0, 0.0),
            gain=(1.0, 1.0),
            joint_friction=(ROBOT.joint_friction, ROBOT.joint_friction),
            push=0.0,
        ),
    )
    robot = RobotEnvironment(ROBOT, FLAT, BATCH_SOLVER)
    robot.begin(TrialConfig(SPEED, 0))
    simulation = training.simulation
    data = robot.simulation.data
    data.qpos[:3] = simulation.position[0]
    data.qpos[3:7] = simulation.orientation[0]
    data.qpos[7:] = simulation.joint_position[0]
    rotation = simulation.rotation[0]
    data.qvel[:3] = rotation @ simulation.linear_velocity[0]
    data.qvel[3:6] = simulation.angular_velocity[0]
    data.qvel[6:] = simulation.joint_velocity[0]
    robot.clock = float(training.clock[0])
    return training, robot


def test_observation_and_reward_are_those_of_training() -> None:
    training, robot = twins()
    policy = expert()
    names = ["proprioception", "command", "action", "force", "foot height", "contact", "rest"]
    borders = np.cumsum([robot.spec.size, 3, 12, 4, 4, 4])
    seen = training.get_observations()["critic"]
    rewards = []
    for _ in range(25):
        action = policy.act(seen[:, : robot.policy_size])
        # The course would command what training does not.
        robot.command = training.command[0].copy()
        obs, reward, done, _ = training.step(action)
        outcome = robot.step(action[0].numpy())
        assert not done[0]
        assert not outcome.ended
        assert outcome.reward == pytest.approx(float(reward[0]), abs=2e-4)
        rewards.append(outcome.reward)
        seen = obs["critic"]
        ours = outcome.observation.copy()
        ours[robot.spec.size : robot.spec.size + 3] = training.command[0]
        for name, a, b in zip(
            names, np.split(seen[0].numpy(), borders), np.split(ours, borders), strict=True
        ):
            np.testing.assert_allclose(b, a, atol=0.02, err_msg=name)
    assert max(rewards) - min(rewards) > 0.01, "rewards that never differ prove nothing"


def test_the_critic_is_told_what_the_world_is_like() -> None:
    gaps = RealityGaps(trunk_mass=1.5, motor_strength={"RR_calf_joint": 0.4})
    world = WorldSpec("w", "", (Strip(0.4), Strip(40.0, slope=10.0, friction=0.2)), gaps=gaps)
    environment = environment_of(world)
    friction, mass, kp, kd, slope = environment.observation()[-5:]
    assert (friction, mass, slope) == (0.8, 1.5, 0.0)
    assert kp == kd == pytest.approx(-0.6 / 12)
    environment.simulation.data.qpos[0] = 1.0
    assert environment.observation()[-5] == 0.2
    assert environment.observation()[-1] == pytest.approx(3 * np.deg2rad(10.0))


def test_same_seed_same_episode() -> None:
    policy = expert()

    def rewards(seed: int) -> list[float]:
        environment = environment_of(seed=seed)
        observation, result = environment.observation(), []
        for _ in range(30):
            seen = torch.from_numpy(observation[: environment.policy_size].astype(np.float32))
            outcome = environment.step(policy.act(seen[None])[0].numpy())
            observation = outcome.observation
            result.append(outcome.reward)
        return result

    assert rewards(5) == rewards(5)
    assert rewards(5) != rewards(6)


def test_an_action_is_held_as_in_trials() -> None:
    every, second = environment_of(), RobotEnvironment(ROBOT, FLAT)
    second.begin(TrialConfig(SPEED, 0, plan_every=2))
    action = np.full(12, 0.3)
    first, then = every.step(action), every.step(action)
    held = second.step(action)
    assert held.reward == pytest.approx(first.reward + 0.99 * then.reward)
    np.testing.assert_array_equal(held.observation, then.observation)


def test_episodes_end_by_time_out_and_by_falling() -> None:
    environment = environment_of(seconds=0.2)
    outcomes = [environment.step(np.zeros(12)) for _ in range(10)]
    assert [o.timed_out for o in outcomes] == [False] * 9 + [True]
    environment.begin(TrialConfig(SPEED, 1))
    environment.simulation.data.qpos[3:7] = 0.0, 1.0, 0.0, 0.0
    outcome = environment.step(np.zeros(12))
    assert outcome.fell
    assert not outcome.timed_out


def test_robot_time_is_never_overdrawn() -> None:
    time = RobotTime(1.0, 0.02)
    for _ in range(50):
        assert time.affords(1)
        time.pay(1)
    assert not time.affords(1)
    with pytest.raises(RuntimeError):
        time.pay(1)
    assert time.used == 1.0
    with pytest.raises(ConfigError, match="-1"):
        RobotTime(-1.0, 0.02)


def test_a_fall_is_paid_for_before_the_next_step() -> None:
    time = RobotTime(RESET_SECONDS + 0.05, 0.02)
    time.pay(1)
    time.fell()
    time.pay(1)
    assert time.used == pytest.approx(RESET_SECONDS + 0.04)
    time.fell()
    assert not time.affords(0)


def test_a_fleet_accounts_for_all_its_robots() -> None:
    fleet = RobotFleet(ROBOT, FLAT, 2, CollectionPlan(seed=0, seconds=0.1, plan_every=1))
    data = RobotData(ROBOT.control_dt)
    assert not fleet.affords()
    fleet.grant(data, 0.3 / 60)
    starts = fleet.get_observations()["policy"]
    assert not torch.equal(starts[0], starts[1])
    ends = []
    while fleet.affords():
        ends.append(fleet.step(torch.zeros(2, 12))[2].any().item())
    assert ends == [False] * 4 + [True] + [False] * 2
    with pytest.raises(RuntimeError):
        fleet.step(torch.zeros(2, 12))
    fleet.rest()
    assert len({trial.seed for trial in data.trials}) == 4
    assert data.minutes * 60 == pytest.approx(0.28)
    fleet.grant(data, 0.3 / 60)
    assert not fleet.affords()
