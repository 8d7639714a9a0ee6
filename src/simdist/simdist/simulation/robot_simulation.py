"""One robot in one world, stepped at the rate of its motor commands: the robot's stand-in."""

from __future__ import annotations

import tempfile
from collections import deque
from pathlib import Path

import mujoco
import numpy as np

from simdist.errors import SimulationError
from simdist.observation import ScanGrid, rotation_matrix
from simdist.observation.spec import legged_observation
from simdist.robots import RobotSpec
from simdist.simulation.gaps import apply_gaps
from simdist.simulation.robot_model import REALTIME_SOLVER, SensorAddresses, Solver
from simdist.simulation.scene import Ground, compose
from simdist.simulation.world import WorldSpec
from simdist.tasks import LocomotionTask
from simdist.types import Array, BaseState, ImuSample, JointCommand, JointState

DIVERGED_VELOCITY = 1e3  #: rad/s or m/s, beyond which the simulation has blown up


class RobotSimulation:
    """MuJoCo behind the same interface as a real robot: motor commands in, sensor values out.

    Time starts at 0 with every reset and is exact: ``time_ns`` is a multiple of the physics step.
    """

    def __init__(
        self,
        robot: RobotSpec,
        world: WorldSpec,
        *,
        seed: int = 0,
        solver: Solver = REALTIME_SOLVER,
        visual: bool = False,
    ) -> None:
        self.robot, self.world = robot, world
        self.ground = Ground(world)
        self.model = compose(world, robot, solver, visual=visual)
        self.data = mujoco.MjData(self.model)
        self.step_ns = round(solver.timestep * 1e9)
        self._addresses = SensorAddresses.of(self.model, robot)
        self._strength = apply_gaps(self.model, robot, world)
        self._delay_steps = round(world.gaps.action_delay / solver.timestep)
        self._noise = {
            f.name: f.noise_std * world.gaps.sensor_noise
            for f in legged_observation(robot.joint_count).fields
        }
        self._points_of: dict[ScanGrid, Array] = {}
        self.reset(seed)

    def reset(self, seed: int, *, lying: bool = False) -> None:
        """Put the robot at the start, standing or lying, with a little variation from ``seed``."""
        self._rng = rng = np.random.default_rng(seed)
        robot, data = self.robot, self.data
        mujoco.mj_resetData(self.model, data)
        pose = robot.lie_pose if lying else robot.default_pose
        yaw = rng.uniform(-0.1, 0.1)
        data.qpos[:2] = rng.uniform(-0.05, 0.05, 2)
        height = 0.12 if lying else robot.standing_height
        data.qpos[2] = self.ground.height(data.qpos[:1], data.qpos[1:2])[0] + height
        data.qpos[3:7] = np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)
        data.qpos[7:] = pose * (1.0 if lying else rng.uniform(0.97, 1.03, robot.joint_count))
        data.ctrl[:] = data.qpos[7:]
        self._commands: deque[JointCommand] = deque()
        self._step = 0
        mujoco.mj_forward(self.model, data)

    @property
    def time_ns(self) -> int:
        """Simulation time in ns since the last reset."""
        return self._step * self.step_ns

    def step(self, command: JointCommand) -> None:
        """Advance one physics step while the motors follow ``command`` (after the delay gap)."""
        self._commands.append(command)
        if len(self._commands) > self._delay_steps:
            command = self._commands.popleft()
        else:
            command = self._commands[0]
        model, data = self.model, self.data
        kp, kd = command.kp * self._strength, command.kd * self._strength
        model.actuator_gainprm[:, 0] = kp
        model.actuator_biasprm[:, 0] = kd * command.velocity + command.effort
        model.actuator_biasprm[:, 1] = -kp
        model.actuator_biasprm[:, 2] = -kd
        data.ctrl[:] = command.position
        mujoco.mj_step(model, data)
        self._step += 1
        # MuJoCo resets a diverged state by itself, so its warning has to be looked at as well.
        if data.warning[mujoco.mjtWarning.mjWARN_BADQACC].number or not (
            np.abs(data.qvel).max() < DIVERGED_VELOCITY
        ):
            self._dump(command)

    def targets_under_way(self) -> Array:
        """Joint targets ``(k, n)`` rad that were commanded and, by the delay gap, will act in the
        next ``k`` physics steps, the first of them first."""
        waiting = [command.position for command in self._commands]
        late = self._delay_steps - len(waiting)  # at the start the first command acts at once
        if waiting and late > 0:
            waiting = [waiting[0]] * late + waiting
        return np.array(waiting).reshape(-1, self.robot.joint_count)

    def _dump(self, command: JointCommand) -> None:
        with tempfile.NamedTemporaryFile(
            prefix="simdist_diverged_", suffix=".npz", delete=False
        ) as file:
            np.savez(
                file,
                qpos=self.data.qpos,
                qvel=self.data.qvel,
                target=command.position,
                kp=command.kp,
                kd=command.kd,
                time_ns=self.time_ns,
            )
        raise SimulationError(
            f"the simulation of world {self.world.name!r} became unstable at "
            f"{self.time_ns * 1e-9:.3f} s; state and command are in {Path(file.name)}"
        )

    def joint_state(self) -> JointState:
        """Measured joints, with sensor noise where the world asks for it."""
        data, noise, count = self.data, self._noise, self.robot.joint_count
        return JointState(
            names=self.robot.joint_names,
            position=data.qpos[7:] + self._sample(noise["joint_pos"], count),
            velocity=data.qvel[6:] + self._sample(noise["joint_vel"], count),
            effort=data.actuator_force.copy(),
        )

    def imu(self) -> ImuSample:
        """Orientation, angular velocity and acceleration as an IMU in the base reports them."""
        data = self.data
        return ImuSample(
            orientation=data.qpos[3:7].copy(),
            angular_velocity=data.qvel[3:6] + self._sample(self._noise["base_ang_vel"], 3),
            linear_acceleration=data.sensordata[self._addresses.acceleration].copy(),
        )

    def base_state(self) -> BaseState:
        """The true pose and velocity of the base (with velocity noise where the world asks)."""
        data = self.data
        rotation = rotation_matrix(data.qpos[3:7])
        return BaseState(
            position=data.qpos[:3].copy(),
            orientation=data.qpos[3:7].copy(),
            linear_velocity=rotation.T @ data.qvel[:3]
            + self._sample(self._noise["base_lin_vel"], 3),
            angular_velocity=data.qvel[3:6].copy(),
        )

    def _sample(self, std: float, count: int) -> Array | float:
        return std * self._rng.standard_normal(count) if std else 0.0

    def foot_forces(self) -> Array:
        """Contact force ``(feet,)`` in N, in the order of RobotSpec.foot_names."""
        return self.data.sensordata[self._addresses.foot_force].copy()

    def height_scan(self, grid: ScanGrid) -> Array:
        """The height scan ``(nx * ny,)`` that a perfect elevation map would give."""
        points = self._points_of.setdefault(grid, grid.points())
        rotation = rotation_matrix(self.data.qpos[3:7])
        yaw = np.arctan2(rotation[1, 0], rotation[0, 0])
        cosine, sine = np.cos(yaw), np.sin(yaw)
        x = self.data.qpos[0] + points[:, 0] * cosine - points[:, 1] * sine
        y = self.data.qpos[1] + points[:, 0] * sine + points[:, 1] * cosine
        return self.data.qpos[2] - self.ground.height(x, y) - grid.offset

    def progress(self) -> float:
        """Metres along the world's course from where progress counts."""
        return self.world.distance(float(self.data.qpos[0]))

    def fallen(self) -> bool:
        """Whether the robot lies on the ground or is about to, as in training."""
        data = self.data
        gravity = -rotation_matrix(data.qpos[3:7])[2:3]
        ground = self.ground.height(data.qpos[:1], data.qpos[1:2])
        force = data.sensordata[self._addresses.trunk_force : self._addresses.trunk_force + 1]
        return bool(LocomotionTask.fallen(gravity, data.qpos[2:3] - ground, force)[0])
