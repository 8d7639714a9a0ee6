"""A world model's weights in the order in which the kernel reads them (kernel/model.hpp)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from simdist.world_model.attention import DecoderLayer, EncoderLayer, Mlp, SelfAttention

if TYPE_CHECKING:
    from simdist.world_model.attention import ContextKeys
    from simdist.world_model.network import SequenceHead, WorldModel

Floats = NDArray[np.float32]


class WeightWriter:
    """Collects tensors; products of weights are taken in double precision."""

    def __init__(self) -> None:
        self._parts: list[Tensor] = []

    def add(self, *tensors: Tensor) -> None:
        self._parts.extend(tensor.detach().to(torch.float32).flatten() for tensor in tensors)

    def linear(self, layer: nn.Module, factor: float = 1.0) -> None:
        """Weight ``(outputs, inputs)`` and bias of a layer, times ``factor``."""
        weight, bias = _parameters(layer)
        self.add(weight * factor, bias * factor)

    def norm(self, layer: nn.Module) -> None:
        assert isinstance(layer, nn.LayerNorm)
        self.add(layer.weight, layer.bias)

    def feed_forward(self, layer: Mlp, norm: nn.Module) -> None:
        for part in layer.layers:
            self.linear(part)
        self.norm(norm)

    def self_attention(
        self, layer: SelfAttention, norm: nn.Module, embedding: tuple[Tensor, Tensor] | None = None
    ) -> None:
        """Query, key and value of every head, then the output layer and its norm.

        With an ``embedding`` (weight ``(D, inputs)``, bias ``(T, D)``) the heads take what is
        embedded, and have a bias for every position.
        """
        weight, bias = _parameters(layer.query_key_value)
        if embedding is not None:
            weight, bias = weight @ embedding[0], embedding[1] @ weight.T + bias
        else:
            bias = bias[None]
        heads, width = layer.heads, weight.shape[0] // 3 // layer.heads
        scale = torch.ones(3, 1, 1, dtype=weight.dtype)
        scale[0] = width**-0.5
        for head in range(heads):
            self.add(weight.view(3, heads, width, -1)[:, head] * scale)
            self.add(bias.view(-1, 3, heads, width)[:, :, head] * scale[:, 0])
        self.linear(layer.output)
        self.norm(norm)

    def decoder_layer(self, layer: DecoderLayer, embedding: tuple[Tensor, Tensor] | None) -> None:
        self.self_attention(layer.attention, layer.attention_norm, embedding)
        cross = layer.cross_attention
        width = cross.query.in_features // cross.heads
        self.linear(cross.query, width**-0.5)
        self.linear(cross.output)
        self.norm(layer.cross_norm)
        self.feed_forward(layer.feed_forward, layer.output_norm)

    def encoder_layer(self, layer: EncoderLayer) -> None:
        self.self_attention(layer.attention, layer.attention_norm)
        self.feed_forward(layer.feed_forward, layer.output_norm)

    def last_layer(self, layer: EncoderLayer, embedding: Tensor | None) -> None:
        """The value head's last layer: keys and values of all positions, one query. With an
        ``embedding`` (weight ``(D, D)``) keys and values take what is embedded, and their bias is
        part of the context (see :func:`value_pair`)."""
        attention = layer.attention
        weight, bias = _parameters(attention.query_key_value)
        width = weight.shape[1]
        head_width = width // attention.heads
        self.add(weight[:width] * head_width**-0.5, bias[:width] * head_width**-0.5)
        pair = weight[width:].view(2, attention.heads, head_width, width)
        for head in range(attention.heads):
            if embedding is None:
                self.add(pair[:, head], bias[width:].view(2, attention.heads, -1)[:, head])
            else:
                self.add(pair[:, head] @ embedding)
        self.linear(attention.output)
        self.norm(layer.attention_norm)
        self.feed_forward(layer.feed_forward, layer.output_norm)

    def readout(self, head: SequenceHead, mean: Tensor, std: Tensor) -> None:
        self.linear(head.output)
        self.add(mean, std)

    def array(self) -> Floats:
        return torch.cat(self._parts).numpy()


def sizes(model: WorldModel) -> list[int]:
    """The kernel's ``Sizes``, and the widths of the reactive policy's layers."""
    config = model.config
    widths = [*config.reactive_hidden, config.action_dim] if config.reactive_hidden else []
    return [
        *(config.latent_dim, config.action_dim, config.horizon, config.context_length),
        config.latent_dim * config.ff_factor,
        *(config.dynamics_layers, config.dynamics_heads, config.head_layers, config.head_heads),
        *(len(widths), *widths),
    ]


def weights(model: WorldModel, discounts: Tensor) -> Floats:
    """Everything but the context's part; ``discounts (T + 1,)``."""
    config, scaler, to = model.config, model.scaler, WeightWriter()
    latent, action = config.latent_dim, config.action_dim
    to.add(scaler.mean("action"), scaler.std("action"))

    weight, bias = _parameters(model.dynamics.embedding.projection)
    embedding = weight, model.dynamics.embedding.position.detach().double() + bias
    to.add(*embedding)
    for index, layer in enumerate(model.dynamics.decoder.layers):
        assert isinstance(layer, DecoderLayer)
        to.decoder_layer(layer, None if index else embedding)

    read = _read_out(model)
    weight, _ = _parameters(model.reward.embedding.projection)
    to.add(weight[:, :latent] @ read, weight[:, latent : latent + action])
    for layer in model.reward.layers:
        assert isinstance(layer, EncoderLayer)
        to.encoder_layer(layer)
    to.readout(model.reward, scaler.mean("reward"), scaler.std("reward"))

    weight, _ = _parameters(model.value.embedding.projection)
    to.add(weight[:, :latent] @ read)
    *before, last = model.value.layers
    for layer in before:
        assert isinstance(layer, EncoderLayer)
        to.encoder_layer(layer)
    assert isinstance(last, EncoderLayer)
    to.last_layer(last, None if before else weight[:, :latent] @ read)
    to.readout(model.value, scaler.mean("value"), scaler.std("value"))

    to.add(discounts)
    if model.reactive is not None:
        first, *others = model.reactive.network.layers
        weight, _ = _parameters(first)
        to.add(weight[:, :latent] @ read, weight[:, latent : latent + action])
        for layer in others:
            to.linear(layer)
    return to.array()


