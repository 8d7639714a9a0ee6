"""Robots stepped together by ``mujoco.rollout``, and what can be read off their states."""

from __future__ import annotations

from collections.abc import Sequence

import mujoco
import numpy as np
from mujoco import rollout

from simdist.observation import rotation_matrix
from simdist.robots import RobotSpec
from simdist.simulation.robot_model import SensorAddresses
from simdist.types import Array, Rows

DIVERGED_VELOCITY = 200.0  #: rad/s or m/s, beyond which a robot counts as diverged


class RolloutBatch:
    """One robot per entry of ``models``, which must share all sizes and the time step.

    After a step the attributes hold the present state, all in robot order: ``position (N, 3)``,
    ``orientation (N, 4)``, ``linear_velocity`` and ``angular_velocity (N, 3)`` in the base frame,
    ``joint_position``, ``joint_velocity``, ``joint_torque (N, n)``, ``foot_height (N, feet)`` above
    ground, ``contact (N, feet)``, ``foot_force (N, feet)``, ``trunk_force (N,)`` (largest during
    the step), ``base_height (N,)`` above ground and ``diverged (N,)``. What a subclass knows about
    its robots and ground stands in ``friction``, ``trunk_mass_added`` (kg), ``kp_factor``,
    ``kd_factor`` and ``slope`` (rad), all ``(N,)``, and in ``torque_limit`` (Nm).
    """

    def __init__(self, robot: RobotSpec, models: Sequence[mujoco.MjModel], *, threads: int) -> None:
        base, count, joints = models[0], len(models), robot.joint_count
        self.robot, self.count = robot, count
        self.substeps = round(robot.control_dt / base.opt.timestep)
        self.models = list(models)
        self._data = [mujoco.MjData(base) for _ in range(threads)]
        self._rollout = rollout.Rollout(nthread=threads if threads > 1 else 0)
        size = mujoco.mj_stateSize(base, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._state = np.zeros((count, size))
        self._states = np.empty((count, self.substeps, size))
        self._sensors = np.zeros((count, self.substeps, base.nsensordata))
        self._targets = np.empty((count, self.substeps, joints))
        self._addresses = SensorAddresses.of(base, robot)
        self._qpos = slice(1, 8 + joints)  # state = time, qpos, qvel
        self._qvel = slice(8 + joints, 14 + 2 * joints)
        self.friction = np.zeros(count)
        self.trunk_mass_added = np.zeros(count)
        self.kp_factor, self.kd_factor = np.ones(count), np.ones(count)
        self.slope = np.zeros(count)
        self.torque_limit = robot.torque_limit
        self.joint_torque = np.zeros((count, joints))
        self.diverged = np.zeros(count, bool)

    def height_scan(self, points: Array, offset: float) -> Array:
        """Height scans ``(N, k)`` in m on grid ``points (k, 2)`` of the level heading frame."""
        yaw = np.arctan2(self.rotation[:, 1, 0], self.rotation[:, 0, 0])[:, None]
        cosine, sine = np.cos(yaw), np.sin(yaw)
        x = self.position[:, :1] + points[:, 0] * cosine - points[:, 1] * sine
        y = self.position[:, 1:2] + points[:, 0] * sine + points[:, 1] * cosine
        ground = self._ground_height(x, y)
        return self.position[:, 2:3] - ground - offset

    def _ground_height(self, x: Array, y: Array) -> Array:
        """Height in m of the ground of each robot at world points ``(N, k)``."""
        raise NotImplementedError

    def _take_state(self, source: RolloutBatch, rows: Rows) -> None:
        """Put robot ``i`` into the state of robot ``rows[i]`` of ``source``; :meth:`_derive` then
        tells the rest."""
        self._state[:] = source._state[rows]
        self._sensors[:] = source._sensors[rows]

    def _advance(self, targets: Array) -> None:
        """One control step towards ``targets`` rad, ``(N, n)`` or ``(N, substeps, n)``."""
        self._targets[:] = targets if targets.ndim == 3 else targets[:, None, :]
        self._rollout.rollout(
            self.models,
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
        self.diverged |= np.abs(self._state[:, self._qvel]).max(1) > DIVERGED_VELOCITY
        if self.diverged.any():
            self._state[self.diverged, 1:] = 0.0
            self._state[self.diverged, 4] = 1.0
            self._sensors[self.diverged] = 0.0
        self._derive()
        torque = (self.kp_factor[:, None] * self.robot.kp) * (
            self._targets[:, -1] - self.joint_position
        ) - (self.kd_factor[:, None] * self.robot.kd) * self.joint_velocity
        self.joint_torque = np.clip(torque, -self.torque_limit, self.torque_limit)

    def _derive(self) -> None:
        qpos, qvel = self._state[:, self._qpos], self._state[:, self._qvel]
        self.position, self.joint_position = qpos[:, :3], qpos[:, 7:]
        self.orientation = qpos[:, 3:7] / np.linalg.norm(qpos[:, 3:7], axis=1, keepdims=True)
        self.rotation = rotation_matrix(self.orientation)
        self.linear_velocity = np.einsum("nji,nj->ni", self.rotation, qvel[:, :3])
        self.angular_velocity, self.joint_velocity = qvel[:, 3:6], qvel[:, 6:]
        sensors = self._sensors[:, -1]
        feet = sensors[:, self._addresses.foot_position].reshape(self.count, -1, 3)
        ground = self._ground_height(
            np.concatenate([feet[:, :, 0], self.position[:, :1]], 1),
            np.concatenate([feet[:, :, 1], self.position[:, 1:2]], 1),
        )
        self.foot_height = feet[:, :, 2] - ground[:, :-1] - self.robot.foot_radius
        self.base_height = self.position[:, 2] - ground[:, -1]
        self.foot_force = sensors[:, self._addresses.foot_force]
        self.contact = self._sensors[:, :, self._addresses.foot_force].max(1) > 1.0
        self.trunk_force = self._sensors[:, :, self._addresses.trunk_force].max(1)
