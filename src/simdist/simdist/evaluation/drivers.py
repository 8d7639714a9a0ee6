"""What can drive a robot in a trial: the expert, the policy prior, or the planner."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
import torch

from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ConfigError
from simdist.evaluation.oracle import OracleConfig, OracleDriver
from simdist.observation import Observation
from simdist.planning import (
    MppiPlanner,
    PlannerConfig,
    PriorController,
    SmoothedPriorController,
)
from simdist.planning.loop import PlanningLoop
from simdist.robots import RobotSpec
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import WorldSpec
from simdist.types import ActionChunk
from simdist.world_model.artefact import Artefact
from simdist.world_model.state_encoder import StateEncoder

METHODS = ("expert", "prior", "smoothed_prior", "planner", "oracle", "oracle_nominal")


class Driver(Protocol):
    """Answers an observation with a chunk, for one robot."""

    def act(self, observation: Observation) -> ActionChunk: ...


@runtime_checkable
class PrivilegedDriver(Protocol):
    """A driver that may look behind the sensors, at the simulation of the robot that it drives."""

    def begin(self, simulation: RobotSimulation) -> None:
        """A trial on ``simulation`` is about to start."""
        ...


class ModelDriver:
    """A world model with a controller on top: the planner, or the policy prior alone."""

    def __init__(self, artefact: Artefact, loop: PlanningLoop) -> None:
        self._encoder, self._loop = StateEncoder(artefact.model), loop
        self._version = artefact.version

    def act(self, observation: Observation) -> ActionChunk:
        context, latent = self._encoder.encode(observation)
        chunk, _ = self._loop.plan(
            observation.stamp_ns,
            context,
            latent,
            observation.command,
            model_version=self._version,
        )
        return chunk


class ExpertDriver:
    """The PPO expert, with the true base velocity and without planning."""

    def __init__(self, policy: ExpertPolicy, robot: RobotSpec, contract: str) -> None:
        self._policy, self._robot, self._contract = policy, robot, contract
        self._sequence = 0

    def act(self, observation: Observation) -> ActionChunk:
        inputs = np.concatenate(
            [observation.proprioception, observation.command, observation.previous_action]
        )
        action = self._policy.act(torch.from_numpy(inputs.astype(np.float32))[None])[0].numpy()
        self._sequence += 1
        return ActionChunk(
            stamp_ns=observation.stamp_ns,
            observation_stamp_ns=observation.stamp_ns,
            sequence=self._sequence,
            joint_names=self._robot.joint_names,
            kind="joint_position",
            dt_ns=round(self._robot.control_dt * 1e9),
            # The expert answers the present only; its action is held until the next answer.
            values=np.repeat(self._robot.target(action.astype(np.float64))[None], 10, axis=0),
            model_version=0,
            contract=self._contract,
        )


def expert_path(model: Path) -> Path:
    """Where the expert of a model lies: beside it."""
    return model.parent / "expert.safetensors"


def driver_factory(
    method: str,
    artefact: Artefact,
    robot: RobotSpec,
    planner: PlannerConfig,
    delay_steps: int = 0,
    world: WorldSpec | None = None,
) -> Callable[[int], Driver]:
    """A function from seed to a fresh driver; raises ConfigError for an unknown method.

    ``delay_steps`` is how many control steps pass until a plan reaches the robot. ``world`` is the
    one that the robot is in, which the oracles need to know.
    """
    contract = artefact.contract.hash()
    if method == "expert":
        policy = ExpertPolicy.load(expert_path(artefact.path))
        return lambda seed: ExpertDriver(policy, robot, contract)
    if method in ("oracle", "oracle_nominal"):
        if world is None:
            raise ConfigError(f"method {method!r} needs to know the world that the robot is in")
        imagined = world if method == "oracle" else world.nominal()
        policy = ExpertPolicy.load(expert_path(artefact.path))
        layout = artefact.contract.observation
        return lambda seed: OracleDriver(
            policy, robot, imagined, layout, OracleConfig(), seed, contract
        )

    def loop(controller: MppiPlanner | PriorController) -> PlanningLoop:
        return PlanningLoop(controller, robot, contract=contract, commit_steps=delay_steps)

    if method == "prior":
        return lambda seed: ModelDriver(artefact, loop(PriorController(artefact.model, robot)))
    if method == "smoothed_prior":
        return lambda seed: ModelDriver(
            artefact, loop(SmoothedPriorController(artefact.model, robot))
        )
    if method == "planner":

        def planning(seed: int) -> Driver:
            config = PlannerConfig(**{**vars(planner), "seed": seed})
            return ModelDriver(artefact, loop(MppiPlanner(artefact.model, robot, config)))

        return planning
    raise ConfigError(f"unknown method {method!r}; known methods: {', '.join(METHODS)}")
