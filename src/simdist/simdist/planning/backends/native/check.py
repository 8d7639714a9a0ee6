"""Does the compiled kernel compute what PyTorch computes, with the model at hand?

Tests compare the two over random models. This looks at the one model and the one processor that
are about to be planned with, where a miscompiled kernel or weights that nobody thought of would
otherwise go unnoticed: a wrong return looks like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simdist.planning.backends.made_up import random_actions, random_inputs

if TYPE_CHECKING:
    from simdist.planning.backends.base import PlanBackend
    from simdist.world_model.network import WorldModel

#: of returns, relative to their size or spread; rounding alone stays well below it
TOLERANCE = 1e-4
#: few, as updates are swapped in between two plans
_ROBOTS, _SEED = 1, 0
_SAMPLES = 9  #: not a whole register on any processor
_LIMIT = 3.0  #: of followed actions, in standard deviations


def difference(native: PlanBackend, torch_backend: PlanBackend, model: WorldModel) -> str | None:
    """What is wrong with ``native`` on made-up observations, or None if it agrees."""
    inputs = random_inputs(model, _ROBOTS, _SEED)
    actions = random_actions(model, _ROBOTS, _SAMPLES, _SEED)
    expected, found = (
        backend.prepare(*inputs).returns(actions) for backend in (torch_backend, native)
    )
    if (reason := _compare(found, expected)) is not None:
        return reason
    if model.reactive is None:
        return None
    mean, std = model.scaler.mean("action"), model.scaler.std("action")
    limits = mean - _LIMIT * std, mean + _LIMIT * std
    following = 0.3 * (actions - mean), actions[:, :, :1].clamp(*limits), limits
    # Actions are compared through their returns: what differs in them differs there.
    expected, found = (
        backend.prepare(*inputs).follow(*following)[1] for backend in (torch_backend, native)
    )
    reason = _compare(found, expected)
    return None if reason is None else f"{reason}, following the reactive policy"


def _compare(found: Tensor, expected: Tensor) -> str | None:
    if not expected.isfinite().all():
        return "returns of the model are not finite, with PyTorch either: its weights are damaged"
    spread = expected.max() - expected.min()
    scale = torch.maximum(expected.abs(), spread).clamp(min=torch.finfo(expected.dtype).tiny)
    error = float(((found - expected).abs() / scale).max())
    # Written so that NaN is an error too.
    if not error <= TOLERANCE:
        return (
            f"the compiled kernel's returns differ from PyTorch's by {error:.1e} of their size, "
            f"allowed are {TOLERANCE:.0e}"
        )
    return None
