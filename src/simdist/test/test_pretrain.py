"""Pretraining: it learns, survives interruptions, and refuses what it cannot use."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from synthetic import write_shard

from simdist import robots
from simdist.distillation import pretrain as module
from simdist.distillation.pretrain import (
    CHECKPOINT_FILE,
    REPLAY_FILE,
    FlatParameters,
    PretrainConfig,
    Trainer,
    add_arguments,
    pretrain,
    start_from,
)
from simdist.distillation.windows import load_windows
from simdist.errors import ConfigError, DatasetError, SimdistError
from simdist.world_model import WorldModel, load_artefact
from simdist.world_model.simulation_replay import SimulationReplay


@pytest.fixture
def config(tmp_path: Path) -> PretrainConfig:
    write_shard(tmp_path / "data/shard_0000.h5", steps=60, falls={0: [30]}, time_outs={1: [25]})
    write_shard(tmp_path / "data/shard_0001.h5", steps=60, role="policy_only", seed=1)
    return PretrainConfig(
        data=(str(tmp_path / "data"),),
        output=str(tmp_path / "run"),
        steps=40,
        batch_size=16,
        learning_rate=3e-3,
        dynamics_rate=1.0,
        residual_dynamics=False,
        warmup_steps=5,
        latent_dim=8,
        horizon=3,
        dynamics_layers=1,
        policy_layers=1,
        ff_factor=1,
        policy_phase=0.25,
        checkpoint_every=7,
        evaluate_every=10,
        replay_windows=50,
        threads=1,
    )


class InterruptedError_(Exception):
    pass


def interrupt_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    original = Trainer._train_step

    def stopping(self: Trainer) -> dict[str, float]:
        if self.step == step:
            raise InterruptedError_
        return original(self)

    monkeypatch.setattr(Trainer, "_train_step", stopping)


def test_losses_fall_and_the_artefact_tells_how_it_was_made(config: PretrainConfig) -> None:
    path = pretrain(config)
    artefact = load_artefact(path, robots.get("go1"))
    training = artefact.training
    for name in ("latent", "reward", "value", "action"):
        assert training["losses_end"][name] < training["losses_start"][name], name
    assert training["losses_end"]["latent_variance"] > 0
    assert training["steps"] == 40
    assert training["config"]["seed"] == 0
    assert len(training["data_sha256"]) == 64
    output = Path(config.output)
    assert json.loads((output / "config.json").read_text())["learning_rate"] == 3e-3
    entries = [json.loads(line) for line in (output / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [10, 20, 30, 40, 40]
    assert list((output / "tensorboard").iterdir())
    replay = SimulationReplay.load(output / REPLAY_FILE, artefact.contract)
    assert len(replay.train) == 40


def test_the_last_phase_trains_the_policy_head_alone(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {}
    original = Trainer._begin

    def watching(self: Trainer, phase: str) -> None:
        original(self, phase)
        states[phase] = {name: t.clone() for name, t in self.model.state_dict().items()}

    monkeypatch.setattr(Trainer, "_begin", watching)
    final = load_artefact(pretrain(config)).model.state_dict()
    changed = {name for name, t in final.items() if not torch.equal(t, states["policy"][name])}
    assert changed
    assert all(name.startswith("policy.") for name in changed)


def test_a_fixed_encoder_stays_as_it_was_and_the_rest_goes_on(
    config: PretrainConfig, tmp_path: Path
) -> None:
    first = pretrain(config)
    again = replace(config, output=str(tmp_path / "again"), start=str(first), fixed_encoder=True)
    before, after = (load_artefact(path).model.state_dict() for path in (first, pretrain(again)))
    for name, tensor in after.items():
        same = torch.equal(tensor, before[name])
        assert same == name.startswith(("encoder.", "scaler.")), name
    with pytest.raises(ConfigError, match="--start"):
        replace(config, fixed_encoder=True)


def trainer_of(config: PretrainConfig) -> Trainer:
    Path(config.output).mkdir()
    return Trainer(config, load_windows([Path(path) for path in config.data], config.horizon))


def test_a_model_of_a_robot_with_the_same_joints_is_a_start_but_its_scalers_are_not(
    config: PretrainConfig, tmp_path: Path
) -> None:
    first = load_artefact(pretrain(config))
    write_shard(tmp_path / "theirs/shard_0000.h5", steps=60, seed=5, robot="go2")
    theirs = replace(config, data=(str(tmp_path / "theirs"),), start=str(first.path))
    trainer = trainer_of(replace(theirs, output=str(tmp_path / "again")))
    before = first.model.state_dict()
    assert trainer.contract.robot == "go2"
    for name, tensor in trainer.model.state_dict().items():
        if name == "scaler.action_mean":
            assert not torch.equal(tensor, before[name])
        elif not name.startswith("scaler."):
            assert torch.equal(tensor, before[name]), name
    with pytest.raises(ConfigError, match="whose encoder knows nothing of 'go2'"):
        trainer_of(replace(theirs, output=str(tmp_path / "fixed"), fixed_encoder=True))
    turned = replace(trainer.contract, joint_names=trainer.contract.joint_names[::-1])
    with pytest.raises(ConfigError, match="other joint_names"):
        start_from(trainer.model, first, turned)


@pytest.mark.parametrize("step", [24, 38], ids=["in the first phase", "in the policy phase"])
def test_an_interrupted_training_ends_like_an_uninterrupted_one(
    config: PretrainConfig, tmp_path: Path, step: int
) -> None:
    whole = load_artefact(pretrain(replace(config, output=str(tmp_path / "whole"))))
    with pytest.MonkeyPatch.context() as patch:
        interrupt_at(patch, step)
        with pytest.raises(InterruptedError_):
            pretrain(config)
    resumed = load_artefact(pretrain(config))
    assert resumed.weights_hash == whole.weights_hash
    assert resumed.training["losses_start"] == whole.training["losses_start"]
    assert load_artefact(pretrain(config)).weights_hash == whole.weights_hash


def test_continuing_with_other_settings_or_data_is_refused_by_name(
    config: PretrainConfig, tmp_path: Path
) -> None:
    pretrain(replace(config, steps=7))
    with pytest.raises(ConfigError, match=r"learning_rate 0\.003, now it is 0\.001"):
        pretrain(replace(config, steps=7, learning_rate=1e-3))
    write_shard(tmp_path / "data/shard_0001.h5", steps=60, role="policy_only", seed=2)
    with pytest.raises(DatasetError, match="other data"):
        pretrain(replace(config, steps=7))


def test_a_damaged_checkpoint_is_named_and_not_overwritten(config: PretrainConfig) -> None:
    pretrain(replace(config, steps=7))
    checkpoint = Path(config.output) / CHECKPOINT_FILE
    checkpoint.write_bytes(checkpoint.read_bytes()[:1000])
    with pytest.raises(SimdistError, match=r"checkpoint\.pt cannot be read"):
        pretrain(replace(config, steps=7))
    assert checkpoint.stat().st_size == 1000


def test_a_loss_that_is_not_finite_stops_and_keeps_the_last_checkpoint(
    config: PretrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = module.total_loss
    steps = iter(range(100))
    monkeypatch.setattr(
        module,
        "total_loss",
        lambda losses: original(losses) * (1 if next(steps) < 9 else torch.nan),
    )
    with pytest.raises(SimdistError, match="at step 9"):
        pretrain(config)
    checkpoint = torch.load(Path(config.output) / CHECKPOINT_FILE, weights_only=True)
    assert checkpoint["step"] == 7
    assert all(bool(t.isfinite().all()) for t in checkpoint["model"].values())


def test_flattened_parameters_train_like_separate_ones() -> None:
    from test_world_model_artefact import NETWORK

    results = []
    for flat in (False, True):
        torch.manual_seed(0)
        model = WorldModel(NETWORK)
        parameters = FlatParameters(model.parameters()) if flat else None
        trained = [parameters.values] if parameters else model.parameters()
        optimiser = torch.optim.AdamW(trained, lr=0.01)
        for _ in range(3):
            if parameters:
                parameters.zero_grad()
            else:
                optimiser.zero_grad()
            torch.stack([p.square().sum() for p in model.parameters()]).sum().backward()
            optimiser.step()
        results.append({name: t.clone() for name, t in model.state_dict().items()})
    for name, tensor in results[0].items():
        torch.testing.assert_close(results[1][name], tensor)


@pytest.mark.parametrize(
    ("name", "value"),
    [("minutes", 0.0), ("batch_size", 0), ("learning_rate", float("nan")), ("steps", 0)],
)
def test_bad_settings_are_refused_by_name(config: PretrainConfig, name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=f"{name} is {value}"):
        replace(config, **{name: value})


def test_the_command_line_reaches_every_option(config: PretrainConfig) -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--data", "a", "b", "--out", "o", "--horizon", "20"])
    assert (args.data, args.output) == (["a", "b"], "o")
    assert (args.horizon, args.minutes, args.steps) == (20, 30.0, None)
