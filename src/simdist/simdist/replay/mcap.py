"""Reading MCAP files that may be torn, damaged or made to do harm.

An MCAP file is the magic, then records of one opcode byte, a length of eight bytes and that many
bytes of content, then a footer and the magic again. Messages lie in chunk records; each chunk that
was written completely can be read, whatever happened to the rest. (https://mcap.dev/spec)

The file is read from front to back and never through its index, so nothing depends on how it
ends. No length is believed before it is compared with the size of the file and with
:class:`Limits`, and what is decompressed stops at the size that was announced.
"""

from __future__ import annotations

import struct
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from lz4.frame import LZ4FrameDecompressor  # type: ignore[import-untyped]

from simdist.errors import BagError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAGIC = b"\x89MCAP0\r\n"
HEADER, FOOTER, SCHEMA, CHANNEL, MESSAGE, CHUNK = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
CHUNK_INDEX, STATISTICS, DATA_END = 0x08, 0x0B, 0x0F
#: Opcodes of the specification; those from 0x80 on are for private use and skipped.
_KNOWN = frozenset(range(0x01, 0x10)) | frozenset(range(0x80, 0x100))
_PREFIX = 9  #: bytes of opcode and length
_MESSAGE = struct.Struct("<HIQQ")  #: channel, sequence, log time, publish time
_CHUNK = struct.Struct("<QQQI")  #: start, end, size when decompressed, CRC
_MAX_DEFINITION = 1 << 20
_MAX_NS = (1 << 63) - 1


@dataclass(frozen=True)
class Limits:
    """What is refused before memory is set aside for it, in bytes."""

    chunk: int = 256 << 20  #: a chunk, compressed or not
    message: int = 64 << 20


@dataclass(frozen=True)
class Channel:
    """One topic as one writer announced it."""

    topic: str
    kind: str  #: message type, such as ``std_msgs/msg/String``
    encoding: str = "cdr"
    schema_encoding: str = ""
    definition: str = ""  #: text of the message definition; empty: not in the file
    qos: str = ""


@dataclass(frozen=True)
class RawMessage:
    channel: Channel
    log_ns: int
    data: bytes


@dataclass
class Survey:
    """What one file, or one recording, holds and lacks."""

    counts: Counter[Channel] = field(default_factory=Counter)
    start_ns: int | None = None  #: log time of the earliest message
    end_ns: int | None = None  #: and of the latest
    chunks: int = 0
    finished: bool = True  #: the writer came to an end, index included
    data_finished: bool = True  #: all messages are there, perhaps without the index
    lost_bytes: int = 0  #: of a record that breaks off at the end
    torn_messages: int = 0  #: begun in the chunk that breaks off: a lower bound
    torn_end_ns: int | None = None  #: log time at which that chunk ends, if it says so
    expected: int | None = None  #: messages that were written, if the recording says so
    problems: Counter[str] = field(default_factory=Counter)  #: what was skipped, and why

    @property
    def messages(self) -> int:
        return self.counts.total()

    def announce(self, channel: Channel) -> bool:
        """Note a channel, of which there may be no message. Always true."""
        self.counts[channel] += 0
        return True

    def saw(self, channel: Channel, log_ns: int) -> None:
        self.counts[channel] += 1
        self.start_ns = log_ns if self.start_ns is None else min(self.start_ns, log_ns)
        self.end_ns = log_ns if self.end_ns is None else max(self.end_ns, log_ns)


class _Damage(Exception):
    """A record contradicts itself."""


