"""Branches: futures of one state, and what a world model learns from their differences."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from simdist import robots
from simdist.distillation.branches import BranchRecorder, Deviations
from simdist.distillation.collect import CollectConfig, collect
from simdist.distillation.environment import LocomotionEnvironment
from simdist.distillation.expert import ExpertConfig, ExpertTrainer
from simdist.distillation.policy import ExpertPolicy
from simdist.distillation.pretrain import PretrainConfig, pretrain
from simdist.distillation.windows import WindowData, load_windows
from simdist.errors import ConfigError, DatasetError
from simdist.simulation.batch import Randomisation
from simdist.simulation.robot_model import BATCH_SOLVER
from simdist.world_model import load_artefact
from simdist.world_model.losses import RETURN_FLOOR, Branches, difference_losses, latent_targets
from simdist.world_model.network import Prediction

ROBOT = robots.get("go1")
SIZE, HORIZON = 8, 15


@pytest.fixture(scope="module")
def expert_directory(tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("expert")
    config = ExpertConfig(environments=8, iterations=1, steps_per_iteration=4, threads=1)
    ExpertTrainer(config, directory).run()
    return directory


@pytest.fixture(scope="module")
def data_directory(expert_directory, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("data")
    config = CollectConfig(
        shards=("mixed", "branched"), environments=6, steps=60, branch_interval=25, horizon=HORIZON
    )
    transitions = collect(config, expert_directory, out, threads=1)
    assert transitions == 6 * 60 + 2 * 6 * SIZE * (10 + 1 + HORIZON)
    return out


@pytest.fixture(scope="module")
def windows(data_directory) -> WindowData:
    return load_windows([data_directory], HORIZON, validation_fraction=0.2)


def test_an_undisturbed_branch_is_what_the_robot_does_next(expert_directory):
    expert = ExpertPolicy.load(expert_directory / "expert.safetensors")
    environment = LocomotionEnvironment(
        ROBOT,
        4,
        seed=3,
        threads=1,
        solver=BATCH_SOLVER,
        noise=False,
        randomisation=Randomisation(push_interval=1e9),
    )
    recorder = BranchRecorder(
        environment, expert, size=3, horizon=6, deviations=Deviations(), threads=1
    )
    observation, rows, walked = environment.get_observations(), {}, []
    for index in range(10 + 1 + 6):
        if index == 10:
            rows = recorder.branch([(expert, np.ones(4, bool))])
        action = expert.act(observation["policy"]).numpy().astype(np.float64)
        step = {
            "proprio": environment.proprioception(),
            "scan": environment.scan(),
            "command": environment.command.copy(),
            "friction": environment.simulation.friction.copy(),
            "value": expert.value(observation["critic"]).numpy(),
            "action": action,
            "expert_action": action,
            "is_expert": np.ones(4, bool),
        }
        observation, reward, done, _ = environment.step(torch.from_numpy(action))
        step |= {"reward": reward.numpy(), "end": done.numpy(), "fall": done.numpy()}
        recorder.note(step)
        walked.append(step)
    assert not any(step["end"].any() for step in walked)
    for name in ("proprio", "scan", "action", "command", "end", "fall", "is_expert"):
        own = np.stack([step[name] for step in walked], 1)
        np.testing.assert_array_equal(rows[name][::3], own, err_msg=name)
        # All branches have the past in common, and those that deviate part from the first.
        np.testing.assert_array_equal(rows[name][1::3, :10], own[:, :10], err_msg=name)
    for name in ("reward", "value"):
        own = np.stack([step[name] for step in walked], 1)
        np.testing.assert_allclose(rows[name][::3], own, atol=1e-5, err_msg=name)
    apart = np.abs(rows["proprio"][1::3] - rows["proprio"][::3]).max((0, 2))
    assert (apart[11:] > 1e-4).all()
    assert (apart[:11] == 0).all()


def test_deviations_are_as_wide_as_stated_and_spare_the_first_branch():
    deviations = Deviations(smallest_std=0.1, largest_std=0.1, correlation=0.9)
    drawn = deviations.sample(400, 5, 20, 12, np.random.default_rng(0))
    assert (drawn[:, 0] == 0).all()
    spread = drawn[:, 1:].std((0, 1, 3))  # of every step alike
    np.testing.assert_allclose(spread, 0.1, rtol=0.05)


def test_a_group_has_one_past_and_one_window_per_branch(windows: WindowData):
    for part in (windows.train, windows.validation):
        groups = part.branch_groups
        assert groups.shape[1] == SIZE
        batch = part.get(groups.flatten())
        past = batch.proprio_history.unflatten(0, groups.shape)
        assert torch.equal(past, past[:, :1].expand_as(past))
        targets = batch.target_proprio.unflatten(0, groups.shape)
        assert (targets - targets[:, :1]).abs()[:, 1:].amax((1, 2, 3)).gt(0).all()
        # Ordinary windows are drawn elsewhere.
        assert not set(part.world_indices.tolist()) & set(groups.flatten().tolist())
    held_out = windows.validation.present[windows.validation.branch_groups].flatten()
    trained = windows.train.present[windows.train.branch_groups].flatten()
    assert len(trained) + len(held_out) == 2 * 6 * SIZE
    assert not set(trained.tolist()) & set(held_out.tolist())


def test_only_what_distinguishes_branches_counts_as_a_difference(
    windows: WindowData, data_directory, tmp_path
):
    model = load_artefact(pretrain(small(data_directory, tmp_path, steps=1))).model
    groups = windows.train.branch_groups[:4]
    batch = windows.train.get(groups.flatten())
    branches = Branches(4, SIZE, 0.99)
    targets = latent_targets(model, batch)

    def losses(latents, rewards, values) -> dict[str, float]:
        prediction = Prediction(targets[:, 0], latents, rewards, values, batch.actions)
        with torch.no_grad():
            found = difference_losses(model, batch, prediction, targets, branches)
        return {name: loss.item() for name, loss in found.items()}

    scaler = model.scaler
    rewards, values = scaler.scale("reward", batch.rewards), scaler.scale("value", batch.values)
    perfect = losses(targets, rewards, values)
    assert perfect["latent_differences"] == 0.0
    assert perfect["return_differences"] == pytest.approx(0.0, abs=1e-5)
    # An error that all branches share is none of these losses' business.
    shared = losses(targets + 1.0, rewards + 0.3, values - 0.2)
    assert shared["latent_differences"] == pytest.approx(0.0, abs=1e-10)
    assert shared["return_differences"] == pytest.approx(0.0, abs=1e-5)
    assert shared["judged_differences"] == pytest.approx(perfect["judged_differences"], abs=1e-6)
    # To take all branches for equal explains nothing: a share of 1, but for the floor.
    equal = losses(torch.zeros_like(targets), torch.zeros_like(rewards), torch.zeros_like(values))
    returns = branches.returns(batch.rewards, batch.values)
    variance = returns.var(1, correction=0)
    expected = (variance / (variance + RETURN_FLOOR**2)).mean().item()
    assert equal["return_differences"] == pytest.approx(expected, rel=1e-3)
    assert equal["latent_differences"] > 1e-8


def small(data: Path, tmp_path: Path, **changes) -> PretrainConfig:
    return replace(
        PretrainConfig(
            data=(str(data),),
            output=str(tmp_path / "run"),
            steps=150,
            batch_size=32,
            learning_rate=3e-3,
            dynamics_rate=1.0,
            warmup_steps=5,
            latent_dim=8,
            horizon=HORIZON,
            dynamics_layers=1,
            policy_layers=1,
            ff_factor=1,
            policy_phase=0.0,
            validation_fraction=0.2,
            reactive_width=16,
            evaluate_every=150,
            replay_windows=50,
            threads=1,
        ),
        **changes,
    )


def test_training_on_branches_teaches_their_differences(data_directory, tmp_path):
    training = load_artefact(pretrain(small(data_directory, tmp_path))).training
    before, after = training["losses_start"], training["losses_end"]
    # The encoder widens its latents meanwhile, so errors count as shares of their spread.
    unexplained = [part["latent_differences"] / part["latent_spread"] for part in (before, after)]
    assert unexplained[1] < unexplained[0]
    assert after["latent_spread"] > 0


def test_sensor_noise_is_no_difference_between_branches(windows: WindowData):
    indices = windows.train.branch_groups[:3].flatten()
    generator = torch.Generator().manual_seed(0)
    noisy = windows.train.get(torch.cat([indices[:5], indices]), 1.0, generator)
    common = Branches(3, SIZE, 0.99).with_one_past(noisy)
    past = common.proprio_history[5:].unflatten(0, (3, SIZE))
    assert torch.equal(past, past[:, :1].expand_as(past))
    assert torch.equal(common.proprio_history[:5], noisy.proprio_history[:5])
    assert not torch.equal(past[:, 0], windows.train.get(indices[::SIZE]).proprio_history)


def test_a_recording_too_short_to_branch_is_refused(expert_directory, tmp_path):
    config = CollectConfig(shards=("branched",), environments=2, steps=10)
    with pytest.raises(ConfigError, match="steps = 10"):
        collect(config, expert_directory, tmp_path / "short", threads=1)


def test_groups_that_do_not_add_up_are_refused(data_directory, tmp_path):
    path = tmp_path / "shard.h5"
    path.write_bytes((data_directory / "shard_0001.h5").read_bytes())
    with h5py.File(path, "a") as file:
        file.attrs["branches"] = 7
    with pytest.raises(DatasetError, match="groups of 7 branches"):
        load_windows([path], HORIZON)
