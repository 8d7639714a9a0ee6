"""Trying a planner out on made-up observations: does it work, and how long does it take?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simdist.planning.backends.made_up import random_inputs
from simdist.planning.config import PlannerConfig
from simdist.planning.mppi import MppiPlanner
from simdist.planning.plan import PlanningError
from simdist.planning.timing import RateReport, measure_rate, median_seconds
from simdist.robots import RobotSpec

if TYPE_CHECKING:
    from simdist.planning.backends import BackendFactory
    from simdist.world_model.network import WorldModel

_PROBES = 4


def self_test(model: WorldModel, robot: RobotSpec, seed: int = 0) -> str | None:
    """What is wrong with a model's plans, or None: small plans from random observations must have
    finite actions, and a finite return for every sample."""
    planner = MppiPlanner(model, robot, PlannerConfig(samples=16, iterations=1), "torch")
    try:
        plan = planner.plan(*random_inputs(model, _PROBES, seed))
    except PlanningError as error:
        return str(error)
    if plan.dropped.any():
        return f"{plan.dropped.sum()} of {_PROBES * 16} samples have no finite return"
    return None


def planner_rate(
    model: WorldModel,
    robot: RobotSpec,
    config: PlannerConfig,
    period: float,
    backend: str | BackendFactory = "auto",
    load: float = 0.6,
) -> RateReport:
    """Whether one plan per ``period`` (s) can be held for one robot, and with how many samples;
    the rule is that of :func:`~simdist.planning.measure_rate`."""
    inputs = random_inputs(model, 1, seed=0)

    def seconds_of(samples: int) -> float:
        planner = MppiPlanner(model, robot, config.with_samples(samples), backend)
        return median_seconds(lambda: planner.plan(*inputs))

    return measure_rate(seconds_of, period, config.samples, load)
