"""Turning sensor values into the proprioception vector."""

from __future__ import annotations

import numpy as np

from simdist.observation.spec import ObservationSpec
from simdist.robots import RobotSpec
from simdist.types import Array


def rotation_matrix(quaternion: Array) -> Array:
    """Rotation matrices ``(..., 3, 3)`` of unit quaternions ``(..., 4)`` in order w, x, y, z."""
    w, x, y, z = np.moveaxis(quaternion, -1, 0)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)


def projected_gravity(quaternion: Array) -> Array:
    """The direction of gravity ``(..., 3)`` in the base frame; ``(0, 0, -1)`` when level."""
    w, x, y, z = np.moveaxis(quaternion, -1, 0)
    return np.stack(
        [-2 * (x * z - w * y), -2 * (y * z + w * x), -(1 - 2 * (x * x + y * y))], axis=-1
    )


class ObservationBuilder:
    """Fills the proprioception vector of one robot, or of a batch of robots at once."""

    def __init__(self, spec: ObservationSpec, robot: RobotSpec) -> None:
        self.spec = spec
        self._default_pose = robot.default_pose

    def phase(self, seconds: Array | float) -> Array:
        """The gait clock ``(..., 2)``: cosine and sine of ``2 pi t / gait_period``."""
        angle = 2 * np.pi * np.asarray(seconds) / self.spec.gait_period
        return np.stack([np.cos(angle), np.sin(angle)], axis=-1)

    def proprioception(
        self,
        *,
        linear_velocity: Array,
        angular_velocity: Array,
        orientation: Array,
        joint_position: Array,
        joint_velocity: Array,
        seconds: Array | float,
    ) -> Array:
        """Proprioception ``(..., P)``: velocities in the base frame, ``orientation`` world from
        base, joints in robot order, ``seconds`` on the gait clock."""
        parts = {
            "base_lin_vel": linear_velocity,
            "base_ang_vel": angular_velocity,
            "projected_gravity": projected_gravity(orientation),
            "joint_pos": joint_position - self._default_pose,
            "joint_vel": joint_velocity,
            "gait_phase": self.phase(seconds),
        }
        return np.concatenate([parts[field.name] for field in self.spec.fields], axis=-1)
