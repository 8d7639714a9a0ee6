"""Cutting trajectories into the windows that the world model learns from.

A window at step ``i`` holds the past (observations ``i-H..i``, actions ``i-H..i-1``), the future
actions ``i..i+T-1``, the commands ``i..i+T`` and what followed: observations ``i+1..i+T``, rewards
of steps ``i..i+T-1`` and values of the states ``i+1..i+T``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from simdist.errors import DatasetError


@dataclass
class Trajectories:
    """Steps of many trajectories laid end to end: M steps in rows of ``row_lengths``.

    ``proprio[k]`` and ``scan[k]`` are observed before ``action[k]``; ``value[k]`` is the value of
    that state. Where ``end[k]`` is set, step ``k + 1`` starts a new episode; ``fall`` marks the
    ends that are falls. ``expert_action`` is the label for the policy and ``is_expert`` tells
    whether the executed action was the unperturbed expert's.
    """

    proprio: Tensor  #: (M, P) float32 or float16
    scan: Tensor  #: (M, S) float16 or float32, m
    action: Tensor  #: (M, A)
    expert_action: Tensor  #: (M, A)
    command: Tensor  #: (M, C)
    reward: Tensor  #: (M,)
    value: Tensor  #: (M,)
    fall: Tensor  #: (M,) bool
    end: Tensor  #: (M,) bool
    is_expert: Tensor  #: (M,) bool
    row_lengths: np.ndarray  #: (rows,) int, summing to M

    def __post_init__(self) -> None:
        steps = int(self.row_lengths.sum())
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Tensor) and value.shape[0] != steps:
                raise DatasetError(
                    f"{field.name} has {value.shape[0]} steps, the rows add up to {steps}"
                )
        if bool((self.fall & ~self.end).any()):
            raise DatasetError("a fall is marked at a step that does not end its episode")

    def __len__(self) -> int:
        return self.end.shape[0]


@dataclass(frozen=True)
class WindowBatch:
    """B windows in physical units, ready for the network (float32)."""

    proprio_history: Tensor  #: (B, H + 1, P)
    scan: Tensor  #: (B, S) of the present
    action_history: Tensor  #: (B, H, A)
    actions: Tensor  #: (B, T, A) applied
    commands: Tensor  #: (B, T + 1, C)
    target_proprio: Tensor  #: (B, T, P)
    target_scan: Tensor  #: (B, T, S)
    rewards: Tensor  #: (B, T), 0 after a fall
    values: Tensor  #: (B, T), 0 after a fall
    alive: Tensor  #: (B, T) 1 where the target observation belongs to this episode
    expert_actions: Tensor  #: (B, T, A)
    expert_mask: Tensor  #: (B, T) 1 where the label is valid for the policy
    world: Tensor  #: (B,) 1 where dynamics, reward and value may learn, 0 for policy data

    @staticmethod
    def concatenate(batches: list[WindowBatch]) -> WindowBatch:
        """The windows of several batches in one."""
        return WindowBatch(
            **{
                field.name: torch.cat([getattr(batch, field.name) for batch in batches])
                for field in fields(WindowBatch)
            }
        )


@dataclass(frozen=True)
class WindowIndex:
    """Where valid windows lie: the present step and the first step of its episode, ``(W,)``."""

    present: Tensor
    episode_start: Tensor


def find_windows(
    trajectories: Trajectories, history: int, horizon: int, *, pad_starts: bool
) -> WindowIndex:
    """All windows whose past stays within one episode and whose future crosses no time-out.

    A future may contain a fall; what follows it is masked in the batch. With ``pad_starts``
    windows may begin earlier than ``history`` steps into an episode: like
    :class:`~simdist.observation.History` after a reset, their past is the first observation
    repeated and zero action. The first step of a row then counts as the start of an episode.
    """
    steps = len(trajectories)
    end = trajectories.end.numpy().copy()
    time_out = end & ~trajectories.fall.numpy()
    row_ends = np.cumsum(trajectories.row_lengths) - 1
    end[row_ends] = True
    time_out[row_ends] = True
    position = np.arange(steps)
    begins = np.concatenate([[True], end[:-1]])
    episode_start = np.maximum.accumulate(np.where(begins, position, 0))
    # Steps i..i+T-1 hold no time-out and no end of a row, so observation i+T is in the row too.
    time_outs = np.concatenate([[0], np.cumsum(time_out)])
    last = np.minimum(position + horizon, steps)
    valid = (time_outs[last] == time_outs[:-1]) & (position + horizon < steps)
    if not pad_starts:
        valid &= position - episode_start >= history
    present = np.flatnonzero(valid)
    return WindowIndex(torch.from_numpy(present), torch.from_numpy(episode_start[present]))


class WindowSet:
    """Windows of one purpose (training or validation), gathered on demand."""

    def __init__(
        self,
        trajectories: Trajectories,
        index: WindowIndex,
        world: Tensor,
        *,
        history: int,
        horizon: int,
        noise_std: Tensor,
        branches: Tensor | None = None,
    ) -> None:
        """``world (W,)`` bool tells which windows may teach dynamics, reward and value;
        ``noise_std (P,)`` is the sensor noise that :meth:`get` scales. Where ``branches (W,)`` is
        above 1, that many windows in a row share their past, for :meth:`sample_branches`."""
        self.trajectories = trajectories
        self.present, self.episode_start = index.present, index.episode_start
        self.world = world
        self.history, self.horizon = history, horizon
        self.noise_std = noise_std.float()
        branched = torch.zeros_like(world) if branches is None else branches > 1
        self.branch_groups = _groups(branches) if branches is not None else torch.empty(0, 0).long()
        self.world_indices = torch.nonzero(world & ~branched).flatten()
        self.policy_only_indices = torch.nonzero(~world).flatten()
        self._past = torch.arange(-history, 1)
        self._future = torch.arange(horizon + 1)

    def __len__(self) -> int:
        return self.present.shape[0]

    def get(
        self, indices: Tensor, noise: float = 0.0, generator: torch.Generator | None = None
    ) -> WindowBatch:
        """The windows ``indices (B,)``; ``noise`` times the sensor noise is added to the past
        and present observations, never to the targets."""
        data = self.trajectories
        present, start = self.present[indices, None], self.episode_start[indices, None]
        past = present + self._past
        padded = past[:, :-1] < start
        past = torch.maximum(past, start)
        future = present + self._future
        steps = future[:, :-1]

        proprio_history = _gather(data.proprio, past)
        if noise:
            shape = proprio_history.shape
            proprio_history = proprio_history + noise * self.noise_std * torch.randn(
                shape, generator=generator
            )
        action_history = _gather(data.action, past[:, :-1])
        action_history.masked_fill_(padded[..., None], 0.0)
        scans = _gather(data.scan, future)

        # alive[:, j]: the state after step j belongs to the episode; before[:, j]: step j does.
        alive = (~data.end[steps]).float().cumprod(1)
        before = torch.cat([torch.ones_like(alive[:, :1]), alive[:, :-1]], 1)
        expert_so_far = data.is_expert[steps[:, :-1]].float().cumprod(1)
        expert_mask = torch.cat([torch.ones_like(alive[:, :1]), expert_so_far], 1) * before
        return WindowBatch(
            proprio_history=proprio_history,
            scan=scans[:, 0],
            action_history=action_history,
            actions=_gather(data.action, steps),
            commands=_gather(data.command, future),
            target_proprio=_gather(data.proprio, future[:, 1:]),
            target_scan=scans[:, 1:],
            rewards=data.reward[steps].float() * before,
            values=data.value[future[:, 1:]].float() * alive,
            alive=alive,
            expert_actions=_gather(data.expert_action, steps),
            expert_mask=expert_mask,
            world=self.world[indices].float(),
        )

    def sample(self, count: int, generator: torch.Generator, among: Tensor | None = None) -> Tensor:
        """Indices ``(count,)`` of random windows, drawn with replacement from all of them or
        from the indices ``among``."""
        size = len(self) if among is None else among.shape[0]
        if size == 0:
            raise DatasetError("there is no window to draw from")
        drawn = torch.randint(size, (count,), generator=generator)
        return drawn if among is None else among[drawn]

    def sample_branches(self, count: int, generator: torch.Generator) -> Tensor:
        """Indices ``(count * size,)`` of the windows of random groups, one group after another."""
        if not len(self.branch_groups):
            raise DatasetError("there are no branches to draw from; 'simdist collect --branched 1'")
        drawn = torch.randint(len(self.branch_groups), (count,), generator=generator)
        return self.branch_groups[drawn].flatten()


def _groups(branches: Tensor) -> Tensor:
    """Indices ``(groups, size)`` of windows that share their past."""
    sizes = branches[branches > 1].unique()
    if len(sizes) > 1:
        raise DatasetError(f"groups of {sizes.tolist()} branches cannot be mixed in one data set")
    members = torch.nonzero(branches > 1).flatten()
    return members.view(-1, int(sizes[0])) if len(sizes) else torch.empty(0, 0).long()


def _gather(array: Tensor, rows: Tensor) -> Tensor:
    """``array[rows]`` as float32; index_select is several times faster than indexing."""
    return array.index_select(0, rows.flatten()).float().view(*rows.shape, *array.shape[1:])
