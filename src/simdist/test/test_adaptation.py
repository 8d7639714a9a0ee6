"""Finetuning, the gate, updates and their store, on a linear world that changes its gain."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.adaptation import (
    AcceptanceGate,
    AdaptationError,
    Candidate,
    DynamicsFinetuner,
    FinetuneConfig,
    GateConfig,
    Losses,
    RunningModel,
    UpdateStore,
    apply_update,
    check_update,
    pack_update,
    unpack_update,
)
from simdist.adaptation.update import ModelUpdate
from simdist.adaptation.windows import EncodedWindows, robot_windows
from simdist.errors import ConfigError, UpdateError
from simdist.replay import Episode
from simdist.world_model import WorldModel, WorldModelConfig
from simdist.world_model.losses import dynamics_loss
from simdist.world_model.simulation_replay import SimulationReplay

SIZES = WorldModelConfig(
    proprio_dim=4,
    scan_shape=(4, 3),
    action_dim=2,
    latent_dim=16,
    history=3,
    horizon=4,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    cnn_channels=(2, 2),
    scan_hidden=(8,),
)
DT_NS = 20_000_000
NOMINAL, SLIPPERY = 0.5, 0.1


def drive(gain: float, seed: int, steps: int = 150, episode: int = 0) -> Episode:
    """A robot whose state follows its actions with ``gain``."""
    rng = np.random.default_rng(seed)
    action = rng.normal(size=(steps, SIZES.action_dim)).astype(np.float32)
    state = np.zeros((steps, SIZES.proprio_dim), np.float32)
    for step in range(1, steps):
        state[step] = 0.9 * state[step - 1]
        state[step, : SIZES.action_dim] += gain * action[step - 1]
    return Episode(
        stamp_ns=np.arange(steps, dtype=np.int64) * DT_NS,
        proprio=state,
        scan=np.zeros((steps, SIZES.scan_dim), np.float32),
        action=action,
        command=np.zeros((steps, 3), np.float32),
        episode=episode,
    )


def simulation() -> SimulationReplay:
    def windows(seeds: range):
        return robot_windows([drive(NOMINAL, seed) for seed in seeds], SIZES.history, SIZES.horizon)

    return SimulationReplay(train=windows(range(8)), validation=windows(range(8, 10)))


TRAINING = [drive(SLIPPERY, seed, episode=seed) for seed in range(20, 24)]
HELD_OUT = [drive(SLIPPERY, 30, episode=30)]


@pytest.fixture(scope="module")
def pretrained() -> WorldModel:
    """A model that knows the nominal world. Its encoder is random, but told apart from a useless
    one by latents that vary as much as trained ones do."""
    torch.manual_seed(0)
    model = WorldModel(SIZES).eval()
    example = drive(NOMINAL, 0)
    with torch.no_grad():
        for parameter in model.encoder.parameters():
            if parameter.dim() == 2:
                parameter *= 3.0
        latent = model.latent(torch.from_numpy(example.proprio), torch.from_numpy(example.scan))
        last = model.encoder.joint.layers[-1]
        last.weight /= latent.std(0)[:, None]  # type: ignore[operator]
        last.bias.sub_(latent.mean(0)).div_(latent.std(0))  # type: ignore[operator]
    config = FinetuneConfig(steps=120, batch=32, learning_rate=1e-2)
    nominal = [drive(NOMINAL, seed) for seed in range(40, 44)]
    candidate = DynamicsFinetuner(model, simulation(), config).update(nominal, nominal[:1], model)
    assert candidate.losses.robot_after < 0.5 * candidate.losses.robot_before
    model.load_dynamics_state(candidate.state)
    return model


@pytest.fixture(scope="module")
def candidate(pretrained: WorldModel) -> Candidate:
    before = {name: tensor.clone() for name, tensor in pretrained.state_dict().items()}
    config = FinetuneConfig(steps=60, batch=32, learning_rate=3e-3)
    candidate = DynamicsFinetuner(pretrained, simulation(), config).update(
        TRAINING, HELD_OUT, pretrained
    )
    for name, tensor in pretrained.state_dict().items():
        assert torch.equal(tensor, before[name]), f"finetuning changed the model's {name}"
    return candidate


def running(model: WorldModel, version: int = 3) -> RunningModel:
    weights = model.weights_hash()
    return RunningModel(model, version, "contract", weights, model.frozen_hash(), weights)


# --- finetuning ---------------------------------------------------------------------------------


def test_finetuning_learns_the_changed_world(candidate: Candidate) -> None:
    assert candidate.losses.robot_after < 0.5 * candidate.losses.robot_before
    assert candidate.steps == 60
    assert candidate.episodes == 5
    assert candidate.seconds_of_data == pytest.approx(5 * 150 * 0.02)
    assert candidate.held_out_windows == 150 - SIZES.history - SIZES.horizon


def test_candidate_changes_every_dynamics_tensor_and_not_one_frozen_bit(
    pretrained: WorldModel, candidate: Candidate
) -> None:
    adopted = running(pretrained).with_dynamics(candidate.state, 4).model
    old, new = pretrained.state_dict(), adopted.state_dict()
    for name in old:
        if name.startswith("dynamics."):
            assert not torch.equal(old[name], new[name]), name
        else:
            assert torch.equal(old[name], new[name]), name
    assert adopted.frozen_hash() == pretrained.frozen_hash()


def test_reported_losses_are_those_of_the_plain_network(
    pretrained: WorldModel, candidate: Candidate
) -> None:
    windows = robot_windows(HELD_OUT, SIZES.history, SIZES.horizon)
    batch = windows.get(torch.arange(len(windows)))
    adopted = running(pretrained).with_dynamics(candidate.state, 4).model
    assert candidate.losses.robot_before == pytest.approx(
        dynamics_loss(pretrained, batch).item(), rel=1e-4
    )
    assert candidate.losses.robot_after == pytest.approx(
        dynamics_loss(adopted, batch).item(), rel=1e-4
    )


def test_simulation_data_keeps_the_nominal_world_in_mind(pretrained: WorldModel) -> None:
    after = {}
    for fraction in (0.5, 1.0):
        config = FinetuneConfig(steps=60, batch=32, robot_fraction=fraction, learning_rate=3e-3)
        finetuner = DynamicsFinetuner(pretrained, simulation(), config)
        losses = finetuner.update(TRAINING, HELD_OUT, pretrained).losses
        after[fraction] = losses.simulation_after
    assert after[0.5] < 0.8 * after[1.0]


def test_an_update_can_be_made_in_steps_and_equals_one_made_at_once(
    pretrained: WorldModel,
) -> None:
    finetuner = DynamicsFinetuner(pretrained, simulation(), FinetuneConfig(steps=12, batch=16))
    job = finetuner.start(TRAINING, HELD_OUT, pretrained)
    counts = []
    while job.step(5):
        counts.append(job.done)
    assert counts == [5, 10]
    at_once = finetuner.update(TRAINING, HELD_OUT, pretrained)
    for name, tensor in job.candidate().state.items():
        assert torch.equal(tensor, at_once.state[name]), name


def test_contexts_that_do_not_fit_the_cache_are_the_same_contexts(pretrained: WorldModel) -> None:
    windows = robot_windows(TRAINING, SIZES.history, SIZES.horizon)
    rows = torch.tensor([0, 7, 200, len(windows) - 1])
    cached = EncodedWindows(pretrained, windows, 2**30).batch(rows)
    fresh = EncodedWindows(pretrained, windows, 0).batch(rows)
    torch.testing.assert_close(cached.context, fresh.context)
    torch.testing.assert_close(cached.target, fresh.target)


def test_what_follows_a_fall_is_masked(pretrained: WorldModel) -> None:
    windows = robot_windows(HELD_OUT, SIZES.history, SIZES.horizon)
    end = windows.trajectories.end.clone()
    end[10] = True
    windows.trajectories.end = end
    row = (windows.present == 9).nonzero()[0]
    batch = EncodedWindows(pretrained, windows, 0).batch(row)
    # Steps 9, 10, 11, 12: the state after step 10 is no longer this episode's.
    assert batch.mask.tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_a_loss_that_is_not_finite_ends_the_update_with_a_reason(pretrained: WorldModel) -> None:
    broken = running(pretrained).with_dynamics(pretrained.dynamics_state(), 4).model
    with torch.no_grad():
        broken.dynamics_parameters()[0][0] = torch.nan
    finetuner = DynamicsFinetuner(pretrained, simulation(), FinetuneConfig(steps=3, batch=8))
    job = finetuner.start(TRAINING, HELD_OUT, broken)
    with pytest.raises(AdaptationError, match="loss is nan at step 0"):
        job.step()


def test_too_little_data_and_foreign_frozen_parts_are_refused(pretrained: WorldModel) -> None:
    finetuner = DynamicsFinetuner(pretrained, simulation())
    short = [drive(SLIPPERY, 0, steps=SIZES.history + SIZES.horizon)]
    with pytest.raises(AdaptationError, match="training side"):
        finetuner.start(short, HELD_OUT, pretrained)
    with pytest.raises(AdaptationError, match="held-out side"):
        finetuner.start(TRAINING, [], pretrained)
    torch.manual_seed(1)
    with pytest.raises(AdaptationError, match="frozen parts"):
        finetuner.start(TRAINING, HELD_OUT, WorldModel(SIZES))


def test_finetuning_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"robot_fraction = 1\.5.*0\.0 to 1\.0"):
        FinetuneConfig(robot_fraction=1.5)
    config = FinetuneConfig(steps=100, warm_up=10)
    rates = [config.learning_rate_at(step) for step in range(100)]
    assert rates[0] < 0.2 * max(rates)
    assert rates[-1] < 0.1 * max(rates)
    assert max(rates) == pytest.approx(config.learning_rate, rel=0.05)


# --- gate ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("losses", "seconds", "windows", "accepted", "reason"),
    [
        ((1.0, 0.5, 1.0, 1.0), 60.0, 500, True, "1.0000 -> 0.5000"),
        ((1.0, 0.98, 1.0, 1.1), 60.0, 500, True, ""),
        ((1.0, 0.99, 1.0, 1.0), 60.0, 500, False, "must fall to 0.9800"),
        ((1.0, 1.5, 1.0, 0.5), 60.0, 500, False, "must fall"),
        ((1.0, 0.5, 1.0, 1.11), 60.0, 500, False, "may rise to 1.1000"),
        ((1.0, 0.5, 1.0, 1.0), 19.9, 500, False, "19.9 s of robot data"),
        ((1.0, 0.5, 1.0, 1.0), 60.0, 49, False, "49 held-out windows"),
        ((1.0, float("nan"), 1.0, 1.0), 60.0, 500, False, "not finite"),
        ((1.0, 0.5, 1.0, float("inf")), 60.0, 500, False, "not finite"),
        ((0.0, 0.0, 0.0, 0.0), 60.0, 500, False, "must fall"),
    ],
)
def test_gate(
    losses: tuple[float, ...], seconds: float, windows: int, accepted: bool, reason: str
) -> None:
    offered = Candidate({}, Losses(*losses), 1, 1, seconds, 1000, windows)
    decision = AcceptanceGate(GateConfig()).judge(offered)
    assert decision.accepted is accepted
    assert reason in decision.reason


# --- updates ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def update(pretrained: WorldModel, candidate: Candidate) -> ModelUpdate:
    return pack_update(candidate, running(pretrained), 4)


def test_update_survives_the_journey_and_applies(
    pretrained: WorldModel, candidate: Candidate, update: ModelUpdate
) -> None:
    current = running(pretrained)
    arrived = unpack_update(bytes(update.weights), update.weights_sha256)
    assert arrived == update
    assert arrived.losses == candidate.losses
    assert check_update(arrived, current) is None
    adopted = apply_update(arrived, current)
    assert adopted.version == 4
    assert adopted.root == current.root
    assert adopted.weights_hash == adopted.model.weights_hash() != current.weights_hash
    for name, tensor in adopted.model.dynamics_state().items():
        assert torch.equal(tensor, candidate.state[name])
    assert current.model.weights_hash() == current.weights_hash


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_one_flipped_bit_anywhere_is_refused(
    data: st.DataObject, pretrained: WorldModel, update: ModelUpdate
) -> None:
    place = data.draw(st.integers(0, len(update.weights) - 1))
    bit = data.draw(st.integers(0, 7))
    damaged = bytearray(update.weights)
    damaged[place] ^= 1 << bit
    problem = check_update(dataclasses.replace(update, weights=bytes(damaged)), running(pretrained))
    assert problem is not None
    assert "damaged" in problem
    with pytest.raises(UpdateError):
        unpack_update(bytes(damaged), update.weights_sha256)


@settings(max_examples=30, deadline=None)
@given(length=st.integers(0, 400))
def test_a_truncated_or_made_up_payload_is_refused_even_with_a_matching_hash(
    length: int, update: ModelUpdate
) -> None:
    for payload in (update.weights[:length], bytes(range(256)) * (length // 256 + 1)):
        with pytest.raises(UpdateError):
            unpack_update(payload, hashlib.sha256(payload).hexdigest())


def tampered(candidate: Candidate, pretrained: WorldModel, change) -> ModelUpdate:
    state = {name: tensor.clone() for name, tensor in candidate.state.items()}
    change(state)
    offered = dataclasses.replace(candidate, state=state)
    return pack_update(offered, running(pretrained), 4)


def test_foreign_tensors_are_refused_by_name(pretrained: WorldModel, candidate: Candidate) -> None:
    name = sorted(candidate.state)[0]
    changes = {
        "missing": lambda state: state.pop(name),
        "unknown": lambda state: state.update({"encoder.sneaked_in": torch.zeros(1)}),
        "needs": lambda state: state.update({name: torch.zeros(2, 2)}),
        "float64": lambda state: state.update({name: state[name].double()}),
        "not finite": lambda state: state[name].view(-1)[0].fill_(float("inf")),
    }
    for expected, change in changes.items():
        problem = check_update(tampered(candidate, pretrained, change), running(pretrained))
        assert expected in (problem or ""), expected


def test_updates_of_another_lineage_are_refused(
    pretrained: WorldModel, candidate: Candidate, update: ModelUpdate
) -> None:
    current = running(pretrained)
    table = [
        (dataclasses.replace(current, contract="other"), "contract"),
        (dataclasses.replace(current, frozen_hash="f" * 64), "frozen parts"),
        (dataclasses.replace(current, weights_hash="e" * 64), "is running"),
        (dataclasses.replace(current, version=4), "newer than 4"),
    ]
    for other, expected in table:
        problem = check_update(update, other)
        assert expected in (problem or ""), expected
    assert "newer than 9" in (check_update(update, current, newest_version=9) or "")
    forged = dataclasses.replace(update, version=5)
    assert "do not agree" in (check_update(forged, current) or "")


def test_an_oversized_update_is_refused_before_it_is_parsed(
    pretrained: WorldModel, update: ModelUpdate
) -> None:
    huge = dataclasses.replace(update, weights=bytes(17 * 2**20))
    assert "at most" in (check_update(huge, running(pretrained)) or "")


# --- store --------------------------------------------------------------------------------------


def next_update(store: UpdateStore, shift: float) -> ModelUpdate:
    """An update on top of the store's current model, told apart by ``shift``."""
    state = store.current.model.dynamics_state()
    state = {name: tensor + shift for name, tensor in state.items()}
    offered = Candidate(state, Losses(1.0, 0.5, 1.0, 1.0), 1, 1, 60.0, 100, 100)
    return pack_update(offered, store.current, store.newest_version + 1)


