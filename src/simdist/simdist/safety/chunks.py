"""Action chunks at the robot: which are accepted, and which row is played when."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from simdist.robots import RobotSpec
from simdist.types import ActionChunk, Array

_MAX_ROWS = 1000
_MAX_WAITING = 8


class Refusal(StrEnum):
    """Why a chunk was not accepted; the values are the keys of the diagnostics."""

    KIND = "kind"  #: not joint positions
    NAMES = "joint_names"  #: foreign, missing or repeated joints
    SHAPE = "shape"  #: not (steps, joints) numbers, empty, or absurdly long
    NOT_FINITE = "not_finite"  #: NaN or Inf
    STEP_LENGTH = "dt"  #: rows are not one control step apart
    CONTRACT = "contract"  #: made with a model of another contract
    SEQUENCE = "sequence"  #: repeated or older than one already accepted
    FUTURE = "future"  #: observation or first row too far ahead of now
    STALE = "stale"  #: answers an observation that is too old
    EXPIRED = "expired"  #: its last row lies in the past


@dataclass(frozen=True)
class AcceptedChunk:
    """A checked chunk with its columns in the robot's joint order."""

    stamp_ns: int
    observation_stamp_ns: int
    sequence: int
    received_ns: int
    targets: Array  #: (steps, n) rad

    def row(self, now_ns: int, dt_ns: int) -> int:
        """The row for ``now_ns``; negative before the first, ``>= steps`` after the last."""
        return (now_ns - self.stamp_ns) // dt_ns


class ChunkInbox:
    """Checks chunks on arrival and picks the one to play.

    ``contract`` is the expected contract hash. With None the first chunk after :meth:`clear`
    decides, and chunks of another contract are refused from then on.
    """

    def __init__(
        self,
        robot: RobotSpec,
        *,
        dt_ns: int,
        max_age_ns: int,
        max_future_ns: int,
        tolerance_ns: int,
        contract: str | None = None,
    ) -> None:
        self._robot = robot
        self._dt_ns = dt_ns
        self._max_age_ns = max_age_ns
        self._max_future_ns = max_future_ns
        self._tolerance_ns = tolerance_ns
        self._expected_contract = contract
        self._contract = contract
        self._columns: dict[tuple[str, ...], NDArray[np.intp]] = {
            robot.joint_names: np.arange(robot.joint_count)
        }
        self._waiting: deque[AcceptedChunk] = deque(maxlen=_MAX_WAITING)
        self._playing: AcceptedChunk | None = None
        self.newest: AcceptedChunk | None = None
        self.accepted = 0
        self.refused: Counter[str] = Counter()

    def receive(self, chunk: ActionChunk, now_ns: int) -> Refusal | None:
        """Accept ``chunk`` (None) or refuse and count it; nothing of a refused chunk is kept."""
        verdict = self._check(chunk, now_ns)
        if isinstance(verdict, Refusal):
            self.refused[verdict.value] += 1
            return verdict
        self._waiting.append(verdict)
        self.newest = verdict
        self._contract = chunk.contract
        self.accepted += 1
        return None

    def select(self, boundary_ns: int) -> tuple[AcceptedChunk, int] | None:
        """The newest chunk that has begun at this control step, with its row.

        None when there is none or its rows have run out. An older chunk is never played again
        once a newer one has begun.
        """
        at_ns = boundary_ns + self._tolerance_ns
        begun = [i for i, c in enumerate(self._waiting) if c.row(at_ns, self._dt_ns) >= 0]
        if begun:
            # Whatever waits before the newest begun one is obsolete, begun or not.
            for _ in range(begun[-1] + 1):
                self._playing = self._waiting.popleft()
        if self._playing is None:
            return None
        row = self._playing.row(at_ns, self._dt_ns)
        return (self._playing, row) if row < len(self._playing.targets) else None

    def clear(self) -> None:
        """Forget all chunks, their sequence numbers, and a contract learned from a chunk."""
        self._waiting.clear()
        self._playing = None
        self.newest = None
        self._contract = self._expected_contract

    def _check(self, chunk: ActionChunk, now_ns: int) -> AcceptedChunk | Refusal:
        if chunk.kind != "joint_position":
            return Refusal.KIND
        columns = self._columns_of(chunk.joint_names)
        if columns is None:
            return Refusal.NAMES
        try:
            values = np.asarray(chunk.values, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            return Refusal.SHAPE
        if values.ndim != 2 or not 1 <= len(values) <= _MAX_ROWS or values.shape[1] != len(columns):
            return Refusal.SHAPE
        if not np.isfinite(values).all():
            return Refusal.NOT_FINITE
        # The wire carries seconds as a float: allow its rounding, not another step length.
        if abs(chunk.dt_ns - self._dt_ns) > 1000:
            return Refusal.STEP_LENGTH
        if self._contract is not None and chunk.contract != self._contract:
            return Refusal.CONTRACT
        refusal = self._check_times(chunk, len(values), now_ns)
        if refusal is not None:
            return refusal
        return AcceptedChunk(
            chunk.stamp_ns, chunk.observation_stamp_ns, chunk.sequence, now_ns, values[:, columns]
        )

    def _check_times(self, chunk: ActionChunk, rows: int, now_ns: int) -> Refusal | None:
        newest = self.newest
        if newest is not None:
            # A restarted planner counts from the beginning: its numbers are believed once the
            # last chunk of its predecessor is too old to be played anyway.
            outlived = now_ns - newest.observation_stamp_ns > self._max_age_ns
            older = chunk.observation_stamp_ns < newest.observation_stamp_ns
            if older or (chunk.sequence <= newest.sequence and not outlived):
                return Refusal.SEQUENCE
        if (
            chunk.observation_stamp_ns > now_ns + self._tolerance_ns
            or chunk.stamp_ns > now_ns + self._max_future_ns
        ):
            return Refusal.FUTURE
        if now_ns - chunk.observation_stamp_ns > self._max_age_ns:
            return Refusal.STALE
        if chunk.stamp_ns + rows * self._dt_ns <= now_ns:
            return Refusal.EXPIRED
        return None

    def _columns_of(self, names: tuple[str, ...]) -> NDArray[np.intp] | None:
        try:
            known = self._columns.get(tuple(names))
        except TypeError:
            return None
        if known is not None:
            return known
        index = {name: i for i, name in enumerate(names)}
        if len(names) != len(index) or set(index) != set(self._robot.joint_names):
            return None
        columns = np.array([index[name] for name in self._robot.joint_names])
        if len(self._columns) < 64:
            self._columns[tuple(names)] = columns
        return columns
