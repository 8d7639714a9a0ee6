"""Observations made up at random, to try a model out on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from simdist.world_model.network import WorldModel


@torch.inference_mode()
def random_inputs(model: WorldModel, robots: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Context, latent and command of ``robots`` random observations, distributed as the model's
    scalers say that its training data was."""
    sizes, draw = model.config, torch.Generator().manual_seed(seed)
    context, latent = model.encode(
        _like_data(model, "proprio", draw, robots, sizes.history + 1, sizes.proprio_dim),
        _like_data(model, "scan", draw, robots, sizes.scan_dim),
        _like_data(model, "action", draw, robots, sizes.history, sizes.action_dim),
    )
    return context, latent, _like_data(model, "command", draw, robots, sizes.command_dim)


@torch.inference_mode()
def random_actions(model: WorldModel, robots: int, samples: int, seed: int) -> Tensor:
    """Action sequences ``(robots, samples, T, A)``, distributed in the same way."""
    sizes, draw = model.config, torch.Generator().manual_seed(seed)
    shape = robots, samples, sizes.horizon, sizes.action_dim
    return _like_data(model, "action", draw, *shape)


def _like_data(model: WorldModel, quantity: str, draw: torch.Generator, *shape: int) -> Tensor:
    return model.scaler.unscale(quantity, torch.randn(*shape, generator=draw))
