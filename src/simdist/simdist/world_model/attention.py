"""Post-norm transformer layers whose cross-attention shares one context among many samples."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYER_NORM_EPS = 1e-6
#: of GELU's tanh form: u = GELU_U (x + GELU_CUBIC x^3)
GELU_U, GELU_CUBIC = (2 / torch.pi) ** 0.5, 0.044715


def gelu(x: Tensor) -> Tensor:
    """GELU in its tanh form.

    Without gradients it is computed as ``x sigmoid(2u)``, which is the same function and takes
    half the time of PyTorch's own on a CPU; planning spends a quarter of its time here.
    """
    if torch.is_grad_enabled():
        return functional.gelu(x, approximate="tanh")
    double_u = (x * x).mul_(2 * GELU_U * GELU_CUBIC).add_(2 * GELU_U).mul_(x)
    return double_u.sigmoid_().mul_(x)


class Mlp(nn.Module):
    """Linear layers of the given sizes with GELU (tanh form) between them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(inputs, outputs) for inputs, outputs in itertools.pairwise(sizes)
        )

    def forward(self, x: Tensor) -> Tensor:
        last = len(self.layers) - 1
        for index, layer in enumerate(self.layers):
            x = layer(x)
            if index < last:
                x = gelu(x)
        return x


def causal_bias(length: int, like: Tensor) -> Tensor:
    """Additive attention mask ``(length, length)``: row i may look at columns 0..i."""
    bias = torch.full((length, length), float("-inf"), device=like.device, dtype=like.dtype)
    return bias.triu(1)


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """Scaled dot-product attention over ``(batch, heads, length, width)`` tensors.

    Written out because at widths of 8 to 16 two matrix products and a softmax are faster on a CPU
    than the fused kernel.
    """
    weights = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-1, -2))
    if bias is not None:
        weights = weights + bias
    return torch.matmul(weights.softmax(-1), value)


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence ``(B, L, D)`` to itself."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query_key_value = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        batch, length, width = x.shape
        projected = self.query_key_value(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = attend(query, key, value, bias).transpose(1, 2)
        return self.output(mixed.reshape(batch, length, width))

    def last(self, x: Tensor) -> Tensor:
        """What :meth:`forward` gives for the last element ``(B, 1, D)``, which sees all others."""
        batch, length, width = x.shape
        weight, bias = self.query_key_value.weight, self.query_key_value.bias
        query = functional.linear(x[:, -1:], weight[:width], bias[:width])
        pair = functional.linear(x, weight[width:], bias[width:])
        key, value = pair.view(batch, length, 2, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        query = query.view(batch, 1, self.heads, -1).transpose(1, 2)
        return self.output(attend(query, key, value, None).transpose(1, 2).flatten(2))

    def extend(self, x: Tensor, past: list[Tensor]) -> Tensor:
        """What :meth:`forward` with a causal mask gives for the newest element ``x (B, 1, D)``;
        ``past`` holds the keys and values of those before it and takes its own."""
        batch, _, width = x.shape
        projected = self.query_key_value(x).view(batch, 1, 3, self.heads, width // self.heads)
        query, key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)
        if past:
            key, value = torch.cat([past[0], key], 2), torch.cat([past[1], value], 2)
        past[:] = key, value
        return self.output(attend(query, key, value, None).transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Multi-head attention to a context whose keys and values are computed once.

    The context may have a smaller batch than the queries: with ``C`` contexts and ``N`` sequences,
    ``N`` a multiple of ``C``, sequence ``n`` looks at context ``n // (N // C)``.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def prepare(self, context: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values ``(C, heads, L, width / heads)`` of a context ``(C, L, width)``."""
        contexts, length, width = context.shape
        projected = self.key_value(context).view(
            contexts, length, 2, self.heads, width // self.heads
        )
        key, value = projected.permute(2, 0, 3, 1, 4).unbind(0)
        return key, value

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> Tensor:
        batch, length, width = x.shape
        contexts = key.shape[0]
        # All sequences that share a context become one long sequence of queries, so that the
        # context is never copied.
        rows = batch // contexts * length
        query = self.query(x).view(contexts, rows, self.heads, width // self.heads)
        mixed = attend(query.transpose(1, 2), key, value, None).transpose(1, 2)
        return self.output(mixed.reshape(batch, length, width))


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each followed by residual and layer norm."""

    def __init__(self, width: int, heads: int, ff_factor: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.feed_forward = Mlp((width, width * ff_factor, width))
        self.output_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, None))
        return self.output_norm(x + self.feed_forward(x))

    def last(self, x: Tensor) -> Tensor:
        """The last element ``(B, 1, D)`` of what :meth:`forward` gives."""
        x = self.attention_norm(x[:, -1:] + self.attention.last(x))
        return self.output_norm(x + self.feed_forward(x))


class DecoderLayer(nn.Module):
    """Masked self-attention, cross-attention and feed-forward, each with residual and norm."""

    def __init__(self, width: int, heads: int, ff_factor: int) -> None:
        super().__init__()
        self.attention = SelfAttention(width, heads)
        self.attention_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.cross_attention = CrossAttention(width, heads)
        self.cross_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.feed_forward = Mlp((width, width * ff_factor, width))
        self.output_norm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor], bias: Tensor) -> Tensor:
        x = self.attention_norm(x + self.attention(x, bias))
        return self._look_and_feed(x, keys)

    def extend(self, x: Tensor, keys: tuple[Tensor, Tensor], past: list[Tensor]) -> Tensor:
        """The newest element ``(B, 1, D)`` of what :meth:`forward` gives."""
        x = self.attention_norm(x + self.attention.extend(x, past))
        return self._look_and_feed(x, keys)

    def _look_and_feed(self, x: Tensor, keys: tuple[Tensor, Tensor]) -> Tensor:
        x = self.cross_norm(x + self.cross_attention(x, *keys))
        return self.output_norm(x + self.feed_forward(x))


@dataclass(frozen=True)
class ContextKeys:
    """Cross-attention keys and values of ``contexts`` contexts, one pair per decoder layer, and
    the last token of each, ``(contexts, D)``: of a history that is the present latent, encoded."""

    layers: tuple[tuple[Tensor, Tensor], ...]
    last: Tensor

    @property
    def contexts(self) -> int:
        return self.layers[0][0].shape[0]


class CausalDecoder(nn.Module):
    """A stack of decoder layers: position i sees positions 0..i and the whole context."""

    def __init__(self, width: int, heads: int, ff_factor: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(width, heads, ff_factor) for _ in range(layers))

    def prepare(self, context: Tensor) -> ContextKeys:
        """Keys and values of a context ``(C, L, D)``, valid until a parameter changes."""
        layers = tuple(layer.cross_attention.prepare(context) for layer in self._stack())
        return ContextKeys(layers, context[:, -1])

    def forward(self, x: Tensor, context: Tensor | ContextKeys) -> Tensor:
        keys = context if isinstance(context, ContextKeys) else self.prepare(context)
        if x.shape[0] % keys.contexts:
            raise ValueError(
                f"{x.shape[0]} sequences cannot share {keys.contexts} contexts evenly; "
                "give one context, or a whole number of sequences per context"
            )
        bias = causal_bias(x.shape[1], x)
        for layer, layer_keys in zip(self._stack(), keys.layers, strict=True):
            x = layer(x, layer_keys, bias)
        return x

    def extend(self, x: Tensor, keys: ContextKeys, past: list[list[Tensor]]) -> Tensor:
        """Decode one more element ``(B, 1, D)`` of sequences begun with an empty ``past``, which
        is filled as they grow: the same result as decoding whole sequences at once."""
        if not past:
            past.extend([] for _ in self.layers)
        for layer, layer_keys, layer_past in zip(self._stack(), keys.layers, past, strict=True):
            x = layer.extend(x, layer_keys, layer_past)
        return x

    def _stack(self) -> list[DecoderLayer]:
        return [layer for layer in self.layers if isinstance(layer, DecoderLayer)]


class SequenceEmbedding(nn.Module):
    """A linear map of each step of ``(B, L, inputs)`` plus a learned position, L <= length."""

    def __init__(self, length: int, inputs: int, width: int) -> None:
        super().__init__()
        self.projection = nn.Linear(inputs, width)
        self.position = nn.Parameter(torch.randn(length, width))

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-2] > self.position.shape[0]:
            raise ValueError(
                f"a sequence of {x.shape[-2]} steps exceeds the model's horizon of "
                f"{self.position.shape[0]}"
            )
        return self.projection(x) + self.position[: x.shape[-2]]

    def at(self, x: Tensor, step: int) -> Tensor:
        """The embedding ``(B, 1, width)`` of ``x (B, inputs)`` as element ``step``."""
        return (self.projection(x) + self.position[step])[:, None]
