"""Recordings on disk: rosbag2 directories with MCAP storage, written and read without ROS."""

from __future__ import annotations

import queue
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import Reader, StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import McapReader, McapWriter

from simdist.errors import BagError
from simdist.replay.episode import Episode, data_hash, join
from simdist.replay.mcap_repair import is_complete, repair
from simdist.replay.messages import typestore
from simdist.replay.recorder import EpisodeRecorder
from simdist.robots import RobotSpec
from simdist.types import AppliedStep, Mode

OBSERVATION = "simdist_msgs/msg/Observation"
APPLIED_COMMAND = "simdist_msgs/msg/AppliedCommand"

#: What a recording needs to be learned from: last part of the topic name -> type.
LEARNING_TOPICS = {"observation": OBSERVATION, "applied_command": APPLIED_COMMAND}

_NS = 1_000_000_000
_FOREVER = QosTime(9223372036, 854775807)


def _qos(latched: bool) -> Qos:
    return Qos(
        QosHistory.KEEP_LAST,
        1 if latched else 50,
        QosReliability.RELIABLE,
        QosDurability.TRANSIENT_LOCAL if latched else QosDurability.VOLATILE,
        _FOREVER,
        _FOREVER,
        QosLiveliness.AUTOMATIC,
        _FOREVER,
        False,
    )


def free_path(directory: Path, name: str) -> Path:
    """``directory/name``, or ``name_2``, ``name_3`` ... where that exists already."""
    path, number = directory / name, 1
    while path.exists():
        number += 1
        path = directory / f"{name}_{number}"
    return path


