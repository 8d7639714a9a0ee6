"""Planning: model-predictive control over the latent world model."""

from __future__ import annotations

from simdist.planning.config import PlannerConfig
from simdist.planning.mppi import MppiPlanner
from simdist.planning.plan import Controller, Foresight, Plan, PlanningError
from simdist.planning.prior import PriorController, SmoothedPriorController
from simdist.planning.probe import planner_rate, self_test
from simdist.planning.sequences import action_limits
from simdist.planning.timing import RateReport, TimingWindow, measure_rate, median_seconds

__all__ = [
    "Controller",
    "Foresight",
    "MppiPlanner",
    "Plan",
    "PlannerConfig",
    "PlanningError",
    "PriorController",
    "RateReport",
    "SmoothedPriorController",
    "TimingWindow",
    "action_limits",
    "measure_rate",
    "median_seconds",
    "planner_rate",
    "self_test",
]