class McapFile:
    """One MCAP file. Raises BagError when it does not begin like one, or cannot be opened."""

    def __init__(self, path: Path, limits: Limits | None = None) -> None:
        self.path = path
        self._limits = limits or Limits()
        try:
            with path.open("rb") as file:
                head = file.read(len(MAGIC) + _PREFIX)
                self._size = path.stat().st_size
        except OSError as error:
            raise BagError(f"{path} cannot be read: {error.strerror}") from error
        if not head.startswith(MAGIC):
            raise BagError(f"{path} is not an MCAP file: it does not begin with the MCAP magic")
        length = int.from_bytes(head[len(MAGIC) + 1 :], "little")
        if (
            len(head) < len(MAGIC) + _PREFIX
            or head[len(MAGIC)] != HEADER
            or len(head) + length > self._size
        ):
            raise BagError(f"{path} breaks off before its first record: nothing can be recovered")

    def survey(self) -> Survey:
        """Read everything once and keep only the figures."""
        found = Survey()
        for message in self._read(found, found.announce, copy=False):
            found.saw(message.channel, message.log_ns)
        return found

    def messages(self, wanted: Callable[[Channel], bool]) -> Iterator[RawMessage]:
        """The messages of the channels that are ``wanted``, in the order of the file."""
        return self._read(Survey(), wanted, copy=True)

    # ------------------------------------------------------------------ the file

    def _read(
        self, found: Survey, wanted: Callable[[Channel], bool], *, copy: bool
    ) -> Iterator[RawMessage]:
        table = _Channels(wanted, self._limits, found.problems, copy)
        with self.path.open("rb") as file:
            later_chunks = self._summary(file, table, found)
            for opcode, start, length in self._records(file, found, later_chunks):
                if opcode == CHUNK:
                    try:
                        raw = self._chunk(file, start, length)
                    except _Damage as damage:
                        found.problems[str(damage)] += 1
                        continue
                    found.chunks += 1
                    yield from table.take(raw)
                elif opcode in (SCHEMA, CHANNEL, MESSAGE):
                    if length > self._limits.message:
                        found.problems["record over the size limit"] += 1
                        continue
                    file.seek(start)
                    yield from table.record(opcode, memoryview(file.read(length)))

    def _records(
        self, file: BinaryIO, found: Survey, later_chunks: list[int]
    ) -> Iterator[tuple[int, int, int]]:
        """Opcode, offset and length of every complete record of the data section."""
        at, size = len(MAGIC), self._size
        found.data_finished = False
        while at + _PREFIX <= size:
            file.seek(at)
            head = file.read(_PREFIX)
            opcode, length = head[0], int.from_bytes(head[1:], "little")
            start, after = at + _PREFIX, at + _PREFIX + int.from_bytes(head[1:], "little")
            if opcode == DATA_END and after <= size:
                found.data_finished = True
                return
            if opcode not in _KNOWN or after > size:
                # Damage in the middle: the index, if there is one, tells where to go on.
                index = bisect_right(later_chunks, at)
                if index == len(later_chunks):
                    found.lost_bytes = size - at
                    self._look_at_torn(file, opcode, start, found)
                    return
                found.problems["damaged stretch of the file"] += 1
                at = later_chunks[index]
                continue
            yield opcode, start, length
            at = after
        found.lost_bytes = size - at

    def _look_at_torn(self, file: BinaryIO, opcode: int, start: int, found: Survey) -> None:
        """What the beginning of a chunk that breaks off tells about what is lost."""
        file.seek(start)
        head = file.read(_CHUNK.size + 4)
        if opcode != CHUNK or len(head) < _CHUNK.size + 4:
            return
        _, end_ns, size, _ = _CHUNK.unpack_from(head)
        if 0 < end_ns <= _MAX_NS:
            found.torn_end_ns = end_ns
        if head[_CHUNK.size :] != bytes(4):  # compressed: there is nothing to count
            return
        at = start + _CHUNK.size + 12
        end = min(self._size, at + size)
        while at < end:
            file.seek(at)
            prefix = file.read(_PREFIX)
            if not prefix or prefix[0] not in (SCHEMA, CHANNEL, MESSAGE):
                return
            found.torn_messages += prefix[0] == MESSAGE
            if len(prefix) < _PREFIX:
                return
            at += _PREFIX + int.from_bytes(prefix[1:], "little")

    def _chunk(self, file: BinaryIO, start: int, length: int) -> bytes:
        if length > self._limits.chunk:
            raise _Damage("chunk over the size limit")
        file.seek(start)
        content = memoryview(file.read(length))
        try:
            _, _, size, crc = _CHUNK.unpack_from(content)
            compression, at = _string(content, _CHUNK.size)
            stored = int.from_bytes(content[at : at + 8], "little")
        except (struct.error, _Damage) as error:
            raise _Damage("chunk damaged") from error
        data = content[at + 8 : at + 8 + stored]
        if len(content) < at + 8 or len(data) != stored:
            raise _Damage("chunk damaged")
        if size > self._limits.chunk:
            raise _Damage("chunk over the size limit")
        raw = _decompress(data, compression, size)
        if crc and crc32(raw) != crc:
            raise _Damage("chunk with a wrong checksum")
        return raw

    def _summary(self, file: BinaryIO, table: _Channels, found: Survey) -> list[int]:
        """Take channels and counts from the summary, if there is one; offsets of all chunks."""
        found.finished = False
        if self._size < 2 * len(MAGIC) + _PREFIX + 20:
            return []
        file.seek(self._size - len(MAGIC) - _PREFIX - 20)
        tail = file.read()
        if tail[-len(MAGIC) :] != MAGIC or tail[0] != FOOTER:
            return []
        found.finished = True
        at, chunks = int.from_bytes(tail[_PREFIX : _PREFIX + 8], "little"), []
        end = self._size - len(tail)
        if at == 0:
            return []
        while len(MAGIC) <= at <= end - _PREFIX:
            file.seek(at)
            head = file.read(_PREFIX)
            length = int.from_bytes(head[1:], "little")
            if at + _PREFIX + length > end or length > self._limits.message:
                break
            content = memoryview(file.read(length))
            if head[0] in (SCHEMA, CHANNEL):
                list(table.record(head[0], content))
            elif head[0] == CHUNK_INDEX and length >= 24:
                chunks.append(int.from_bytes(content[16:24], "little"))
            elif head[0] == STATISTICS and length >= 8:
                found.expected = int.from_bytes(content[:8], "little")
            at += _PREFIX + length
        return sorted(offset for offset in chunks if offset < end)


