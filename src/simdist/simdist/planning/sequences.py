"""Action sequences: their limits, and what becomes of them as time passes."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from simdist.planning.plan import Numbers
from simdist.robots import RobotSpec


def action_limits(robot: RobotSpec, clip: float) -> tuple[Tensor, Tensor]:
    """Lowest and highest action ``(A,)``: the joint limits in action units, within ``+-clip``."""
    lower, upper = robot.action(robot.position_lower), robot.action(robot.position_upper)
    return float32(np.clip(lower, -clip, clip)), float32(np.clip(upper, -clip, clip))


def shift(sequence: Tensor, steps: int) -> Tensor:
    """A sequence ``(..., T, A)`` as seen ``steps`` later: row i is the old row ``i + steps``.

    The last row stands in for rows the old sequence does not reach; when it reaches none of them,
    there is nothing to keep and the result is zero.
    """
    if steps < 0:
        raise ValueError(f"cannot shift a plan by {steps} steps: time does not run backwards")
    horizon = sequence.shape[-2]
    if steps >= horizon:
        return torch.zeros_like(sequence)
    rows = (torch.arange(horizon) + steps).clamp(max=horizon - 1)
    return sequence[..., rows, :]


def float32(values: Numbers) -> Tensor:
    """``values`` as a float32 tensor on the CPU."""
    if isinstance(values, Tensor):
        return values.detach().to("cpu", torch.float32)
    return torch.from_numpy(np.asarray(values, dtype=np.float32))
