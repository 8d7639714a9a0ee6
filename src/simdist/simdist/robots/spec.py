"""What the rest of the project needs to know about a robot."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simdist.errors import ConfigError
from simdist.types import Array


@dataclass(frozen=True)
class CameraMount:
    """A depth camera on the base: ``position`` (m) and downward ``pitch`` (rad), looking forward;
    ``fovy`` is its vertical field of view in degrees."""

    position: tuple[float, float, float]
    pitch: float
    fovy: float

    def quaternion(self) -> list[float]:
        """Orientation ``(w, x, y, z)`` in the base of a MuJoCo camera (looks along -z, x right)."""
        level = np.array([0.5, 0.5, -0.5, -0.5])  # looks along base x, image up is base z
        w, y = math.cos(self.pitch / 2), math.sin(self.pitch / 2)  # rotation about base y
        a, b, c, d = level
        return [w * a - y * c, w * b + y * d, w * c + y * a, w * d - y * b]


_PER_JOINT = (
    "default_pose",
    "kp",
    "kd",
    "stand_kp",
    "damping",
    "position_lower",
    "position_upper",
    "velocity_limit",
    "torque_limit",
    "stand_pose",
    "lie_pose",
)


@dataclass(frozen=True)
class RobotSpec:
    """Constants of one robot; every vector is in the order of ``joint_names``.

    An action ``a`` (the unit of the world model, of recordings and of histories) means the joint
    target ``default_pose + action_scale * a``.
    """

    name: str
    joint_names: tuple[str, ...]
    default_pose: Array  #: rad, the pose that action 0 asks for
    action_scale: float  #: rad per unit of action
    kp: Array  #: Nm/rad while acting
    kd: Array  #: Nm s/rad while acting
    stand_kp: Array  #: Nm/rad while standing up and standing
    damping: Array  #: Nm s/rad while damped
    position_lower: Array  #: rad, hard stops
    position_upper: Array  #: rad, hard stops
    velocity_limit: Array  #: rad/s
    torque_limit: Array  #: Nm
    stand_pose: Array  #: rad
    lie_pose: Array  #: rad, folded on the ground
    armature: float  #: kg m^2, reflected rotor inertia used in simulation
    joint_friction: float  #: Nm, dry friction used in simulation
    foot_names: tuple[str, ...]
    foot_radius: float  #: m
    control_dt: float  #: s, one action
    standing_height: float  #: m, base above the ground in the default pose
    base_body: str  #: name of the base in the MJCF
    mjcf: Path  #: model file
    camera: CameraMount | None = None  #: where a depth camera sits, if the robot has one

    def __post_init__(self) -> None:
        n = len(self.joint_names)
        for field in _PER_JOINT:
            value = getattr(self, field)
            if value.shape != (n,) or not np.isfinite(value).all():
                raise ConfigError(
                    f"{self.name}: {field} must be {n} finite numbers, one per joint, got {value!r}"
                )
            value.setflags(write=False)

    @property
    def joint_count(self) -> int:
        return len(self.joint_names)

    def target(self, action: Array) -> Array:
        """Joint targets ``(..., n)`` rad of actions ``(..., n)``."""
        return self.default_pose + self.action_scale * action

    def action(self, target: Array) -> Array:
        """Actions ``(..., n)`` of joint targets ``(..., n)`` rad; the inverse of :meth:`target`."""
        return (target - self.default_pose) / self.action_scale
