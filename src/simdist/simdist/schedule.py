"""When to plan, and how many control steps a plan comes too late for."""

from __future__ import annotations

import math


class PlanSchedule:
    """Which of the observations that arrive every control step are to be answered by a plan.

    The rule goes by stamps alone, so that a robot that waits for plans and a planner agree.
    """

    def __init__(self, period: float, control_dt: float) -> None:
        self.every = max(1, round(period / control_dt))
        self._period_ns = round(self.every * control_dt * 1e9)
        self._tolerance_ns = round(control_dt * 1e9) // 4
        self._last_ns: int | None = None

    def started_before(self, stamp_ns: int) -> bool:
        """Whether an observation before ``stamp_ns`` has been answered since the last reset."""
        return self._last_ns is not None and self._last_ns < stamp_ns

    def due(self, stamp_ns: int) -> bool:
        """Whether the observation of ``stamp_ns`` is to be answered; remembers it if so."""
        last = self._last_ns
        if last is not None and 0 <= stamp_ns - last < self._period_ns - self._tolerance_ns:
            return False
        self._last_ns = stamp_ns
        return True

    def reset(self) -> None:
        """The next observation is due."""
        self._last_ns = None


def commit_steps(latency: float, control_dt: float, most: int) -> int:
    """Control steps that have begun before a plan arrives ``latency`` seconds after its
    observation: at least 1, at most ``most``."""
    return max(1, min(most, math.ceil(latency / control_dt)))
