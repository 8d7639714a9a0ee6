"""The world model: encoder, latent dynamics, reward and value heads, policy prior."""

from __future__ import annotations

from simdist.world_model.attention import ContextKeys
from simdist.world_model.config import WorldModelConfig
from simdist.world_model.network import DYNAMICS_PREFIX, Prediction, WorldModel, hash_tensors

__all__ = [
    "DYNAMICS_PREFIX",
    "ContextKeys",
    "Prediction",
    "WorldModel",
    "WorldModelConfig",
    "hash_tensors",
]
