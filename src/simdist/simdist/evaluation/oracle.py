"""Planning with perfect dynamics: MPPI with MuJoCo itself as the model.

What the oracle gains over the expert in a world is the most that a learned model could gain there;
with the model of another world it shows what wrong dynamics cost. Plans are residuals around the
expert, which is asked anew in every imagined state: around an open-loop sequence of its actions the
same search finds nothing (measured).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from simdist.distillation.policy import ExpertPolicy
from simdist.distillation.signals import ACTION_LIMIT, fallen, privileged_inputs, reward_terms
from simdist.observation import Observation, ObservationBuilder, ObservationSpec
from simdist.ranges import Checked, bounded
from simdist.robots import RobotSpec
from simdist.simulation.imagination import Imagination
from simdist.simulation.robot_model import BATCH_SOLVER
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import WorldSpec
from simdist.tasks import LocomotionTask
from simdist.types import ActionChunk, Array, Flags


@dataclass(frozen=True)
class OracleConfig(Checked):
    """The search; defaults were the best of those tried on slippery ground."""

    samples: int = bounded(64, 2, 4096, "imagined continuations per iteration")
    iterations: int = bounded(1, 1, 20, "rounds of sampling per plan")
    elites: int = bounded(16, 1, 4096, "best samples that make the plan")
    horizon: int = bounded(15, 1, 100, "control steps ahead")
    knot_steps: int = bounded(4, 1, 100, "control steps between knots of the residual")
    std: float = bounded(0.2, 0.0, 2.0, "of the residual at its knots, action units")
    timid_std: float = bounded(0.1, 0.0, 2.0, "of the samples near the expert")
    timid_fraction: float = bounded(0.25, 0.0, 1.0, "of the samples, near the expert")
    temperature: float = bounded(0.4, 1e-3, 100.0, "in standard deviations of the elites' returns")
    discount: float = bounded(0.99, 0.5, 1.0, "per control step, that of the expert's training")
    replan_every: int = bounded(2, 1, 10, "control steps that a plan serves")


@dataclass(frozen=True)
class OraclePlan:
    """A residual ``(T, n)``, the actions ``(T, n)`` that go with it where the state develops as
    imagined, and the predicted returns of its samples ``(N,)``, the bare expert's first."""

    residual: Array
    actions: Array
    returns: Array


@dataclass(frozen=True)
class Sight:
    """What N imagined robots see after a step: proprioception ``(N, P)`` and height scan
    ``(N, S)``, free of noise; and which of them ``(N,)`` have not fallen so far."""

    proprioception: np.ndarray
    scan: np.ndarray
    standing: Flags


def knot_basis(horizon: int, knot_steps: int) -> Array:
    """Weights ``(T, knots)`` that interpolate linearly between knots ``knot_steps`` apart."""
    position = np.arange(horizon) / knot_steps
    knots = np.arange(int(np.ceil(position[-1])) + 1)
    return np.clip(1.0 - np.abs(position[:, None] - knots), 0.0, None)


