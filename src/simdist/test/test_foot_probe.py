"""Foot probes: what is written comes back, what does not fit is refused, and feet are learned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import tiny_observation, write_shard
from torch import Tensor

from simdist import robots
from simdist.distillation.probe import ProbeConfig, train_probe
from simdist.errors import ArtefactError, ContractError, DatasetError
from simdist.simulation.kinematics import FootKinematics
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import load_world
from simdist.world_model import (
    Contract,
    WorldModel,
    WorldModelConfig,
    load_artefact,
    save_artefact,
)
from simdist.world_model.artefact import pack_tensors, unpack_tensors
from simdist.world_model.foot_probe import (
    FILE_NAME,
    FootProbe,
    load_foot_probe,
    probe_beside,
    save_foot_probe,
)
from simdist.world_model.network import hash_tensors

GO1 = robots.get("go1")
NETWORK = WorldModelConfig(
    proprio_dim=14,
    scan_shape=(4, 3),
    latent_dim=16,
    history=3,
    horizon=2,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    ff_factor=1,
    cnn_channels=(1,),
    scan_hidden=(2,),
)
CONTRACT = Contract.of(GO1, tiny_observation(), NETWORK)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    return save_artefact(tmp_path / "m.safetensors", WorldModel(NETWORK), CONTRACT, 0, None, {})


@pytest.fixture
def saved(model: Path) -> Path:
    torch.manual_seed(1)
    frozen = load_artefact(model).frozen_hash
    return save_foot_probe(probe_beside(model), FootProbe(16, 4, (8,)), GO1, frozen, {"steps": 7})


def test_everything_written_comes_back_frozen(saved: Path, model: Path) -> None:
    torch.manual_seed(1)
    original = FootProbe(16, 4, (8,))
    loaded = load_foot_probe(saved, load_artefact(model))
    assert (loaded.robot, loaded.feet, loaded.training) == ("go1", GO1.foot_names, {"steps": 7})
    latents = torch.randn(2, 3, 16)
    assert loaded.probe(latents).shape == (2, 3, 4, 3)
    torch.testing.assert_close(loaded.probe(latents), original(latents), rtol=0, atol=0)
    assert not any(parameter.requires_grad for parameter in loaded.probe.parameters())


def _rehash(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    metadata["weights_hash"] = hash_tensors(tensors)


def _set(name: str, value: object) -> Callable[[dict[str, Tensor], dict[str, str]], None]:
    return lambda tensors, metadata: metadata.update({name: json.dumps(value)})


def _flat(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["std"][0, 0] = 0.0
    _rehash(tensors, metadata)


def _nan(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["mean"][0, 0] = torch.nan
    _rehash(tensors, metadata)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda t, m: m.update(format="simdist-world-model-1"), "not a foot probe"),
        (lambda t, m: m.pop("feet"), "damaged metadata"),
        (_set("feet", ["FR", "FR", "RR", "RL"]), "different names"),
        (_set("hidden", [10**9]), "hidden must be"),
        (_set("hidden", [1] * 100), "at most 16"),
        (_set("latent_dim", 10**12), "latent_dim must be"),
        (_set("latent_dim", True), "latent_dim must be"),
        (_set("training", []), "must be a table"),
        (lambda t, m: t.pop("std"), "missing"),
        (lambda t, m: t.update(extra=torch.zeros(1)), "unknown"),
        (lambda t, m: t["network.layers.0.bias"].add_(1.0), "was altered"),
        (_flat, "not positive"),
        (_nan, "not finite"),
    ],
)
def test_a_damaged_probe_is_refused(saved: Path, change: Callable, said: str) -> None:
    tensors, metadata = unpack_tensors(saved.read_bytes(), "test")
    change(tensors, metadata)
    saved.write_bytes(pack_tensors(tensors, metadata))
    with pytest.raises(ArtefactError, match=said):
        load_foot_probe(saved)


def test_a_truncated_or_missing_probe_is_refused(saved: Path) -> None:
    saved.write_bytes(saved.read_bytes()[:-5])
    with pytest.raises(ArtefactError, match="damaged"):
        load_foot_probe(saved)
    with pytest.raises(ArtefactError, match="cannot read"):
        load_foot_probe(saved.with_name("nowhere"))


def test_one_probe_serves_before_and_after_the_dynamics_are_relearned(
    saved: Path, model: Path, tmp_path: Path
) -> None:
    artefact = load_artefact(model)
    with torch.no_grad():
        for parameter in artefact.model.dynamics_parameters():
            parameter.add_(0.1)
    after = save_artefact(tmp_path / "a.safetensors", artefact.model, CONTRACT, 1, "x", {})
    load_foot_probe(saved, load_artefact(after))


def test_a_probe_of_another_encoder_is_refused(saved: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    other = save_artefact(tmp_path / "o.safetensors", WorldModel(NETWORK), CONTRACT, 0, None, {})
    with pytest.raises(ContractError, match=r"frozen_hash.*train-probe"):
        load_foot_probe(saved, load_artefact(other))


def test_a_probe_with_too_few_feet_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ContractError, match="3 feet"):
        save_foot_probe(tmp_path / FILE_NAME, FootProbe(16, 3), GO1, "", {})


# --- training -------------------------------------------------------------------------------------


def test_feet_are_read_out_of_latents_of_states_that_were_held_out(
    model: Path, tmp_path: Path
) -> None:
    shards = [
        write_shard(tmp_path / "data" / f"shard_{i}.h5", environments=12, steps=120, seed=i)
        for i in range(2)
    ]
    config = ProbeConfig(steps=400, batch=128, noise=0.0, threads=1)
    path, error = train_probe(str(model), [str(shard) for shard in shards], None, config)
    assert path == probe_beside(model)
    loaded = load_foot_probe(path, load_artefact(model))
    assert loaded.training["held_out_error_mm"] == error
    assert error["mean"] < 0.7 * error["spread"]
    assert loaded.training["held_out_states"] > 0


def test_data_of_another_layout_is_refused(model: Path, tmp_path: Path) -> None:
    shard = write_shard(tmp_path / "s.h5", observation=tiny_observation(history=4))
    with pytest.raises(DatasetError, match="the model is for go1"):
        train_probe(str(model), [str(shard)], None, ProbeConfig(threads=1))


# --- kinematics -----------------------------------------------------------------------------------


def test_feet_computed_from_joints_are_those_of_the_simulation() -> None:
    simulation = RobotSimulation(GO1, load_world("flat"), seed=3)
    data = simulation.data
    base = data.body(GO1.base_body)
    world = np.stack([data.site(foot).xpos for foot in GO1.foot_names])
    rotation = base.xmat.reshape(3, 3)
    expected = (world - base.xpos) @ rotation
    feet = FootKinematics(GO1).positions(data.qpos[None, 7:])[0]
    np.testing.assert_allclose(feet, expected, atol=1e-9)


def test_feet_lie_where_their_names_say() -> None:
    feet = FootKinematics(GO1).positions(GO1.default_pose[None])[0]
    where = dict(zip(GO1.foot_names, feet, strict=True))
    for name, (x, y, z) in where.items():
        assert (x > 0) == name.startswith("F")
        assert (y > 0) == name.endswith("L")
        assert z < -0.2
