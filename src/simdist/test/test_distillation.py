"""The offline half up to the data: environment, expert training, perturbed recording."""

from __future__ import annotations

import dataclasses
import json

import h5py
import numpy as np
import pytest
import torch

from simdist import robots
from simdist.distillation.collect import (
    MIXTURES,
    ActionNoise,
    CollectConfig,
    Mixture,
    collect,
)
from simdist.distillation.environment import LocomotionEnvironment, mirror
from simdist.distillation.expert import ExpertConfig, ExpertTrainer
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ArtefactError, ConfigError
from simdist.simulation.batch import Randomisation
from simdist.simulation.training_terrain import ROUGH_KINDS, TrainingTerrain, rough_field

ROBOT = robots.get("go1")
QUIET = Randomisation(push=0.0, trunk_mass=(0.0, 0.0), gain=(1.0, 1.0), max_slope=0.0)


def environment(count=8, **changes) -> LocomotionEnvironment:
    return LocomotionEnvironment(
        ROBOT, count, **{"seed": 0, "threads": 1, "rough_fraction": 0.25, **changes}
    )


@pytest.fixture(scope="module")
def expert_directory(tmp_path_factory):
    """An expert directory as training leaves it, with untrained policies."""
    directory = tmp_path_factory.mktemp("expert")
    config = ExpertConfig(environments=8, iterations=1, steps_per_iteration=4, threads=1)
    ExpertTrainer(config, directory).run()
    return directory


def test_robots_stand_on_planes_slopes_and_rough_ground():
    env = environment(16, randomisation=Randomisation(push=0.0), noise=False)
    for _ in range(25):
        env.step(torch.zeros(16, 12))
    simulation = env.simulation
    assert simulation.terrain.is_rough.sum() == 4
    assert (simulation.slope > 0.02).any()
    assert ((simulation.base_height > 0.2) & (simulation.base_height < 0.36)).all()
    # Feet at rest touch the ground that the terrain lookup says is there.
    assert simulation.contact.mean() > 0.9
    assert np.abs(simulation.foot_height[simulation.contact]).max() < 0.03


def test_a_slope_is_seen_by_the_height_scan():
    env = environment(4, rough_fraction=0.0, randomisation=QUIET)
    angle = np.deg2rad(10.0)
    env.simulation.terrain.tilt(np.arange(4), np.full(4, angle), np.zeros(4))
    yaw = np.arctan2(env.simulation.rotation[:, 1, 0], env.simulation.rotation[:, 0, 0])
    grid = env.spec.scan
    scan = env.scan().reshape(4, grid.nx, grid.ny)
    forward = (scan[:, -1, 4] - scan[:, 0, 4]) / (grid.x_max - grid.x_min)
    np.testing.assert_allclose(forward, -np.tan(angle) * np.cos(yaw), atol=1e-9)


@pytest.mark.parametrize("kind", ROUGH_KINDS)
def test_rough_fields_are_reproducible_and_interpolated_through_their_corners(kind):
    field = rough_field(kind, 0.7, np.random.default_rng(5))
    np.testing.assert_array_equal(field, rough_field(kind, 0.7, np.random.default_rng(5)))
    terrain = TrainingTerrain(1, np.array([True]), field[None], np.array([[0.0, 0.0, 1.0]]))
    column, row = np.array([[3, 50, 120]]), np.array([[7, 60, 11]])
    x, y = column * 0.1 - 9.95, row * 0.1 - 9.95
    seen = terrain.height(np.array([0]), x, y)
    np.testing.assert_allclose(seen, field[row, column], atol=1e-6)


def test_a_fallen_robot_ends_its_episode_and_starts_a_new_one():
    env = environment(4, rough_fraction=0.0)
    env.simulation._state[0, 4:8] = np.cos(1.2), np.sin(1.2), 0, 0
    _, _, done, extras = env.step(torch.zeros(4, 12))
    assert done.tolist() == [True, False, False, False]
    assert env.fell[0]
    assert extras["time_outs"][0] == 0
    assert env.simulation.rotation[0, 2, 2] > 0.9
    assert int(env.episode_length_buf[0]) == 0