class BagWriter:
    """Writes serialised messages on a thread of its own, so that a slow disk delays nobody.

    :meth:`write` never blocks and never raises: what does not fit into the queue is counted in
    :attr:`dropped`, and after an error of the disk (:attr:`error`) recording is over while the
    caller goes on. At least every ``flush_seconds`` all messages reach the file as a complete
    chunk, which survives the death of this process.

    Raises:
        BagError: the directory cannot be made, or exists already.
    """

    def __init__(
        self,
        path: Path,
        topics: Mapping[str, str],
        *,
        latched: Collection[str] = (),
        queue_size: int = 2000,
        flush_seconds: float = 1.0,
    ) -> None:
        self.path = path
        self.dropped = 0
        self.error: str | None = None
        self._queue: queue.Queue[tuple[str, int, bytes] | None] = queue.Queue(queue_size)
        self._flush_seconds = flush_seconds
        self._written = 0
        try:
            self._writer = Writer(path, version=9, storage_plugin=StoragePlugin.MCAP)
            self._writer.open()
        except Exception as error:
            raise BagError(
                f"cannot record to {path}: {error}; choose a new directory that can be written to"
            ) from error
        store = typestore()
        self._connections: dict[str, Connection] = {
            topic: self._writer.add_connection(
                topic, kind, typestore=store, offered_qos_profiles=[_qos(topic in latched)]
            )
            for topic, kind in topics.items()
        }
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="bag writer", daemon=True)
        self._thread.start()

    @property
    def written(self) -> int:
        """Messages that the writer thread has taken over without an error."""
        return self._written

    def write(self, topic: str, data: bytes | memoryview, stamp_ns: int) -> bool:
        """Queue one CDR message; false when it was dropped. ``topic`` must be one of those given
        at the start, ``stamp_ns`` (not negative) becomes the log time."""
        if topic not in self._connections:
            raise KeyError(f"topic {topic!r} is not recorded; recorded: {list(self._connections)}")
        if self._closed or self.error is not None:
            self.dropped += 1
            return False
        try:
            self._queue.put_nowait((topic, max(0, stamp_ns), bytes(data)))
        except queue.Full:
            self.dropped += 1
            return False
        return True

    def close(self, timeout: float = 10.0) -> None:
        """Write what is queued, the index and ``metadata.yaml``. Safe to call twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._queue.put(None, timeout=timeout)
        except queue.Full:
            self.error = self.error or f"the disk did not take the data within {timeout:g} s"
            return
        self._thread.join(timeout)
        if self._thread.is_alive():
            self.error = self.error or f"the disk did not take the data within {timeout:g} s"

    def __enter__(self) -> BagWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self) -> None:
        flush_at = time.monotonic() + self._flush_seconds
        try:
            while True:
                try:
                    item = self._queue.get(timeout=max(0.0, flush_at - time.monotonic()))
                except queue.Empty:
                    item = ()
                if item is None:
                    self._writer.close()
                    return
                if item:
                    topic, stamp_ns, data = item
                    self._writer.write(self._connections[topic], stamp_ns, data)
                    self._written += 1
                if time.monotonic() >= flush_at:
                    self._flush()
                    flush_at = time.monotonic() + self._flush_seconds
        except Exception as error:  # a full disk must not take the robot's process with it
            self.error = f"recording to {self.path} ended: {error}"
            self._drain()

    def _flush(self) -> None:
        # Writer has no flush of its own; a chunk otherwise stays in memory until it holds 1 MB.
        storage = self._writer.storage
        assert isinstance(storage, McapWriter)
        if storage.chunk.msgs:
            storage.close_chunk()
        storage.bio.flush()

    def _drain(self) -> None:
        while True:
            try:
                if self._queue.get_nowait() is not None:
                    self.dropped += 1
            except queue.Empty:
                return


@dataclass
class BagReport:
    """What was found in a recording and what of it can be learned from."""

    path: Path
    messages: dict[str, int] = field(default_factory=dict)  #: by topic, of the topics used
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0
    rejected: dict[str, int] = field(default_factory=dict)  #: messages, by reason
    breaks: dict[str, int] = field(default_factory=dict)  #: ends of runs and lost steps, by reason
    recovered: bool = False  #: the recording was torn; only its complete chunks were read
    lost_bytes: int = 0  #: at the torn end
    data_hash: str = ""  #: the same recording always gives the same

    def lines(self) -> list[str]:
        """The report for people."""
        found = ", ".join(f"{count} × {topic}" for topic, count in self.messages.items())
        text = [
            f"{self.path}: {found}",
            f"{self.episodes} episodes, {self.steps} steps, {self.seconds:.1f} s",
        ]
        for title, counts in (("rejected", self.rejected), ("breaks", self.breaks)):
            if counts:
                listed = ", ".join(f"{count} × {why}" for why, count in sorted(counts.items()))
                text.append(f"{title}: {listed}")
        if self.recovered:
            text.append(f"torn: complete chunks were read, {self.lost_bytes} bytes lost")
        return text


def read_episodes(
    path: Path | str,
    robot: RobotSpec,
    contract: str | None = None,
    *,
    namespace: str | None = None,
) -> tuple[list[Episode], BagReport]:
    """Read what a robot did while ACTIVE.

    Messages are ordered by header stamp and sequence, never by arrival. ``contract`` is the hash
    of the model to be taught; observations made for another one are rejected and counted. With
    None the contract of the first observation counts. ``namespace`` chooses a robot where the
    recording holds several.

    Raises:
        BagError: no recording, none of our topics, topics of several robots, or nothing but
            foreign contracts or joints.
    """
    path = Path(path)
    report = BagReport(path)
    rejected: Counter[str] = Counter()
    observations: list[tuple[int, int, Any]] = []
    applied: list[AppliedStep] = []
    store = typestore()
    with tempfile.TemporaryDirectory() as scratch:
        topics, messages = _open(path, Path(scratch), namespace, report, rejected)
        report.messages = dict.fromkeys(topics, 0)
        for topic, kind, data in messages:
            report.messages[topic] += 1
            try:
                message: Any = store.deserialize_cdr(data, kind)
            except Exception:
                rejected[f"{kind.rsplit('/', 1)[-1]} cannot be decoded"] += 1
                continue
            if kind == OBSERVATION:
                observations.append((_stamp_ns(message), int(message.sequence), message))
            else:
                step = _applied_step(message, robot)
                if isinstance(step, str):
                    rejected[step] += 1
                else:
                    applied.append(step)
    observations.sort(key=lambda item: item[:2])
    applied.sort(key=lambda step: (step.stamp_ns, step.sequence))
    if observations and contract is None:
        contract = str(observations[0][2].contract)
    fitting = [item for item in observations if item[2].contract == contract]
    if len(fitting) < len(observations):
        rejected["observation of another contract"] += len(observations) - len(fitting)
    _refuse_foreign(path, robot, contract, observations, fitting, applied, rejected)
    report.rejected = dict(rejected)
    return _pair(fitting, applied, robot, contract or "", report), report


def _refuse_foreign(
    path: Path,
    robot: RobotSpec,
    contract: str | None,
    observations: list[tuple[int, int, Any]],
    fitting: list[tuple[int, int, Any]],
    applied: list[AppliedStep],
    rejected: Counter[str],
) -> None:
    if observations and not fitting:
        found = sorted({str(item[2].contract) for item in observations})
        raise BagError(
            f"{path} was recorded with another model contract: wanted {contract}, found "
            f"{', '.join(found[:3])}; use a model with that contract"
        )
    if not applied and rejected["joint names"]:
        raise BagError(
            f"{path} was recorded with another robot: its joints are not those of {robot.name}"
        )


def _pair(
    observations: list[tuple[int, int, Any]],
    applied: list[AppliedStep],
    robot: RobotSpec,
    contract: str,
    report: BagReport,
) -> list[Episode]:
    dt_ns = round(robot.control_dt * _NS)
    recorder = EpisodeRecorder(dt_ns, contract=contract)
    waiting = iter(observations)
    item = next(waiting, None)
    for step in applied:
        # An observation may be stamped slightly after the step it belongs to.
        while item is not None and item[0] <= step.stamp_ns + dt_ns:
            stamp_ns, sequence, message = item
            recorder.observe(
                stamp_ns, sequence, message.proprioception, message.exteroception, message.command
            )
            item = next(waiting, None)
        recorder.apply(step)
    recorder.close("end of recording")
    episodes = join(recorder.take_segments(), dt_ns)
    report.episodes = len(episodes)
    report.steps = sum(map(len, episodes))
    report.seconds = report.steps * robot.control_dt
    report.breaks = recorder.status().reasons
    report.data_hash = data_hash(episodes)
    return episodes


def _open(
    path: Path,
    scratch: Path,
    namespace: str | None,
    report: BagReport,
    rejected: Counter[str],
) -> tuple[list[str], Iterator[tuple[str, str, bytes]]]:
    """Topics to be read, and an iterator over ``(topic, type, CDR)`` in any order."""
    if not path.exists():
        raise BagError(f"{path}: no such recording")
    torn = _torn_files(path)
    try:
        readers: list[Reader | McapReader] = []
        if torn is None:
            readers.append(Reader(path))
        else:
            for i, file in enumerate(torn):
                if is_complete(file):
                    readers.append(McapReader(file))
                    continue
                report.recovered = True
                whole = scratch / f"{i}.mcap"
                report.lost_bytes += repair(file, whole)
                readers.append(McapReader(whole))
        for reader in readers:
            reader.open()
        chosen = [_choose(reader.connections, path, namespace) for reader in readers]
    except BagError:
        raise
    except Exception as error:
        raise BagError(f"{path} cannot be read as a rosbag2 recording: {error}") from error
    topics = sorted({c.topic for connections in chosen for c in connections})
    return topics, _messages(readers, chosen, report, rejected)


def _torn_files(path: Path) -> list[Path] | None:
    """The MCAP files to read one by one because the recording was not finished; None if it was."""
    if path.is_file():
        return [path] if path.suffix == ".mcap" else None
    files = sorted(path.glob("*.mcap"))
    if (path / "metadata.yaml").exists() and all(is_complete(file) for file in files):
        return None
    if not files:
        raise BagError(
            f"{path} is no rosbag2 recording: it holds no metadata.yaml and no .mcap file"
        )
    return files


def _choose(connections: list[Connection], path: Path, namespace: str | None) -> list[Connection]:
    """The connections to learn from; raises BagError when they are missing or ambiguous."""
    chosen: list[Connection] = []
    for name, kind in LEARNING_TOPICS.items():
        fitting = [
            c
            for c in connections
            if c.topic.rsplit("/", 1)[-1] == name
            and c.msgtype == kind
            and (
                namespace is None or c.topic == f"/{namespace.strip('/')}/{name}".replace("//", "/")
            )
        ]
        if len({c.topic for c in fitting}) > 1:
            raise BagError(
                f"{path} holds several robots: {', '.join(sorted(c.topic for c in fitting))}; "
                "choose one by its namespace"
            )
        chosen += fitting
    missing = [n for n in LEARNING_TOPICS if not any(c.topic.endswith(n) for c in chosen)]
    if missing:
        wanted = ", ".join(f"{n} ({LEARNING_TOPICS[n]})" for n in LEARNING_TOPICS)
        found = ", ".join(sorted(f"{c.topic} ({c.msgtype})" for c in connections)) or "none"
        where = f" in namespace {namespace}" if namespace else ""
        raise BagError(f"{path} lacks {', '.join(missing)}{where}: wanted {wanted}; found {found}")
    store = typestore()
    for connection in chosen:
        if connection.digest and connection.digest != store.hash_rihs01(connection.msgtype):
            raise BagError(
                f"{path}: {connection.topic} was recorded with another version of "
                f"{connection.msgtype}; replay it with the version that recorded it"
            )
    return chosen


def _messages(
    readers: list[Reader | McapReader],
    chosen: list[list[Connection]],
    report: BagReport,
    rejected: Counter[str],
) -> Iterator[tuple[str, str, bytes]]:
    for reader, connections in zip(readers, chosen, strict=True):
        if isinstance(reader, McapReader) and not reader.chunks:
            # Without an index McapReader.messages insists on log-time order; we sort anyway.
            messages = reader.messages_scan(connections)
        else:
            messages = reader.messages(connections)
        try:
            for connection, _, data in messages:
                yield connection.topic, connection.msgtype, data
        except Exception:
            # Damage inside a chunk; what was read up to here stands.
            report.recovered = True
            rejected["rest of a file, damaged"] += 1
        finally:
            reader.close()


def _stamp_ns(message: Any) -> int:
    stamp = message.header.stamp
    return int(stamp.sec) * _NS + int(stamp.nanosec)


def _applied_step(message: Any, robot: RobotSpec) -> AppliedStep | str:
    """The applied step in the robot's joint order, or why it is rejected."""
    n = robot.joint_count
    names = list(message.names)
    if sorted(names) != sorted(robot.joint_names):
        return "joint names"
    if len(message.action) != n or len(message.position_target) != n:
        return "applied command of the wrong length"
    if message.mode not in tuple(Mode):
        return "unknown mode"
    columns = [names.index(name) for name in robot.joint_names]
    return AppliedStep(
        stamp_ns=_stamp_ns(message),
        sequence=int(message.sequence),
        action=np.asarray(message.action, np.float64)[columns],
        position_target=np.asarray(message.position_target, np.float64)[columns],
        mode=Mode(message.mode),
        chunk_sequence=int(message.chunk_sequence),
        chunk_row=int(message.chunk_row),
    )
