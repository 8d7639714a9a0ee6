"""From observations and actions to the latent state and its context."""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from simdist.world_model.attention import Mlp
from simdist.world_model.config import WorldModelConfig

_KERNEL, _STRIDE = 3, 2
_ENCODING_STD = 0.02


def pad_same(image: Tensor) -> Tensor:
    """Zero padding after which a stride-2 convolution yields ``ceil(size / 2)`` cells.

    An odd amount puts the extra row or column at the far end, as flax and TensorFlow do.
    """
    rows, columns = (
        max((math.ceil(size / _STRIDE) - 1) * _STRIDE + _KERNEL - size, 0)
        for size in image.shape[-2:]
    )
    return functional.pad(
        image, (columns // 2, columns - columns // 2, rows // 2, rows - rows // 2)
    )


class ScanEncoder(nn.Module):
    """Convolutions over the height scan, positional encodings along both axes, and an MLP."""

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.shape = config.scan_shape
        channels = (1, *config.cnn_channels)
        self.convolutions = nn.ModuleList(
            nn.Conv2d(inputs, outputs, _KERNEL, _STRIDE)
            for inputs, outputs in itertools.pairwise(channels)
        )
        rows, columns = self.shape
        for _ in config.cnn_channels:
            rows, columns = math.ceil(rows / _STRIDE), math.ceil(columns / _STRIDE)
        self.row_encoding = nn.Parameter(_ENCODING_STD * torch.randn(rows, channels[-1]))
        self.column_encoding = nn.Parameter(_ENCODING_STD * torch.randn(columns, channels[-1]))
        self.projection = Mlp(
            (rows * columns * channels[-1], *config.scan_hidden, config.latent_dim)
        )

    def forward(self, scan: Tensor) -> Tensor:
        """Scaled scans ``(..., nx * ny)`` to features ``(..., D)``."""
        image = scan.reshape(-1, 1, *self.shape)
        last = len(self.convolutions) - 1
        for index, convolution in enumerate(self.convolutions):
            image = convolution(pad_same(image))
            if index < last:
                image = functional.gelu(image, approximate="tanh")
        cells = image.permute(0, 2, 3, 1) + self.row_encoding[:, None] + self.column_encoding
        return self.projection(cells.flatten(1)).view(*scan.shape[:-1], -1)


class Encoder(nn.Module):
    """The latent of one observation, and the context tokens of a history (scaled inputs)."""

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        width, hidden = config.latent_dim, config.latent_dim * config.encoder_ff_factor
        self.proprio = Mlp((config.proprio_dim, hidden, hidden, width))
        self.scan = ScanEncoder(config)
        self.joint = Mlp((2 * width, hidden, hidden, width))
        self.action = nn.Linear(config.action_dim, width)
        self.time_encoding = nn.Parameter(_ENCODING_STD * torch.randn(config.history + 1, width))
        #: one row each for observation, action and latent tokens
        self.type_encoding = nn.Parameter(_ENCODING_STD * torch.randn(3, width))

    def latent(self, proprio: Tensor, scan: Tensor) -> Tensor:
        """Latents ``(..., D)`` of proprioception ``(..., P)`` and scans ``(..., S)``."""
        return self.joint(torch.cat([self.proprio(proprio), self.scan(scan)], dim=-1))

    def forward(
        self, proprio_history: Tensor, scan: Tensor, action_history: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Context ``(B, 2H + 1, D)`` and latent ``(B, D)``.

        The context holds observation and action tokens of the past, interleaved, oldest first, and
        ends with the present latent. Past tokens see proprioception only. The latent returned
        beside it carries no encodings, so it is comparable with predicted latents.
        """
        latent = self.latent(proprio_history[:, -1], scan)
        past_time = self.time_encoding[:-1]
        observations = self.proprio(proprio_history[:, :-1]) + past_time + self.type_encoding[0]
        actions = self.action(action_history) + past_time + self.type_encoding[1]
        past = torch.stack([observations, actions], dim=2).flatten(1, 2)
        present = latent + self.time_encoding[-1] + self.type_encoding[2]
        return torch.cat([past, present[:, None]], dim=1), latent
