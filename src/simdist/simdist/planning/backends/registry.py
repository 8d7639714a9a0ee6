"""Choosing a backend by name."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from simdist.errors import ConfigError
from simdist.planning.backends.base import PlanBackend
from simdist.planning.backends.native import KernelUnavailable, NativeBackend
from simdist.planning.backends.native.check import difference
from simdist.planning.backends.torch_backend import TorchBackend

if TYPE_CHECKING:
    from simdist.world_model.network import WorldModel

BackendFactory = Callable[["WorldModel", float], PlanBackend]

_log = logging.getLogger(__name__)


def available() -> tuple[str, ...]:
    """Names that :func:`choose` accepts besides ``auto``."""
    return tuple(_BACKENDS)


def choose(name: str = "auto") -> BackendFactory:
    """The factory ``(model, discount) -> PlanBackend`` called ``name``; ``auto`` takes the
    fastest one that runs here, for the model at hand.

    Raises ConfigError for an unknown name; the factory does if the backend that was asked for
    cannot be had.
    """
    if name == "auto":
        return _fastest
    if name not in _BACKENDS:
        known = ", ".join(("auto", *available()))
        raise ConfigError(f"unknown planner backend {name!r}; known: {known}")
    return _BACKENDS[name]


def _fastest(model: WorldModel, discount: float) -> PlanBackend:
    try:
        return _checked(model, discount)
    except KernelUnavailable as error:
        _say_once(f"planning in plain PyTorch, which is slower: {error}")
        return TorchBackend(model, discount)


def _native(model: WorldModel, discount: float) -> PlanBackend:
    try:
        return _checked(model, discount)
    except KernelUnavailable as error:
        raise ConfigError(
            f"planner backend 'native' is not available: {error}; 'auto' falls back to 'torch'"
        ) from None


def _checked(model: WorldModel, discount: float) -> PlanBackend:
    """The kernel, if it computes for ``model`` what PyTorch does; else raises KernelUnavailable."""
    native = NativeBackend(model, discount)
    if (reason := difference(native, TorchBackend(model, discount), model)) is not None:
        raise KernelUnavailable(reason)
    return native


@functools.cache
def _say_once(text: str) -> None:
    _log.warning(text)


_BACKENDS: dict[str, BackendFactory] = {"native": _native, "torch": TorchBackend}
