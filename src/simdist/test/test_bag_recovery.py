"""``simdist bag``: what is left of a torn recording becomes a whole one, and the loss is told."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
from collections import namedtuple
from itertools import pairwise
from pathlib import Path

import pytest
from bag_rig import DT, ROBOT, TOPICS, observation, record, record_in_chunks, walk
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rosbags.rosbag2 import Reader, StoragePlugin, Writer

from simdist import cli
from simdist.errors import BagError
from simdist.replay.bag import read_episodes
from simdist.replay.bag_command import PARTIAL
from simdist.replay.bag_writer import McapBagWriter
from simdist.replay.messages import typestore
from simdist.replay.recovery import recover, summarise
from simdist.replay.storage import METADATA

STEPS, CHUNK = 100, 20
MESSAGES = walk(STEPS)


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[bytes, list[int]]:
    """A finished recording of ten chunks, and where each of them ends."""
    path = tmp_path_factory.mktemp("whole") / "bag"
    ends = record_in_chunks(path, MESSAGES, CHUNK)
    assert len(ends) == 10
    return (path / "bag.mcap").read_bytes(), ends


@pytest.fixture
def bag(tmp_path: Path, whole: tuple[bytes, list[int]]) -> Path:
    """The directory of a recording whose file and metadata.yaml the test writes."""
    path = tmp_path / "bag"
    path.mkdir()
    (path / "bag.mcap").write_bytes(whole[0])
    return path


def contents(path: Path) -> list[tuple[str, int, bytes]]:
    with Reader(path) as reader:
        return [(c.topic, stamp, bytes(data)) for c, stamp, data in reader.messages()]


def end_of_data(data: bytes) -> int:
    at = 8
    while data[at] != 0x0F:
        at += 9 + int.from_bytes(data[at + 1 : at + 9], "little")
    return at + 9 + 4


def tear(bag: Path, size: int) -> None:
    with (bag / "bag.mcap").open("r+b") as file:
        file.truncate(size)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(cut=st.integers(0, 10**9))
@example(cut=0)
@example(cut=20)
@example(cut=10**9 - 1)
def test_all_complete_chunks_are_recovered_wherever_a_recording_is_cut(
    bag: Path, whole: tuple[bytes, list[int]], cut: int
) -> None:
    data, ends = whole
    size = cut % len(data)
    (bag / "bag.mcap").write_bytes(data[:size])
    complete = sum(end <= size for end in ends) * CHUNK
    out = bag.parent / "out"
    shutil.rmtree(out, ignore_errors=True)
    try:
        recovery = recover(bag, out)
    except BagError:
        # Not even the first record is there.
        assert size < 60
        assert not out.exists()
        return
    assert (bag / "bag.mcap").read_bytes() == data[:size], "the original is not changed"
    expected = [(topic, i * DT // 2, m) for i, (topic, m) in enumerate(MESSAGES[:complete])]
    # rosbags sees all of it, through the index of the new file.
    assert contents(out) == expected
    assert recovery.messages == complete
    assert summarise(out).whole
    # What is said to be lost is lost, and when it is said to be all then it is all.
    loss, lost = recovery.source.loss, len(MESSAGES) - complete
    assert loss.messages <= lost
    assert loss.seconds is None or loss.seconds <= lost * DT / 2e9 + 1e-9
    if loss.exact:
        assert loss.messages == lost
    assert recovery.lossless == (loss.exact and lost == 0)
    if size >= end_of_data(data):
        assert recovery.lossless, "only the index is torn"


def test_a_chunk_that_breaks_off_tells_how_much_it_held(bag: Path, whole) -> None:
    _, ends = whole
    tear(bag, ends[4] - 1)
    loss = recover(bag).source.loss
    assert loss.messages == CHUNK
    assert loss.seconds == pytest.approx(CHUNK * DT / 2e9)
    assert not loss.exact
    text = "\n".join(loss.lines())
    assert "at least 20 messages and 0.20 s" in text
    assert "not known" in text


def test_with_metadata_the_loss_is_exact(bag: Path, whole) -> None:
    _, ends = whole
    shutil.rmtree(bag)
    record_in_chunks(bag, MESSAGES, CHUNK)
    tear(bag, ends[2])  # as when the copying of a recording was interrupted
    loss = summarise(bag).loss
    assert loss.exact
    assert loss.messages == len(MESSAGES) - 3 * CHUNK


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "\n",
        "rosbag2_bagfile_information:",
        "][",
        "\0\0\0",
        "rosbag2_bagfile_information: {message_count: many}",
        "a: &a [1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"{y}: &{y} [{', '.join(8 * [f'*{x}'])}]\n" for x, y in pairwise("abcdefgh"))
        + "rosbag2_bagfile_information: {message_count: 1, topics_with_message_count: [],"
        " relative_file_paths: [*e]}",
    ],
)
def test_a_missing_or_broken_metadata_file_is_no_obstacle(bag: Path, text: str | None) -> None:
    if text is not None:
        (bag / METADATA).write_text(text)
    assert summarise(bag).metadata is not None
    recovery = recover(bag)
    assert recovery.lossless
    assert len(contents(recovery.out)) == len(MESSAGES)
    assert summarise(recovery.out).whole
    assert read_episodes(bag, ROBOT)[1].steps == STEPS


def test_topics_keep_their_types_definitions_and_profiles(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        foreign = writer.add_connection(
            "/foreign", "lab_msgs/msg/Thing", msgdef="float32 x\n", rihs01="RIHS01_" + 64 * "1"
        )
        writer.write(foreign, 5, b"\0\1\0\0\0\0\0\0")
    record(tmp_path / "ours", MESSAGES[:2])
    for source in (path, tmp_path / "ours"):
        (source / METADATA).unlink()
        out = recover(source).out
        with Reader(source / f"{source.name}.mcap") as before, Reader(out) as after:
            for old, new in zip(before.connections, after.connections, strict=True):
                assert (old.topic, old.msgtype, old.msgdef) == (new.topic, new.msgtype, new.msgdef)
                assert old.ext == new.ext
                if old.msgtype in typestore().types:
                    assert new.digest == typestore().hash_rihs01(old.msgtype)


def test_damage_in_the_middle_costs_only_what_it_hit(bag: Path, whole) -> None:
    data, ends = bytearray(whole[0]), whole[1]
    data[ends[3] - 1000] ^= 0xFF  # inside chunk 3: its checksum tells
    (bag / "bag.mcap").write_bytes(data)
    loss = recover(bag).source.loss
    assert (loss.messages, loss.exact) == (CHUNK, True)
    assert loss.problems == {"chunk with a wrong checksum": 1}
    # A length that points beyond the file: the index says where the next chunk begins.
    at = data.index(b"\x06", ends[6])
    while int.from_bytes(data[at + 1 : at + 9], "little") != ends[7] - at - 9:
        at = data.index(b"\x06", at + 1)
    data[at + 7] = 0xFF
    (bag / "bag.mcap").write_bytes(data)
    assert summarise(bag).loss.messages == 2 * CHUNK


def test_zeros_at_the_end_as_some_file_systems_leave_them_are_no_messages(bag, whole) -> None:
    data, ends = whole
    (bag / "bag.mcap").write_bytes(data[: ends[5]] + bytes(5000))
    assert recover(bag).messages == 6 * CHUNK


def test_several_files_and_files_of_which_nothing_is_left(bag: Path, whole) -> None:
    data, ends = whole
    (bag / "bag_1.mcap").write_bytes(data[: ends[0]])
    (bag / "bag_2.mcap").write_bytes(b"")
    recovery = recover(bag)
    assert recovery.messages == len(MESSAGES) + CHUNK
    assert not recovery.lossless
    assert "file bag_2.mcap" in recovery.source.loss.problems


def test_sqlite_recordings_are_read_and_recovered_as_mcap(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    with Writer(path, version=8, storage_plugin=StoragePlugin.SQLITE3) as writer:
        made = {
            topic: writer.add_connection(topic, kind, typestore=typestore())
            for topic, kind in TOPICS.items()
        }
        for i, (topic, data) in enumerate(MESSAGES):
            writer.write(made[topic], i, data)
    assert read_episodes(path, ROBOT)[1].steps == STEPS
    assert len(contents(recover(path).out)) == len(MESSAGES)
    (file,) = path.glob("*.db3")
    with file.open("r+b") as torn:
        torn.truncate(file.stat().st_size // 2)
    summary = summarise(path)
    assert summary.messages < len(MESSAGES)
    assert summary.loss.anything
    assert sorted(p.name for p in path.iterdir()) == ["bag.db3", METADATA], "nothing was added"
    assert isinstance(sqlite3.sqlite_version, str)


# --- what cannot be done is said in one line ------------------------------------------------------


def test_what_is_no_recording_is_refused(tmp_path: Path, capsys) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    (tmp_path / "text.mcap").write_text("not at all")
    (tmp_path / "packed").mkdir()
    (tmp_path / "packed" / "packed.mcap.zstd").write_bytes(b"x")
    for name, said in (
        ("missing", "no such recording"),
        ("empty", "no rosbag2 recording"),
        ("notes.txt", "is no recording"),
        ("text.mcap", "not an MCAP file"),
        ("packed", "zstd -d"),
    ):
        for action in ("info", "recover"):
            assert cli.main(["bag", action, str(tmp_path / name)]) == 2
            error = capsys.readouterr().err
            assert said in error
            assert error.count("\n") == 1


def test_an_existing_place_or_one_in_the_recording_itself_is_refused(bag, tmp_path, capsys) -> None:
    for place in (tmp_path, bag / "bag.mcap", bag / "inside"):
        assert cli.main(["bag", "recover", str(bag), "--out", str(place)]) == 2
        assert "--out" in capsys.readouterr().err
    assert sorted(p.name for p in bag.iterdir()) == ["bag.mcap"]


def test_no_room_is_said_before_anything_is_written(bag: Path, monkeypatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1, 1, 1000))
    with pytest.raises(BagError, match="MB free"):
        recover(bag)
    assert [p.name for p in bag.parent.iterdir()] == ["bag"]


def test_a_disk_that_fills_up_on_the_way_leaves_nothing_behind(bag: Path, monkeypatch) -> None:
    honest, written = McapBagWriter.write, []

    def full(self, connection, timestamp, data) -> None:
        written.append(data)
        if len(written) > 50:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        honest(self, connection, timestamp, data)

    monkeypatch.setattr(McapBagWriter, "write", full)
    with pytest.raises(BagError, match="No space left"):
        recover(bag)
    assert [p.name for p in bag.parent.iterdir()] == ["bag"]


# --- the command ----------------------------------------------------------------------------------


def test_exit_codes_tell_whole_from_torn(bag: Path, whole, tmp_path: Path, capsys) -> None:
    finished = record(tmp_path / "finished", MESSAGES)
    assert cli.main(["bag", "info", str(finished)]) == 0
    assert "nothing is lost" in capsys.readouterr().out
    assert cli.main(["bag", "recover", str(finished)]) == 0
    tear(bag, whole[1][4] + 50)
    assert cli.main(["bag", "info", str(bag)]) == PARTIAL
    assert cli.main(["bag", "recover", str(bag)]) == PARTIAL
    assert "recovered 100 messages" in capsys.readouterr().out
    assert cli.main(["bag", "recover", str(bag)]) == 2, "it exists now"


def test_info_tells_what_can_be_learned_and_speaks_json(bag: Path, tmp_path: Path, capsys) -> None:
    cli.main(["bag", "info", "--json", str(bag)])
    result = json.loads(capsys.readouterr().out)
    assert result["messages"] == len(MESSAGES)
    assert result["topics"]["/observation"]["messages"] == STEPS
    assert result["learning"]["seconds"] == pytest.approx(2.0)
    record(
        tmp_path / "half",
        [("/observation", observation(0))],
        {"/observation": TOPICS["/observation"]},
    )
    cli.main(["bag", "info", str(tmp_path / "half")])
    assert "lacks applied_command" in capsys.readouterr().out
