"""How planning goes, once a second."""

from __future__ import annotations

from rclpy.node import Node
from simdist_msgs import msg

from simdist.diagnostics import PlannerFigures, PlannerReport
from simdist.nodes import convert
from simdist.nodes.diagnostics import Diagnostics
from simdist.nodes.planner_updates import PlannerUpdates
from simdist.nodes.qos import publisher
from simdist.planning.timing import TimingWindow


class PlannerStatus:
    """Counts plans, and publishes what has been counted."""

    def __init__(self, node: Node, updates: PlannerUpdates) -> None:
        self._updates = updates
        self._diagnostics, self._report = Diagnostics(node), PlannerReport()
        self._publisher = publisher(node, "planner/status")
        self.timing = TimingWindow(5000)
        self.degraded = 0  #: plans not made, or made without a finite return
        self._plans = self._late = self._counted = self._sequence = 0
        self._return = 0.0

    def planned(self, seconds: float, period: float, predicted_return: float) -> None:
        """A plan was made in ``seconds``, of the ``period`` that it may take."""
        self.timing.add(seconds)
        self._plans += 1
        self._late += seconds > period
        self._return = predicted_return

    def publish(self, stamp_ns: int, period: float) -> None:
        done, self._counted = self._plans - self._counted, self._plans
        self._sequence += 1
        figures = PlannerFigures(
            model_version=self._updates.current.version,
            plans=self._plans,
            late=self._late,
            degraded=self.degraded,
            refused_updates=self._updates.refused,
            plan_ms_p50=self.timing.p50 * 1e3,
            plan_ms_p99=self.timing.p99 * 1e3,
            period_ms=period * 1e3,
            last_event=self._updates.event,
        )
        message = msg.PlannerStatus(
            header=convert.header(stamp_ns),
            sequence=self._sequence,
            plan_ms_p50=figures.plan_ms_p50,
            plan_ms_p99=figures.plan_ms_p99,
            plans=figures.plans,
            late=figures.late,
            degraded=figures.degraded,
            refused_updates=figures.refused_updates,
            model_version=figures.model_version,
            rate_hz=float(done),
            predicted_return=self._return,
            last_event=figures.last_event,
        )
        self._publisher.publish(message)
        self._diagnostics.publish(stamp_ns, self._report.entry(figures))
