"""Windows: the right steps, nothing across an episode's end, and an honest split."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic import tiny_observation, write_shard

from simdist import robots
from simdist.distillation.windows import WindowData, load_windows
from simdist.errors import ArtefactError, ContractError, DatasetError
from simdist.world_model import Contract, WorldModelConfig
from simdist.world_model.simulation_replay import SimulationReplay, export_simulation_replay
from simdist.world_model.windows import Trajectories, WindowIndex, WindowSet, find_windows

HISTORY, HORIZON = 3, 4


def trajectories(fall: np.ndarray, end: np.ndarray, rows: list[int]) -> Trajectories:
    """Steps that carry their own index in every quantity."""
    steps = len(end)
    index = torch.arange(steps, dtype=torch.float32)
    column = index[:, None]
    return Trajectories(
        proprio=column,
        scan=column.half(),
        action=column + 0.25,
        expert_action=column + 0.5,
        command=column.expand(-1, 3),
        reward=index + 1,
        value=index + 1000,
        fall=torch.from_numpy(fall),
        end=torch.from_numpy(end),
        is_expert=torch.ones(steps, dtype=torch.bool),
        row_lengths=np.array(rows),
    )


def window_set(data: Trajectories, index: WindowIndex) -> WindowSet:
    return WindowSet(
        data,
        index,
        torch.ones(len(index.present), dtype=torch.bool),
        history=HISTORY,
        horizon=HORIZON,
        noise_std=torch.tensor([0.1]),
    )


def test_a_window_holds_the_steps_it_should() -> None:
    none = np.zeros(20, bool)
    data = trajectories(none, none, [20])
    data.is_expert[7] = False
    index = find_windows(data, HISTORY, HORIZON, pad_starts=False)
    assert index.present.tolist() == list(range(3, 16))
    windows = window_set(data, index)
    batch = windows.get(torch.tensor([3]))
    present = 6
    assert batch.proprio_history[0, :, 0].tolist() == [3, 4, 5, 6]
    assert batch.action_history[0, :, 0].tolist() == [3.25, 4.25, 5.25]
    assert batch.scan.tolist() == [[present]]
    assert batch.actions[0, :, 0].tolist() == [6.25, 7.25, 8.25, 9.25]
    assert batch.expert_actions[0, :, 0].tolist() == [6.5, 7.5, 8.5, 9.5]
    assert batch.commands[0, :, 0].tolist() == [6, 7, 8, 9, 10]
    assert batch.target_proprio[0, :, 0].tolist() == [7, 8, 9, 10]
    assert batch.target_scan[0, :, 0].tolist() == [7, 8, 9, 10]
    assert batch.rewards[0].tolist() == [7, 8, 9, 10]
    assert batch.values[0].tolist() == [1007, 1008, 1009, 1010]
    assert batch.alive[0].tolist() == [1, 1, 1, 1]
    # Step 7 was not the expert's: labels of the steps after it are for another state.
    assert batch.expert_mask[0].tolist() == [1, 1, 0, 0]


def test_a_fall_is_absorbing() -> None:
    fall = np.zeros(20, bool)
    fall[7] = True
    data = trajectories(fall, fall, [20])
    index = find_windows(data, HISTORY, HORIZON, pad_starts=False)
    batch = window_set(data, index).get(torch.nonzero(index.present == 6).flatten())
    assert batch.alive[0].tolist() == [1, 0, 0, 0]
    assert batch.rewards[0].tolist() == [7, 8, 0, 0]
    assert batch.values[0].tolist() == [1007, 0, 0, 0]
    assert batch.expert_mask[0].tolist() == [1, 1, 0, 0]


def test_starts_are_padded_like_a_history_after_a_reset() -> None:
    end = np.zeros(20, bool)
    end[9] = True
    data = trajectories(np.zeros(20, bool), end, [20])
    index = find_windows(data, HISTORY, HORIZON, pad_starts=True)
    batch = window_set(data, index).get(torch.nonzero(index.present == 11).flatten())
    assert batch.proprio_history[0, :, 0].tolist() == [10, 10, 10, 11]
    assert batch.action_history[0, :, 0].tolist() == [0, 0, 10.25]


@settings(max_examples=80, deadline=None)
@given(data=st.data(), pad=st.booleans())
def test_no_window_crosses_a_time_out_a_row_or_the_start_of_its_past(
    data: st.DataObject, pad: bool
) -> None:
    rows = data.draw(st.lists(st.integers(1, 25), min_size=1, max_size=4))
    steps = sum(rows)
    end = np.array(data.draw(st.lists(st.booleans(), min_size=steps, max_size=steps)))
    end &= np.array(data.draw(st.lists(st.booleans(), min_size=steps, max_size=steps)))
    fall = end & np.array(data.draw(st.lists(st.booleans(), min_size=steps, max_size=steps)))
    index = find_windows(trajectories(fall, end, rows), HISTORY, HORIZON, pad_starts=pad)

    row = np.repeat(np.arange(len(rows)), rows)
    expected = []
    for present in range(steps):
        if present + HORIZON >= steps or row[present] != row[present + HORIZON]:
            continue
        if (end & ~fall)[present : present + HORIZON].any():
            continue
        start = present
        while start > 0 and not end[start - 1] and row[start - 1] == row[present]:
            start -= 1
        if pad or present - start >= HISTORY:
            expected.append((present, start))
    assert list(zip(index.present.tolist(), index.episode_start.tolist(), strict=True)) == expected


def test_noise_touches_the_past_and_never_the_targets() -> None:
    none = np.zeros(20, bool)
    data = trajectories(none, none, [20])
    windows = window_set(data, find_windows(data, HISTORY, HORIZON, pad_starts=False))
    indices = torch.arange(len(windows))
    clean = windows.get(indices)
    noisy = windows.get(indices, 0.5, torch.Generator().manual_seed(0))
    error = noisy.proprio_history - clean.proprio_history
    assert 0.03 < error.std() < 0.07
    assert (error[:, -1] != 0).all()
    for name in ("target_proprio", "target_scan", "scan", "actions", "action_history"):
        assert torch.equal(getattr(noisy, name), getattr(clean, name)), name


def test_a_fall_that_ends_nothing_is_refused() -> None:
    fall = np.zeros(20, bool)
    fall[3] = True
    with pytest.raises(DatasetError, match="does not end"):
        trajectories(fall, np.zeros(20, bool), [20])


def load(directory: Path, **options: float) -> WindowData:
    return load_windows([directory], HORIZON, **options)  # type: ignore[arg-type]


def environments_of(windows: WindowSet, steps: int) -> set[int]:
    return set((windows.present // steps).tolist())


def test_training_and_validation_share_no_environment(tmp_path: Path) -> None:
    for number in range(2):
        write_shard(tmp_path / f"shard_{number:04}.h5", environments=5, steps=40, seed=number)
    data = load(tmp_path, validation_fraction=0.4)
    train, validation = (environments_of(part, 40) for part in (data.train, data.validation))
    assert train | validation == set(range(10))
    assert not train & validation
    assert len(validation & set(range(5))) == len(validation & set(range(5, 10))) == 2
    again = load(tmp_path, validation_fraction=0.4)
    assert torch.equal(again.train.present, data.train.present)
    assert again.sha256 == data.sha256


def test_shards_lie_end_to_end_as_written(tmp_path: Path) -> None:
    for number, steps in enumerate((30, 50)):
        write_shard(tmp_path / f"shard_{number:04}.h5", environments=2, steps=steps, seed=number)
    data = load(tmp_path).train.trajectories
    with h5py.File(tmp_path / "shard_0001.h5") as file:
        for name in ("proprio", "scan", "action", "command", "reward", "value"):
            stored = np.asarray(file[name])
            kept = getattr(data, name)[60:].numpy()
            np.testing.assert_array_equal(kept, stored.reshape(kept.shape))
    assert data.scan.dtype == torch.float16


def test_policy_only_shards_never_teach_the_world(tmp_path: Path) -> None:
    write_shard(tmp_path / "shard_0000.h5", steps=40)
    write_shard(tmp_path / "shard_0001.h5", steps=40, role="policy_only")
    windows = load(tmp_path).train
    first_of_second_shard = 4 * 40
    policy_only = windows.present[windows.policy_only_indices]
    assert len(policy_only) > 0
    assert (policy_only >= first_of_second_shard).all()
    assert (windows.present[windows.world_indices] < first_of_second_shard).all()
    batch = windows.get(windows.policy_only_indices[:2])
    assert batch.world.tolist() == [0, 0]


@pytest.mark.parametrize("name", ["proprio", "is_expert"])
def test_a_shard_without_an_array_is_named(tmp_path: Path, name: str) -> None:
    path = write_shard(tmp_path / "shard_0000.h5")
    with h5py.File(path, "a") as file:
        del file[name]
    with pytest.raises(DatasetError, match=f"shard_0000.*{name}"):
        load(tmp_path)


def test_bad_shards_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DatasetError, match="simdist collect"):
        load(tmp_path / "empty")
    path = write_shard(tmp_path / "shard_0000.h5")
    with h5py.File(path, "a") as file:
        file["action"][1, 2, 3] = np.nan
    with pytest.raises(DatasetError, match="action holds values that are not finite"):
        load(tmp_path)
    write_shard(path, role="everything")
    with pytest.raises(DatasetError, match="everything"):
        load(tmp_path)
    write_shard(path)
    write_shard(tmp_path / "shard_0001.h5", robot="go7")
    with pytest.raises(DatasetError, match="disagree about the robot"):
        load(tmp_path)
    (tmp_path / "shard_0001.h5").write_bytes(path.read_bytes()[:5000])
    with pytest.raises(DatasetError, match="shard_0001"):
        load(tmp_path)


def contract(horizon: int = HORIZON) -> Contract:
    network = WorldModelConfig(proprio_dim=14, scan_shape=(4, 3), history=HISTORY, horizon=horizon)
    return Contract.of(robots.get("go1"), tiny_observation(), network)


def test_the_simulation_excerpt_keeps_whole_windows(tmp_path: Path) -> None:
    write_shard(tmp_path / "data/shard_0000.h5", environments=6, steps=60, falls={1: [30], 3: [40]})
    write_shard(tmp_path / "data/shard_0001.h5", steps=60, role="policy_only")
    data = load(tmp_path / "data", validation_fraction=0.34)
    path = export_simulation_replay(
        tmp_path / "replay.safetensors", data.train, data.validation, contract(), 100
    )
    replay = SimulationReplay.load(path, contract())
    assert len(replay.train) == 80
    assert len(replay.validation) == 20
    for excerpt, source in (
        (replay.train, data.train),
        (replay.validation, data.validation),
    ):
        # proprioception starts with the number of the step, in thousands
        present = excerpt.get(torch.arange(len(excerpt))).proprio_history[:, -1, 0] * 1000
        offset = {int(step): at for at, step in enumerate(source.present.tolist())}
        steps = [round(float(step)) for step in present]
        assert set(steps) <= set(offset)
        copy = excerpt.get(torch.arange(len(excerpt)))
        original = source.get(torch.tensor([offset[step] for step in steps]))
        assert original.world.all()
        assert (copy.scan - original.scan).abs().max() <= 0.003
        assert (copy.target_proprio - original.target_proprio).abs().max() < 2e-3
        assert (copy.actions - original.actions).abs().max() < 2e-3
        assert torch.equal(copy.alive, original.alive)


def test_a_foreign_or_damaged_excerpt_is_refused(tmp_path: Path) -> None:
    write_shard(tmp_path / "data/shard_0000.h5", steps=60)
    data = load(tmp_path / "data")
    path = export_simulation_replay(
        tmp_path / "replay.safetensors", data.train, data.validation, contract(), 20
    )
    with pytest.raises(ContractError, match="horizon"):
        SimulationReplay.load(path, contract(horizon=5))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ArtefactError, match="damaged"):
        SimulationReplay.load(path, contract())
    with pytest.raises(ArtefactError, match="nowhere"):
        SimulationReplay.load(tmp_path / "nowhere", contract())
