"""What the bridge publishes, and when."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from simdist_msgs import msg

from simdist.diagnostics import ExecutorReport
from simdist.nodes import convert
from simdist.nodes.bridge_camera import BridgeCamera
from simdist.nodes.common import Every
from simdist.nodes.diagnostics import Diagnostics
from simdist.nodes.qos import publisher
from simdist.observation.spec import legged_observation
from simdist.safety import ModeChange
from simdist.simulation.stand_in import StandIn
from simdist.types import AppliedStep, ImuSample, JointState, Mode

_TOPICS: tuple[str, ...] = (
    "clock",
    "joint_states",
    "imu/data",
    "foot_contacts",
    "height_scan",
    "ground_truth/odom",
    "progress",
    "robot_mode",
    "applied_command",
)
#: N; less than this on a foot is no contact
CONTACT_FORCE = 1.0


class BridgeTopics:
    """Publishes the stand-in's sensors, ground truth and what its executor did."""

    def __init__(self, node: Node, robot: StandIn, state_rate: float, progress_rate: float) -> None:
        self._node, self._robot = node, robot
        self._grid = legged_observation(robot.simulation.robot.joint_count).scan
        self._camera = BridgeCamera(node, robot)
        self._diagnostics, self._report = Diagnostics(node), ExecutorReport()
        self._diagnostics_due = Every(1.0)
        self._publishers = {topic: publisher(node, topic) for topic in _TOPICS}
        self._sequence = dict.fromkeys(_TOPICS, 0)
        self._state_ns = round(1e9 / state_rate)
        self._progress_ns = round(1e9 / progress_rate)
        self._last_progress = (0, 0.0)
        self._sensed: tuple[JointState, ImuSample] | None = None
        self.late_ticks = 0
        self._publish_mode(ModeChange(robot.now_ns, Mode.DAMP, Mode.DAMP, "start"))

    def publish_state(self, joints: JointState, imu: ImuSample) -> None:
        """Joints and IMU, at every control-step boundary and as often as asked for between."""
        stamp = self._robot.now_ns
        if not self._robot.at_boundary and stamp % self._state_ns:
            return
        self._sensed = joints, imu
        self._send("joint_states", convert.joint_state_message(stamp, joints))
        self._send("imu/data", convert.imu_message(stamp, imu, "base"))

    def publish_surroundings(self) -> None:
        """What goes with the state of a control-step boundary."""
        simulation, stamp = self._robot.simulation, self._robot.now_ns
        self._send("clock", Clock(clock=convert.to_time(stamp)))
        force = simulation.foot_forces()
        self._send(
            "foot_contacts",
            msg.FootContacts(
                header=convert.header(stamp),
                names=list(simulation.robot.foot_names),
                force=convert.doubles(force),
                contact=(force > CONTACT_FORCE).tolist(),
            ),
        )
        heights = simulation.height_scan(self._grid)
        self._send("height_scan", convert.height_scan_message(stamp, "base", self._grid, heights))
        base = simulation.base_state()
        self._send("ground_truth/odom", convert.odometry_message(stamp, base, "world", "base"))
        if stamp % self._progress_ns == 0 or self._robot.fallen:
            self.publish_progress()
        self._camera.publish_if_due()
        if self._diagnostics_due():
            entry = self._report.entry(self._robot.executor.status(), self.late_ticks)
            self._diagnostics.publish(stamp, entry)

    def publish_progress(self) -> None:
        robot, stamp = self._robot, self._robot.now_ns
        progress = robot.simulation.progress()
        last_stamp, last = self._last_progress
        elapsed = (stamp - last_stamp) * 1e-9
        self._last_progress = stamp, progress
        self._send(
            "progress",
            msg.Progress(
                header=convert.header(stamp),
                progress=progress,
                # A restart is no movement.
                speed=(progress - last) / elapsed if 0 < elapsed < 0.5 else 0.0,
                falls=robot.falls,
                ticks=robot.ticks,
                late_ticks=self.late_ticks,
                fallen=robot.fallen,
            ),
        )

    def publish_applied(self, step: AppliedStep) -> None:
        message = convert.applied_message(step, self._robot.simulation.robot)
        self._publishers["applied_command"].publish(message)

    def publish_mode_changes(self) -> None:
        for change in self._robot.executor.take_mode_changes():
            self._publish_mode(change)
            self._node.get_logger().info(
                f"{change.previous.name} -> {change.mode.name}: {change.reason}"
            )

    def repeat(self) -> None:
        """Publish the present moment once more, with the control step before it."""
        if self._sensed is not None:
            self.publish_state(*self._sensed)
        self.publish_surroundings()
        self.publish_progress()
        if self._robot.applied is not None:
            self.publish_applied(self._robot.applied)

    def _publish_mode(self, change: ModeChange) -> None:
        message = msg.RobotMode(
            header=convert.header(change.stamp_ns),
            mode=int(change.mode),
            name=change.mode.name,
            reason=change.reason,
        )
        self._send("robot_mode", message)

    def _send(self, topic: str, message: Any) -> None:
        if hasattr(message, "sequence"):
            self._sequence[topic] += 1
            message.sequence = self._sequence[topic]
        self._publishers[topic].publish(message)