def advance(store: UpdateStore, shift: float = 0.01) -> ModelUpdate:
    update = next_update(store, shift)
    store.adopt(update, store.prepare(update, lambda model: None))
    return update


def test_rollback_returns_through_the_versions_to_the_base(pretrained: WorldModel) -> None:
    store = UpdateStore(running(pretrained))
    hashes = [store.current.weights_hash]
    for _ in range(3):
        advance(store)
        hashes.append(store.current.weights_hash)
    assert len(set(hashes)) == 4
    for expected in reversed(hashes[:-1]):
        assert store.rollback() is not None
        assert store.current.weights_hash == expected
    assert store.rollback() is None
    assert store.current.model is pretrained


def test_a_rolled_back_update_does_not_return_when_it_is_delivered_again(
    pretrained: WorldModel,
) -> None:
    store = UpdateStore(running(pretrained))
    update = advance(store)
    store.rollback()
    with pytest.raises(UpdateError, match="newer than 4"):
        store.prepare(update, lambda model: None)
    advance(store)
    assert store.current.version == 5


def test_an_update_that_fails_its_self_test_is_refused_and_changes_nothing(
    pretrained: WorldModel,
) -> None:
    store = UpdateStore(running(pretrained))
    with pytest.raises(UpdateError, match="self-test: it falls over"):
        store.prepare(next_update(store, 0.1), lambda model: "it falls over")
    assert store.current.model is pretrained


