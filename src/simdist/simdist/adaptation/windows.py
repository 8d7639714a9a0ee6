"""Windows of robot and simulation data, as the frozen encoder sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simdist.replay import Episode
from simdist.world_model import WorldModel
from simdist.world_model.windows import Trajectories, WindowSet, find_windows

_ENCODED_AT_ONCE = 512


def robot_windows(episodes: Sequence[Episode], history: int, horizon: int) -> WindowSet:
    """All windows that lie within one episode. Robot data has neither rewards nor values, so only
    the dynamics can learn from them."""

    def joined(name: str) -> Tensor:
        return torch.from_numpy(np.concatenate([getattr(episode, name) for episode in episodes]))

    lengths = np.array([len(episode) for episode in episodes], np.int64)
    steps = int(lengths.sum())
    never, nothing = torch.zeros(steps, dtype=torch.bool), torch.zeros(steps)
    action = joined("action")
    trajectories = Trajectories(
        proprio=joined("proprio"),
        scan=joined("scan"),
        action=action,
        expert_action=action,
        command=joined("command"),
        reward=nothing,
        value=nothing,
        fall=never,
        end=never,
        is_expert=never,
        row_lengths=lengths,
    )
    index = find_windows(trajectories, history, horizon, pad_starts=False)
    return WindowSet(
        trajectories,
        index,
        torch.ones(len(index.present), dtype=torch.bool),
        history=history,
        horizon=horizon,
        noise_std=torch.zeros(trajectories.proprio.shape[1]),
    )


@dataclass(frozen=True)
class EncodedBatch:
    """What the dynamics learn from: predict ``target`` where ``mask`` is one."""

    context: Tensor  #: (B, 2H + 1, D)
    action: Tensor  #: (B, T, A)
    target: Tensor  #: (B, T, D) latents of the future observations
    mask: Tensor  #: (B, T)

    @staticmethod
    def concatenate(batches: Sequence[EncodedBatch]) -> EncodedBatch:
        return EncodedBatch(
            context=torch.cat([batch.context for batch in batches]),
            action=torch.cat([batch.action for batch in batches]),
            target=torch.cat([batch.target for batch in batches]),
            mask=torch.cat([batch.mask for batch in batches]),
        )


class EncodedWindows:
    """Windows seen through a frozen encoder.

    The encoder does not learn, so target latents are computed once per step, and contexts once per
    window as long as they fit into ``cache_bytes``; beyond that, once per batch.
    """

    def __init__(self, model: WorldModel, windows: WindowSet, cache_bytes: int) -> None:
        self._model, self._windows = model, windows
        data, sizes = windows.trajectories, model.config
        self._latents = torch.cat(
            [
                model.latent(proprio.float(), scan.float()).detach()
                for proprio, scan in zip(
                    data.proprio.split(_ENCODED_AT_ONCE),
                    data.scan.split(_ENCODED_AT_ONCE),
                    strict=True,
                )
            ]
        )
        self._contexts: Tensor | None = None
        if len(windows) * sizes.context_length * sizes.latent_dim * 4 <= cache_bytes:
            every = torch.arange(len(windows))
            self._contexts = torch.cat([self._encode(r) for r in every.split(_ENCODED_AT_ONCE)])

    def __len__(self) -> int:
        return len(self._windows)

    def batch(self, rows: Tensor) -> EncodedBatch:
        """The windows ``rows (B,)``; nothing in them requires a gradient."""
        windows, data = self._windows, self._windows.trajectories
        steps = windows.present[rows, None] + torch.arange(windows.horizon)
        return EncodedBatch(
            context=self._encode(rows) if self._contexts is None else self._contexts[rows],
            action=data.action[steps].float(),
            target=self._latents[steps + 1],
            mask=(~data.end[steps]).float().cumprod(1),
        )

    @torch.no_grad()
    def _encode(self, rows: Tensor) -> Tensor:
        batch = self._windows.get(rows)
        context, _ = self._model.encode(batch.proprio_history, batch.scan, batch.action_history)
        return context
