"""Artefacts: what is written comes back, and whatever is damaged or foreign is refused."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import tiny_observation
from torch import Tensor

from simdist import robots
from simdist.errors import ArtefactError, ContractError, SimdistError
from simdist.world_model import (
    Contract,
    WorldModel,
    WorldModelConfig,
    load_artefact,
    save_artefact,
)
from simdist.world_model.artefact import MAX_BYTES, pack_tensors, unpack_tensors

NETWORK = WorldModelConfig(
    proprio_dim=14,
    scan_shape=(4, 3),
    latent_dim=4,
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
CONTRACT = Contract.of(robots.get("go1"), tiny_observation(), NETWORK)


def a_model(seed: int = 0) -> WorldModel:
    torch.manual_seed(seed)
    return WorldModel(NETWORK)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_artefact(tmp_path / "m.safetensors", a_model(), CONTRACT, 3, "ab12", {"steps": 7})


def rewrite(
    path: Path,
    change: Callable[[dict[str, Tensor], dict[str, str]], None],
) -> None:
    tensors, metadata = unpack_tensors(path.read_bytes(), "test")
    change(tensors, metadata)
    path.write_bytes(pack_tensors(tensors, metadata))


def test_everything_written_comes_back(saved: Path) -> None:
    artefact = load_artefact(saved, robots.get("go1"))
    model = a_model()
    assert artefact.contract == CONTRACT
    assert artefact.contract.hash() == CONTRACT.hash()
    assert (artefact.version, artefact.parent, artefact.training) == (3, "ab12", {"steps": 7})
    assert artefact.weights_hash == model.weights_hash()
    assert artefact.frozen_hash == model.frozen_hash()
    assert not artefact.model.training
    inputs = (torch.randn(2, 4, 14), torch.randn(2, 12), torch.randn(2, 3, 12))
    for loaded, original in zip(artefact.model.encode(*inputs), model.encode(*inputs), strict=True):
        torch.testing.assert_close(loaded, original, rtol=0, atol=0)
    assert all(parameter.requires_grad for parameter in artefact.model.dynamics_parameters())


def test_saving_replaces_the_file_and_leaves_nothing_beside_it(saved: Path) -> None:
    save_artefact(saved, a_model(1), CONTRACT, 4, None, {})
    assert load_artefact(saved).version == 4
    assert load_artefact(saved).parent is None
    assert os.listdir(saved.parent) == [saved.name]


def test_a_model_with_nan_is_not_written(saved: Path) -> None:
    model = a_model()
    with torch.no_grad():
        model.dynamics.embedding.position[0, 0] = float("nan")
    with pytest.raises(ArtefactError, match=r"dynamics\.embedding\.position"):
        save_artefact(saved, model, CONTRACT, 4, None, {})
    assert load_artefact(saved).version == 3


@pytest.fixture(scope="module")
def intact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("intact") / "m.safetensors"
    return save_artefact(path, a_model(), CONTRACT, 0, None, {})


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_truncated_anywhere_is_refused(intact: Path, share: float) -> None:
    data = intact.read_bytes()
    path = intact.with_name("truncated.safetensors")
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(ArtefactError, match="damaged"):
        load_artefact(path)


@settings(max_examples=60, deadline=None)
@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_an_altered_byte_never_yields_another_model(intact: Path, share: float, flip: int) -> None:
    data = bytearray(intact.read_bytes())
    data[int(share * len(data))] ^= flip
    path = intact.with_name("altered.safetensors")
    path.write_bytes(data)
    # A flip in the version or in the account of the training is not protected by a hash.
    try:
        artefact = load_artefact(path)
    except SimdistError:
        return
    assert artefact.weights_hash == a_model().weights_hash()
    assert artefact.contract == CONTRACT


def drop(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    del tensors["value.output.bias"]


def add(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["surprise"] = torch.zeros(1)


def reshape(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["value.output.bias"] = torch.zeros(2)


def narrow(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["value.output.bias"] = tensors["value.output.bias"].half()


def poison(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["value.output.bias"][0] = float("nan")


def overflow(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["value.output.bias"][0] = float("inf")


def alter(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    tensors["value.output.bias"][0] += 1.0


def claim(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    metadata["frozen_hash"] = "0" * 64


def strip(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    metadata.clear()


def forget_version(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    del metadata["version"]


def nest(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    metadata["contract"] = "[" * 100_000


def retell(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    contract = json.loads(metadata["contract"])
    contract["action_scale"] = 2.5
    metadata["contract"] = json.dumps(contract)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (drop, r"missing \['value\.output\.bias'\]"),
        (add, r"unknown \['surprise'\]"),
        (reshape, r"value\.output\.bias is .* \(2,\)"),
        (narrow, r"value\.output\.bias is torch\.float16"),
        (poison, "not finite"),
        (overflow, "not finite"),
        (alter, "weights hash"),
        (claim, "frozen weights hash"),
        (strip, "not a world model"),
        (forget_version, "version"),
        (nest, "contract is missing or damaged"),
        (retell, "contract hash"),
    ],
)
def test_damage_is_refused_with_its_reason(
    saved: Path, change: Callable[[dict[str, Tensor], dict[str, str]], None], reason: str
) -> None:
    rewrite(saved, change)
    with pytest.raises(ArtefactError, match=reason):
        load_artefact(saved)


def test_absurd_sizes_in_the_contract_cost_nothing(saved: Path) -> None:
    def inflate(tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
        network = dataclasses.replace(NETWORK, latent_dim=8192, ff_factor=8192)
        contract = dataclasses.replace(CONTRACT, network=network)
        metadata["contract"] = json.dumps(contract.to_dict())
        metadata["contract_hash"] = contract.hash()

    rewrite(saved, inflate)
    with pytest.raises(ArtefactError, match="its network needs"):
        load_artefact(saved)


def test_oversize_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "big.safetensors"
    with open(path, "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(ArtefactError, match=f"at most {MAX_BYTES}"):
        load_artefact(path)


def test_missing_file_and_directory_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArtefactError, match="nowhere"):
        load_artefact(tmp_path / "nowhere")
    with pytest.raises(ArtefactError, match="directory"):
        load_artefact(tmp_path)


def test_a_pickle_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    torch.save(a_model().state_dict(), path)
    with pytest.raises(ArtefactError, match="not a safetensors file"):
        load_artefact(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", "go7"),
        ("joint_names", tuple(reversed(robots.get("go1").joint_names))),
        ("action_scale", 0.3),
        ("kp", robots.get("go1").kp + 1),
        ("control_dt", 0.01),
    ],
)
def test_a_model_for_another_robot_is_refused(saved: Path, field: str, value: object) -> None:
    other = dataclasses.replace(robots.get("go1"), **{field: value})
    with pytest.raises(ContractError, match="robot" if field == "name" else field):
        load_artefact(saved, other)


def test_a_contract_whose_parts_disagree_is_refused() -> None:
    with pytest.raises(ContractError, match="proprio_dim is 15"):
        dataclasses.replace(CONTRACT, network=dataclasses.replace(NETWORK, proprio_dim=15))
    with pytest.raises(ContractError, match="history"):
        dataclasses.replace(CONTRACT, observation=tiny_observation(history=4))
    with pytest.raises(ContractError, match="sizes"):
        save_artefact(Path("unused"), WorldModel(WorldModelConfig()), CONTRACT, 0, None, {})
