"""Relearns the dynamics from robot data, at low priority, while the robot goes on."""

from __future__ import annotations

import contextlib
import os
import queue
import threading
from pathlib import Path

import torch
from rclpy.node import Node
from simdist_msgs import msg

from simdist import paths, robots
from simdist.adaptation import (
    AcceptanceGate,
    DynamicsFinetuner,
    FinetuneConfig,
    GateConfig,
    RunningModel,
)
from simdist.adaptation.session import AdaptationSession, Attempt, SessionConfig, State
from simdist.errors import SimdistError
from simdist.nodes import convert
from simdist.nodes.common import Every, Spinner, Stop
from simdist.nodes.parameters import checked, parameter
from simdist.nodes.qos import publisher, subscription
from simdist.replay import GroupStore
from simdist.world_model import load_artefact
from simdist.world_model.simulation_replay import SimulationReplay, find_simulation_replay


class Finetune:
    """Feeds an adaptation session and publishes what the gate lets through."""

    def __init__(self, node: Node) -> None:
        self._node = node
        # Learning is never worth a late plan.
        os.nice(parameter(node, "nice", 10, "added to the process's niceness", low=0, high=19))
        self._idle = parameter(
            node, "idle", True, "learn only when a core has nothing else to do (Linux)"
        )
        torch.set_num_threads(1)
        name = parameter(node, "robot", "go1", "the robot", choices=robots.available())
        model = parameter(node, "model", "go1/world_model", "name or file of the world model")
        simulation = parameter(
            node,
            "simulation_replay",
            "",
            "simulation data; default: beside the model, or what is shipped for its robot",
        )
        data = parameter(
            node, "data_dir", "", "directory that keeps robot data over restarts; empty: none"
        )
        finetune_config = checked(node, FinetuneConfig, "finetune.", steps=150)
        gate_config = checked(node, GateConfig, "gate.", seconds=10.0)
        config = checked(node, SessionConfig)
        robot = robots.get(name)
        artefact = load_artefact(paths.model_file(model), robot)
        file = paths.model_file(simulation) if simulation else find_simulation_replay(artefact)
        replay = SimulationReplay.load(file, artefact.contract)
        finetuner = DynamicsFinetuner(artefact.model, replay, finetune_config, robot.control_dt)
        self._session = AdaptationSession(
            RunningModel.of(artefact),
            finetuner,
            AcceptanceGate(gate_config),
            config,
            robot.control_dt,
            _store(data, artefact.contract.hash()),
        )
        if self._session.restored_seconds:
            node.get_logger().info(f"{self._session.restored_seconds:.0f} s of data from {data}")
        self._stamp = convert.to_time(0)
        self._sequence = self._updates_sent = 0
        self._lock = threading.Lock()  # held by whichever thread uses the session
        self._ending = threading.Event()
        self._attempts: queue.SimpleQueue[Attempt] = queue.SimpleQueue()
        self._failure: Exception | None = None
        self._updates = publisher(node, "model_update")
        self._status = publisher(node, "finetune/status")
        subscription(node, "replay/episodes", self._on_segment)
        subscription(node, "planner/status", self._on_planner)

    def run(self, stop: Stop) -> int:
        spinner, report = Spinner(self._node), Every(1.0)
        learner = threading.Thread(target=self._learn, name="learner", daemon=True)
        learner.start()
        while not stop.requested and learner.is_alive():
            spinner.once(0.1)
            told = False
            while not self._attempts.empty():
                self._tell(self._attempts.get())
                told = True
            if told or report():
                self._publish_status()
        self._ending.set()
        learner.join(timeout=5.0)
        if self._failure is not None:
            raise self._failure
        return 0

    def close(self) -> None:
        with self._lock:
            self._session.save()

    def _learn(self) -> None:
        # A thread of its own, because one of the idle class that sends or receives messages can be
        # held up inside the middleware's shared memory, and with it every node that it talks to.
        try:
            if self._idle:
                _run_when_idle()
            while not self._ending.is_set():
                with self._lock:
                    self._session.begin()
                    attempt = self._session.step()
                    learning = self._session.state == State.LEARNING
                if attempt is not None:
                    self._attempts.put(attempt)
                # Between two steps the other thread gets its turn.
                self._ending.wait(0.0005 if learning else 0.1)
        except Exception as error:  # ends the node, see run()
            self._failure = error

    def _on_segment(self, message: msg.EpisodeSegment) -> None:
        self._stamp = message.header.stamp
        try:
            with self._lock:
                problem = self._session.add(convert.segment(message))
        except SimdistError as error:
            problem = str(error)
        if problem is not None:
            self._node.get_logger().warning(problem, throttle_duration_sec=5.0)

    def _on_planner(self, message: msg.PlannerStatus) -> None:
        with self._lock:
            problem = self._session.running(message.model_version)
        if problem is not None:
            self._node.get_logger().warning(problem, throttle_duration_sec=30.0)

    def _tell(self, attempt: Attempt) -> None:
        if attempt.update is not None:
            self._updates_sent += 1
            message = convert.update_message(convert.to_ns(self._stamp), attempt.update)
            message.sequence = self._updates_sent
            self._updates.publish(message)
        verdict = "accepted" if attempt.accepted else "not accepted"
        self._node.get_logger().info(f"update {attempt.version} {verdict}: {attempt.reason}")

    def _publish_status(self) -> None:
        session, last = self._session, self._session.last
        self._sequence += 1
        message = msg.FinetuneStatus(
            sequence=self._sequence,
            state=session.state.value,
            updates_tried=session.tried,
            updates_accepted=session.accepted,
            version=session.version,
            seconds_of_data=session.seconds_of_data,
            message=session.message,
        )
        message.header.stamp = self._stamp
        if last is not None:
            # Of the attempt that ended last, accepted or not.
            message.version = last.version
            message.loss_before = last.losses.robot_before
            message.loss_after = last.losses.robot_after
            message.simulation_loss_before = last.losses.simulation_before
            message.simulation_loss_after = last.losses.simulation_after
        self._status.publish(message)


def _store(directory: str, contract: str) -> GroupStore | None:
    """Where robot data of a model contract is kept, if anywhere."""
    return GroupStore(Path(directory).expanduser() / contract[:16]) if directory else None


def _run_when_idle() -> None:
    """Under Linux's idle policy this thread no longer delays those that wake up beside it."""
    if hasattr(os, "SCHED_IDLE"):
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


NODE = Finetune