class _Channels:
    """Schemas and channels met so far, and the messages that belong to them."""

    def __init__(
        self,
        wanted: Callable[[Channel], bool],
        limits: Limits,
        problems: Counter[str],
        copy: bool,
    ) -> None:
        self._wanted, self._limits, self._problems, self._copy = wanted, limits, problems, copy
        self._schemas: dict[int, tuple[str, str, str]] = {0: ("", "", "")}
        self._channels: dict[int, Channel | None] = {}

    def take(self, raw: bytes) -> Iterator[RawMessage]:
        """The messages of a decompressed chunk; what follows damage in it is counted as lost."""
        content, at = memoryview(raw), 0
        while at < len(content):
            length = int.from_bytes(content[at + 1 : at + _PREFIX], "little")
            after = at + _PREFIX + length
            if len(content) < at + _PREFIX or after > len(content) or content[at] not in _KNOWN:
                self._problems["rest of a chunk, damaged"] += 1
                return
            yield from self.record(content[at], content[at + _PREFIX : after])
            at = after

    def record(self, opcode: int, content: memoryview) -> Iterator[RawMessage]:
        try:
            if opcode == MESSAGE:
                yield from self._message(content)
            elif opcode == SCHEMA:
                self._schema(content)
            elif opcode == CHANNEL:
                self._channel(content)
        except (_Damage, struct.error):
            self._problems["damaged record"] += 1

    def _message(self, content: memoryview) -> Iterator[RawMessage]:
        number, _, log_ns, _ = _MESSAGE.unpack_from(content)
        if number not in self._channels:
            self._problems["message of an unknown channel"] += 1
            return
        channel = self._channels[number]
        if channel is None:
            return
        if len(content) > self._limits.message:
            self._problems["message over the size limit"] += 1
            return
        data = bytes(content[_MESSAGE.size :]) if self._copy else b""
        yield RawMessage(channel, min(log_ns, _MAX_NS), data)

    def _schema(self, content: memoryview) -> None:
        if len(content) > _MAX_DEFINITION:
            raise _Damage
        (number,) = struct.unpack_from("<H", content)
        name, at = _string(content, 2)
        encoding, at = _string(content, at)
        definition, _ = _string(content, at)
        self._schemas[number] = (name, encoding, definition)

    def _channel(self, content: memoryview) -> None:
        if len(content) > _MAX_DEFINITION:
            raise _Damage
        number, schema = struct.unpack_from("<HH", content)
        topic, at = _string(content, 4)
        encoding, at = _string(content, at)
        (size,) = struct.unpack_from("<I", content, at)
        end, at, qos = at + 4 + size, at + 4, ""
        while at < min(end, len(content)):
            key, at = _string(content, at)
            value, at = _string(content, at)
            qos = value if key == "offered_qos_profiles" else qos
        kind, schema_encoding, definition = self._schemas.get(schema, ("", "", ""))
        channel = Channel(topic, kind, encoding, schema_encoding, definition, qos)
        self._channels[number] = channel if self._wanted(channel) else None


def _string(content: memoryview, at: int) -> tuple[str, int]:
    """The string at ``at``, and the offset behind it."""
    (length,) = struct.unpack_from("<I", content, at)
    text = content[at + 4 : at + 4 + length]
    if len(text) != length:
        raise _Damage
    try:
        return bytes(text).decode(), at + 4 + length
    except UnicodeDecodeError as error:
        raise _Damage from error


def _decompress(data: memoryview, compression: str, size: int) -> bytes:
    """``size`` bytes; raises _Damage for any other amount, without producing more than that."""
    if compression == "":
        raw = bytes(data)
    elif compression in ("zstd", "lz4"):
        raw = bounded_decompress(data, compression, size)
    else:
        raise _Damage(f"chunk compressed with {compression[:20]!r}")
    if len(raw) != size:
        raise _Damage("chunk of another size than announced")
    return raw


def bounded_decompress(data: bytes | memoryview, compression: str, limit: int) -> bytes:
    """Decompressed ``data``; raises _Damage as soon as it proves longer than ``limit``."""
    decoder = zstd.ZstdDecompressor() if compression == "zstd" else LZ4FrameDecompressor()
    parts: list[bytes] = []
    left, data = limit + 1, bytes(data)
    try:
        # One call may return less than it could: ask until it ends or the limit is passed.
        while left > 0 and not decoder.eof:
            part = decoder.decompress(data, max_length=left)
            if not part and decoder.needs_input:
                break
            parts.append(part)
            left, data = left - len(part), b""
    except Exception as error:  # the two libraries have no common error
        raise _Damage("chunk that cannot be decompressed") from error
    if left <= 0:
        raise _Damage("chunk larger than announced")
    return b"".join(parts)
