"""Recordings as they lie on a disk: directories of MCAP or SQLite files, or single files."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from simdist.errors import BagError
from simdist.replay.mcap import (
    Channel,
    Limits,
    McapFile,
    RawMessage,
    Survey,
    bounded_decompress,
)

METADATA = "metadata.yaml"
_MAX_METADATA = 4 << 20
#: What a message that rosbag2 compressed by itself begins with; no CDR message does.
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"


@dataclass
class Metadata:
    """What ``metadata.yaml`` says, as far as it can be read."""

    messages: int | None = None
    digests: dict[str, str] = field(default_factory=dict)  #: topic -> hash of its message type
    files: list[str] = field(default_factory=list)
    problem: str | None = None  #: why it says nothing


class SqliteFile:
    """One SQLite file of rosbag2, read without changing anything beside it."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        self._limits = limits or Limits()
        with path.open("rb") as file:
            if file.read(16) != b"SQLite format 3\0":
                raise BagError(f"{path} is not a SQLite file")

    def survey(self) -> Survey:
        found = Survey()
        for message in self._read(found, found.announce, "substr(data, 1, 0)"):
            found.saw(message.channel, message.log_ns)
        return found

    def messages(self, wanted: Callable[[Channel], bool]) -> Iterator[RawMessage]:
        return self._read(Survey(), wanted, "data")

    def _read(
        self, found: Survey, wanted: Callable[[Channel], bool], column: str
    ) -> Iterator[RawMessage]:
        try:
            with contextlib.closing(
                sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
            ) as base:
                topics = {
                    int(number): Channel(str(name), str(kind), str(encoding))
                    for number, name, kind, encoding in base.execute(
                        "SELECT id, name, type, serialization_format FROM topics"
                    )
                }
                chosen = {n: c for n, c in topics.items() if wanted(c)}
                for number, log_ns, length, data in base.execute(
                    f"SELECT topic_id, timestamp, length(data), CASE WHEN length(data) <= ? "
                    f"THEN {column} END FROM messages",
                    (self._limits.message,),
                ):
                    if number not in topics:
                        found.problems["message of an unknown channel"] += 1
                    elif not isinstance(length, int) or length > self._limits.message:
                        found.problems["message over the size limit"] += 1
                    elif number in chosen and isinstance(data, bytes | str):
                        content = data if isinstance(data, bytes) else b""
                        yield RawMessage(chosen[number], max(0, int(log_ns)), content)
        except (sqlite3.Error, ValueError, TypeError):
            found.problems["rest of a file, damaged"] += 1
            found.finished = found.data_finished = False


