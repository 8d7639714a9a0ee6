"""Robot data on disk: what a buffer has no room for, and what it remembers after a restart."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import load, save

from simdist.errors import BagError
from simdist.replay.episode import Episode

_log = logging.getLogger(__name__)

#: The number, the side of the split and the length stand in the name, so that a full directory is
#: taken stock of without opening a file.
_NAME = re.compile(r"group_([0-9]{9})_([th])_([0-9]{6})\.safetensors")
_MAX_BYTES = 64 << 20


@dataclass(frozen=True)
class StoredGroup:
    """One group of a buffer on disk."""

    number: int
    held_out: bool
    steps: int
    path: Path


class GroupStore:
    """Groups of consecutive control steps, one file each, at most ``capacity_steps`` in all.

    A group appears whole or not at all, and is on the disk when :meth:`put` returns; beyond the
    capacity (which should exceed that of the buffer) the oldest are deleted. After the first error
    of the disk (:attr:`error`) nothing more is written while the caller goes on. Files that are
    damaged are left out and counted.

    Raises:
        BagError: the directory cannot be made, or another process uses it.
    """

    def __init__(self, directory: Path, capacity_steps: int = 1_000_000) -> None:
        self.directory = directory
        self.error: str | None = None
        self.damaged = 0
        self._capacity = capacity_steps
        try:
            directory.mkdir(parents=True, exist_ok=True)
            self._lock = open(directory / "lock", "w")  # noqa: SIM115  held until close()
        except OSError as error:
            raise BagError(f"cannot keep robot data in {directory}: {error.strerror}") from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise BagError(
                f"cannot keep robot data in {directory}: another process does; name another place"
            ) from error
        for torn in directory.glob("*.part"):
            with contextlib.suppress(OSError):
                torn.unlink()
        self._groups: dict[int, StoredGroup] = {}
        for path in directory.iterdir():
            if match := _NAME.fullmatch(path.name):
                number, side, steps = match.groups()
                self._groups[int(number)] = StoredGroup(int(number), side == "h", int(steps), path)

    def __len__(self) -> int:
        """Control steps on disk."""
        return sum(group.steps for group in self._groups.values())

    def groups(self) -> list[StoredGroup]:
        """All groups, oldest first."""
        return [self._groups[number] for number in sorted(self._groups)]

    def put(self, number: int, held_out: bool, episode: Episode) -> None:
        """Write a group, or write it anew when it has grown. Never raises."""
        if self.error is not None:
            return
        side = "h" if held_out else "t"
        path = self.directory / f"group_{number:09d}_{side}_{len(episode):06d}.safetensors"
        before = self._groups.get(number)
        try:
            _write(path, save(episode.to_dict()))
            self._groups[number] = StoredGroup(number, held_out, len(episode), path)
            if before is not None and before.path != path:
                before.path.unlink(missing_ok=True)
            while len(self) > self._capacity and len(self._groups) > 1:
                self._groups.pop(min(self._groups)).path.unlink(missing_ok=True)
        except OSError as error:
            self.error = f"robot data is no longer kept in {self.directory}: {error.strerror}"
            _log.error(self.error)

    def read(self, group: StoredGroup) -> Episode | None:
        """The data of a group; None, and counted, when the file is damaged."""
        try:
            if group.path.stat().st_size > _MAX_BYTES:
                raise BagError("too large")
            episode = Episode.from_dict(load(group.path.read_bytes()))
            if len(episode) != group.steps:
                raise BagError("not as long as its name says")
        except (OSError, SafetensorError, BagError, ValueError) as error:
            self.damaged += 1
            self._groups.pop(group.number, None)
            _log.warning("%s is left out: %s", group.path, error)
            return None
        return episode

    def episodes(self, held_out: bool) -> Iterator[Episode]:
        """One side of the split, oldest first, one group in memory at a time."""
        for group in self.groups():
            if group.held_out == held_out and (episode := self.read(group)) is not None:
                yield episode

    def close(self) -> None:
        """Let another process use the directory."""
        self._lock.close()


def _write(path: Path, data: bytes) -> None:
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
