"""Episodes: what a robot saw, did and was asked, one row per control step without a gap."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from simdist.errors import BagError

Float = NDArray[np.float32]


@dataclass(frozen=True)
class Windows:
    """Training windows, stacked. For a window at row ``i`` of its episode:"""

    proprio_history: Float  #: (N, H + 1, P) rows i-H .. i
    scan: Float  #: (N, E) row i
    action_history: Float  #: (N, H, A) rows i-H .. i-1
    future_action: Float  #: (N, T, A) rows i .. i+T-1
    command: Float  #: (N, T + 1, 3) rows i .. i+T
    future_proprio: Float  #: (N, T, P) rows i+1 .. i+T
    future_scan: Float  #: (N, T, E) rows i+1 .. i+T

    def __len__(self) -> int:
        return len(self.scan)

    @staticmethod
    def concatenate(parts: Iterable[Windows]) -> Windows:
        """Stack at least one set of windows."""
        parts = list(parts)
        return Windows(
            **{f.name: np.concatenate([getattr(p, f.name) for p in parts]) for f in fields(Windows)}
        )


@dataclass(frozen=True)
class Episode:
    """``S`` consecutive control steps of an acting robot.

    ``proprio[k]`` was observed before ``action[k]``; after ``action[k]`` came ``proprio[k + 1]``.
    Actions are the applied ones, in action units. The action of the last row is the one whose
    outcome is not in the episode; no window uses it.
    """

    stamp_ns: NDArray[np.int64]  #: (S,) start of each control step
    proprio: Float  #: (S, P)
    scan: Float  #: (S, E)
    action: Float  #: (S, A)
    command: Float  #: (S, 3)
    episode: int = 0  #: segments of one uninterrupted run share this number
    contract: str = ""  #: hash of the model contract the layout belongs to

    def __post_init__(self) -> None:
        if self.stamp_ns.ndim != 1 or not np.issubdtype(self.stamp_ns.dtype, np.integer):
            raise BagError(f"episode: stamp_ns must be whole numbers (S,), got {self.stamp_ns!r}")
        for name in ("proprio", "scan", "action", "command"):
            value = getattr(self, name)
            if value.ndim != 2 or len(value) != len(self.stamp_ns):
                raise BagError(
                    f"episode: {name} must have one row for each of {len(self.stamp_ns)} stamps, "
                    f"got shape {value.shape}"
                )
        if self.command.shape[1] != 3:
            raise BagError(f"episode: command must be (S, 3), got {self.command.shape}")

    def __len__(self) -> int:
        return len(self.stamp_ns)

    def __getitem__(self, rows: slice) -> Episode:
        """The consecutive ``rows``, as views."""
        if rows.step not in (None, 1):
            raise ValueError("rows of an episode are consecutive: no step")
        return Episode(
            self.stamp_ns[rows],
            self.proprio[rows],
            self.scan[rows],
            self.action[rows],
            self.command[rows],
            self.episode,
            self.contract,
        )

    def to_dict(self) -> dict[str, np.ndarray]:
        """Arrays by name, for npz or safetensors; ``contract`` as bytes."""
        return {
            "stamp_ns": self.stamp_ns,
            "proprio": self.proprio,
            "scan": self.scan,
            "action": self.action,
            "command": self.command,
            "episode": np.array([self.episode], np.int64),
            "contract": np.frombuffer(self.contract.encode(), np.uint8),
        }

    @staticmethod
    def from_dict(data: Mapping[str, np.ndarray]) -> Episode:
        """Inverse of :meth:`to_dict`; raises BagError when an array is missing or has no sense."""
        try:
            return Episode(
                np.asarray(data["stamp_ns"], np.int64),
                np.asarray(data["proprio"], np.float32),
                np.asarray(data["scan"], np.float32),
                np.asarray(data["action"], np.float32),
                np.asarray(data["command"], np.float32),
                int(np.asarray(data["episode"]).reshape(-1)[0]),
                bytes(np.asarray(data["contract"], np.uint8)).decode(),
            )
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise BagError(f"not an episode: {error!r}") from error

    def continues(self, previous: Episode, dt_ns: int) -> bool:
        """Whether this segment begins one control step after ``previous`` ends."""
        return (
            len(previous) > 0
            and len(self) > 0
            and self.episode == previous.episode
            and self.contract == previous.contract
            and int(self.stamp_ns[0] - previous.stamp_ns[-1]) == dt_ns
        )

    def window_starts(self, history: int, horizon: int, stride: int = 1) -> NDArray[np.int64]:
        """Rows ``i`` at which a whole window fits: ``history <= i < S - horizon``."""
        return np.arange(history, len(self) - horizon, stride)

    def windows(self, rows: NDArray[np.int64], history: int, horizon: int) -> Windows:
        """Windows at ``rows``, each of which must be among :meth:`window_starts`."""
        past = np.arange(-history, 1) + rows[:, None]
        future = np.arange(horizon + 1) + rows[:, None]
        return Windows(
            proprio_history=self.proprio[past],
            scan=self.scan[rows],
            action_history=self.action[past[:, :-1]],
            future_action=self.action[future[:, :-1]],
            command=self.command[future],
            future_proprio=self.proprio[future[:, 1:]],
            future_scan=self.scan[future[:, 1:]],
        )


def join(segments: Iterable[Episode], dt_ns: int) -> list[Episode]:
    """Put segments that continue one another together, so that windows may cross their borders."""
    groups: list[list[Episode]] = []
    for segment in segments:
        if groups and segment.continues(groups[-1][-1], dt_ns):
            groups[-1].append(segment)
        else:
            groups.append([segment])
    return [concatenate(group) for group in groups]


def concatenate(segments: list[Episode]) -> Episode:
    """One episode of consecutive segments (at least one; the caller knows they continue)."""
    if len(segments) == 1:
        return segments[0]
    arrays = {
        name: np.concatenate([getattr(s, name) for s in segments])
        for name in ("stamp_ns", "proprio", "scan", "action", "command")
    }
    return Episode(**arrays, episode=segments[0].episode, contract=segments[0].contract)


def unseen(episodes: Iterable[Episode], seen: set[bytes]) -> list[Episode]:
    """The stretches of ``episodes`` whose rows are not in ``seen``; adds their rows to it.

    The same data met twice, as in a recording and in what was recovered of it, would otherwise be
    learned from and held out at once.
    """
    result: list[Episode] = []
    for episode in episodes:
        rows = [
            hashlib.blake2b(
                stamp.tobytes() + proprio.tobytes() + action.tobytes(), digest_size=16
            ).digest()
            for stamp, proprio, action in zip(
                episode.stamp_ns, episode.proprio, episode.action, strict=True
            )
        ]
        new = np.array([row not in seen for row in rows], bool)
        seen.update(rows)
        edges = np.flatnonzero(np.diff(np.concatenate([[False], new, [False]]).astype(int)))
        result += [episode[a:b] for a, b in zip(edges[::2], edges[1::2], strict=True)]
    return result


def data_hash(episodes: Iterable[Episode]) -> str:
    """sha256 over every array of every episode in order: the identity of a data set."""
    digest = hashlib.sha256()
    for episode in episodes:
        for name, array in episode.to_dict().items():
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