class ContextBiases:
    """What commands and the present latent add to the inputs of the heads, per robot.

    Where the dynamics are residual, a predicted latent is ``read @ decoded + origin``. The kernel
    knows what was decoded only: ``read`` is part of the weights that take latents, and what they
    make of the ``origin`` is added here.
    """

    def __init__(self, model: WorldModel) -> None:
        config = model.config
        self._scale = model.scaler.scale
        self._single = config.head_layers == 1
        self._heads = config.head_heads
        latent, action = config.latent_dim, config.action_dim
        weight, bias = _copies(model.reward.embedding.projection)
        self._reward_latent, self._reward_command = weight[:, :latent], weight[:, latent + action :]
        self._reward = model.reward.embedding.position.detach() + bias
        weight, bias = _copies(model.value.embedding.projection)
        self._value_latent, self._value_command = weight[:, :latent], weight[:, latent:]
        self._value = model.value.embedding.position.detach() + bias
        last = model.value.layers[-1]
        assert isinstance(last, EncoderLayer)
        weight, bias = _copies(last.attention.query_key_value)
        self._pair, self._pair_bias = weight[latent:], bias[latent:]
        self._reactive: tuple[Tensor, Tensor, Tensor] | None = None
        if model.reactive is not None:
            weight, bias = _copies(model.reactive.network.layers[0])
            self._reactive = weight[:, :latent], weight[:, latent + action :], bias
        output = model.dynamics.output
        self._origin = None if output is None else _copies(output)[1]

    def origin(self, keys: ContextKeys) -> Tensor | None:
        """What is added to every predicted latent, ``(B, D)``; None for nothing."""
        return None if self._origin is None else keys.last + self._origin

    def reward(self, latent: Tensor, command: Tensor, origin: Tensor | None) -> Tensor:
        """``(B, T, D)``."""
        scaled = self._scale("command", command)
        bias = self._reward + (scaled @ self._reward_command.T)[:, None]
        bias[:, 0] += latent @ self._reward_latent.T
        if origin is not None:
            bias[:, 1:] += (origin @ self._reward_latent.T)[:, None]
        return bias

    def value(self, command: Tensor, origin: Tensor | None) -> Tensor:
        """``(B, T, D)``."""
        scaled = self._scale("command", command)
        bias = self._value + (scaled @ self._value_command.T)[:, None]
        if origin is not None:
            bias += (origin @ self._value_latent.T)[:, None]
        return bias

    def value_pair(self, value: Tensor) -> Tensor | None:
        """Keys and values ``(B, heads, T, 2 width)`` of the value head's only layer that its bias
        (B, T, D) stands for; None if it has several layers."""
        if not self._single:
            return None
        robots, horizon, _ = value.shape
        pair = value @ self._pair.T + self._pair_bias
        parts = pair.view(robots, horizon, 2, self._heads, -1)
        return parts.permute(0, 3, 1, 2, 4).contiguous()

    def reactive(self, command: Tensor, origin: Tensor | None) -> Tensor | None:
        """``(B, width)`` of the reactive policy's first layer, None without one."""
        if self._reactive is None:
            return None
        latent, weight, bias = self._reactive
        result = self._scale("command", command) @ weight.T + bias
        return result if origin is None else result + origin @ latent.T


def _read_out(model: WorldModel) -> Tensor:
    """The matrix ``(D, D)`` that makes latents of what the dynamics' decoder yields."""
    if model.dynamics.output is None:
        return torch.eye(model.config.latent_dim, dtype=torch.float64)
    return _parameters(model.dynamics.output)[0]


def _parameters(layer: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach().double(), layer.bias.detach().double()


def _copies(layer: nn.Module) -> tuple[Tensor, Tensor]:
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach().clone(), layer.bias.detach().clone()
