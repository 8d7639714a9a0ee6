"""What the operator hears about the run."""

from __future__ import annotations

from rclpy.node import Node
from simdist_msgs import msg

from simdist.evaluation.run_summary import RunSummary, UpdateRecord
from simdist.nodes import convert
from simdist.nodes.qos import subscription


class OperatorFigures:
    """Subscribes to status messages, is told of modes, and keeps the run's summary up to date."""

    def __init__(self, node: Node, course_length: float) -> None:
        self.summary = RunSummary()
        self.course_ended = False  #: the robot has come to the end of its course
        self._length = course_length
        self._not_before_ns = self._tried = 0
        subscription(node, "progress", self._on_progress)
        subscription(node, "planner/status", self._on_planner)
        subscription(node, "replay/status", self._on_replay)
        subscription(node, "finetune/status", self._on_finetune)

    def restart_after(self, stamp_ns: int) -> None:
        """The robot is put back to the start; progress reported for before that is old."""
        self._not_before_ns = stamp_ns
        if self.course_ended:
            self.summary.lap_finished()
        self.course_ended = False

    def _on_progress(self, message: msg.Progress) -> None:
        if convert.to_ns(message.header.stamp) < self._not_before_ns:
            return
        summary = self.summary
        summary.progress, summary.speed = message.progress, message.speed
        summary.falls, summary.ticks = message.falls, message.ticks
        summary.late_ticks = message.late_ticks
        self.course_ended |= 0 < self._length <= message.progress

    def mode_changed(self, message: msg.RobotMode) -> None:
        """To be told by whoever acts on modes: a second subscription might be connected later, and
        miss the mode that a request has been made in."""
        stamp = convert.to_ns(message.header.stamp) * 1e-9
        self.summary.mode_changed(stamp, message.name, message.reason)

    def _on_planner(self, message: msg.PlannerStatus) -> None:
        summary = self.summary
        summary.plan_ms_p50, summary.plan_ms_p99 = message.plan_ms_p50, message.plan_ms_p99
        summary.plans, summary.late_plans = message.plans, message.late
        summary.degraded_plans = message.degraded
        summary.refused_updates = message.refused_updates
        summary.model_seen(message.model_version)

    def _on_replay(self, message: msg.ReplayStatus) -> None:
        self.summary.episodes, self.summary.seconds_of_data = message.episodes, message.seconds

    def _on_finetune(self, message: msg.FinetuneStatus) -> None:
        ended = message.state in ("accepted", "refused")
        if not ended or message.updates_tried <= self._tried:
            return
        self._tried = message.updates_tried
        self.summary.updates.append(
            UpdateRecord(
                message.version,
                message.state == "accepted",
                message.loss_before,
                message.loss_after,
                message.simulation_loss_before,
                message.simulation_loss_after,
                message.message,
            )
        )
