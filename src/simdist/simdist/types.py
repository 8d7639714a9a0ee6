"""Plain data shared by all rooms: what a robot senses and what it is told to do.

Vectors are numpy arrays in the joint order of the robot's :class:`~simdist.robots.RobotSpec`;
quaternions are ``(w, x, y, z)`` and rotate base coordinates into world coordinates; the base
frame is REP-103 (x forward, y left, z up). Times are integer nanoseconds of one clock chosen by
the caller: the steady clock on a robot, simulation time in simulation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.intp]  #: indices
Flags = NDArray[np.bool_]


class Mode(IntEnum):
    """Operating modes of the robot side; the numbers are those of the RobotMode message."""

    DAMP = 0
    STAND_UP = 1
    STAND = 2
    ACTIVE = 3
    LIE_DOWN = 4
    FAULT = 5


@dataclass(frozen=True)
class JointState:
    """Measured joints: position ``(n,)`` rad, velocity ``(n,)`` rad/s, effort ``(n,)`` Nm."""

    names: tuple[str, ...]
    position: Array
    velocity: Array
    effort: Array


@dataclass(frozen=True)
class ImuSample:
    """Orientation ``(4,)`` world from base, angular velocity ``(3,)`` rad/s and linear
    acceleration ``(3,)`` m/s^2 (gravity included) in the base frame."""

    orientation: Array
    angular_velocity: Array
    linear_acceleration: Array


@dataclass(frozen=True)
class BaseState:
    """Pose and velocity of the base: position ``(3,)`` m in the world, orientation ``(4,)``,
    linear velocity ``(3,)`` m/s and angular velocity ``(3,)`` rad/s in the base frame."""

    position: Array
    orientation: Array
    linear_velocity: Array
    angular_velocity: Array


@dataclass(frozen=True)
class JointCommand:
    """What the motors are told: torque = kp (position - q) + kd (velocity - dq) + effort."""

    position: Array
    velocity: Array
    kp: Array
    kd: Array
    effort: Array


@dataclass(frozen=True)
class ActionChunk:
    """A plan as it travels to the robot: row ``i`` of ``values`` is played from
    ``stamp_ns + i * dt_ns`` on. For ``joint_position`` a row holds absolute targets in rad."""

    stamp_ns: int
    observation_stamp_ns: int
    sequence: int
    joint_names: tuple[str, ...]
    kind: str
    dt_ns: int
    values: Array
    model_version: int
    contract: str


@dataclass(frozen=True)
class AppliedStep:
    """What one control step really applied: ``action`` is ``(position_target - default_pose) /
    action_scale``, so that histories and recordings hold the truth and not the wish."""

    stamp_ns: int
    sequence: int
    action: Array
    position_target: Array
    mode: Mode
    chunk_sequence: int
    chunk_row: int
