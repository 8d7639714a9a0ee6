"""The robot's stand-in: MuJoCo and the command executor behind the topics of a real robot."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass

from rclpy.node import Node
from simdist_msgs import msg

from simdist import robots
from simdist.errors import SimulationError
from simdist.nodes import convert
from simdist.nodes.bridge_requests import BridgeRequests
from simdist.nodes.bridge_topics import BridgeTopics
from simdist.nodes.common import Every, Spinner, Stop
from simdist.nodes.parameters import checked, parameter
from simdist.nodes.qos import subscription
from simdist.ranges import Checked, bounded
from simdist.safety import CommandExecutor, ExecutorConfig, LimitConfig, Refusal
from simdist.schedule import PlanSchedule
from simdist.simulation.realtime import Pacer
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.stand_in import StandIn
from simdist.simulation.viewer import open_viewer
from simdist.simulation.world import load_world

#: s between repetitions of what a lockstep simulation waits for an answer to
REPEAT = 1.0
#: s that a lockstep simulation waits while there is no planner at all
STARTUP = 120.0


@dataclass(frozen=True)
class BridgeConfig(Checked):
    """Rates and times of the bridge."""

    state_rate: float = bounded(100.0, 50.0, 500.0, "Hz of joint_states and imu/data")
    progress_rate: float = bounded(10.0, 1.0, 50.0, "Hz of progress")
    viewer_rate: float = bounded(30.0, 1.0, 60.0, "Hz of the viewer")
    slip_after: float = bounded(0.05, 0.01, 1.0, "s behind, after which simulated time slips")
    late_after: float = bounded(0.01, 0.001, 1.0, "s behind, after which a control step is late")
    lockstep_timeout: float = bounded(20.0, 1.0, 600.0, "s of wall time to wait for a chunk")


class MujocoBridge:
    """Steps physics and executor at 500 Hz and talks to the graph between the steps."""

    def __init__(self, node: Node) -> None:
        self._node = node
        robot = robots.get(parameter(node, "robot", "go1", "the robot", choices=robots.available()))
        world = load_world(parameter(node, "world", "slope", "name of a world, or its YAML file"))
        seed = parameter(node, "seed", 0, "of start pose and noise", low=0, high=2**31 - 1)
        headless = parameter(node, "headless", True, "no viewer window")
        self._lockstep = parameter(node, "lockstep", False, "wait for a chunk at every plan")
        self._config = config = checked(node, BridgeConfig)
        executor_config = checked(node, ExecutorConfig, "executor.")
        self._executor = CommandExecutor(
            robot, checked(node, LimitConfig, "limits."), executor_config
        )
        simulation = RobotSimulation(robot, world, visual=not headless)
        self._robot = StandIn(simulation, self._executor, seed)
        self._viewer = None if headless else open_viewer(simulation, node.get_logger().warning)
        self._viewer_due = Every(1.0 / config.viewer_rate)
        self._schedule = PlanSchedule(executor_config.chunk_period, robot.control_dt)
        self._pacer = Pacer(config.slip_after, config.late_after)
        self._answered_ns = -1
        self._planner_since = time.monotonic()
        self._topics = BridgeTopics(node, self._robot, config.state_rate, config.progress_rate)
        subscription(node, "action_chunk", self._on_chunk)
        BridgeRequests(node, self._robot, self._topics, self._on_restart)
        self._spinner = Spinner(node)
        node.get_logger().info(
            f"{robot.name} in world {world.name} ({world.description}), "
            f"{'lockstep' if self._lockstep else 'real time'}, seed {seed}"
        )

    def run(self, stop: Stop) -> int:
        # A collection of the whole heap stalls the loop for several control steps.
        gc.freeze()
        gc.disable()
        # Nothing can be asked of an executor that has not seen the robot yet.
        self._robot.act(*self._robot.sense())
        while not stop.requested:
            late = self._wait_until_due(stop)
            joints, imu = self._robot.sense()
            self._topics.publish_state(joints, imu)
            if self._robot.at_boundary:
                self._topics.late_ticks += late
                self._topics.publish_surroundings()
                if self._lockstep and not self._wait_for_graph(stop):
                    continue
            step = self._robot.act(joints, imu)
            if step is not None:
                self._topics.publish_applied(step)
                self._topics.publish_mode_changes()
            if self._viewer is not None and self._viewer_due():
                self._viewer.show()
        return 0

    def close(self) -> None:
        """Whatever ends the bridge, the last command is to damp."""
        try:
            for step in self._robot.damp():
                self._topics.publish_applied(step)
        except SimulationError as error:
            self._node.get_logger().error(str(error))
        self._topics.publish_mode_changes()
        if self._viewer is not None:
            self._viewer.close()

    # ------------------------------------------------------------------ time

    def _wait_until_due(self, stop: Stop) -> bool:
        """Wait until the present moment is due; whether it was late already.

        Messages are handled before control steps only: nothing takes effect between them.
        """
        boundary = self._robot.at_boundary
        if self._lockstep:
            if boundary:
                self._spinner.once()
            return False
        now = time.monotonic()
        remaining = self._pacer.remaining(self._robot.now_ns * 1e-9, now)
        if boundary:
            self._spinner.once(remaining)
            while not stop.requested and (left := now + remaining - time.monotonic()) > 0:
                self._spinner.once(left)
        elif remaining > 0:
            time.sleep(remaining)
        return self._pacer.is_late(remaining)

    def _wait_for_graph(self, stop: Stop) -> bool:
        """Lockstep: let no time pass while the robot is limp, nor before the plan for this moment
        has come; false when the simulation was restarted meanwhile, or the end was asked for."""
        robot, repeat = self._robot, Every(REPEAT)
        restarts, stamp, start = robot.restarts, robot.now_ns, time.monotonic()

        def waiting() -> bool:
            return not stop.requested and robot.restarts == restarts

        while waiting() and robot.limp:
            self._spinner.once(0.05)
            if repeat():
                self._topics.repeat()
        if not robot.answerable:
            self._schedule.reset()
        elif self._schedule.due(stamp):
            while waiting() and self._answered_ns < stamp:
                self._spinner.once(0.05)
                self._check_patience(start)
                if repeat():
                    # Somebody may not have been there yet; who has heard it before answers again.
                    self._topics.repeat()
        return waiting()

    def _check_patience(self, start: float) -> None:
        """Give up a wait that began at ``start`` after a while with a planner, or a long one
        without."""
        now, planners = time.monotonic(), self._node.count_publishers("action_chunk")
        if not planners:
            self._planner_since = now
        patience = self._config.lockstep_timeout
        with_planner = now - max(start, self._planner_since)
        if with_planner > patience or now - start > patience + STARTUP:
            refused = self._executor.status().chunks_refused
            raise SimulationError(
                f"lockstep: no chunk for the observation at {self._robot.now_ns * 1e-9:.3f} s came "
                f"within {now - start:.0f} s ({planners} planners, chunks refused: "
                f"{refused or 'none'}); see the messages of encoder, planner and operator above"
            )

    # ------------------------------------------------------------------ requests

    def _on_chunk(self, message: msg.ActionChunk) -> None:
        chunk = convert.chunk(message)
        if chunk is None:
            self._executor.refuse(Refusal.SHAPE)
            return
        refusal = self._executor.receive(chunk, self._robot.now_ns)
        if refusal is None:
            self._answered_ns = chunk.observation_stamp_ns
        else:
            self._node.get_logger().warning(
                f"chunk {chunk.sequence} refused: {refusal}", throttle_duration_sec=1.0
            )

    def _on_restart(self) -> None:
        self._pacer.restart()
        self._schedule.reset()


NODE = MujocoBridge
