"""Latent states to action chunks, with model updates swapped in between two plans."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import numpy as np
import torch
from rclpy.node import Node
from simdist_msgs import msg

from simdist import paths, robots
from simdist.adaptation import RunningModel, UpdateStore
from simdist.adaptation.desk import UpdateDesk
from simdist.errors import ConfigError, ContractError
from simdist.nodes import convert
from simdist.nodes.common import Every, Spinner, Stop
from simdist.nodes.parameters import checked, parameter
from simdist.nodes.planner_markers import PlannerMarkers
from simdist.nodes.planner_rate import PlannerNodeConfig
from simdist.nodes.planner_status import PlannerStatus
from simdist.nodes.planner_updates import PlannerUpdates
from simdist.nodes.qos import publisher, subscription
from simdist.planning import MppiPlanner, PlannerConfig, PlanningError
from simdist.planning.backends.threads import usable_threads
from simdist.planning.loop import PlanningLoop
from simdist.planning.probe import self_test
from simdist.schedule import PlanSchedule, commit_steps
from simdist.types import Mode
from simdist.world_model import load_artefact


class Planner:
    """Answers every due latent state by a chunk; plans are made in this thread, nothing else is."""

    def __init__(self, node: Node) -> None:
        self._node = node
        name = parameter(node, "robot", "go1", "the robot", choices=robots.available())
        model = parameter(node, "model", "go1/world_model", "name or file of the world model")
        self._backend = backend = parameter(node, "backend", "auto", "what scores the samples")
        self._lockstep = parameter(node, "lockstep", False, "the robot waits for every plan")
        directory = parameter(
            node, "updates_dir", "", "keeps the adopted update for the next start; none: forgotten"
        )
        self._config = checked(node, PlannerNodeConfig)
        planner_config = checked(node, PlannerConfig, "mppi.")
        torch.set_num_threads(usable_threads(self._config.threads))
        self._robot = robots.get(name)
        artefact = load_artefact(paths.model_file(model), self._robot)
        self._contract = artefact.contract.hash()
        store = UpdateStore(RunningModel.of(artefact), Path(directory) if directory else None)
        self._planner = MppiPlanner(store.current.model, self._robot, planner_config, backend)
        self._loop = PlanningLoop(
            self._planner,
            self._robot,
            contract=self._contract,
            # After a crash the robot must take the new planner's chunks for newer ones.
            first_sequence=time.time_ns() // 1_000_000,
        )
        desk = UpdateDesk(store, lambda candidate: self_test(candidate, self._robot))
        self._period = self._config.period
        self._schedule = PlanSchedule(self._period, self._robot.control_dt)

        self._newest: msg.LatentState | None = None
        self._last: msg.ActionChunk | None = None
        self._stamp_ns, self._expected = 0, 0.0
        self._chunks = publisher(node, "action_chunk")
        self._markers = PlannerMarkers(node, self._planner, artefact)
        # Only the newest state is worth a plan.
        subscription(node, "latent_state", self._on_latent, depth=1)
        subscription(node, "applied_command", self._on_applied)
        self._updates = PlannerUpdates(node, desk, self._planner.swap)
        self._status = PlannerStatus(node, self._updates)
        self._spinner = Spinner(node)

    def run(self, stop: Stop) -> int:
        self._hold_rate(stop)
        gc.freeze()
        gc.disable()
        report = Every(1.0)
        while not stop.requested:
            # Short while an update is being checked, or it would wait for the next message.
            self._spinner.once(0.02)
            if self._newest is not None:
                self._answer(self._newest)
                self._newest = None
            self._updates.take()
            if report():
                self._status.publish(self._stamp_ns, self._period)
        return 0

    def close(self) -> None:
        self._updates.close()

    def _hold_rate(self, stop: Stop) -> None:
        """Say which rate holds: with fewer samples, then at a longer period, or not at all."""
        config = self._planner.config
        report = self._config.rate(
            self._updates.current.model,
            self._robot,
            config,
            self._backend,
            lockstep=self._lockstep,
            pause=lambda: stop.sleep(1.0),
        )
        if self._lockstep:
            # Fewer samples would make results depend on the machine.
            self._node.get_logger().info(
                f"lockstep: {config.samples} samples, the robot waits (in real time: "
                f"{report.message})"
            )
            return
        if not report.holds:
            raise ConfigError(f"{report.message}; or launch with lockstep:=true")
        self._node.get_logger().info(report.message)
        self._expected, self._period = report.plan_seconds, report.period
        self._schedule = PlanSchedule(report.period, self._robot.control_dt)
        self._planner.config = config.with_samples(report.samples)

    # ------------------------------------------------------------------ plans

    def _on_latent(self, message: msg.LatentState) -> None:
        self._stamp_ns = convert.to_ns(message.header.stamp)
        if self._last is not None and message.header.stamp == self._last.observation_stamp:
            self._chunks.publish(self._last)  # somebody missed it and asks by sending again
        elif self._schedule.due(self._stamp_ns):
            self._newest = message

    def _on_applied(self, message: msg.AppliedCommand) -> None:
        # What comes late belongs to a time before the present plans.
        if message.mode in (Mode.STAND, Mode.ACTIVE):
            return
        if self._schedule.started_before(convert.to_ns(message.header.stamp)):
            self._loop.reset()
            self._schedule.reset()

    def _answer(self, message: msg.LatentState) -> None:
        start = time.perf_counter()
        if not self._lockstep:
            latency = (self._status.timing.percentile(90.0) or self._expected) + self._config.margin
            self._loop.commit_steps = commit_steps(latency, self._robot.control_dt, most=4)
        try:
            if message.contract != self._contract:
                raise ContractError(
                    f"latent state of contract {message.contract[:12]}, the model's is "
                    f"{self._contract[:12]}: encoder and planner run different models"
                )
            context, latent = convert.latent_arrays(message)
            chunk, plan = self._loop.plan(
                convert.to_ns(message.header.stamp),
                context,
                latent,
                message.command.astype(np.float64),
                model_version=self._updates.current.version,
            )
        except (PlanningError, ContractError) as error:
            self._status.degraded += 1
            self._warn(f"no plan: {error}")
            return
        self._last = convert.chunk_message(chunk, plan.degraded)
        self._chunks.publish(self._last)
        seconds = time.perf_counter() - start
        self._status.planned(seconds, self._period, float(plan.predicted_return[0]))
        if plan.degraded:
            self._status.degraded += 1
            self._warn(f"degraded plan: {plan.reasons[0]}")
        # The robot has its chunk: pictures take no time from it.
        self._markers.draw(chunk.stamp_ns, plan)

    def _warn(self, text: str) -> None:
        self._node.get_logger().warning(text, throttle_duration_sec=1.0)


NODE = Planner