class OraclePlanner:
    """Plans for one robot from the true state of its simulation, in a model of ``world``."""

    def __init__(
        self,
        policy: ExpertPolicy,
        robot: RobotSpec,
        world: WorldSpec,
        layout: ObservationSpec,
        config: OracleConfig,
        seed: int,
    ) -> None:
        self.policy, self.robot, self.config = policy, robot, config
        # With 10 iterations or fewer the contacts of this model do not converge, and the imagined
        # robot stumbles where the real one walks; more cost nothing measurable.
        self.imagination = Imagination(robot, world, BATCH_SOLVER, config.samples)
        self._task, self._builder = LocomotionTask(robot), ObservationBuilder(layout, robot)
        self._scan, self._points = layout.scan, layout.scan.points()
        self._period = layout.gait_period
        self._basis = knot_basis(config.horizon, config.knot_steps)
        self._rng = np.random.default_rng(seed)
        self._mean = np.zeros((config.horizon, robot.joint_count))

    def plan(
        self, simulation: RobotSimulation, observation: Observation, elapsed: int
    ) -> OraclePlan:
        """A plan from the present, warm-started from the last one made ``elapsed`` steps ago."""
        kept = self._mean[elapsed:]
        mean = np.concatenate([kept, np.zeros((len(self._mean) - len(kept), kept.shape[1]))])
        plan = self._improve(mean, simulation, observation)
        for _ in range(self.config.iterations - 1):
            plan = self._improve(plan.residual, simulation, observation)
        self._mean = plan.residual
        return plan

    def _improve(
        self, mean: Array, simulation: RobotSimulation, observation: Observation
    ) -> OraclePlan:
        """The mean of the best residuals among samples around ``mean (T, n)`` and around none."""
        config, count = self.config, self.config.samples
        noise = self.deviations(self._rng, count)
        residuals = mean + config.std * noise
        timid = round(config.timid_fraction * count)
        residuals[:timid] = config.timid_std * noise[:timid]
        residuals[0], residuals[1] = 0.0, mean
        returns, actions = self.imagine(simulation, observation, residuals)
        best = np.argsort(-returns)[: min(config.elites, count)]
        score = (returns[best] - returns[best[0]]) / (returns[best].std() + 1e-6)
        weights = np.exp(score / config.temperature)
        weights /= weights.sum()
        return OraclePlan(
            residual=np.einsum("n,ntj->tj", weights, residuals[best]),
            actions=np.einsum("n,ntj->tj", weights, actions[best]),
            returns=returns,
        )

    def deviations(self, rng: np.random.Generator, count: int) -> Array:
        """Random residuals ``(count, T, n)`` as plans are sampled, of standard deviation 1 at
        their knots."""
        knots = rng.standard_normal((count, self._basis.shape[1], self.robot.joint_count))
        return np.einsum("tk,nkj->ntj", self._basis, knots)

    def imagine(
        self,
        simulation: RobotSimulation,
        observation: Observation,
        residuals: Array,
        on_step: Callable[[Sight], None] | None = None,
    ) -> tuple[Array, Array]:
        """Returns ``(N,)`` and actions ``(N, T, n)`` of following the expert plus ``residuals
        (N, T, n)`` from the present; a fall ends all reward, and the critic judges the end.

        ``on_step`` is shown what the robots see after each step.
        """
        config, world, task = self.config, self.imagination, self._task
        count, horizon = residuals.shape[:2]
        seconds = observation.stamp_ns * 1e-9
        command = np.tile(observation.command, (count, 1))
        action = np.tile(observation.previous_action, (count, 1))
        returns, alive = np.zeros(count), np.ones(count, bool)
        actions = np.empty(residuals.shape)
        world.begin(simulation)
        seen = self._proprioception(seconds)
        for step in range(horizon):
            previous, velocity = action, world.joint_velocity.copy()
            inputs = np.concatenate([seen, command, action], 1).astype(np.float32)
            chosen = self.policy.act(torch.from_numpy(inputs)).numpy() + residuals[:, step]
            action = np.clip(chosen, -ACTION_LIMIT, ACTION_LIMIT)
            actions[:, step] = action
            world.step(self.robot.target(action))
            seconds += self.robot.control_dt
            terms = reward_terms(
                task,
                world,
                command=command,
                action=action,
                previous_action=previous,
                previous_velocity=velocity,
                phase=np.full(count, 2 * np.pi * seconds / self._period),
            )
            alive &= ~fallen(task, world)
            returns += config.discount**step * np.where(alive, task.reward(terms), 0.0)
            seen = self._proprioception(seconds)
            if on_step is not None:
                scan = world.height_scan(self._points, self._scan.offset)
                on_step(Sight(seen, scan, alive.copy()))
        judged = np.concatenate([seen, command, action, privileged_inputs(world)], 1)
        value = self.policy.value(torch.from_numpy(judged.astype(np.float32))).numpy()
        returns += config.discount**horizon * np.where(alive, np.maximum(value, 0.0), 0.0)
        return returns, actions

    def _proprioception(self, seconds: float) -> Array:
        """Of all imagined robots ``(N, P)``, at ``seconds`` on the gait clock."""
        world = self.imagination
        return self._builder.proprioception(
            linear_velocity=world.linear_velocity,
            angular_velocity=world.angular_velocity,
            orientation=world.orientation,
            joint_position=world.joint_position,
            joint_velocity=world.joint_velocity,
            seconds=np.full(world.count, seconds),
        )


class OracleDriver:
    """The oracle at the wheel; between two plans it follows the expert plus the planned residual.

    ``world`` is the one it plans in: the true one, or another for the cost of wrong dynamics.
    """

    def __init__(
        self,
        policy: ExpertPolicy,
        robot: RobotSpec,
        world: WorldSpec,
        layout: ObservationSpec,
        config: OracleConfig,
        seed: int,
        contract: str = "",
    ) -> None:
        self._policy, self._robot, self._contract = policy, robot, contract
        self.planner = OraclePlanner(policy, robot, world, layout, config, seed)
        self._simulation: RobotSimulation | None = None
        self._plan: OraclePlan | None = None
        self._planned_ns = 0
        self._sequence = 0

    def begin(self, simulation: RobotSimulation) -> None:
        """Plan from the true state of ``simulation`` from now on."""
        self._simulation, self._plan = simulation, None

    def act(self, observation: Observation) -> ActionChunk:
        """A new plan where one is due, else the old one with the expert's view of the present."""
        if self._simulation is None:
            raise RuntimeError("the oracle has not been shown the simulation: call begin() first")
        dt_ns = round(self._robot.control_dt * 1e9)
        age = round((observation.stamp_ns - self._planned_ns) / dt_ns)
        if self._plan is None or age >= self.planner.config.replan_every:
            elapsed = age if self._plan else 0
            self._plan = self.planner.plan(self._simulation, observation, elapsed)
            self._planned_ns = observation.stamp_ns
            actions = self._plan.actions
        else:
            inputs = np.concatenate(
                [observation.proprioception, observation.command, observation.previous_action]
            )
            expert = self._policy.act(torch.from_numpy(inputs.astype(np.float32))[None])[0].numpy()
            actions = np.tile(expert + self._plan.residual[age], (len(self._plan.actions), 1))
        self._sequence += 1
        return ActionChunk(
            stamp_ns=observation.stamp_ns,
            observation_stamp_ns=observation.stamp_ns,
            sequence=self._sequence,
            joint_names=self._robot.joint_names,
            kind="joint_position",
            dt_ns=dt_ns,
            values=self._robot.target(actions),
            model_version=0,
            contract=self._contract,
        )
