"""Floating-point operations of the returns of action sequences, from the shapes of a network.

A multiplication and an addition count as two; only matrix products are counted, as usual.
"""

from __future__ import annotations

import itertools

from simdist.world_model.config import WorldModelConfig


def returns_flops(config: WorldModelConfig, sequences: int) -> int:
    """Operations of ``TorchBackend``'s returns of ``sequences`` of one robot, as the network is
    written, without the keys and values of the context that they share."""
    return sequences * (_dynamics(config) + _reward(config) + _value(config))


def needed_flops(config: WorldModelConfig, sequences: int, *, closed_loop: bool = False) -> int:
    """The part of :func:`returns_flops` that a backend cannot avoid, by which backends are
    measured: leaving out what need not be computed must not look like computing fast.

    What can be avoided: attention to the future; multiplying the commands, which all sequences
    share; embedding actions before they are projected to queries, keys and values, and latents
    before they are projected to keys and values of a value head of one layer. In ``closed_loop``
    the reactive policy is added, which answers every predicted latent but the last.
    """
    d, t = config.latent_dim, config.horizon
    future = config.dynamics_layers * 2 * 2 * d * (t * t - t * (t + 1) // 2)
    commands = 2 * 2 * t * config.command_dim * d
    embedded = 2 * t * 3 * d * (d - config.action_dim)
    if config.head_layers == 1:
        # The last position is embedded all the same: it is the query, and is added to the answer.
        embedded += 2 * (t - 1) * d * d
    if config.residual_dynamics:
        # The layer behind the decoder is folded into the heads.
        embedded += 2 * t * d * d
    avoided = sequences * (future + commands + embedded)
    reactive = sequences * (t - 1) * _reactive(config) if closed_loop else 0
    return returns_flops(config, sequences) - avoided + reactive


def plan_flops(
    config: WorldModelConfig,
    samples: int,
    iterations: int,
    prior_samples: int,
    *,
    closed_loop: bool = False,
) -> int:
    """:func:`needed_flops` of one plan: from the second iteration on, samples around the prior are
    not scored again. The prior itself and the context are computed once and not counted."""
    sequences = samples + (iterations - 1) * (samples - prior_samples)
    return needed_flops(config, sequences, closed_loop=closed_loop)


def _layer(config: WorldModelConfig, rows: int) -> int:
    """Queries, keys, values and output of self-attention of ``rows`` positions, all to all, and
    the feed-forward layers."""
    d = config.latent_dim
    return 2 * rows * (4 * d * d + 2 * d * rows + 2 * config.ff_factor * d * d)


def _dynamics(config: WorldModelConfig) -> int:
    d, t = config.latent_dim, config.horizon
    cross = 2 * t * (2 * d * d + 2 * d * config.context_length)
    flops = 2 * t * config.action_dim * d
    flops += config.dynamics_layers * (_layer(config, t) + cross)
    return flops + (2 * t * d * d if config.residual_dynamics else 0)


def _reward(config: WorldModelConfig) -> int:
    d, t = config.latent_dim, config.horizon
    flops = 2 * t * (d + config.action_dim + config.command_dim) * d
    return flops + config.head_layers * _layer(config, t) + 2 * t * d


def _value(config: WorldModelConfig) -> int:
    """Of the last position, whose last layer has one query."""
    d, t = config.latent_dim, config.horizon
    flops = 2 * t * (d + config.command_dim) * d + (config.head_layers - 1) * _layer(config, t)
    query = d * d + d * d + 2 * config.ff_factor * d * d + d
    return flops + 2 * (query + t * (2 * d * d + 2 * d))


def _reactive(config: WorldModelConfig) -> int:
    widths = (
        config.latent_dim + config.action_dim,
        *config.reactive_hidden,
        config.action_dim,
    )
    return 2 * sum(a * b for a, b in itertools.pairwise(widths))