def test_the_last_adopted_update_survives_a_restart_and_so_does_a_rollback(
    pretrained: WorldModel, tmp_path: Path
) -> None:
    store = UpdateStore(running(pretrained), tmp_path)
    advance(store)
    first = store.current.weights_hash
    advance(store)
    again = UpdateStore(running(pretrained), tmp_path)
    assert again.current.weights_hash == store.current.weights_hash
    assert again.current.version == 5
    store.rollback()
    again = UpdateStore(running(pretrained), tmp_path)
    assert again.current.weights_hash == first
    assert again.newest_version == 5
    advance(again)
    assert again.current.version == 6
    assert len(list(tmp_path.iterdir())) == 2  # the record and one update, no leftovers


def test_many_updates_keep_the_newest_and_the_base(pretrained: WorldModel) -> None:
    store = UpdateStore(running(pretrained), keep=2)
    hashes = []
    for _ in range(5):
        advance(store)
        hashes.append(store.current.weights_hash)
    assert store.current.weights_hash == hashes[-1]
    store.rollback()
    assert store.current.weights_hash == hashes[-2]
    store.rollback()
    assert store.current.model is pretrained
    assert store.rollback() is None


@pytest.mark.parametrize("damage", ["record", "weights", "foreign", "missing"])
def test_a_damaged_or_foreign_directory_is_ignored_with_a_warning(
    pretrained: WorldModel, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = UpdateStore(running(pretrained), tmp_path)
    advance(store)
    record, weights = tmp_path / "current.json", next(tmp_path.glob("*.safetensors"))
    if damage == "record":
        record.write_text("{")
    elif damage == "weights":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif damage == "missing":
        weights.unlink()
    else:
        facts = json.loads(record.read_text())
        record.write_text(json.dumps({**facts, "root": "0" * 64}))
    again = UpdateStore(running(pretrained), tmp_path)
    assert again.current.model is pretrained
    assert "ignored" in caplog.text
    advance(again)
    assert UpdateStore(running(pretrained), tmp_path).current.version == again.current.version


def test_an_update_that_cannot_be_written_down_is_not_adopted(
    pretrained: WorldModel, tmp_path: Path
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    store = UpdateStore(running(pretrained))
    store._directory = blocked
    update = next_update(store, 0.1)
    prepared = store.prepare(update, lambda model: None)
    with pytest.raises(Exception, match="cannot write"):
        store.adopt(update, prepared)
    assert store.current.model is pretrained
    assert store.newest_version == 3
