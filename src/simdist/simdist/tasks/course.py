"""Following a straight course along world x at a commanded speed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simdist.ranges import Checked, bounded
from simdist.types import Array


@dataclass(frozen=True)
class CourseConfig(Checked):
    """How the operator keeps a robot on its course."""

    acceleration: float = bounded(0.5, 0.05, 5.0, "m/s^2, how fast the forward command ramps")
    lateral_gain: float = bounded(1.0, 0.0, 5.0, "1/s, sideways command per metre off the course")
    lateral_limit: float = bounded(0.3, 0.0, 1.0, "m/s, largest sideways command")
    heading_gain: float = bounded(1.0, 0.0, 5.0, "1/s, turning command per radian off the course")
    heading_limit: float = bounded(0.6, 0.0, 2.0, "rad/s, largest turning command")


class Course:
    """Commands (forward m/s, sideways m/s, turning rad/s) that keep a robot on y = 0, yaw = 0."""

    def __init__(self, speed: float, config: CourseConfig | None = None) -> None:
        self.speed, self.config = speed, config or CourseConfig()
        self._forward = 0.0

    def reset(self) -> None:
        """Start again from standing."""
        self._forward = 0.0

    def command(self, y: float, yaw: float, seconds: float) -> Array:
        """The command at lateral offset ``y`` (m) and heading ``yaw`` (rad), ``seconds`` after the
        last call."""
        config = self.config
        change = config.acceleration * seconds
        self._forward += float(np.clip(self.speed - self._forward, -change, change))
        return np.array(
            [
                self._forward,
                np.clip(-config.lateral_gain * y, -config.lateral_limit, config.lateral_limit),
                np.clip(-config.heading_gain * yaw, -config.heading_limit, config.heading_limit),
            ]
        )


def heading(orientation: Array) -> float:
    """Yaw (rad) of an orientation ``(w, x, y, z)``."""
    w, x, y, z = orientation
    return float(np.arctan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z)))
