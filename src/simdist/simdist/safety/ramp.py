"""Smooth motion through a few poses."""

from __future__ import annotations

import numpy as np

from simdist.types import Array

_NS = 1_000_000_000


class PoseRamp:
    """From ``start`` through ``stages`` (pose in rad, shortest duration in s), at rest at each.

    A stage takes longer where a joint would otherwise move faster than ``max_speed`` (rad/s).
    """

    def __init__(
        self, start: Array, stages: list[tuple[Array, float]], start_ns: int, max_speed: float
    ) -> None:
        self._poses = [start]
        self._times = [start_ns]
        for pose, seconds in stages:
            # The steepest point of 3 s^2 - 2 s^3 is 1.5 times the mean speed.
            needed = 1.5 * float(np.abs(pose - self._poses[-1]).max()) / max_speed
            self._poses.append(pose)
            self._times.append(self._times[-1] + max(1, round(max(seconds, needed) * _NS)))

    @property
    def end_ns(self) -> int:
        return self._times[-1]

    def at(self, now_ns: int) -> Array:
        """The pose ``(n,)`` rad at this time; the last one after the end."""
        for i in range(1, len(self._times)):
            if now_ns < self._times[i]:
                s = max(0, now_ns - self._times[i - 1]) / (self._times[i] - self._times[i - 1])
                s = s * s * (3.0 - 2.0 * s)
                return self._poses[i - 1] + s * (self._poses[i] - self._poses[i - 1])
        return self._poses[-1]
