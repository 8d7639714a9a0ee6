"""A robot's stand-in as an environment for reinforcement learning, with robot time accounted for.

Reward and the critic's inputs come from the simulator: they need foot heights, contacts, friction
and the true velocity of the base. A real robot has none of them, so methods that learn here get
more than a robot could give them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from simdist.distillation.signals import (
    ACTION_LIMIT,
    fallen,
    privileged_inputs,
    reward_terms,
)
from simdist.errors import ConfigError, SimulationError
from simdist.evaluation.collection import (
    RESET_SECONDS,
    CollectionPlan,
    RecordedTrial,
    RobotData,
)
from simdist.evaluation.trials import TrialConfig
from simdist.observation import ObservationBuilder, rotation_matrix
from simdist.observation.spec import legged_observation
from simdist.robots import RobotSpec
from simdist.simulation.robot_model import REALTIME_SOLVER, SensorAddresses, Solver
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import WorldSpec
from simdist.tasks import LocomotionTask
from simdist.tasks.course import Course, heading
from simdist.types import Array, JointCommand

DISCOUNT = 0.99  #: of training, per control step
CONTACT_FORCE = 1.0  #: N on a foot that counts as contact


class RobotTime:
    """Seconds of robot time that control steps and falls use up.

    A fall is paid for when the robot is put back to the start, that is, with the next step.
    """

    def __init__(self, seconds: float, control_dt: float) -> None:
        if not seconds >= 0:
            raise ConfigError(f"robot time must not be negative, got {seconds} s")
        self._dt_ns, self._fall_ns = round(control_dt * 1e9), round(RESET_SECONDS * 1e9)
        self._left_ns = round(seconds * 1e9)
        self._granted_ns, self._owed_ns = self._left_ns, 0

    @property
    def used(self) -> float:
        """Seconds used up; never more than there were."""
        return (self._granted_ns - self._left_ns) * 1e-9

    def affords(self, steps: int) -> bool:
        """Whether ``steps`` control steps can be paid for, and what is owed for falls before."""
        return self._owed_ns + steps * self._dt_ns <= self._left_ns

    def pay(self, steps: int) -> None:
        """Use up ``steps`` control steps; RuntimeError when they are not afforded."""
        if not self.affords(steps):
            raise RuntimeError(f"{self._left_ns * 1e-9} s of robot time are not enough")
        self._left_ns -= self._owed_ns + steps * self._dt_ns
        self._owed_ns = 0

    def fell(self) -> None:
        """A robot fell."""
        self._owed_ns += self._fall_ns


class SimulatorView:
    """What only the simulator of a robot knows, in the form of training's batches with one robot:
    all attributes of :class:`~simdist.distillation.signals.SimulatedRobots`.

    Where training varies one number for the whole robot and a world's gap does not, the mean stands
    for it.
    """

    def __init__(self, simulation: RobotSimulation) -> None:
        self._simulation = simulation
        self.robot, world = simulation.robot, simulation.world
        self._addresses = SensorAddresses.of(simulation.model, self.robot)
        self._strip_ends = world.profile()[0][1::2]
        strength = world.gaps.motor_strength
        gain = np.mean([strength.get(joint, 1.0) for joint in self.robot.joint_names])
        self.kp_factor = self.kd_factor = np.array([gain])
        self.trunk_mass_added = np.array([world.gaps.trunk_mass])
        self.diverged = np.zeros(1, bool)
        self.begin()
        self.update()

    def begin(self) -> None:
        """A control step begins."""
        self._peaks = np.zeros(len(self.robot.foot_names))
        self._trunk_peak = 0.0

    def watch(self) -> None:
        """A physics step was made: the largest forces of a control step count."""
        sensors = self._simulation.data.sensordata
        np.maximum(self._peaks, sensors[self._addresses.foot_force], out=self._peaks)
        self._trunk_peak = max(self._trunk_peak, float(sensors[self._addresses.trunk_force]))

    def update(self) -> None:
        """Take over the present state."""
        simulation, model, data = self._simulation, self._simulation.model, self._simulation.data
        position = data.qpos[:3]
        self.rotation = rotation_matrix(data.qpos[3:7])[None]
        self.linear_velocity = (self.rotation[0].T @ data.qvel[:3])[None]
        self.angular_velocity = data.qvel[None, 3:6].copy()
        self.joint_position = data.qpos[None, 7:].copy()
        self.joint_velocity = data.qvel[None, 6:].copy()
        # The formula of training; MuJoCo's own forces are those of one physics step before.
        stiffness, damping = model.actuator_gainprm[:, 0], -model.actuator_biasprm[:, 2]
        torque = stiffness * (data.ctrl - data.qpos[7:]) - damping * data.qvel[6:]
        self.joint_torque = np.clip(torque, *model.actuator_forcerange.T)[None]
        feet = data.sensordata[self._addresses.foot_position].reshape(-1, 3)
        ground = simulation.ground.height(
            np.append(feet[:, 0], position[0]), np.append(feet[:, 1], position[1])
        )
        self.foot_height = (feet[:, 2] - ground[:-1] - self.robot.foot_radius)[None]
        self.base_height = position[2:] - ground[-1:]
        self.foot_force = data.sensordata[None, self._addresses.foot_force].copy()
        self.contact = self._peaks[None] > CONTACT_FORCE
        self.trunk_force = np.array([self._trunk_peak])
        course = simulation.world.course
        index = int(np.searchsorted(self._strip_ends, position[0]))
        strip = course[min(index, len(course) - 1)]
        self.friction = np.array([strip.friction])
        self.slope = np.array([np.deg2rad(abs(strip.slope))])


@dataclass(frozen=True)
class Outcome:
    """What an action led to. ``observation`` is that of the state after it, before any new
    episode."""

    observation: Array
    reward: float
    fell: bool
    timed_out: bool

    @property
    def ended(self) -> bool:
        return self.fell or self.timed_out


class RobotEnvironment:
    """One robot of one world, walking along the course; :meth:`begin` comes first.

    As in trials, an action is held for ``plan_every`` control steps. What follows it counts with
    :data:`DISCOUNT` per control step, so that values mean the same at every rate.

    Observations ``(size,)`` are the ``policy_size`` inputs of the expert's actor followed by what
    only its critic sees. Motor commands go straight to the motors: the same actions as in training.
    """

    def __init__(
        self, robot: RobotSpec, world: WorldSpec, solver: Solver = REALTIME_SOLVER
    ) -> None:
        self.robot, self.world = robot, world
        self.spec = legged_observation(robot.joint_count)
        self.simulation = RobotSimulation(robot, world, solver=solver)
        self._builder = ObservationBuilder(self.spec, robot)
        self._view, self._task = SimulatorView(self.simulation), LocomotionTask(robot)
        self._substeps = round(robot.control_dt * 1e9) // self.simulation.step_ns
        self._zero = np.zeros(robot.joint_count)
        self.policy_size = self.spec.size + 3 + robot.joint_count
        self.size = self.policy_size + len(privileged_inputs(self._view)[0])

    def begin(self, trial: TrialConfig) -> Array:
        """Start an episode and return its first observation; everything random in it follows from
        the seed of the trial."""
        self.trial = trial
        self.simulation.reset(trial.seed)
        self._course = Course(trial.speed)
        #: s, gait clock
        self.clock = float(
            np.random.default_rng([trial.seed, 1]).uniform(0.0, self.spec.gait_period)
        )
        self._length = round(trial.seconds / self.robot.control_dt)
        self.steps = 0  #: control steps of the episode
        self.action = self._zero
        self._view.begin()
        self._command()
        return self.observation()

    def recorded(self, fallen: bool) -> RecordedTrial:
        """The episode so far as robot time spent; what was seen is not kept."""
        seconds = self.steps * self.robot.control_dt
        trial = self.trial
        return RecordedTrial(trial.seed, trial.speed, True, seconds, fallen, reached=False)

    def _command(self) -> None:
        base = self.simulation.base_state()
        self.command = self._course.command(
            float(base.position[1]), heading(base.orientation), self.robot.control_dt
        )

    def observation(self) -> Array:
        """The present observation."""
        joints, base = self.simulation.joint_state(), self.simulation.base_state()
        proprioception = self._builder.proprioception(
            linear_velocity=base.linear_velocity,
            angular_velocity=base.angular_velocity,
            orientation=base.orientation,
            joint_position=joints.position,
            joint_velocity=joints.velocity,
            seconds=self.clock,
        )
        self._view.update()
        privileged = privileged_inputs(self._view)[0]
        return np.concatenate([proprioception, self.command, self.action, privileged])

    def step(self, action: Array) -> Outcome:
        """Hold ``action (n,)``; the caller begins anew when the episode has ended."""
        action = np.clip(np.asarray(action, np.float64), -ACTION_LIMIT, ACTION_LIMIT)
        total, fell, timed_out = 0.0, False, False
        for count in range(self.trial.plan_every):
            reward, fell = self._control_step(action)
            total += DISCOUNT**count * reward
            timed_out = not fell and self.steps >= self._length
            if fell or timed_out:
                break
        return Outcome(self.observation(), total, fell, timed_out)

    def _control_step(self, action: Array) -> tuple[float, bool]:
        """The reward, and whether the robot fell."""
        robot, previous = self.robot, self.action
        self.action = action
        command = JointCommand(
            position=robot.target(action),
            velocity=self._zero,
            kp=robot.kp,
            kd=robot.kd,
            effort=self._zero,
        )
        velocity = self.simulation.data.qvel[None, 6:].copy()
        self._view.begin()
        self.clock += robot.control_dt
        self.steps += 1
        try:
            for _ in range(self._substeps):
                self.simulation.step(command)
                self._view.watch()
        except SimulationError:  # as in training, what diverges has fallen
            self.simulation.reset(self.trial.seed)
            return 0.0, True
        self._view.update()
        terms = reward_terms(
            self._task,
            self._view,
            command=self.command[None],
            action=action[None],
            previous_action=previous[None],
            previous_velocity=velocity,
            phase=np.array([2 * np.pi * self.clock / self.spec.gait_period]),
        )
        fell = bool(fallen(self._task, self._view)[0])
        self._command()
        return float(self._task.reward(terms)[0]), fell


class RobotFleet:
    """Some robots of one world stepped one after another, as rsl-rl wants to see them.

    Episodes follow ``plan`` and are written into ``data`` as they end, for the robot time that they
    took. :meth:`grant` comes first; :meth:`rest` writes down the episodes under way.
    """

    def __init__(
        self, robot: RobotSpec, world: WorldSpec, count: int, plan: CollectionPlan
    ) -> None:
        self.robots = [RobotEnvironment(robot, world) for _ in range(count)]
        self.num_envs, self.num_actions, self.device = count, robot.joint_count, "cpu"
        self.cfg: dict[str, Any] = {}
        self.max_episode_length = round(plan.seconds / robot.control_dt) // plan.plan_every
        self.episode_length_buf = torch.zeros(count, dtype=torch.long)
        self._plan, self._dt = plan, robot.control_dt
        self._policy_size = self.robots[0].policy_size
        self.data, self.time = RobotData(self._dt), RobotTime(0.0, self._dt)
        self._next = 0
        self._begin_all()

    def grant(self, data: RobotData, minutes: float) -> None:
        """Robots may walk until ``data`` holds ``minutes``; all of them start new episodes."""
        self.data, self.time = data, RobotTime(data.room(minutes), self._dt)
        self._next = len(data.trials)
        self._begin_all()

    def affords(self) -> bool:
        """Whether the robot time allows one more action of every robot."""
        return self.time.affords(self.num_envs * self._plan.plan_every)

    def rest(self) -> None:
        """Write down the episodes under way, as their robots stop here."""
        self.data.trials.extend(e.recorded(fallen=False) for e in self.robots if e.steps)
        self._begin_all()

    def _begin_all(self) -> None:
        self._observations = [self._begin(environment) for environment in self.robots]

    def _begin(self, environment: RobotEnvironment) -> Array:
        observation = environment.begin(self._plan.trial(self._next))
        self._next += 1
        return observation

    def get_observations(self) -> TensorDict:
        critic = torch.from_numpy(np.stack(self._observations).astype(np.float32))
        return TensorDict(
            {"policy": critic[:, : self._policy_size], "critic": critic},
            batch_size=[self.num_envs],
        )

    def step(
        self, actions: torch.Tensor
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """One action of every robot; robots that end start a new episode. RuntimeError when the
        robot time does not allow it."""
        if not self.affords():
            raise RuntimeError("the robot time is used up; grant more")
        outcomes: list[Outcome] = []
        steps = 0
        for index, environment in enumerate(self.robots):
            before = environment.steps
            outcome = environment.step(actions[index].detach().numpy())
            steps += environment.steps - before
            outcomes.append(outcome)
            self._observations[index] = outcome.observation
            if outcome.ended:
                self.data.trials.append(environment.recorded(outcome.fell))
                self._observations[index] = self._begin(environment)
        self.time.pay(steps)
        for outcome in outcomes:
            if outcome.fell:
                self.time.fell()
        lengths = torch.tensor([environment.steps for environment in self.robots])
        self.episode_length_buf = lengths // self._plan.plan_every
        timed_out = torch.tensor([float(outcome.timed_out) for outcome in outcomes])
        return (
            self.get_observations(),
            torch.tensor([outcome.reward for outcome in outcomes]),
            torch.tensor([outcome.ended for outcome in outcomes]),
            {"time_outs": timed_out, "log": {}, "outcomes": outcomes},
        )
