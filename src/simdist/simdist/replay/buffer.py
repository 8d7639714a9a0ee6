"""Robot data in memory, bounded, with a part held out for judging."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simdist.errors import BagError
from simdist.replay.episode import Episode, Windows, concatenate
from simdist.replay.group_store import GroupStore


@dataclass(frozen=True)
class BufferStatistics:
    """What the buffer holds and what it has let go."""

    groups: int
    steps: int
    held_out_steps: int
    seconds: float
    received_steps: int
    forgotten_steps: int  #: oldest ones, for lack of room in memory
    restored_steps: int  #: from disk, at the start
    stored_steps: int  #: on disk, those in memory included
    refused_steps: int  #: of another contract or shape


class ReplayBuffer:
    """Holds the newest ``capacity_steps`` control steps.

    Segments that continue one another are joined into *groups* of ``group_steps``. A group is the
    unit of everything: windows never cross its border, whole groups are forgotten, and a group is
    either learned from or held out, so no held-out window shares a row with a training window.
    Every ``held_out_every``-th group, beginning with the second, is held out: by arrival, not by
    chance, so the same data always gives the same split.

    With a ``store`` every group is on disk as soon as it is full: those that memory has no room for
    stay there, and a buffer on the same directory begins with the newest of them, on the same
    sides of the split. A group that was still growing is stored by :meth:`save`.
    """

    def __init__(
        self,
        dt_ns: int,
        *,
        capacity_steps: int = 90_000,
        group_steps: int = 300,
        held_out_every: int = 4,
        contract: str | None = None,
        store: GroupStore | None = None,
    ) -> None:
        if held_out_every < 2:
            raise ValueError(f"held_out_every = {held_out_every}: must be at least 2")
        if not 1 <= group_steps <= capacity_steps:
            raise ValueError(
                f"group_steps = {group_steps}: must be from 1 to capacity_steps = {capacity_steps}"
            )
        self._dt_ns = dt_ns
        self._capacity = capacity_steps
        self._group_steps = group_steps
        self._every = held_out_every
        self._contract = contract
        self._shape: tuple[int, int, int] | None = None
        self._groups: list[_Group] = []
        self._count = 0
        self._received = self._forgotten = self._refused = self._restored = 0
        self._store = store
        if store is not None:
            self._restore(store)

    def __len__(self) -> int:
        """Control steps held."""
        return sum(group.steps for group in self._groups)

    def add(self, segment: Episode) -> None:
        """Take in a segment, in the order of recording.

        Raises:
            BagError: the segment has another contract or layout than the data before it, or values
                that are not finite. Nothing of it is kept.
        """
        self._check(segment)
        self._received += len(segment)
        start = 0
        while start < len(segment):
            group = self._groups[-1] if self._groups else None
            part = segment[start:]
            if (
                group is None
                or group.steps >= self._group_steps
                or not group.takes(part, self._dt_ns)
            ):
                self.save()
                group = _Group(self._count, self._count % self._every == 1)
                self._count += 1
                self._groups.append(group)
            part = part[: self._group_steps - group.steps]
            group.append(part)
            start += len(part)
            if group.steps == self._group_steps:
                self.save()
        while len(self) > self._capacity:
            self._forgotten += self._groups.pop(0).steps

    def save(self) -> None:
        """Store the newest group as far as it has grown."""
        if self._store is None or not self._groups or self._groups[-1].stored:
            return
        newest = self._groups[-1]
        self._store.put(newest.number, newest.held_out, newest.episode())
        newest.stored = True

    def episodes(self, held_out: bool) -> list[Episode]:
        """The groups of one side of the split, oldest first."""
        return [group.episode() for group in self._groups if group.held_out == held_out]

    def window_count(self, history: int, horizon: int, held_out: bool, stride: int = 1) -> int:
        """How many windows one side of the split holds."""
        return sum(
            len(episode.window_starts(history, horizon, stride))
            for episode in self.episodes(held_out)
        )

    def sample(
        self,
        rng: np.random.Generator,
        count: int,
        history: int,
        horizon: int,
        held_out: bool = False,
    ) -> Windows:
        """``count`` windows drawn uniformly with replacement.

        Raises:
            BagError: there is not a single window yet.
        """
        episodes = self.episodes(held_out)
        starts = [episode.window_starts(history, horizon) for episode in episodes]
        offsets = np.cumsum([0, *(len(s) for s in starts)])
        if offsets[-1] == 0:
            raise BagError(
                f"no window of {history} past and {horizon} future steps in "
                f"{sum(map(len, episodes))} recorded steps yet"
            )
        drawn = np.sort(rng.integers(offsets[-1], size=count))
        which = np.searchsorted(offsets, drawn, side="right") - 1
        parts = [
            episodes[g].windows(starts[g][drawn[which == g] - offsets[g]], history, horizon)
            for g in np.unique(which)
        ]
        return Windows.concatenate(parts)

    def windows(
        self,
        history: int,
        horizon: int,
        *,
        held_out: bool,
        stride: int = 1,
        batch: int = 1024,
    ) -> Iterator[Windows]:
        """Every window once, oldest first, at most ``batch`` at a time."""
        for episode in self.episodes(held_out):
            starts = episode.window_starts(history, horizon, stride)
            for i in range(0, len(starts), batch):
                yield episode.windows(starts[i : i + batch], history, horizon)

    def statistics(self) -> BufferStatistics:
        steps = len(self)
        return BufferStatistics(
            groups=len(self._groups),
            steps=steps,
            held_out_steps=sum(g.steps for g in self._groups if g.held_out),
            seconds=steps * self._dt_ns / 1e9,
            received_steps=self._received,
            forgotten_steps=self._forgotten,
            refused_steps=self._refused,
            restored_steps=self._restored,
            stored_steps=0 if self._store is None else len(self._store),
        )

    def _restore(self, store: GroupStore) -> None:
        stored = store.groups()
        self._count = stored[-1].number + 1 if stored else 0
        room = self._capacity
        for entry in reversed(stored):
            room -= entry.steps
            if room < 0:
                break
            episode = store.read(entry)
            if episode is None:
                continue
            try:
                self._check(episode)
            except BagError:  # of another model; counted as refused
                continue
            group = _Group(entry.number, entry.held_out)
            group.append(episode)
            group.stored = True
            # Nothing is appended to it: what comes now did not follow it without a gap.
            group.closed = True
            self._groups.insert(0, group)
            self._restored += len(episode)

    def _check(self, segment: Episode) -> None:
        shape = (segment.proprio.shape[1], segment.scan.shape[1], segment.action.shape[1])
        problem = None
        if self._contract is not None and segment.contract != self._contract:
            problem = f"contract {segment.contract!r} where {self._contract!r} is expected"
        elif self._shape is not None and shape != self._shape:
            problem = f"layout {shape} where {self._shape} is expected"
        elif not all(
            np.isfinite(a).all()
            for a in (segment.proprio, segment.scan, segment.action, segment.command)
        ):
            problem = "values that are not finite"
        elif len(segment) > 1 and (np.diff(segment.stamp_ns) != self._dt_ns).any():
            problem = f"stamps that are not {self._dt_ns} ns apart"
        if problem is not None:
            self._refused += len(segment)
            raise BagError(f"segment of episode {segment.episode} refused: {problem}")
        self._shape = shape
        self._contract = segment.contract


class _Group:
    """Up to ``group_steps`` consecutive rows."""

    def __init__(self, number: int, held_out: bool) -> None:
        self.number = number
        self.held_out = held_out
        self.steps = 0
        self.stored = False  #: all of it is on disk
        self.closed = False  #: takes nothing more
        self._parts: list[Episode] = []

    def takes(self, segment: Episode, dt_ns: int) -> bool:
        if self.closed:
            return False
        return not self._parts or segment.continues(self._parts[-1], dt_ns)

    def append(self, segment: Episode) -> None:
        # A copy: a slice would keep the whole segment alive after the rest is forgotten.
        self._parts.append(Episode.from_dict({k: v.copy() for k, v in segment.to_dict().items()}))
        self.steps += len(segment)
        self.stored = False

    def episode(self) -> Episode:
        self._parts = [concatenate(self._parts)]
        return self._parts[0]
