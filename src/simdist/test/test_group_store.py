"""Robot data on disk: bounded, whole or not at all, and on the same side after a restart."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simdist.errors import BagError
from simdist.replay import Episode, GroupStore, ReplayBuffer

DT = 20_000_000
GROUP = 20


def episode(first: int, length: int, number: int = 1, contract: str = "c") -> Episode:
    k = np.arange(first, first + length)
    rows = np.stack([k, k], 1).astype(np.float32)
    return Episode(k * DT, rows, rows, rows, np.zeros((length, 3), np.float32), number, contract)


def buffer(store: GroupStore | None, capacity: int = 60) -> ReplayBuffer:
    return ReplayBuffer(DT, capacity_steps=capacity, group_steps=GROUP, store=store)


def rows(episodes) -> list[int]:
    return [int(value) for e in episodes for value in e.proprio[:, 0]]


@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    runs=st.lists(st.lists(st.integers(1, 35), max_size=5), min_size=1, max_size=4),
    capacity=st.integers(20, 80),
    on_disk=st.integers(100, 400),
)
def test_restarts_lose_nothing_and_no_row_ever_changes_its_side(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[list[int]],
    capacity: int,
    on_disk: int,
) -> None:
    directory = tmp_path_factory.mktemp("data")
    side: dict[int, bool] = {}
    received: list[int] = []
    for number, segments in enumerate(runs, 1):
        store = GroupStore(directory, on_disk)
        kept = buffer(store, capacity)
        for length in segments:
            first = len(received)
            kept.add(episode(first, length, number))
            received += range(first, first + length)
            assert len(kept) <= capacity
        kept.save()
        in_memory = [(row, out) for out in (False, True) for row in rows(kept.episodes(out))]
        stored = [(row, out) for out in (False, True) for row in rows(store.episodes(out))]
        for row, out in (*in_memory, *stored):
            assert side.setdefault(row, out) == out
        assert {row for row, _ in in_memory} <= {row for row, _ in stored}
        # The newest rows that there is room for, without a hole.
        assert sorted(row for row, _ in stored) == received[len(received) - len(stored) :]
        assert len(store) <= max(on_disk, GROUP)
        assert len(stored) == len(received) or len(store) > on_disk - GROUP
        store.close()


def test_what_memory_has_no_room_for_stays_on_disk(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    full = buffer(store)
    full.add(episode(0, 10 * GROUP))
    statistics = full.statistics()
    assert (statistics.steps, statistics.forgotten_steps) == (60, 140)
    assert statistics.stored_steps == 200
    assert sorted([*rows(store.episodes(True)), *rows(store.episodes(False))]) == list(range(200))


def test_a_restarted_buffer_begins_with_the_newest_data(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    before = buffer(store)
    before.add(episode(0, 110))
    before.save()
    sides = [rows(before.episodes(out)) for out in (False, True)]
    store.close()
    after = buffer(GroupStore(tmp_path))
    assert after.statistics().restored_steps == len(before)
    assert [rows(after.episodes(out)) for out in (False, True)] == sides
    after.add(episode(110, 10))
    assert len(after.episodes(False) + after.episodes(True)) == 4, "a group of its own"


def test_two_processes_do_not_share_a_directory(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    with pytest.raises(BagError, match="another process"):
        GroupStore(tmp_path)
    store.close()
    GroupStore(tmp_path).close()
    (tmp_path / "file").write_text("")
    with pytest.raises(BagError, match="cannot keep"):
        GroupStore(tmp_path / "file" / "below")


@pytest.mark.parametrize("damage", ["empty", "torn", "garbage", "pickle", "longer than said"])
def test_damaged_files_are_left_out_and_counted(tmp_path: Path, damage: str) -> None:
    store = GroupStore(tmp_path)
    kept = buffer(store)
    kept.add(episode(0, 60))
    store.close()
    middle = sorted(tmp_path.glob("*.safetensors"))[1]
    whole = middle.read_bytes()
    (tmp_path / "group_000000009_t_000020.part").write_bytes(whole[:100])
    if damage == "longer than said":
        middle.rename(middle.with_name(middle.name.replace("000020", "000019")))
    else:
        middle.write_bytes(
            {"empty": b"", "torn": whole[:-50], "garbage": bytes(500), "pickle": b"\x80\x04."}[
                damage
            ]
        )
    store = GroupStore(tmp_path)
    after = buffer(store)
    assert store.damaged == 1
    assert len(after) == 40
    assert not list(tmp_path.glob("*.part"))


def test_data_of_another_model_is_not_mixed_in(tmp_path: Path) -> None:
    store = GroupStore(tmp_path)
    buffer(store).add(episode(0, 60))
    store.close()
    other = ReplayBuffer(DT, contract="other", group_steps=GROUP, store=GroupStore(tmp_path))
    assert len(other) == 0
    assert other.statistics().refused_steps == 60


def test_a_full_disk_ends_the_keeping_and_nothing_else(tmp_path: Path, monkeypatch) -> None:
    store = GroupStore(tmp_path)
    kept = buffer(store)
    kept.add(episode(0, 20))

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    kept.add(episode(20, 60))
    assert store.error is not None
    assert "No space left" in store.error
    assert len(kept) == 60
    store.close()
    monkeypatch.undo()
    assert buffer(GroupStore(tmp_path)).statistics().restored_steps == 20
