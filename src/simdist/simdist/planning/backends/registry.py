"""Choosing a backend by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from simdist.errors import ConfigError
from simdist.planning.backends.base import PlanBackend
from simdist.planning.backends.torch_backend import TorchBackend

if TYPE_CHECKING:
    from simdist.world_model.network import WorldModel

BackendFactory = Callable[["WorldModel", float], PlanBackend]

_BACKENDS: dict[str, BackendFactory] = {"torch": TorchBackend}


def available() -> tuple[str, ...]:
    """Names that :func:`choose` accepts besides ``auto``."""
    return tuple(_BACKENDS)


def choose(name: str = "auto") -> BackendFactory:
    """The factory ``(model, discount) -> PlanBackend`` called ``name``; ``auto`` takes the
    fastest one that runs here. Raises ConfigError for an unknown name."""
    if name == "auto":
        return _BACKENDS["torch"]
    if name not in _BACKENDS:
        known = ", ".join(("auto", *available()))
        raise ConfigError(f"unknown planner backend {name!r}; known: {known}")
    return _BACKENDS[name]