class Recording:
    """A recording, complete or not.

    Raises:
        BagError: there is none at ``path``, or not one of its files can be read.
    """

    def __init__(self, path: Path | str, limits: Limits | None = None) -> None:
        self.path = Path(path)
        self.metadata = Metadata(problem="there is none")
        self._limits = limits or Limits()
        #: Files that cannot even be opened as what they are, and why.
        self.unreadable: dict[str, str] = {}
        self._files: list[McapFile | SqliteFile] = []
        for file in self._find():
            kind = McapFile if file.suffix == ".mcap" else SqliteFile
            try:
                self._files.append(kind(file, self._limits))
            except (BagError, OSError) as error:
                self.unreadable[file.name] = str(error)
        if not self._files:
            raise BagError("; ".join(self.unreadable.values()))
        present = {file.path.name for file in self._files} | set(self.unreadable)
        for name in self.metadata.files:
            if name not in present:
                self.unreadable[name] = f"{name}, which {METADATA} lists, is missing"

    @property
    def size(self) -> int:
        """Bytes of all files that can be read."""
        return sum(file.path.stat().st_size for file in self._files)

    @property
    def files(self) -> list[Path]:
        return [file.path for file in self._files]

    def survey(self) -> Survey:
        """Read everything once; what the recording holds and lacks."""
        total = Survey()
        expected: int | None = 0
        for file in self._files:
            part = file.survey()
            total.counts.update(part.counts)
            total.chunks += part.chunks
            total.finished &= part.finished
            total.data_finished &= part.data_finished
            total.lost_bytes += part.lost_bytes
            total.torn_messages += part.torn_messages
            total.problems += part.problems
            for name, choose in (("start_ns", min), ("end_ns", max), ("torn_end_ns", max)):
                values = [v for v in (getattr(total, name), getattr(part, name)) if v is not None]
                setattr(total, name, choose(values) if values else None)
            known = expected is not None and part.expected is not None
            expected = expected + part.expected if known else None  # type: ignore[operator]
        for name in self.unreadable:
            total.problems[f"file {name}"] += 1
        total.expected = expected if self.metadata.messages is None else self.metadata.messages
        if total.expected is None and total.data_finished and not total.problems:
            total.expected = total.messages
        return total

    def messages(self, wanted: Callable[[Channel], bool]) -> Iterator[RawMessage]:
        """Messages of the wanted channels, file by file; in no order that could be relied on."""
        for file in self._files:
            for message in file.messages(wanted):
                if message.data.startswith(_ZSTD_MAGIC):
                    with contextlib.suppress(Exception):
                        data = bounded_decompress(message.data, "zstd", self._limits.message)
                        message = RawMessage(message.channel, message.log_ns, data)
                yield message

    def _find(self) -> list[Path]:
        path = self.path
        if not path.exists():
            raise BagError(f"{path}: no such recording")
        if path.is_file():
            if path.suffix not in (".mcap", ".db3"):
                raise BagError(
                    f"{path} is no recording: name the directory of a rosbag2 recording, or an "
                    ".mcap or .db3 file"
                )
            return [path]
        try:
            names = sorted(path.iterdir(), key=_natural)
        except OSError as error:
            raise BagError(f"{path} cannot be read: {error.strerror}") from error
        if (path / METADATA).is_file():
            self.metadata = _read_metadata(path / METADATA)
        files = [f for f in names if f.suffix in (".mcap", ".db3") and f.is_file()]
        if not files:
            packed = [f.name for f in names if f.suffix == ".zstd"]
            if packed:
                raise BagError(
                    f"{path} is compressed file by file ({packed[0]}): decompress it first, with "
                    "zstd -d or ros2 bag convert"
                )
            raise BagError(
                f"{path} is no rosbag2 recording: it holds no {METADATA} with .mcap or .db3 files"
            )
        return files


def find_recordings(path: Path) -> list[Path]:
    """``path`` itself if it is a recording, else those directly below it, in order of name.

    Raises:
        BagError: there is none.
    """
    if not path.is_dir():
        return [path]  # a file, or missing: whoever opens it says so
    if _is_recording(path):
        return [path]
    try:
        found = [p for p in sorted(path.iterdir(), key=_natural) if _is_recording(p)]
    except OSError as error:
        raise BagError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise BagError(f"{path} neither is a rosbag2 recording nor holds any")
    return found


def _is_recording(path: Path) -> bool:
    if not path.is_dir():
        return False
    return (path / METADATA).exists() or any(
        file.suffix in (".mcap", ".db3", ".zstd") for file in path.iterdir()
    )


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sorts ``bag_10`` behind ``bag_9``."""
    parts = re.split(r"([0-9]+)", path.name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]


def _read_metadata(path: Path) -> Metadata:
    """Never fails: recordings are read without it, it only tells what to expect."""
    try:
        if path.stat().st_size > _MAX_METADATA:
            return Metadata(problem=f"it is larger than {_MAX_METADATA >> 20} MB")
        text = path.read_text("utf8")
        if not text.strip():
            return Metadata(problem="it is empty")
        data: Any = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        bag = data["rosbag2_bagfile_information"]
        return Metadata(
            messages=int(bag["message_count"]),
            digests={
                _text(topic["topic_metadata"]["name"]): _text(
                    topic["topic_metadata"].get("type_description_hash", "")
                )
                for topic in bag["topics_with_message_count"]
            },
            files=[Path(_text(name)).name for name in bag["relative_file_paths"]],
        )
    except Exception as error:  # whatever a torn or hostile file makes of it
        return Metadata(problem=f"it cannot be read ({type(error).__name__})")


def _text(value: Any) -> str:
    # Turning anything else into text could expand aliases without end.
    if not isinstance(value, str):
        raise TypeError
    return value


def problems_text(problems: Counter[str]) -> str:
    return ", ".join(f"{count} × {why}" for why, count in sorted(problems.items()))
