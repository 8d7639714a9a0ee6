"""Whatever a recording holds: what is read is right, what is not is counted, order is nothing."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bag_rig import (
    DT,
    OBSERVATION,
    ROBOT,
    START,
    TOPICS,
    Message,
    applied,
    observation,
    record,
    walk,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.enums import CompressionFormat, CompressionMode

from simdist.errors import BagError
from simdist.replay.bag import BagReport, read_episodes
from simdist.replay.episode import Episode, unseen
from simdist.replay.mcap import MAGIC, Limits, McapFile
from simdist.replay.messages import parse_definition, same_definition, typestore
from simdist.replay.recovery import summarise

STEPS = 40
DAY = 86400 * 10**9


def read(path: Path, **options: Any) -> tuple[list[Episode], BagReport]:
    return read_episodes(path, ROBOT, **{"contract": "c", **options})


def assert_true_rows(episodes: list[Episode]) -> None:
    """Every row pairs what was observed at a step with what was applied in it."""
    for episode in episodes:
        k = (episode.stamp_ns - START) // DT
        np.testing.assert_array_equal(episode.proprio[:, 0], k)
        np.testing.assert_allclose(episode.action[:, 0], k, rtol=1e-6)
        assert (np.diff(k) == 1).all()


def nan_at(array: np.ndarray, value: float = np.nan) -> np.ndarray:
    array = array.copy()
    array[-1] = value
    return array


def seen(k: int, *values: Any, **changed: Any) -> Message:
    return "/observation", observation(k, *values, **changed)


def done(k: int, *values: Any, **changed: Any) -> Message:
    return "/applied_command", applied(k, *values, **changed)


#: What can happen to step k, and the reason under which it is counted.
FAULTS = {
    "observation lost": lambda k: ([done(k)], "observation missing"),
    "applied command lost": lambda k: ([seen(k)], "applied command missing"),
    "both lost": lambda k: ([], "applied command missing"),
    "not a number": lambda k: (
        [done(k), seen(k, proprio=nan_at(np.full(35, k, np.float32)))],
        "observation not finite",
    ),
    "infinite action": lambda k: (
        [done(k, action=nan_at(np.full(12, k, np.float32), np.inf)), seen(k)],
        "applied command not finite",
    ),
    "absurd value": lambda k: (
        [done(k), seen(k, scan=nan_at(np.full(20, k, np.float32), 1e30))],
        "observation with absurd values",
    ),
    "other contract": lambda k: (
        [done(k), seen(k, "other")],
        "observation of another contract",
    ),
    "other layout": lambda k: (
        [done(k), seen(k, proprio=np.full(34, k, np.float32))],
        "observation of another layout",
    ),
    "other robot": lambda k: (
        [done(k, names=("elbow", *ROBOT.joint_names[1:])), seen(k)],
        "joint names",
    ),
    "stamp zero": lambda k: (
        [done(k), seen(k, stamp_ns=0)],
        "observation missing",
    ),
    "stamp negative": lambda k: (
        [done(k, stamp_ns=-5 * 10**9), seen(k)],
        "applied command missing",
    ),
    "stamp in the far future": lambda k: (
        [done(k), seen(k, stamp_ns=START + 300 * DAY)],
        "observation missing",
    ),
    "another clock": lambda k: (
        [done(k, stamp_ns=1_700_000_000 * 10**9 + k), seen(k)],
        "applied command missing",
    ),
    "two of one stamp": lambda k: (
        [done(k), seen(k), seen(k, sequence=k + 1000)],
        "observations that share a stamp and differ",
    ),
}


def messages_of(events: dict[int, str], steps: int = STEPS) -> list[Message]:
    messages: list[Message] = []
    for k in range(steps):
        messages += FAULTS[events[k]](k)[0] if k in events else [done(k), seen(k)]
    return messages


@pytest.mark.parametrize("fault", FAULTS)
def test_a_bad_step_is_cut_out_counted_and_costs_nothing_else(tmp_path: Path, fault: str) -> None:
    record(tmp_path / "bag", messages_of({15: fault}))
    episodes, report = read(tmp_path / "bag")
    assert_true_rows(episodes)
    assert [len(e) for e in episodes] == [15, STEPS - 16]
    reason = FAULTS[fault](15)[1]
    assert report.lost.get(reason) == pytest.approx(0.02), report.lost
    assert any("lost" in line for line in report.lines())
    assert report.seconds_lost == pytest.approx(0.02)


@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    events=st.dictionaries(st.integers(0, STEPS - 1), st.sampled_from(sorted(FAULTS)), max_size=6),
    seed=st.integers(0, 1000),
    repeats=st.lists(st.integers(0, 2 * STEPS), max_size=5),
)
def test_any_mixture_of_faults_in_any_order_of_arrival_gives_the_same_true_data(
    tmp_path_factory: pytest.TempPathFactory, events: dict[int, str], seed: int, repeats: list[int]
) -> None:
    tmp_path = tmp_path_factory.mktemp("bags")
    messages = messages_of(events)
    record(tmp_path / "a", messages)
    shuffled = messages + [messages[i] for i in repeats if i < len(messages)]
    random.Random(seed).shuffle(shuffled)
    record(tmp_path / "b", shuffled)
    try:
        episodes, first = read(tmp_path / "a")
    except BagError:
        with pytest.raises(BagError):
            read(tmp_path / "b")
        return
    _, second = read(tmp_path / "b")
    assert_true_rows(episodes)
    kept = {int(k) for e in episodes for k in (e.stamp_ns - START) // DT}
    assert kept == set(range(STEPS)) - set(events)
    assert first.data_hash == second.data_hash
    assert first.lost == second.lost
    assert first.rejected == second.rejected
    if events:
        assert first.seconds_lost > 0 or set(events) <= _edge(events)


def _edge(events: dict[int, str]) -> set[int]:
    """Steps lost before the first or behind the last one known: nobody can miss them."""
    gone = {k for k, fault in events.items() if FAULTS[fault](k)[1] == "applied command missing"}
    edge: set[int] = set()
    for order in (range(STEPS), reversed(range(STEPS))):
        for k in order:
            if k not in gone:
                break
            edge.add(k)
    return edge


def test_messages_sent_again_are_no_loss(tmp_path: Path) -> None:
    messages = walk(STEPS)
    record(tmp_path / "bag", messages + messages[10:15])
    _, report = read(tmp_path / "bag")
    assert report.steps == STEPS
    assert report.repeated == {"observation": 2, "applied command": 3}
    assert (report.rejected, report.lost) == ({}, {})


def test_runs_too_short_to_learn_from_are_dropped_and_counted(tmp_path: Path) -> None:
    record(tmp_path / "bag", messages_of({5: "both lost"}))
    episodes, report = read(tmp_path / "bag", min_steps=10)
    assert [len(e) for e in episodes] == [STEPS - 6]
    assert report.lost["in runs shorter than 10 steps"] == pytest.approx(0.1)


def test_modes_other_than_active_are_no_loss(tmp_path: Path) -> None:
    messages = [m for k in range(STEPS) for m in (
        ("/applied_command", applied(k, mode=3 if k < 10 or k >= 20 else 2)),
        ("/observation", observation(k)),
    )]  # fmt: skip
    record(tmp_path / "bag", messages)
    episodes, report = read(tmp_path / "bag")
    assert [len(e) for e in episodes] == [10, 20]
    assert report.lost == {}


def test_messages_of_an_older_version_are_rejected_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    store = typestore()
    text = store.generate_msgdef(OBSERVATION, ros_version=2)[0]
    older = text.replace("bool active\n", "")
    assert older != text
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        old = writer.add_connection(
            "/observation", OBSERVATION, msgdef=older, rihs01="RIHS01_" + 64 * "0"
        )
        writer.write(old, 1, observation(0))
        steps = writer.add_connection("/applied_command", TOPICS["/applied_command"],
                                      typestore=store)  # fmt: skip
        writer.write(steps, 1, applied(0))
    with pytest.raises(BagError, match="another version"):
        read(path)
    # Two recorders of different versions put into one directory.
    record(tmp_path / "new", walk(STEPS))
    (path / "new.mcap").write_bytes((tmp_path / "new" / "new.mcap").read_bytes())
    _, report = read(path)
    assert report.steps == STEPS
    assert report.rejected["Observation in another version"] == 1


def test_the_same_definition_may_be_written_differently() -> None:
    text = typestore().generate_msgdef(OBSERVATION, ros_version=2)[0]
    assert same_definition(OBSERVATION, "ros2msg", text.replace("bool active", "# x\nbool  active"))
    assert not same_definition(OBSERVATION, "ros2msg", text.replace("float32[3]", "float64[3]"))
    assert not same_definition(OBSERVATION, "ros2msg", "][")


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("a/msg/B:\n import os #", "uint8 x\n"),
        ("a/msg/B", "uint8 x; import os\n"),
        ("a/msg/B", "uint8 __import__\n"),
        ("a/msg/B", "uint8 x\n" * 100_000),
    ],
)
def test_definitions_that_could_become_code_are_refused(kind: str, text: str) -> None:
    with pytest.raises(BagError):
        parse_definition(kind, text)


def test_definitions_carry_no_constants_into_generated_code() -> None:
    text = "string EVIL=');import os;('\nuint8 x\n"
    assert [name for name, _ in parse_definition("a/msg/B", text)["a/msg/B"]] == ["x"]


# --- what is larger than it pretends, or far too large --------------------------------------------


def mcap(path: Path, *records: tuple[int, bytes]) -> Path:
    header = struct.pack("<I", 4) + b"ros2" + struct.pack("<I", 0)
    content = b"".join(
        bytes([opcode]) + struct.pack("<Q", len(data)) + data
        for opcode, data in ((1, header), *records)
    )
    path.write_bytes(MAGIC + content)
    return path


def chunk(data: bytes, size: int, compression: bytes) -> tuple[int, bytes]:
    head = struct.pack("<QQQI", 0, 0, size, 0) + struct.pack("<I", len(compression)) + compression
    return 6, head + struct.pack("<Q", len(data)) + data


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_decompression_bomb_is_refused_before_it_unfolds(tmp_path: Path, compression) -> None:
    import tracemalloc

    import lz4.frame

    from simdist.replay.mcap import zstd

    pack = zstd.compress if compression == "zstd" else lz4.frame.compress
    bomb = pack(bytes(60_000_000))
    honest_about_it = chunk(bomb, 60_000_000, compression.encode())
    pretending = chunk(bomb, 1000, compression.encode())
    path = mcap(tmp_path / "bomb.mcap", honest_about_it, pretending)
    file = McapFile(path, Limits(chunk=1_000_000))
    tracemalloc.start()
    survey = file.survey()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert survey.problems == {"chunk over the size limit": 1, "chunk larger than announced": 1}
    assert peak < 10_000_000


def test_lengths_beyond_the_file_or_the_limit_are_not_believed(tmp_path: Path) -> None:
    path = mcap(tmp_path / "a.mcap", chunk(b"x" * 2000, 2000, b""))
    assert McapFile(path, Limits(chunk=1000)).survey().problems == {"chunk over the size limit": 1}
    data = bytearray(path.read_bytes())
    at = data.index(b"\x06", 8)
    data[at + 1 : at + 9] = struct.pack("<Q", 2**63)
    path.write_bytes(data)
    assert McapFile(path).survey().lost_bytes == len(data) - at


def test_a_message_over_the_limit_is_skipped_and_counted(tmp_path: Path) -> None:
    record(tmp_path / "bag", walk(3))
    summary = summarise(tmp_path / "bag", Limits(message=300))
    assert summary.loss.problems["message over the size limit"] > 0


def test_chunks_compressed_honestly_are_read(tmp_path: Path) -> None:
    for mode in (CompressionMode.MESSAGE, CompressionMode.STORAGE):
        path = tmp_path / mode.name
        writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
        writer.set_compression(mode, CompressionFormat.ZSTD)
        with writer:
            made = {
                topic: writer.add_connection(topic, kind, typestore=typestore())
                for topic, kind in TOPICS.items()
            }
            for i, (topic, data) in enumerate(walk(STEPS)):
                writer.write(made[topic], i, data)
        assert read(path)[1].steps == STEPS


def test_what_two_recordings_share_counts_once(tmp_path: Path) -> None:
    record(tmp_path / "whole", walk(STEPS))
    record(tmp_path / "part", walk(STEPS)[20:60])
    (whole,), _ = read(tmp_path / "whole")
    part, _ = read(tmp_path / "part")
    seen: set[bytes] = set()
    assert sum(map(len, unseen(part, seen))) == 20
    rest = unseen([whole], seen)
    assert [len(e) for e in rest] == [10, 10]
    assert_true_rows(rest)
    assert unseen([whole], seen) == []
