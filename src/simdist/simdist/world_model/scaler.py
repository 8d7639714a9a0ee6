"""Standardisation of everything that enters or leaves the network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

QUANTITIES = ("proprio", "scan", "action", "command", "reward", "value")


class Scaler(nn.Module):
    """Means and standard deviations per element, stored as buffers ``<quantity>_mean`` and
    ``<quantity>_std``; the network sees ``(x - mean) / std``."""

    def __init__(self, sizes: dict[str, int]) -> None:
        super().__init__()
        for quantity in QUANTITIES:
            self.register_buffer(f"{quantity}_mean", torch.zeros(sizes[quantity]))
            self.register_buffer(f"{quantity}_std", torch.ones(sizes[quantity]))

    def scale(self, quantity: str, x: Tensor) -> Tensor:
        """From physical units to the network's."""
        return (x - self.mean(quantity)) / self.std(quantity)

    def unscale(self, quantity: str, x: Tensor) -> Tensor:
        """From the network's units to physical ones."""
        return x * self.std(quantity) + self.mean(quantity)

    def set(self, quantity: str, mean: Tensor, std: Tensor) -> None:
        """Replace the statistics of one quantity."""
        self.mean(quantity).copy_(mean)
        self.std(quantity).copy_(std)

    def mean(self, quantity: str) -> Tensor:
        return self.get_buffer(f"{quantity}_mean")

    def std(self, quantity: str) -> Tensor:
        return self.get_buffer(f"{quantity}_std")
