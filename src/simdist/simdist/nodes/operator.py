"""Keeps the robot on its course, asks for modes, and tells people how it goes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import SetParametersResult
from rclpy.node import Node
from rclpy.task import Future
from simdist_msgs import msg, srv
from std_srvs.srv import Trigger

from simdist import robots
from simdist.nodes import convert
from simdist.nodes.common import Every, Spinner, Stop
from simdist.nodes.operator_figures import OperatorFigures
from simdist.nodes.parameters import checked, parameter
from simdist.nodes.qos import publisher, subscription
from simdist.observation.assembly import StampMatcher
from simdist.ranges import Checked, bounded
from simdist.tasks.course import Course, CourseConfig, heading
from simdist.tasks.mission import Mission, Request
from simdist.types import Mode

_MODES = {
    Request.STAND_UP: Mode.STAND_UP,
    Request.ACTIVE: Mode.ACTIVE,
    Request.LIE_DOWN: Mode.LIE_DOWN,
}


@dataclass(frozen=True)
class OperatorConfig(Checked):
    """What is asked of the robot."""

    duration: float = bounded(0.0, 0.0, 86400.0, "s of walking; 0: until told to end")
    course_length: float = bounded(0.0, 0.0, 1e6, "m, where the robot starts again; 0: endless")
    request_timeout: float = bounded(5.0, 0.1, 60.0, "s to wait for the answer to a request")


class Operator:
    """Follows the course, drives the mission, prints a line a second and a closing summary."""

    def __init__(self, node: Node) -> None:
        self._node = node
        name = parameter(node, "robot", "go1", "the robot", choices=robots.available())
        speed = parameter(
            node, "command_vx", 0.5, "m/s forward", low=-0.5, high=1.2, read_only=False
        )
        self._lockstep = parameter(node, "lockstep", False, "the simulation waits for cmd_vel")
        auto_reset = parameter(node, "auto_reset", False, "restart after falls; simulation only")
        summary = parameter(node, "summary", "", "JSON file for the closing summary")
        self._config = checked(node, OperatorConfig)
        self._course = Course(speed, checked(node, CourseConfig, "course."))
        self._dt = robots.get(name).control_dt
        self._mission = Mission(self._config.duration, auto_reset)
        self._file = Path(summary) if summary else None
        self._figures = OperatorFigures(node, self._config.course_length)
        self._summary = self._figures.summary
        self._matcher = StampMatcher(("odom", "applied"))
        self._mode, self._reason = None, ""
        self._held: tuple[int, Odometry, Mode] | None = None
        self._seen_ns = 0
        self._call: tuple[Future, Any, float] | None = None

        self._commands = publisher(node, "cmd_vel")
        self._set_mode = node.create_client(srv.SetMode, "set_mode")
        self._reset = node.create_client(Trigger, "reset_simulation")
        subscription(node, "ground_truth/odom", self._on_odometry)
        subscription(node, "applied_command", self._on_applied)
        subscription(node, "robot_mode", self._on_mode, depth=10)
        node.add_on_set_parameters_callback(self._on_parameters)

    def run(self, stop: Stop) -> int:
        spinner, line = Spinner(self._node), Every(1.0)
        while not stop.requested and not self._mission.finished:
            spinner.once(0.1)
            self._pursue()
            self._release()
            if line():
                print(self._summary.line(), flush=True)
                if self._mission.advice:
                    print(self._mission.advice, flush=True)
        return 0

    def close(self) -> None:
        for text in self._summary.closing():
            print(text, flush=True)
        if self._file is not None:
            self._summary.write(self._file)
            print(f"summary written to {self._file}", flush=True)

    # ------------------------------------------------------------------ mission

    def _pursue(self) -> None:
        """Send the mission's next request, or see whether the last one was answered."""
        now = time.monotonic()
        if self._call is not None:
            future, client, since = self._call
            answer: Any = future.result() if future.done() else None
            if answer is not None:
                self._call = None
                self._mission.answered(answer.success, now)
                if not answer.success:
                    self._node.get_logger().warning(answer.message)
            elif now - since > self._config.request_timeout:
                client.remove_pending_request(future)
                self._call = None
                self._mission.answered(False, now)
            return
        if self._mode is None:
            return
        request = self._mission.next_request(self._mode, self._reason, now)
        if request is None:
            return
        client = self._reset if request == Request.RESET else self._set_mode
        if not client.service_is_ready():
            self._mission.answered(False, now)
        elif request == Request.RESET:
            self._call = client.call_async(Trigger.Request()), client, now
            self._course.reset()
            # The clock jumps by a second when the robot is put back to the start.
            self._figures.restart_after(self._seen_ns + 500_000_000)
        else:
            message = srv.SetMode.Request(mode=int(_MODES[request]))
            self._call = client.call_async(message), client, now

    def _release(self) -> None:
        """Answer the newest odometry by a command, unless a request has to come first."""
        if self._held is None:
            return
        stamp_ns, odometry, mode = self._held
        # The reason is that of this mode only when the news of the mode has arrived.
        reason = self._reason if mode == self._mode else ""
        if self._lockstep and not self._mission.settled(mode, reason):
            return
        self._held = None
        base = convert.base_state(odometry)
        command = np.zeros(3)
        if mode == Mode.ACTIVE:
            command = self._course.command(
                float(base.position[1]), heading(base.orientation), self._dt
            )
        self._commands.publish(convert.command_message(stamp_ns, command, "base"))

    # ------------------------------------------------------------------ messages

    def _on_odometry(self, message: Odometry) -> None:
        stamp_ns = convert.to_ns(message.header.stamp)
        self._summary.clock(stamp_ns * 1e-9, time.monotonic())
        self._pair("odom", stamp_ns, message)

    def _on_applied(self, message: msg.AppliedCommand) -> None:
        stamp_ns = convert.to_ns(message.header.stamp)
        self._pair("applied", stamp_ns + round(self._dt * 1e9), message.mode)

    def _pair(self, kind: str, stamp_ns: int, value: Any) -> None:
        """An odometry is answered together with the mode of the control step before it."""
        pair = self._matcher.add(kind, stamp_ns, value)
        if pair is None:
            return
        mode = Mode(pair["applied"])
        if mode == Mode.ACTIVE and stamp_ns > self._seen_ns:
            self._mission.acted(self._dt)
        elif mode != Mode.ACTIVE:
            self._course.reset()
        self._seen_ns = max(self._seen_ns, stamp_ns)
        self._held = (stamp_ns, pair["odom"], mode)
        if self._figures.course_ended:
            self._mission.course_ended()
        self._pursue()
        self._release()

    def _on_mode(self, message: msg.RobotMode) -> None:
        self._mode, self._reason = Mode(message.mode), message.reason
        self._figures.mode_changed(message)

    def _on_parameters(self, parameters: list[Any]) -> SetParametersResult:
        for changed in parameters:
            if changed.name == "command_vx":
                self._course.speed = changed.value
        return SetParametersResult(successful=True)


NODE = Operator
