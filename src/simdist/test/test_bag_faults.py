"""Recorders that are killed, meet a full disk or each other: what was written stays readable."""

from __future__ import annotations

import errno
import inspect
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from bag_rig import TOPICS, record, walk
from rosbags.rosbag2 import Reader

from simdist.errors import BagError
from simdist.replay import bag_writer
from simdist.replay.bag_writer import BagWriter, new_recording
from simdist.replay.recovery import recover, summarise

#: Starts a recording in argv[1], and message k is always the same.
CHILD = """
import sys
from pathlib import Path
from bag_rig import TOPICS, walk
from simdist.replay.bag_writer import BagWriter
from simdist.replay.mcap import McapFile

path, messages = Path(sys.argv[1]), walk(20)
def message(k):
    topic, data = messages[k % len(messages)]
    return topic, data, k
"""
KILLED = """
writer = BagWriter(path, TOPICS, queue_size=100_000, flush_seconds=0.02)
k = 0
told = False
while True:
    while k - writer.written < 100:
        assert writer.write(*message(k))
        k += 1
    if not told and McapFile(path / f"{path.name}.mcap").survey().messages >= 500:
        told = True
        print("500 are in the file", flush=True)
"""
FULL = """
import resource

resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
writer = BagWriter(path, TOPICS, queue_size=100_000, flush_seconds=0.0, sync=False)
k = 0
while writer.error is None:
    if k - writer.written < 100:
        writer.write(*message(k))
        k += 1
assert not writer.write(*message(k)), "the recording is over"
assert writer.dropped > 0
writer.close()
print(writer.error)
print("and the robot goes on")
"""


def start(script: str, path: Path) -> subprocess.Popen[str]:
    here = Path(__file__).resolve().parent
    environment = {**os.environ, "PYTHONPATH": f"{here}{os.pathsep}{here.parent}"}
    return subprocess.Popen(
        [sys.executable, "-c", CHILD + script, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def assert_first_messages(path: Path, at_least: int) -> int:
    """The recording holds the messages from the first on, without a hole; how many."""
    messages = walk(20)
    with Reader(path) as reader:
        found = [(c.topic, bytes(data), stamp) for c, stamp, data in reader.messages()]
    assert len(found) >= at_least
    for k, (topic, data, stamp) in enumerate(found):
        assert (topic, data) == messages[k % len(messages)]
        assert stamp == k
    return len(found)


def test_sigkill_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    child = start(KILLED, tmp_path / "bag")
    assert child.stdout is not None
    line = child.stdout.readline()
    os.kill(child.pid, signal.SIGKILL)
    _, error = child.communicate()
    assert line, error
    assert child.returncode == -signal.SIGKILL
    recovery = recover(tmp_path / "bag")
    assert not recovery.lossless, "nobody knows what the recorder still held"
    assert not recovery.source.loss.exact
    assert assert_first_messages(recovery.out, 500) == recovery.messages


def test_a_full_disk_is_announced_and_costs_only_what_did_not_fit(tmp_path: Path) -> None:
    child = start(FULL, tmp_path / "bag")
    output, error = child.communicate()
    assert child.returncode == 0, error
    assert "recording to" in output
    assert "File too large" in output
    assert "and the robot goes on" in output
    assert error == "", "not even a complaint of a buffer that cannot be emptied"
    recovery = recover(tmp_path / "bag")
    # 200 kB hold about 300 of these messages, each with the records around it.
    assert assert_first_messages(recovery.out, 100) == recovery.messages


def test_each_sync_makes_everything_before_it_survive_a_power_cut(tmp_path, monkeypatch) -> None:
    synced: list[tuple[int, int]] = []
    writer: list[BagWriter] = []

    def sync(handle: int) -> None:
        if writer:
            synced.append((os.fstat(handle).st_size, writer[0].written))

    monkeypatch.setattr(os, "fdatasync", sync)
    writer.append(BagWriter(tmp_path / "bag", TOPICS, flush_seconds=0.0))
    for k, (topic, data) in enumerate(walk(10)):
        writer[0].write(topic, data, k)
    writer[0].close()
    assert writer[0].error is None
    whole = (tmp_path / "bag" / "bag.mcap").read_bytes()
    assert len({size for size, _ in synced}) > 5
    for size, written in synced:
        # Nothing behind the last sync is on the disk.
        torn = tmp_path / "torn.mcap"
        torn.write_bytes(whole[:size])
        assert summarise(torn).messages == written


def test_at_most_half_a_second_and_one_sync_is_lost_by_default() -> None:
    defaults = inspect.signature(BagWriter).parameters
    assert defaults["flush_seconds"].default <= 0.5
    assert defaults["sync"].default is True


def test_a_disk_that_fails_to_sync_ends_the_recording(tmp_path: Path, monkeypatch) -> None:
    writer = BagWriter(tmp_path / "bag", TOPICS, flush_seconds=0.0)

    def broken(handle: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", broken)
    for k, (topic, data) in enumerate(walk(3)):
        writer.write(topic, data, k)
    writer.close()
    assert writer.error is not None
    assert "Input/output error" in writer.error


def test_recorders_that_start_at_the_same_moment_get_directories_of_their_own(tmp_path) -> None:
    barrier = threading.Barrier(6)
    paths: list[Path] = []

    def run() -> None:
        barrier.wait()
        with new_recording(tmp_path, "walk", TOPICS, sync=False) as writer:
            for k, (topic, data) in enumerate(walk(10)):
                writer.write(topic, data, k)
        paths.append(writer.path)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(p.name for p in paths) == ["walk", *(f"walk_{n}" for n in range(2, 7))]
    for path in paths:
        assert assert_first_messages(path, 20) == 20


def test_a_read_only_directory_is_refused_at_the_start(tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(bag_writer.McapBagWriter, "open", refuse)
    with pytest.raises(BagError, match="Read-only file system"):
        new_recording(tmp_path, "walk", TOPICS)


def test_recordings_of_the_recorder_are_whole(tmp_path: Path) -> None:
    assert summarise(record(tmp_path / "bag", walk(5))).whole
