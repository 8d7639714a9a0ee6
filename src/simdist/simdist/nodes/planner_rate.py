"""How often the planner node can plan on the machine at hand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from simdist.planning import PlannerConfig, RateReport
from simdist.planning.probe import planner_rate
from simdist.planning.timing import best_rate
from simdist.ranges import Checked, bounded
from simdist.robots import RobotSpec
from simdist.world_model import WorldModel


@dataclass(frozen=True)
class PlannerNodeConfig(Checked):
    """Times of the planner node."""

    period: float = bounded(0.04, 0.02, 0.2, "s between plans, of the robot's clock")
    # The executor damps when it hears no new chunk for 0.1 s.
    max_period: float = bounded(0.08, 0.02, 0.2, "s; as long where the machine needs it")
    load: float = bounded(0.6, 0.1, 1.0, "share of the period that a plan may take")
    margin: float = bounded(0.008, 0.0, 0.1, "s a chunk takes beside planning: encoding, messages")
    threads: int = bounded(1, 1, 64, "threads of PyTorch")

    def rate(
        self,
        model: WorldModel,
        robot: RobotSpec,
        planner: PlannerConfig,
        backend: str,
        *,
        lockstep: bool,
        pause: Callable[[], object],
    ) -> RateReport:
        """The rate that holds: with fewer samples, then at a longer period. In lockstep it is only
        measured once, for the record; else ``pause`` is called between tries."""
        dt, longer = robot.control_dt, max(0.0, self.max_period - self.period)
        periods = [self.period + i * dt for i in range(1 + round(longer / dt))]
        return best_rate(
            lambda period: planner_rate(model, robot, planner, period, backend, self.load),
            periods[:1] if lockstep else periods,
            planner.samples,
            tries=1 if lockstep else 3,
            pause=pause,
        )
