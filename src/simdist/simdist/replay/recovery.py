"""Making a whole recording out of what is left of one."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rosbags.interfaces import Connection, Qos
from rosbags.rosbag2.metadata import parse_qos

from simdist.errors import BagError
from simdist.replay.bag_writer import McapBagWriter
from simdist.replay.mcap import Channel, Limits, Survey
from simdist.replay.messages import same_definition, typestore
from simdist.replay.storage import Metadata, Recording, problems_text

_NS = 1_000_000_000
_UNKNOWN_DIGEST = "RIHS01_" + 64 * "0"


@dataclass(frozen=True)
class Loss:
    """What a recording lost, as far as anybody can know.

    A recording that was not finished cannot tell what its recorder still held in memory: then the
    figures are lower bounds, and ``exact`` is false.
    """

    messages: int  #: at least; all of them if ``exact``
    seconds: float | None  #: at the end, at least; None: the file does not tell
    bytes: int  #: of a chunk that breaks off at the end
    exact: bool
    problems: dict[str, int] = field(default_factory=dict)  #: what was skipped, by reason

    @property
    def anything(self) -> bool:
        """Whether something was lost, or may have been."""
        return self.messages > 0 or not self.exact or bool(self.problems)

    @staticmethod
    def of(survey: Survey) -> Loss:
        """The loss of a surveyed recording."""
        known = survey.expected is not None and survey.expected >= survey.messages
        messages = survey.torn_messages
        if known:
            assert survey.expected is not None
            messages = survey.expected - survey.messages
        seconds: float | None = None
        if known and messages == 0 and not survey.problems:
            seconds = 0.0
        elif survey.torn_end_ns is not None and survey.end_ns is not None:
            seconds = max(0, survey.torn_end_ns - survey.end_ns) / _NS
        return Loss(messages, seconds, survey.lost_bytes, known, dict(survey.problems))

    def lines(self) -> list[str]:
        """For people."""
        if not self.anything:
            return ["nothing is lost"]
        if self.exact:
            text = f"lost: {self.messages} messages"
            if self.seconds is not None:
                text += f", {self.seconds:.2f} s at the end"
        elif self.seconds is not None:
            text = (
                f"lost: at least {self.messages} messages and {self.seconds:.2f} s, in a chunk "
                f"that breaks off ({self.bytes} bytes)"
            )
        else:
            text = "lost: not known"
            if self.bytes:
                text += f"; {self.bytes} bytes break off at the end"
        lines = [text]
        if not self.exact:
            lines.append(
                "the recording was not finished: what its recorder had not written yet is not "
                "known (at most 0.5 s and the time of the disk for recordings of simdist)"
            )
        if self.problems:
            lines.append(f"skipped: {problems_text(Counter(self.problems))}")
        return lines


@dataclass(frozen=True)
class Summary:
    """What a recording holds."""

    path: Path
    files: tuple[str, ...]
    bytes: int
    finished: bool  #: the recorder came to its end
    metadata: str | None  #: what is wrong with metadata.yaml, or None
    topics: dict[str, dict[str, Any]]  #: by name: type and messages
    messages: int
    start_ns: int | None
    end_ns: int | None
    loss: Loss

    @property
    def seconds(self) -> float:
        """Between the first and the last message, by log time."""
        if self.start_ns is None or self.end_ns is None:
            return 0.0
        return (self.end_ns - self.start_ns) / _NS

    @property
    def whole(self) -> bool:
        """Whether the recording lacks nothing, its index and metadata.yaml included."""
        return self.finished and not self.loss.anything and self.metadata is None

    def to_dict(self) -> dict[str, Any]:
        return {
            **asdict(self),
            "path": str(self.path),
            "seconds": self.seconds,
            "whole": self.whole,
        }

    def lines(self) -> list[str]:
        """For people."""
        state = "finished" if self.finished else "not finished"
        lines = [
            f"{self.path}: {len(self.files)} files, {self.bytes / 1e6:.1f} MB, {state}",
            f"{self.messages} messages in {self.seconds:.2f} s",
        ]
        if self.metadata is not None:
            lines.append(f"metadata.yaml: {self.metadata}")
        width = max((len(name) for name in self.topics), default=0)
        for name, topic in self.topics.items():
            lines.append(f"  {name:{width}} {topic['messages']:8} × {topic['type']}")
        return lines + self.loss.lines()


@dataclass(frozen=True)
class Recovery:
    """What became of a recovery."""

    source: Summary
    out: Path
    messages: int  #: written to ``out``
    dropped: dict[str, int]  #: read, but not written, by reason

    @property
    def lossless(self) -> bool:
        return not self.source.loss.anything and not self.dropped

    def to_dict(self) -> dict[str, Any]:
        return {
            "source": self.source.to_dict(),
            "out": str(self.out),
            "messages": self.messages,
            "dropped": self.dropped,
            "lossless": self.lossless,
        }

    def lines(self) -> list[str]:
        lines = [
            f"recovered {self.messages} messages, {self.source.seconds:.2f} s, to {self.out}",
            *self.source.loss.lines(),
        ]
        if self.dropped:
            lines.append(f"not written: {problems_text(Counter(self.dropped))}")
        return lines


def summarise(path: Path, limits: Limits | None = None) -> Summary:
    """What the recording at ``path`` holds and lacks.

    Raises:
        BagError: there is none, or nothing of it can be read.
    """
    recording = Recording(path, limits)
    return _summary(recording, recording.survey())


def recover(path: Path, out: Path | None = None, limits: Limits | None = None) -> Recovery:
    """Write everything that can be read at ``path`` as a new, indexed recording.

    The original is only read. ``out`` is by default ``NAME_recovered`` beside it; it appears when
    it is complete, or not at all.

    Raises:
        BagError: nothing can be read, ``out`` exists or lies in ``path``, or there is no room.
    """
    recording = Recording(path, limits)
    survey = recording.survey()
    if out is None:
        stem = path.stem if path.is_file() else path.resolve().name
        out = path.resolve().parent / f"{stem}_recovered"
    if out.exists() or out.is_symlink():
        raise BagError(
            f"{out} exists already and is not overwritten; name another place with --out"
        )
    if path.is_dir() and out.resolve().is_relative_to(path.resolve()):
        raise BagError(f"{out} lies in the recording {path}, which is not changed; use --out")
    _require_room(out, recording.size)
    try:
        with tempfile.TemporaryDirectory(prefix=".recover-", dir=out.parent) as scratch:
            messages, dropped = _copy(recording, survey, Path(scratch) / out.name)
            os.rename(Path(scratch) / out.name, out)
    except OSError as error:
        advice = "; free some or use --out on another disk" if error.errno == errno.ENOSPC else ""
        raise BagError(f"cannot write {out}: {error.strerror or error}{advice}") from error
    return Recovery(_summary(recording, survey), out, messages, dict(dropped))


def _summary(recording: Recording, survey: Survey) -> Summary:
    topics: dict[str, dict[str, Any]] = {}
    for channel, count in sorted(survey.counts.items(), key=lambda item: item[0].topic):
        entry = topics.setdefault(channel.topic, {"type": channel.kind, "messages": 0})
        entry["messages"] += count
    return Summary(
        path=recording.path,
        files=tuple(file.name for file in recording.files),
        bytes=recording.size,
        finished=survey.finished,
        metadata=_metadata_problem(recording.metadata, recording.path),
        topics=topics,
        messages=survey.messages,
        start_ns=survey.start_ns,
        end_ns=survey.end_ns,
        loss=Loss.of(survey),
    )


def _metadata_problem(metadata: Metadata, path: Path) -> str | None:
    return None if path.is_file() else metadata.problem


def _require_room(out: Path, size: int) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(out.parent).free
    except OSError as error:
        raise BagError(f"cannot write {out}: {error.strerror}") from error
    if free < size:
        raise BagError(
            f"cannot write {out}: {size / 1e6:.0f} MB are needed and {free / 1e6:.0f} MB free; "
            "free some or use --out on another disk"
        )


def _copy(recording: Recording, survey: Survey, out: Path) -> tuple[int, Counter[str]]:
    """Write all messages to ``out``; how many, and what was left out."""
    writer = McapBagWriter(out)
    writer.open()
    dropped: Counter[str] = Counter()
    written = 0
    try:
        connections = _connections(writer, recording, survey)
        for message in recording.messages(lambda channel: True):
            connection = connections[message.channel]
            if connection is None:
                dropped["of a type with two definitions"] += 1
                continue
            writer.write(connection, message.log_ns, message.data)
            written += 1
        writer.flush(sync=True)
        writer.close()
    except BaseException:
        with suppress(Exception):  # its buffer cannot be written either
            writer.abort()
        raise
    return written, dropped


def _connections(
    writer: McapBagWriter, recording: Recording, survey: Survey
) -> dict[Channel, Connection | None]:
    """A connection for every channel; None where its type was defined otherwise before."""
    made: dict[tuple[str, str, str], Connection] = {}
    definitions: dict[str, str] = {}
    result: dict[Channel, Connection | None] = {}
    for channel in survey.counts:
        definition = channel.definition or _known_definition(channel.kind)
        if definitions.setdefault(channel.kind, definition) != definition:
            result[channel] = None
            continue
        key = (channel.topic, channel.kind, channel.encoding)
        if key not in made:
            made[key] = writer.add_connection(
                channel.topic,
                channel.kind,
                msgdef=definition,
                rihs01=_digest(channel, recording.metadata),
                serialization_format=channel.encoding,
                offered_qos_profiles=_qos(channel.qos),
            )
        result[channel] = made[key]
    return result


def _known_definition(kind: str) -> str:
    """The definition that this program has of a type; empty if it has none."""
    store = typestore()
    return store.generate_msgdef(kind, ros_version=2)[0] if kind in store.types else ""


def _digest(channel: Channel, metadata: Metadata) -> str:
    store = typestore()
    given = metadata.digests.get(channel.topic)
    if given:
        return given
    if channel.kind in store.types and same_definition(
        channel.kind, channel.schema_encoding, channel.definition
    ):
        return store.hash_rihs01(channel.kind)
    return _UNKNOWN_DIGEST


def _qos(text: str) -> list[Qos]:
    if text:
        with suppress(Exception):
            return parse_qos(text)
    return []