def test_a_time_out_is_told_apart_from_a_fall():
    env = environment(4)
    env.episode_length_buf[2] = env.max_episode_length - 1
    _, _, done, extras = env.step(torch.zeros(4, 12))
    assert done[2]
    assert extras["time_outs"][2] == 1
    assert not env.fell[2]


def test_mirroring_twice_is_the_identity_and_swaps_left_and_right():
    env = environment(4)
    observation, actions = env.get_observations(), torch.randn(4, 12)
    both, mirrored = mirror(env, observation, actions)
    assert both is not None
    again, actions_again = mirror(env, both[4:], mirrored[4:])
    torch.testing.assert_close(again["policy"][4:], observation["policy"])
    torch.testing.assert_close(again["critic"][4:], observation["critic"])
    torch.testing.assert_close(actions_again[4:], actions)
    # FR (0..2) and FL (3..5) change places, and hips (the first of three) change sign.
    torch.testing.assert_close(mirrored[4:, 0], -actions[:, 3])
    torch.testing.assert_close(mirrored[4:, 1], actions[:, 4])


def test_reward_prefers_the_commanded_velocity():
    env = environment(2)
    terms = {
        "command": np.array([[0.5, 0.0, 0.0]] * 2),
        "linear_velocity": np.array([[0.5, 0.0, 0.0], [0.0, 0.0, 0.0]]),
        "angular_velocity": np.zeros((2, 3)),
        "gravity": np.array([[0.0, 0.0, -1.0]] * 2),
        "joint_position": np.tile(ROBOT.default_pose, (2, 1)),
        "joint_acceleration": np.zeros((2, 12)),
        "joint_torque": np.zeros((2, 12)),
        "action": np.zeros((2, 12)),
        "previous_action": np.zeros((2, 12)),
        "contact": np.ones((2, 4), bool),
        "foot_height": np.zeros((2, 4)),
        "phase": np.zeros(2),
    }
    good, bad = env.task.reward(env.task.terms(**terms))
    assert good > bad
    terms["gravity"] = np.array([[0.0, 0.0, -1.0], [0.5, 0.0, -0.87]])
    terms["linear_velocity"][1] = terms["linear_velocity"][0]
    level, tilted = env.task.reward(env.task.terms(**terms))
    assert level > tilted


def test_training_is_resumable_and_refuses_other_settings(expert_directory):
    config = ExpertConfig(environments=8, iterations=3, steps_per_iteration=4, threads=1)
    trainer = ExpertTrainer(config, expert_directory)
    assert trainer.iteration == 1
    trainer.run()
    assert trainer.iteration == 3
    with pytest.raises(ConfigError, match="another seed"):
        ExpertTrainer(dataclasses.replace(config, seed=9), expert_directory)


def test_a_saved_policy_acts_as_the_trained_network(expert_directory):
    config = ExpertConfig(environments=8, iterations=3, steps_per_iteration=4, threads=1)
    trainer = ExpertTrainer(config, expert_directory)
    path = expert_directory / "again.safetensors"
    trainer.export(path)
    observation = trainer.environment.get_observations()
    policy = ExpertPolicy.load(path)
    with torch.inference_mode():
        torch.testing.assert_close(
            policy.act(observation["policy"]), trainer.algorithm.actor(observation)
        )
        torch.testing.assert_close(
            policy.value(observation["critic"]), trainer.algorithm.critic(observation)[:, 0]
        )


