"""Where the feet are, given the joints alone."""

from __future__ import annotations

import mujoco
import numpy as np

from simdist.robots import RobotSpec
from simdist.simulation.robot_model import build_robot
from simdist.types import Array


class FootKinematics:
    """Forward kinematics of a robot's feet, by MuJoCo on its MJCF."""

    def __init__(self, robot: RobotSpec) -> None:
        self._model = model = build_robot(robot).compile()
        self._data = mujoco.MjData(model)
        self._joints = np.array([model.joint(name).qposadr[0] for name in robot.joint_names])
        self._feet = np.array([model.site(name).id for name in robot.foot_names])
        # With the base at the origin of the world, world coordinates are those of the base.
        self._data.qpos[:7] = 0, 0, 0, 1, 0, 0, 0

    def positions(self, joints: Array) -> Array:
        """Foot centres ``(N, feet, 3)`` m in the base frame for ``joints (N, n)`` rad."""
        model, data = self._model, self._data
        feet = np.empty((len(joints), len(self._feet), 3))
        for row, joint in enumerate(joints):
            data.qpos[self._joints] = joint
            mujoco.mj_kinematics(model, data)
            feet[row] = data.site_xpos[self._feet]
        return feet
