"""Recordings survive what happens to them, and say what was lost."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bag_rig import DT, ROBOT, START, TOPICS, applied, observation, record, walk

from simdist.errors import BagError
from simdist.replay.bag import BagReport, read_episodes
from simdist.replay.bag_writer import BagWriter, new_recording
from simdist.replay.episode import Episode


def read(path: Path, **options: Any) -> tuple[list[Episode], BagReport]:
    return read_episodes(path, ROBOT, **options)


def test_what_was_recorded_is_read_back(tmp_path: Path) -> None:
    record(tmp_path / "bag", walk())
    (episode,), report = read(tmp_path / "bag", contract="c")
    np.testing.assert_array_equal(episode.stamp_ns, START + DT * np.arange(300))
    np.testing.assert_array_equal(episode.proprio[:, 0], np.arange(300))
    np.testing.assert_allclose(episode.action[7], 7 + 0.01 * np.arange(12), rtol=1e-6)
    assert report.messages == {"/applied_command": 300, "/observation": 300}
    assert (report.steps, report.rejected, report.recovered) == (300, {}, False)


def test_order_of_arrival_does_not_change_the_data(tmp_path: Path) -> None:
    messages = walk()
    record(tmp_path / "a", messages)
    random.Random(1).shuffle(messages)
    record(tmp_path / "b", messages)
    hashes = {read(tmp_path / name)[1].data_hash for name in "aba"}
    assert len(hashes) == 1


def test_joints_are_matched_by_name(tmp_path: Path) -> None:
    names = tuple(reversed(ROBOT.joint_names))
    messages = walk(50)
    messages[20] = ("/applied_command", applied(10, names=names))
    record(tmp_path / "bag", messages)
    (episode,), _ = read(tmp_path / "bag")
    np.testing.assert_allclose(episode.action[10], 10 + 0.01 * np.arange(12), rtol=1e-6)


def test_lost_and_rejected_messages_are_reported_and_end_the_episode(tmp_path: Path) -> None:
    messages = walk(60)
    messages[21] = ("/observation", observation(10, contract="other"))
    messages[60] = ("/applied_command", applied(30, names=("elbow", *ROBOT.joint_names[1:])))
    messages[91] = ("/observation", observation(45)[:60])
    record(tmp_path / "bag", messages)
    episodes, report = read(tmp_path / "bag", contract="c")
    assert [len(e) for e in episodes] == [10, 19, 14, 14]
    assert report.rejected == {
        "observation of another contract": 1,
        "joint names": 1,
        "Observation cannot be decoded": 1,
    }
    assert any("rejected" in line for line in report.lines())


def test_foreign_contract_or_robot_is_an_error_naming_both(tmp_path: Path) -> None:
    record(tmp_path / "a", walk(10))
    with pytest.raises(BagError, match="wanted mine, found c"):
        read(tmp_path / "a", contract="mine")
    names = tuple(f"arm_{i}" for i in range(12))
    record(
        tmp_path / "b",
        [("/observation", observation(0)), ("/applied_command", applied(0, names=names))],
    )
    with pytest.raises(BagError, match="another robot"):
        read(tmp_path / "b")


def test_bag_without_our_topics_names_those_wanted_and_found(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    with BagWriter(path, {"/chatter": "std_msgs/msg/String"}):
        pass
    with pytest.raises(BagError, match=r"(?s)wanted observation.*applied_command.*found /chatter"):
        read(path)


def test_bag_of_several_robots_asks_for_a_namespace(tmp_path: Path) -> None:
    topics = {f"/{robot}{topic}": kind for robot in "ab" for topic, kind in TOPICS.items()}
    messages = [(f"/{robot}{topic}", data) for topic, data in walk(40) for robot in "ab"]
    record(tmp_path / "bag", messages, topics)
    with pytest.raises(BagError, match="namespace"):
        read(tmp_path / "bag")
    assert read(tmp_path / "bag", namespace="a")[1].steps == 40


@pytest.mark.parametrize("content", [None, b"", b"not a recording", b"\x89MCAP0\r\n"])
def test_what_is_no_recording_is_a_clear_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "thing.mcap"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(BagError, match=r"thing\.mcap"):
        read(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(BagError, match=r"metadata\.yaml"):
        read(tmp_path / "empty")


def test_killed_recorder_loses_at_most_the_last_flush(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    writer = BagWriter(path, TOPICS, flush_seconds=0.0, sync=False)
    for topic, data in walk(100):
        writer.write(topic, data, 0)
    while writer.written < 200:
        pass
    # What is on the disk now is what a power cut would leave.
    shutil.copytree(path, tmp_path / "torn")
    writer.close()
    assert not (tmp_path / "torn" / "metadata.yaml").exists()
    episodes, report = read(tmp_path / "torn")
    assert report.recovered
    assert sum(map(len, episodes)) >= 98
    np.testing.assert_array_equal(episodes[0].proprio[:98, 0], np.arange(98))


def test_every_truncation_gives_the_complete_chunks_or_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    writer = BagWriter(path, TOPICS, flush_seconds=0.0, sync=False)
    for topic, data in walk(30):
        writer.write(topic, data, 0)
    writer.close()
    whole = next(path.glob("*.mcap")).read_bytes()
    torn = tmp_path / "torn.mcap"
    steps = []
    for size in sorted(random.Random(2).sample(range(len(whole)), 60)):
        torn.write_bytes(whole[:size])
        try:
            episodes, report = read(torn)
        except BagError:
            steps.append(0)
            continue
        assert report.recovered
        steps.append(sum(map(len, episodes)))
    assert steps == sorted(steps)
    assert steps[-1] == 30


def test_damage_inside_the_file_never_raises_anything_but_a_bag_error(tmp_path: Path) -> None:
    record(tmp_path / "bag", walk(40))
    file = next((tmp_path / "bag").glob("*.mcap"))
    whole = file.read_bytes()
    chance = random.Random(3)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(8):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        file.write_bytes(damaged)
        try:
            episodes, _ = read(tmp_path / "bag")
        except BagError:
            continue
        assert all(np.isfinite(e.proprio).all() for e in episodes)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_directory_without_write_permission_is_a_clear_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(BagError, match="cannot record"):
        BagWriter(tmp_path / "bag", TOPICS)
    tmp_path.chmod(0o700)


def test_place_that_cannot_hold_a_recording_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BagError, match="cannot record"):
        BagWriter(tmp_path / "file" / "bag", TOPICS)


def test_second_recorder_in_one_directory_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "bag"
    with BagWriter(path, TOPICS) as writer:
        with pytest.raises(BagError, match="exists already"):
            BagWriter(path, TOPICS)
        with new_recording(tmp_path, "bag", TOPICS) as second:
            assert second.path == tmp_path / "bag_2"
        for topic, data in walk(40):
            writer.write(topic, data, 0)
    assert read(path)[1].steps == 40


def test_full_disk_ends_the_recording_and_nothing_else(tmp_path: Path) -> None:
    writer = BagWriter(tmp_path / "bag", TOPICS, flush_seconds=0.0, sync=False)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    writer._writer.write = full  # type: ignore[method-assign]
    accepted = [writer.write("/observation", observation(k), 0) for k in range(50)]
    writer.close()
    assert writer.error is not None
    assert "No space left" in writer.error
    assert accepted[0]
    assert not writer.write("/observation", observation(0), 0)
    assert writer.written == 0
    assert writer.dropped > 0


def test_slow_disk_drops_and_counts_instead_of_blocking(tmp_path: Path) -> None:
    import threading

    gate = threading.Event()
    writer = BagWriter(tmp_path / "bag", TOPICS, queue_size=10)
    honest = writer._writer.write

    def slow(*arguments: Any) -> None:
        gate.wait()
        honest(*arguments)

    writer._writer.write = slow  # type: ignore[method-assign]
    taken = sum(writer.write("/observation", observation(0), k) for k in range(100))
    assert taken <= 11
    assert writer.dropped == 100 - taken
    gate.set()
    writer.close()
    assert writer.error is None
    assert writer.written == taken
