"""Many robots at once on ``mujoco.rollout``, for training and data collection."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np

from simdist.robots import RobotSpec
from simdist.simulation.robot_model import Solver, foot_geoms
from simdist.simulation.rollout_batch import RolloutBatch
from simdist.simulation.training_terrain import TrainingTerrain, place_terrain, training_model
from simdist.types import Array, Rows

FIRM = 0.8  #: friction of ordinary ground


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
    #: s, mean time until a foot comes upon other ground: half of it firm, half of it with a
    #: friction from the range; 0 for the same ground under all feet all the time
    patch_interval: float = 0.0


class BatchSimulation(RolloutBatch):
    """``count`` robots, each with its own model and ground, stepped by ``threads`` threads.

    What is known after a step: see :class:`~simdist.simulation.rollout_batch.RolloutBatch`.
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
        self.rng, self.ranges = rng, randomisation
        self.terrain = TrainingTerrain.create(count, rough_fraction, rng)
        base = training_model(robot, solver)
        models = [copy.copy(base) for _ in range(count)]
        for row in np.flatnonzero(self.terrain.is_rough):
            place_terrain(models[row], self.terrain, int(row))
        super().__init__(robot, models, threads=threads)
        self._feet = foot_geoms(base, robot)
        self._trunk = base.body(robot.base_body).id
        self._trunk_mass = float(base.body_mass[self._trunk])
        self._trunk_inertia = base.body_inertia[self._trunk].copy()
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
        model, robot = self.models[row], self.robot
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
        self._change_ground()
        self._advance(targets)

    def _push(self) -> None:
        probability = self.robot.control_dt / self.ranges.push_interval
        rows = np.flatnonzero(self.rng.random(self.count) < probability)
        start = self._qvel.start
        self._state[rows, start : start + 2] += self.rng.uniform(
            -self.ranges.push, self.ranges.push, (len(rows), 2)
        )

    def _change_ground(self) -> None:
        if not self.ranges.patch_interval:
            return
        probability = self.robot.control_dt / self.ranges.patch_interval
        shape = self.count, len(self._feet)
        slippery = self.rng.uniform(*self.ranges.friction, shape)
        friction = np.where(self.rng.random(shape) < 0.5, FIRM, slippery)
        for row, foot in np.argwhere(self.rng.random(shape) < probability):
            self.models[row].geom_friction[self._feet[foot], 0] = friction[row, foot]

    def _ground_height(self, x: Array, y: Array) -> Array:
        return self.terrain.height(np.arange(self.count), x, y)
