"""Episodes out of observations and applied actions, kept, passed on and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rclpy.node import Node
from simdist_msgs import msg

from simdist import robots
from simdist.errors import ContractError
from simdist.nodes import convert
from simdist.nodes.common import Every, Stop, spin
from simdist.nodes.parameters import checked, parameter
from simdist.nodes.qos import publisher, subscription
from simdist.nodes.recording import DEPTH, RECORDED, Recording
from simdist.ranges import Checked, bounded
from simdist.replay import EpisodeRecorder
from simdist.types import Mode


@dataclass(frozen=True)
class ReplayConfig(Checked):
    """Sizes of the replay node."""

    segment_steps: int = bounded(100, 10, 1000, "control steps per segment passed on")
    queue: int = bounded(4000, 100, 100000, "messages that may wait for the disk")


class Replay:
    """Pairs observations with applied steps; passes segments on; writes bags."""

    def __init__(self, node: Node) -> None:
        self._node = node
        name = parameter(node, "robot", "go1", "the robot", choices=robots.available())
        record = parameter(node, "record", False, "write a bag")
        depth = parameter(node, "record_depth", False, "write depth images to the bag, too")
        directory = parameter(node, "bag_dir", "bags", "directory in which bags are made")
        self._config = config = checked(node, ReplayConfig)
        self._robot = robots.get(name)
        self._recorder: EpisodeRecorder | None = None
        self._contract = ""
        self._sequence = self._steps = self._dropped_before = self._episodes_before = 0
        self._stamp = convert.to_time(0)
        self._bag: Recording | None = None
        if record:
            topics = RECORDED + (DEPTH if depth else ())
            self._bag = Recording(node, Path(directory).expanduser(), topics, config.queue)

        self._segments = publisher(node, "replay/episodes")
        self._status = publisher(node, "replay/status")
        subscription(node, "observation", self._on_observation, depth=50)
        subscription(node, "applied_command", self._on_applied, depth=50)
        subscription(node, "robot_mode", self._on_mode)
        self._report = Every(1.0)

    def run(self, stop: Stop) -> int:
        return spin(self._node, stop, self._tick)

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.close()
            self._pass_on()
        if self._bag is not None:
            self._bag.close()

    # ------------------------------------------------------------------ episodes

    def _on_observation(self, message: msg.Observation) -> None:
        self._stamp = message.header.stamp
        if self._recorder is None or message.contract != self._contract:
            self._restart_recorder(message.contract)
        assert self._recorder is not None
        self._recorder.observe(
            convert.to_ns(message.header.stamp),
            message.sequence,
            np.array(message.proprioception),
            np.array(message.exteroception),
            message.command,
        )
        self._pass_on()

    def _on_applied(self, message: msg.AppliedCommand) -> None:
        if self._recorder is None:
            return
        try:
            self._recorder.apply(convert.applied_step(message, self._robot))
        except ContractError as error:
            self._node.get_logger().warning(str(error), throttle_duration_sec=1.0)
        self._pass_on()

    def _on_mode(self, message: msg.RobotMode) -> None:
        # The last segment of a walk must not wait for the next one.
        if message.mode != Mode.ACTIVE and self._recorder is not None:
            self._pass_on()

    def _restart_recorder(self, contract: str) -> None:
        """Begin anew, as when the encoder came back with another model."""
        if self._recorder is not None:
            self._recorder.close("another contract")
            self._pass_on()
            before = self._recorder.status()
            self._dropped_before += before.dropped
            self._episodes_before += before.episodes
        self._contract = contract
        self._recorder = EpisodeRecorder(
            round(self._robot.control_dt * 1e9),
            contract=contract,
            segment_steps=self._config.segment_steps,
        )

    def _pass_on(self) -> None:
        assert self._recorder is not None
        for segment in self._recorder.take_segments():
            self._sequence += 1
            message = convert.segment_message(segment)
            message.sequence = self._sequence
            self._segments.publish(message)
            self._steps += len(segment)

    def _tick(self) -> None:
        if not self._report():
            return
        if self._bag is not None:
            self._bag.check()
        status = self._recorder.status() if self._recorder is not None else None
        kept = status.steps if status else 0
        message = msg.ReplayStatus(
            sequence=self._sequence,
            episodes=self._episodes_before + (status.episodes if status else 0),
            steps=kept,
            seconds=kept * self._robot.control_dt,
            dropped=self._dropped_before + (status.dropped if status else 0),
            recording=self._bag is not None and self._bag.going_on,
            bag="" if self._bag is None else self._bag.path,
        )
        message.header.stamp = self._stamp
        self._status.publish(message)


NODE = Replay
