"""Recording to disk: a rosbag2 directory with MCAP storage, written without ROS."""

from __future__ import annotations

import contextlib
import os
import queue
import struct
import threading
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from zlib import crc32

from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer
from rosbags.rosbag2.storage_mcap import McapWriter

from simdist.errors import BagError
from simdist.replay.messages import typestore

_FOREVER = QosTime(9223372036, 854775807)
#: Offset of the checksum in a chunk record: opcode, length, start, end, size.
_CHUNK_CRC = 9 + 24


class BagExistsError(BagError):
    """The directory that was to be made for a recording exists already."""


class SafeMcapWriter(McapWriter):
    """Chunks with a checksum, which tells data that reached the disk from what only seems so."""

    def close_chunk(self) -> None:
        start, checksum = self.bio.tell(), crc32(self.chunk.bio.getbuffer())
        if not self.chunk.msgs:
            self.chunk.message_start_time = 0  # as the specification wants it
        super().close_chunk()
        self.bio.seek(start + _CHUNK_CRC)
        self.bio.write(struct.pack("<I", checksum))
        self.bio.seek(0, os.SEEK_END)


class McapBagWriter(Writer):
    """A writer of rosbag2 directories whose chunks carry checksums."""

    STORAGE_PLUGINS = {**Writer.STORAGE_PLUGINS, StoragePlugin.MCAP: SafeMcapWriter}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        super().__init__(path, version=9, storage_plugin=StoragePlugin.MCAP)

    def flush(self, *, sync: bool) -> None:
        """Bring what was written into the file as a complete chunk, and to the disk."""
        # Writer has no flush of its own; a chunk otherwise stays in memory until it holds 1 MB.
        assert isinstance(self.storage, SafeMcapWriter)
        if self.storage.chunk.bio.tell():
            self.storage.close_chunk()
        self.storage.bio.flush()
        if sync:
            os.fdatasync(self.storage.bio.fileno())


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


class BagWriter:
    """Writes serialised messages on a thread of its own, so that a slow disk delays nobody.

    :meth:`write` never blocks and never raises: what does not fit into the queue is counted in
    :attr:`dropped`, and after an error of the disk (:attr:`error`) recording is over while the
    caller goes on. At least every ``flush_seconds`` all messages reach the file as a complete
    chunk, which survives the death of this process, and the file is synchronised with the disk
    (``sync``), so that a power cut loses no more than that and the time the disk takes. The
    definitions of all messages stand in a chunk of their own at the beginning.

    Raises:
        BagExistsError: the directory exists already.
        BagError: it cannot be made or written to.
    """

    def __init__(
        self,
        path: Path,
        topics: Mapping[str, str],
        *,
        latched: Collection[str] = (),
        queue_size: int = 2000,
        flush_seconds: float = 0.5,
        sync: bool = True,
    ) -> None:
        self.path = path
        self.dropped = 0
        self.error: str | None = None
        self._queue: queue.Queue[tuple[str, int, bytes] | None] = queue.Queue(queue_size)
        self._flush_seconds, self._sync = flush_seconds, sync
        self._written = 0
        self._connections: dict[str, Connection] = {}
        try:
            self._writer = McapBagWriter(path)
            self._writer.open()
            store = typestore()
            for topic, kind in topics.items():
                self._connections[topic] = self._writer.add_connection(
                    topic, kind, typestore=store, offered_qos_profiles=[_qos(topic in latched)]
                )
            self._writer.flush(sync=sync)
            if sync:
                _sync_directory(path)
                _sync_directory(path.parent)
        except Exception as error:
            kind = BagExistsError if "exists already" in str(error) else BagError
            raise kind(
                f"cannot record to {path}: {error}; choose a new directory that can be written to"
            ) from error
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
                    self._writer.flush(sync=self._sync)
                    self._writer.close()
                    return
                if item:
                    topic, stamp_ns, data = item
                    self._writer.write(self._connections[topic], stamp_ns, data)
                    self._written += 1
                if time.monotonic() >= flush_at:
                    self._writer.flush(sync=self._sync)
                    flush_at = time.monotonic() + self._flush_seconds
        except Exception as error:  # a full disk must not take the robot's process with it
            self.error = f"recording to {self.path} ended: {error}"
            # The buffer would try to reach the disk again when it is closed, and fail again.
            with contextlib.suppress(Exception):
                self._writer.abort()
            self._drain()

    def _drain(self) -> None:
        while True:
            try:
                if self._queue.get_nowait() is not None:
                    self.dropped += 1
            except queue.Empty:
                return


def new_recording(directory: Path, name: str, topics: Mapping[str, str], **options) -> BagWriter:
    """A writer to ``directory/name``, or ``name_2``, ``name_3`` ... where that exists already,
    also when another recorder makes it at the same moment.

    Raises:
        BagError: as :class:`BagWriter`.
    """
    for number in range(1, 1000):
        with contextlib.suppress(BagExistsError):
            path = directory / (name if number == 1 else f"{name}_{number}")
            return BagWriter(path, topics, **options)
    raise BagError(f"cannot record to {directory}: it holds 1000 recordings called {name}")


def _sync_directory(path: Path) -> None:
    """Make the names in a directory survive a power cut, where the file system can."""
    with contextlib.suppress(OSError):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
