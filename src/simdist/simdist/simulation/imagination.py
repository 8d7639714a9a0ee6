"""What would happen: one robot's state continued many times in a MuJoCo model of its world."""

from __future__ import annotations

import numpy as np

from simdist.robots import RobotSpec
from simdist.simulation.batch import Randomisation
from simdist.simulation.gaps import apply_gaps
from simdist.simulation.robot_model import Solver
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.rollout_batch import RolloutBatch
from simdist.simulation.scene import Ground, compose
from simdist.simulation.world import WorldSpec
from simdist.types import Array


class Imagination(RolloutBatch):
    """``count`` continuations of one robot's state in ``world``, which need not be the real one.

    Friction and added mass are reported as the critic has met them, limited to its training range.
    """

    def __init__(self, robot: RobotSpec, world: WorldSpec, solver: Solver, count: int) -> None:
        model = compose(world, robot, solver, visual=False)
        strength = apply_gaps(model, robot, world)
        super().__init__(robot, [model] * count, threads=1)
        self._ground, self._timestep = Ground(world), solver.timestep
        self._delay = round(world.gaps.action_delay / solver.timestep)  # physics steps
        self._under_way = np.empty((count, self._delay, robot.joint_count))
        self.torque_limit = robot.torque_limit * strength
        ranges = Randomisation()
        self.trunk_mass_added[:] = np.clip(world.gaps.trunk_mass, *ranges.trunk_mass)
        self._edges = world.profile()[0][1::2]
        self._friction = np.clip([strip.friction for strip in world.course], *ranges.friction)
        self._slope = np.abs(np.deg2rad([strip.slope for strip in world.course]))

    def begin(self, simulation: RobotSimulation) -> None:
        """Put every continuation into the present state of ``simulation``."""
        self._state[:] = 0.0
        self._state[:, self._qpos] = simulation.data.qpos
        self._state[:, self._qvel] = simulation.data.qvel
        self._sensors[:] = simulation.data.sensordata
        self._derive()
        waiting = simulation.targets_under_way()
        if len(waiting) and self._delay:
            when = np.arange(self._delay) * self._timestep / (simulation.step_ns * 1e-9)
            self._under_way[:] = waiting[np.minimum(when.astype(int), len(waiting) - 1)]
        else:
            self._under_way[:] = simulation.data.ctrl

    def step(self, targets: Array) -> None:
        """One control step with newly commanded joint ``targets (N, n)`` rad, after the delay."""
        if not self._delay:
            self._advance(targets)
            return
        queue = np.concatenate(
            [self._under_way, np.repeat(targets[:, None], self.substeps, axis=1)], axis=1
        )
        self._under_way = queue[:, self.substeps :]
        self._advance(queue[:, : self.substeps])

    def _ground_height(self, x: Array, y: Array) -> Array:
        return self._ground.height(x, y)

    def _derive(self) -> None:
        super()._derive()
        strip = np.searchsorted(self._edges[:-1], self.position[:, 0], side="right")
        self.friction, self.slope = self._friction[strip], self._slope[strip]
