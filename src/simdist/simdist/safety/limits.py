"""The limiter: what may go to the motors, whatever was asked for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simdist.ranges import Checked, bounded
from simdist.robots import RobotSpec
from simdist.types import Array, JointCommand

#: Aim this little below the torque limit, so that rounding cannot end above it.
_BELOW = 1.0 - 1e-9


@dataclass(frozen=True)
class LimitConfig(Checked):
    """Bounds on commands and posture. Each has a range: none of them can be switched off."""

    fall_roll: float = bounded(0.9, 0.1, 1.2, "rad; more roll than this damps the joints")
    fall_pitch: float = bounded(1.3, 0.1, 1.45, "rad; more pitch than this damps the joints")
    velocity_fraction: float = bounded(
        1.0, 0.05, 1.0, "of the robot's velocity limit; bounds the change of targets per step"
    )
    torque_fraction: float = bounded(1.0, 0.05, 1.0, "of the robot's torque limit")
    implausible_position: float = bounded(
        0.5, 0.05, 1.0, "rad; a joint measured further beyond its hard stops is a broken sensor"
    )


class JointLimiter:
    """Clamps joint targets and commands of one robot; see :meth:`target` and :meth:`command`."""

    def __init__(self, robot: RobotSpec, config: LimitConfig) -> None:
        self._lower = robot.position_lower
        self._upper = robot.position_upper
        self._torque = robot.torque_limit * config.torque_fraction
        #: rad, the largest change of a target between two control steps and of a command between
        #: two calls
        self.step = robot.velocity_limit * robot.control_dt * config.velocity_fraction
        self._zeros = np.zeros(robot.joint_count)
        self._zeros.setflags(write=False)

    def target(self, wanted: Array, previous: Array) -> Array:
        """The target ``(n,)`` rad of a control step: within the joint range and at most
        :attr:`step` away from ``previous``, which must itself be within the range."""
        inside = np.minimum(np.maximum(wanted, self._lower), self._upper)
        return np.minimum(np.maximum(inside, previous - self.step), previous + self.step)

    def command(
        self, target: Array, previous: Array, kp: Array, kd: Array, q: Array, dq: Array
    ) -> JointCommand:
        """A motor command with ``|kp (position - q) - kd dq|`` within the torque limit.

        The position target moves first, as the motor's own saturation would have it, within the
        joint range and :attr:`step` of the ``previous`` command. Where that is not enough (or
        ``kp`` is 0) the gains of that joint shrink.
        """
        # A joint without stiffness has no position to solve for: 1 stands in, gains do the work.
        stiffness = np.where(kp > 1e-3, kp, 1.0)
        centre = q + (kd * dq) / stiffness
        reach = self._torque * _BELOW / stiffness
        position = np.minimum(np.maximum(target, centre - reach), centre + reach)
        position = self.target(position, previous)
        torque = np.abs(kp * (position - q) - kd * dq)
        if (torque > self._torque).any():
            scale = np.where(torque > self._torque, self._torque * _BELOW / torque.clip(1e-9), 1.0)
            kp, kd = kp * scale, kd * scale
        return JointCommand(position, self._zeros, kp, kd, self._zeros)
