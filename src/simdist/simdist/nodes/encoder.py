"""Sensors and applied actions to observation and latent state, once per control step."""

from __future__ import annotations

import gc
import time
from dataclasses import dataclass
from typing import Any

import torch
from nav_msgs.msg import Odometry
from rclpy.node import Node
from simdist_msgs import msg

from simdist import paths, robots
from simdist.errors import ContractError
from simdist.nodes import convert, transforms
from simdist.nodes.common import Stop, spin
from simdist.nodes.parameters import checked, parameter
from simdist.nodes.qos import TOPICS, publisher, subscription
from simdist.observation import Observer
from simdist.observation.assembly import StampMatcher
from simdist.ranges import Checked, bounded
from simdist.tasks.command_watch import CommandWatch
from simdist.types import Mode
from simdist.world_model import load_artefact
from simdist.world_model.state_encoder import StateEncoder

#: The control steps after which there is something to plan for.
OBSERVED = (Mode.STAND, Mode.ACTIVE)


@dataclass(frozen=True)
class EncoderConfig(Checked):
    """Times of the encoder."""

    command_timeout: float = bounded(0.5, 0.05, 2.0, "s of silence of cmd_vel before it fades")
    command_ramp: float = bounded(0.4, 0.01, 2.0, "s in which a silent command fades to zero")


class Encoder:
    """Matches messages by stamp and publishes what the world model makes of them."""

    def __init__(self, node: Node) -> None:
        self._node = node
        torch.set_num_threads(1)
        name = parameter(node, "robot", "go1", "the robot", choices=robots.available())
        model = parameter(node, "model", "go1/world_model", "name or file of the world model")
        source = parameter(node, "odom_source", "ground_truth/odom", "topic of the state estimate")
        self._lockstep = parameter(node, "lockstep", False, "wait for the cmd_vel of every step")
        config = checked(node, EncoderConfig)
        self._robot = robots.get(name)
        artefact = load_artefact(paths.model_file(model), self._robot)
        self._version, self._contract = artefact.version, artefact.contract.hash()
        self._layout = artefact.contract.observation
        self._observer = Observer(self._layout, self._robot)
        self._encoder = StateEncoder(artefact.model)
        self._dt_ns = round(self._robot.control_dt * 1e9)
        self._watch = CommandWatch(3, config.command_timeout, config.command_ramp)

        kinds = ["joints", "odom", "scan", "applied", *(["command"] if self._lockstep else [])]
        self._matcher = StampMatcher(kinds)
        self._sequence = 0
        self._last: tuple[int, msg.Observation, msg.LatentState] | None = None
        self._observation = publisher(node, "observation")
        self._latent = publisher(node, "latent_state")
        self._odom = publisher(node, "odom")
        self._transforms = publisher(node, "tf") if "tf" in TOPICS else None
        subscription(node, "joint_states", lambda m: self._on_sensor("joints", m))
        subscription(node, "height_scan", lambda m: self._on_sensor("scan", m))
        subscription(node, "cmd_vel", self._on_command)
        subscription(node, "applied_command", self._on_applied)
        node.create_subscription(
            Odometry, source, self._on_odometry, TOPICS["ground_truth/odom"].profile
        )
        node.get_logger().info(
            f"model {artefact.path.name} version {artefact.version}, "
            f"contract {self._contract[:12]}, state estimate from {source}"
        )

    def run(self, stop: Stop) -> int:
        gc.freeze()
        gc.disable()
        return spin(self._node, stop)

    def close(self) -> None:
        """Nothing to close."""

    def _on_sensor(self, kind: str, message: Any) -> None:
        self._add(kind, convert.to_ns(message.header.stamp), message)

    def _on_odometry(self, message: Odometry) -> None:
        stamp_ns = convert.to_ns(message.header.stamp)
        base = convert.base_state(message)
        self._odom.publish(convert.odometry_message(stamp_ns, base, "odom", "base"))
        if self._transforms is not None:
            self._transforms.publish(transforms.message(stamp_ns, base, "odom", "base"))
        self._add("odom", stamp_ns, base)

    def _on_command(self, message: Any) -> None:
        command = convert.command(message)
        if not self._watch.receive(command, time.monotonic()):
            self._warn(f"cmd_vel is not finite: {command.tolist()}")
        elif self._lockstep:
            self._add("command", convert.to_ns(message.header.stamp), command)

    def _on_applied(self, message: msg.AppliedCommand) -> None:
        # What was applied in a step belongs to the observation that ends it.
        self._add("applied", convert.to_ns(message.header.stamp) + self._dt_ns, message)

    def _add(self, kind: str, stamp_ns: int, value: Any) -> None:
        complete = self._matcher.add(kind, stamp_ns, value)
        if complete is None:
            return
        try:
            self._observe(stamp_ns, complete)
        except ContractError as error:
            self._observer.reset()
            self._warn(f"no observation at {stamp_ns * 1e-9:.3f} s: {error}")

    def _observe(self, stamp_ns: int, inputs: dict[str, Any]) -> None:
        if self._last is not None and self._last[0] == stamp_ns:
            self._publish(*self._last[1:])  # somebody missed it and asks by sending again
            return
        applied = convert.applied_step(inputs["applied"], self._robot)
        if applied.mode not in OBSERVED:
            return
        if self._lockstep:
            command = inputs["command"]
        else:
            command = self._watch.command(time.monotonic())
            if self._watch.silent(time.monotonic()) and applied.mode == Mode.ACTIVE:
                self._warn("cmd_vel is silent: the command fades to zero")
        observation = self._observer.observe(
            stamp_ns,
            convert.joint_state(inputs["joints"]),
            inputs["odom"],
            convert.height_scan(inputs["scan"], self._layout.scan),
            command,
            applied.action,
        )
        context, latent = self._encoder.encode(observation)
        active = applied.mode == Mode.ACTIVE
        self._sequence += 1
        seen = convert.observation_message(observation, self._layout, self._contract, active)
        state = convert.latent_message(
            observation, context, latent, self._contract, self._version, active
        )
        seen.sequence = state.sequence = self._sequence
        self._last = (stamp_ns, seen, state)
        self._publish(seen, state)

    def _publish(self, observation: msg.Observation, latent: msg.LatentState) -> None:
        # The planner waits, the recorder does not.
        self._latent.publish(latent)
        self._observation.publish(observation)

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(text, throttle_duration_sec=1.0)


NODE = Encoder
