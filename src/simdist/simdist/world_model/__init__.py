"""The world model: encoder, latent dynamics, reward and value heads, policy prior."""

from __future__ import annotations

from simdist.world_model.artefact import Artefact, load_artefact, save_artefact
from simdist.world_model.attention import ContextKeys
from simdist.world_model.config import WorldModelConfig
from simdist.world_model.contract import Contract
from simdist.world_model.network import DYNAMICS_PREFIX, Prediction, WorldModel, hash_tensors

__all__ = [
    "DYNAMICS_PREFIX",
    "Artefact",
    "ContextKeys",
    "Contract",
    "Prediction",
    "WorldModel",
    "WorldModelConfig",
    "hash_tensors",
    "load_artefact",
    "save_artefact",
]