def test_damaged_and_foreign_experts_are_refused(expert_directory, tmp_path):
    good = (expert_directory / "expert.safetensors").read_bytes()
    for name, content in {"torn": good[: len(good) // 2], "text": b"not a model" * 9}.items():
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ArtefactError, match=name):
            ExpertPolicy.load(path)
    with pytest.raises(ArtefactError, match="missing"):
        ExpertPolicy.load(tmp_path / "missing")


def test_noise_comes_in_contiguous_bursts_of_the_stated_size():
    mixture = Mixture(0.5, noise_levels=(1.0,), noised_fraction=0.5, burst_steps=(5, 30))
    noise = ActionNoise(mixture, 400, 2, np.random.default_rng(0))
    active, values = [], []
    for _ in range(300):
        active.append(noise.active.copy())
        values.append(noise.sample())
        noise.advance()
    active, values = np.array(active), np.array(values)
    assert (values[~active] == 0).all()
    assert 0.02 < active[150:].mean() < 0.4
    spread = values[active].std()
    assert 0.4 < spread < 0.8  # standard deviations are uniform between 5 and 100 % of 1.0
    changes = np.diff(active.astype(int), axis=0)
    runs = [
        np.flatnonzero(column == -1)[-1] - np.flatnonzero(column == 1)[0]
        for column in changes.T
        if (column == 1).any() and (column == -1).sum() == 1 and (column == 1).sum() == 1
    ]
    assert all(run < 300 for run in runs)


def test_collected_data_means_what_its_index_says(expert_directory, tmp_path):
    config = CollectConfig(shards=("mixed",), environments=8, steps=60)
    assert collect(config, expert_directory, tmp_path / "data", threads=1) == 480
    with h5py.File(tmp_path / "data" / "shard_0000.h5") as file:
        data = {name: file[name][()] for name in file}
        assert file.attrs["robot"] == "go1"
    assert np.isfinite(data["proprio"]).all()
    assert np.isfinite(data["scan"]).all()
    # An action acts on what comes after it: a jump of the target changes the joint velocity from
    # its own observation to the next, and cannot have changed it before.
    velocity = slice(21, 33)
    jump = np.diff(data["action"], axis=1)[:, :-1]
    gain = np.diff(data["proprio"][..., velocity], axis=1)
    inside = ~(data["end"][:, 1:-1] | data["end"][:, :-2])
    after = np.corrcoef(gain[:, 1:][inside].ravel(), jump[inside].ravel())[0, 1]
    before = np.corrcoef(gain[:, :-1][inside].ravel(), jump[inside].ravel())[0, 1]
    assert after > 0.3
    assert before < 0.0
    # Where the expert drove undisturbed, its label is what was executed.
    by_expert = data["is_expert"]
    assert by_expert.any()
    np.testing.assert_array_equal(
        data["action"][by_expert], np.clip(data["expert_action"][by_expert], -8, 8)
    )
    assert (data["fall"] <= data["end"]).all()


def test_collection_resumes_and_refuses_other_settings(expert_directory, tmp_path):
    config = CollectConfig(shards=("mixed", "near_expert"), environments=4, steps=30)
    out = tmp_path / "data"
    collect(config, expert_directory, out, threads=1)
    first, second = (out / f"shard_000{i}.h5" for i in range(2))
    with h5py.File(second) as file:
        before = file["proprio"][()]
    stamp = first.stat().st_mtime_ns
    second.unlink()
    collect(config, expert_directory, out, threads=1)
    assert first.stat().st_mtime_ns == stamp
    with h5py.File(second) as file:
        np.testing.assert_array_equal(file["proprio"][()], before)
    with pytest.raises(ConfigError, match="other settings"):
        collect(dataclasses.replace(config, seed=1), expert_directory, out, threads=1)
    assert json.loads((out / "config.json").read_text())["seed"] == 3


def test_mixtures_differ_in_how_much_they_trust_the_expert():
    assert MIXTURES["near_expert"].expert_fraction > MIXTURES["mixed"].expert_fraction
    assert max(MIXTURES["near_expert"].noise_levels) < max(MIXTURES["mixed"].noise_levels)
