"""Many robots at once on ``mujoco.rollout``, for training and data collection."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import mujoco
import numpy as np
from mujoco import rollout

from simdist.observation import rotation_matrix
from simdist.robots import RobotSpec
from simdist.simulation.robot_model import SensorAddresses, Solver, foot_geoms
from simdist.simulation.training_terrain import TrainingTerrain, place_terrain, training_model
from simdist.types import Array, Rows


@dataclass(frozen=True)
class Randomisation:
    """Ranges that each episode's robot and ground are drawn from."""

    friction: tuple[float, float] = (0.3, 1.2)
    max_slope: float = 12.0  #: degrees
    slope_fraction: float = 0.6  #: of the episodes on planes
    trunk_mass: tuple[float, float] = (-1.0, 2.0)  #: kg added
    gain: tuple[float, float] = (0.9, 1.1)  #: factor on kp and on kd
    joint_friction: tuple[float, float] = (0.0, 0.2)  #: Nm
    push: float = 0.3  #: m/s, largest sideways kick of the base
    push_interval: float = 6.0  #: s, mean time between kicks


class BatchSimulation:
    """``count`` robots, each with its own model, stepped together by ``threads`` threads.

    After :meth:`step` or :meth:`reset` the attributes hold the present state, all in robot order:
    ``position (N, 3)``, ``orientation (N, 4)``, ``linear_velocity`` and ``angular_velocity
    (N, 3)`` in the base frame, ``joint_position``, ``joint_velocity``, ``joint_torque (N, n)``,
    ``foot_height (N, feet)`` above ground, ``contact (N, feet)``, ``foot_force (N, feet)``,
    ``trunk_force (N,)`` (largest during the step) and ``base_height (N,)`` above ground.
    """

    def __init__(
        self,
        robot: RobotSpec,
        count: int,
        solver: Solver,
        *,
        threads: int,
        rough_fraction: float,
        randomisation: Randomisation,
        rng: np.random.Generator,
    ) -> None:
        self.robot, self.count, self.rng, self.ranges = robot, count, rng, randomisation
        self.substeps = round(robot.control_dt / solver.timestep)
        self.terrain = TrainingTerrain.create(count, rough_fraction, rng)
        base = training_model(robot, solver)
        self._models = [copy.copy(base) for _ in range(count)]
        for row in np.flatnonzero(self.terrain.is_rough):
            place_terrain(self._models[row], self.terrain, int(row))
        self._data = [mujoco.MjData(base) for _ in range(threads)]
        self._rollout = rollout.Rollout(nthread=threads if threads > 1 else 0)
        size = mujoco.mj_stateSize(base, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._state = np.zeros((count, size))
        self._states = np.empty((count, self.substeps, size))
        self._sensors = np.zeros((count, self.substeps, base.nsensordata))
        self._targets = np.empty((count, self.substeps, robot.joint_count))
        self._addresses = SensorAddresses.of(base, robot)
        self._feet = foot_geoms(base, robot)
        self._trunk = base.body(robot.base_body).id
        self._trunk_mass = float(base.body_mass[self._trunk])
        self._trunk_inertia = base.body_inertia[self._trunk].copy()
        joints = robot.joint_count
        self._qpos = slice(1, 8 + joints)  # state = time, qpos, qvel
        self._qvel = slice(8 + joints, 14 + 2 * joints)
        self.friction = np.zeros(count)
        self.trunk_mass_added = np.zeros(count)
        self.kp_factor, self.kd_factor = np.ones(count), np.ones(count)
        self.slope = np.zeros(count)  #: rad
        self.joint_torque = np.zeros((count, joints))
        self.diverged = np.zeros(count, bool)
        self.reset(np.arange(count))

    def reset(self, rows: Rows) -> None:
        """Start new episodes for ``rows``: new robot and ground parameters, standing pose."""
        count, rng, ranges, joints = len(rows), self.rng, self.ranges, self.robot.joint_count
        if not count:
            return
        self.friction[rows] = rng.uniform(*ranges.friction, count)
        sloped = rng.random(count) < ranges.slope_fraction
        angle = np.where(sloped, np.deg2rad(rng.uniform(0, ranges.max_slope, count)), 0.0)
        angle = np.where(self.terrain.is_rough[rows], 0.0, angle)
        self.slope[rows] = angle
        self.terrain.tilt(rows, angle, rng.uniform(-np.pi, np.pi, count))
        self.trunk_mass_added[rows] = rng.uniform(*ranges.trunk_mass, count)
        self.kp_factor[rows] = rng.uniform(*ranges.gain, count)
        self.kd_factor[rows] = rng.uniform(*ranges.gain, count)
        joint_friction = rng.uniform(*ranges.joint_friction, count)
        for row, friction in zip(rows, joint_friction, strict=True):
            self._parametrise(int(row), float(friction))
        state = np.zeros((count, self._state.shape[1]))
        state[:, 1:3] = np.where(
            self.terrain.is_rough[rows][:, None], rng.uniform(-4, 4, (count, 2)), 0.0
        )
        # The highest point under the body, so that no foot starts inside the ground.
        probe = np.stack(np.meshgrid(*[np.linspace(-0.25, 0.25, 6)] * 2), -1).reshape(-1, 2)
        ground = self.terrain.height(
            rows, state[:, 1:2] + probe[:, 0], state[:, 2:3] + probe[:, 1]
        ).max(axis=1)
        yaw = rng.uniform(-np.pi, np.pi, count)
        state[:, 3] = ground + self.robot.standing_height + rng.uniform(0, 0.03, count)
        state[:, 4], state[:, 7] = np.cos(yaw / 2), np.sin(yaw / 2)
        spread = rng.uniform(0.95, 1.05, (count, joints))
        state[:, 8 : 8 + joints] = self.robot.default_pose * spread
        state[:, self._qvel] = rng.uniform(-0.1, 0.1, (count, 6 + joints))
        self._state[rows] = state
        self._sensors[rows] = 0.0
        position = self._addresses.foot_position
        feet = self._sensors[rows, :, position].reshape(count, self.substeps, -1, 3)
        feet[..., 2] = ground[:, None, None] + self.robot.foot_radius
        feet[..., :2] = state[:, None, None, 1:3]
        self._sensors[rows, :, position] = feet.reshape(count, self.substeps, -1)
        self._derive()

    def _parametrise(self, row: int, joint_friction: float) -> None:
        model, robot = self._models[row], self.robot
        model.geom_friction[self._feet, 0] = self.friction[row]
        factor = 1.0 + self.trunk_mass_added[row] / self._trunk_mass
        model.body_mass[self._trunk] = self._trunk_mass * factor
        model.body_inertia[self._trunk] = self._trunk_inertia * factor
        kp, kd = robot.kp * self.kp_factor[row], robot.kd * self.kd_factor[row]
        model.actuator_gainprm[:, 0] = kp
        model.actuator_biasprm[:, 1], model.actuator_biasprm[:, 2] = -kp, -kd
        model.dof_frictionloss[6:] = joint_friction
        if not self.terrain.is_rough[row]:
            place_terrain(model, self.terrain, row)

    def step(self, targets: Array) -> None:
        """Advance every robot by one control step towards joint ``targets (N, n)`` rad."""
        self._push()
        self._targets[:] = targets[:, None, :]
        self._rollout.rollout(
            self._models,
            self._data,
            self._state,
            self._targets,
            nstep=self.substeps,
            skip_checks=True,
            state=self._states,
            sensordata=self._sensors,
        )
        self._state[:] = self._states[:, -1]
        self.diverged = ~np.isfinite(self._state).all(1)
        self.diverged |= np.abs(self._state[:, self._qvel]).max(1) > 200.0
        if self.diverged.any():
            self._state[self.diverged, 1:] = 0.0
            self._state[self.diverged, 4] = 1.0
            self._sensors[self.diverged] = 0.0
        self._derive()
        torque = (self.kp_factor[:, None] * self.robot.kp) * (targets - self.joint_position) - (
            self.kd_factor[:, None] * self.robot.kd
        ) * self.joint_velocity
        limit = self.robot.torque_limit
        self.joint_torque = np.clip(torque, -limit, limit)

    def _push(self) -> None:
        probability = self.robot.control_dt / self.ranges.push_interval
        rows = np.flatnonzero(self.rng.random(self.count) < probability)
        start = self._qvel.start
        self._state[rows, start : start + 2] += self.rng.uniform(
            -self.ranges.push, self.ranges.push, (len(rows), 2)
        )

    def _derive(self) -> None:
        qpos, qvel = self._state[:, self._qpos], self._state[:, self._qvel]
        self.position, self.joint_position = qpos[:, :3], qpos[:, 7:]
        self.orientation = qpos[:, 3:7] / np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
        self.rotation = rotation_matrix(self.orientation)
        self.linear_velocity = np.einsum("nji,nj->ni", self.rotation, qvel[:, :3])
        self.angular_velocity, self.joint_velocity = qvel[:, 3:6], qvel[:, 6:]
        sensors = self._sensors[:, -1]
        feet = sensors[:, self._addresses.foot_position].reshape(self.count, -1, 3)
        rows = np.arange(self.count)
        ground = self.terrain.height(
            rows,
            np.concatenate([feet[:, :, 0], self.position[:, :1]], 1),
            np.concatenate([feet[:, :, 1], self.position[:, 1:2]], 1),
        )
        self.foot_height = feet[:, :, 2] - ground[:, :-1] - self.robot.foot_radius
        self.base_height = self.position[:, 2] - ground[:, -1]
        self.foot_force = sensors[:, self._addresses.foot_force]
        self.contact = self._sensors[:, :, self._addresses.foot_force].max(1) > 1.0
        self.trunk_force = self._sensors[:, :, self._addresses.trunk_force].max(1)

    def height_scan(self, points: Array, offset: float) -> Array:
        """Height scans ``(N, k)`` in m on grid ``points (k, 2)`` of the level heading frame."""
        yaw = np.arctan2(self.rotation[:, 1, 0], self.rotation[:, 0, 0])[:, None]
        cosine, sine = np.cos(yaw), np.sin(yaw)
        x = self.position[:, :1] + points[:, 0] * cosine - points[:, 1] * sine
        y = self.position[:, 1:2] + points[:, 0] * sine + points[:, 1] * cosine
        ground = self.terrain.height(np.arange(self.count), x, y)
        return self.position[:, 2:3] - ground - offset
