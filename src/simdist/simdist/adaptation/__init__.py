"""Adaptation: relearning the dynamics from robot data, and deciding whether to trust them."""

from __future__ import annotations

from simdist.adaptation.finetune import (
    AdaptationError,
    Candidate,
    DynamicsFinetuner,
    FinetuneConfig,
    FinetuneJob,
    Losses,
)
from simdist.adaptation.gate import AcceptanceGate, Decision, GateConfig
from simdist.adaptation.store import UpdateStore
from simdist.adaptation.update import (
    ModelUpdate,
    RunningModel,
    apply_update,
    check_update,
    pack_update,
    unpack_update,
)

__all__ = [
    "AcceptanceGate",
    "AdaptationError",
    "Candidate",
    "Decision",
    "DynamicsFinetuner",
    "FinetuneConfig",
    "FinetuneJob",
    "GateConfig",
    "Losses",
    "ModelUpdate",
    "RunningModel",
    "UpdateStore",
    "apply_update",
    "check_update",
    "pack_update",
    "unpack_update",
]
