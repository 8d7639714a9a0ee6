"""Pairing, gaps, windows and the bounded buffer: no window may tell a story that never happened."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.errors import BagError
from simdist.replay import Episode, EpisodeRecorder, ReplayBuffer, data_hash, join
from simdist.types import AppliedStep, Mode

DT = 20_000_000
H, T = 3, 4


def row(k: int) -> np.ndarray:
    return np.array([k, -k], np.float32)


def applied(k: int, mode: Mode = Mode.ACTIVE, *, stamp: int | None = None) -> AppliedStep:
    return AppliedStep(k * DT if stamp is None else stamp, k, row(k), row(k), mode, 1, 0)


def observe(recorder: EpisodeRecorder, k: int, value: float = 0.0, shift: int = 0) -> None:
    recorder.observe(k * DT + shift, k, row(k) + np.float32(value), row(k), np.zeros(3))


def episodes_of(recorder: EpisodeRecorder) -> list[list[int]]:
    recorder.close()
    result = []
    for episode in join(recorder.take_segments(), DT):
        steps = [int(s) // DT for s in episode.stamp_ns]
        # Every row must hold what belongs to its own step.
        np.testing.assert_array_equal(episode.proprio[:, 0], steps)
        np.testing.assert_array_equal(episode.action[:, 0], steps)
        result.append(steps)
    return result


def episode(first: int, length: int, number: int = 1) -> Episode:
    k = np.arange(first, first + length)
    rows = np.stack([k, k], 1).astype(np.float32)
    return Episode(k * DT, rows, rows, rows, np.zeros((length, 3), np.float32), number, "c")


# ------------------------------------------------------------------ recorder


def test_steps_are_paired_by_stamp_across_segments() -> None:
    recorder = EpisodeRecorder(DT, segment_steps=10)
    for k in range(35):
        recorder.apply(applied(k))
        observe(recorder, k, shift=1_000_000)
    recorder.close()
    segments = recorder.take_segments()
    assert [len(s) for s in segments] == [10, 10, 10, 5]
    assert {s.episode for s in segments} == {1}
    assert [len(e) for e in join(segments, DT)] == [35]
    assert recorder.status().dropped == 0


@given(order=st.permutations([(kind, k) for kind in "oa" for k in range(12)]))
@settings(max_examples=50, deadline=None)
def test_order_of_arrival_does_not_matter(order: list[tuple[str, int]]) -> None:
    recorder = EpisodeRecorder(DT)
    # The run has begun, so the recorder knows which step comes next.
    observe(recorder, -1)
    recorder.apply(AppliedStep(-DT, -1, row(-1), row(-1), Mode.ACTIVE, 1, 0))
    for kind, k in order:
        if kind == "o":
            observe(recorder, k)
        else:
            recorder.apply(applied(k))
    assert episodes_of(recorder) == [list(range(-1, 12))]


@pytest.mark.parametrize("lost", ["observation", "applied", "both"])
def test_lost_step_ends_the_episode(lost: str) -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(20):
        if k != 8 or lost == "observation":
            recorder.apply(applied(k))
        if k != 8 or lost == "applied":
            observe(recorder, k)
    assert episodes_of(recorder) == [list(range(8)), list(range(9, 20))]


@given(lost=st.sets(st.tuples(st.sampled_from("oa"), st.integers(0, 79)), max_size=12))
@settings(max_examples=50, deadline=None)
def test_no_episode_ever_spans_a_lost_step(lost: set[tuple[str, int]]) -> None:
    recorder = EpisodeRecorder(DT, segment_steps=7)
    for k in range(80):
        if ("a", k) not in lost:
            recorder.apply(applied(k))
        if ("o", k) not in lost:
            observe(recorder, k)
    found = episodes_of(recorder)
    gone = {k for _, k in lost}
    assert sorted(k for steps in found for k in steps) == sorted(set(range(80)) - gone)
    for steps in found:
        assert steps == list(range(steps[0], steps[0] + len(steps)))


@pytest.mark.parametrize("mode", [m for m in Mode if m != Mode.ACTIVE])
def test_only_active_steps_are_learned_from(mode: Mode) -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(15):
        recorder.apply(applied(k, mode if 5 <= k < 10 else Mode.ACTIVE))
        observe(recorder, k)
    assert episodes_of(recorder) == [list(range(5)), list(range(10, 15))]
    assert recorder.status().dropped == 0


def test_restarted_publisher_ends_the_episode() -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(10):
        recorder.apply(applied(k))
        recorder.observe(k * DT, k if k < 6 else k - 6, row(k), row(k), np.zeros(3))
    assert episodes_of(recorder) == [list(range(6)), list(range(6, 10))]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_value_that_is_not_finite_ends_the_episode(value: float) -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(10):
        recorder.apply(applied(k))
        observe(recorder, k, value if k == 4 else 0.0)
    assert episodes_of(recorder) == [list(range(4)), list(range(5, 10))]
    assert recorder.status().dropped > 0


def test_duplicates_change_nothing() -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(10):
        for _ in range(2):
            recorder.apply(applied(k))
            observe(recorder, k)
    assert episodes_of(recorder) == [list(range(10))]


def test_clock_that_starts_over_begins_a_new_episode() -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(100):
        recorder.apply(applied(k))
        observe(recorder, k)
    for k in range(10):
        recorder.apply(AppliedStep(k * DT, 100 + k, row(k), row(k), Mode.ACTIVE, 1, 0))
        recorder.observe(k * DT, 100 + k, row(k), row(k), np.zeros(3))
    assert episodes_of(recorder) == [list(range(100)), list(range(10))]


def test_memory_stays_bounded_when_one_stream_is_silent() -> None:
    recorder = EpisodeRecorder(DT)
    for k in range(2000):
        observe(recorder, k)
    assert len(recorder._observed) < 100
    for k in range(2000, 4000):
        recorder.apply(applied(k))
    assert len(recorder._applied) < 100


# ------------------------------------------------------------------ windows


def test_window_rows_are_those_of_the_distillation_windows() -> None:
    data = episode(100, 20)
    assert list(data.window_starts(H, T)) == list(range(H, 20 - T))
    windows = data.windows(data.window_starts(H, T)[:1], H, T)
    i = 100 + H
    assert list(windows.proprio_history[0, :, 0]) == [i - 3, i - 2, i - 1, i]
    assert list(windows.action_history[0, :, 0]) == [i - 3, i - 2, i - 1]
    assert list(windows.future_action[0, :, 0]) == [i, i + 1, i + 2, i + 3]
    assert list(windows.future_proprio[0, :, 0]) == [i + 1, i + 2, i + 3, i + 4]
    assert windows.scan[0, 0] == i
    assert windows.command.shape == (1, T + 1, 3)


def test_short_episode_has_no_window() -> None:
    assert len(episode(0, H + T).window_starts(H, T)) == 0
    assert len(episode(0, H + T + 1).window_starts(H, T)) == 1


def test_episode_survives_its_dictionary() -> None:
    data = episode(5, 7)
    again = Episode.from_dict(data.to_dict())
    assert data_hash([again]) == data_hash([data])
    assert (again.episode, again.contract) == (1, "c")
    with pytest.raises(BagError, match="scan"):
        Episode.from_dict({k: v for k, v in data.to_dict().items() if k != "scan"})


# ------------------------------------------------------------------ buffer


@given(
    lengths=st.lists(st.tuples(st.integers(1, 90), st.booleans()), min_size=1, max_size=12),
    capacity=st.integers(40, 400),
)
@settings(max_examples=60, deadline=None)
def test_buffer_stays_bounded_and_never_mixes_the_split(
    lengths: list[tuple[int, bool]], capacity: int
) -> None:
    buffer = ReplayBuffer(DT, capacity_steps=capacity, group_steps=40)
    k, number, total = 0, 1, 0
    for length, gap in lengths:
        if gap:
            k, number = k + 5, number + 1
        buffer.add(episode(k, length, number))
        k, total = k + length, total + length
        assert len(buffer) <= capacity
    statistics = buffer.statistics()
    assert statistics.steps + statistics.forgotten_steps == total
    rows = {side: set[float]() for side in (False, True)}
    for side in rows:
        for windows in buffer.windows(H, T, held_out=side):
            steps = np.concatenate(
                [windows.proprio_history[..., 0], windows.future_proprio[..., 0]], axis=1
            )
            np.testing.assert_array_equal(np.diff(steps, axis=1), 1)
            rows[side].update(steps.ravel())
    assert not rows[False] & rows[True]


def test_windows_cross_segments_but_not_gaps() -> None:
    buffer = ReplayBuffer(DT, group_steps=100)
    buffer.add(episode(0, 10))
    buffer.add(episode(10, 10))
    assert buffer.window_count(H, T, held_out=False) == 20 - H - T
    buffer.add(episode(21, 10, 2))
    assert buffer.window_count(H, T, held_out=False) == 20 - H - T
    assert buffer.window_count(H, T, held_out=True) == 10 - H - T


def test_same_data_and_seed_give_the_same_sample() -> None:
    samples = []
    for chunk in (7, 50):
        buffer = ReplayBuffer(DT, group_steps=60)
        for first in range(0, 350, chunk):
            buffer.add(episode(first, chunk))
        samples.append(buffer.sample(np.random.default_rng(3), 64, H, T))
    np.testing.assert_array_equal(samples[0].proprio_history, samples[1].proprio_history)
    assert len(samples[0]) == 64


def test_empty_buffer_says_so() -> None:
    with pytest.raises(BagError, match="no window"):
        ReplayBuffer(DT).sample(np.random.default_rng(0), 4, H, T)


def test_segment_of_another_model_or_shape_is_refused_and_counted() -> None:
    buffer = ReplayBuffer(DT, contract="mine")
    with pytest.raises(BagError, match="contract"):
        buffer.add(episode(0, 10))
    buffer = ReplayBuffer(DT)
    buffer.add(episode(0, 10))
    wide = episode(10, 10).to_dict() | {"scan": np.zeros((10, 5), np.float32)}
    with pytest.raises(BagError, match="layout"):
        buffer.add(Episode.from_dict(wide))
    poisoned = episode(10, 10)
    poisoned.action[3, 0] = np.nan
    with pytest.raises(BagError, match="finite"):
        buffer.add(poisoned)
    assert buffer.statistics().refused_steps == 20
    assert len(buffer) == 10
