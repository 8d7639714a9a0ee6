"""What every real robot delivers and takes, whatever its SDK calls it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from simdist.errors import SimdistError
from simdist.robots import RobotSpec
from simdist.types import Array, ImuSample, JointCommand, JointState


class LinkError(SimdistError):
    """There is no robot, or no way to it: refused, silent, stalled, or gone."""


@dataclass(frozen=True)
class Battery:
    """Voltage in V, current in A (negative while discharging), charge from 0 to 1. What a robot
    does not report is NaN."""

    voltage: float
    current: float
    charge: float


@dataclass(frozen=True)
class RobotState:
    """One report of a robot; vectors are in the order of its RobotSpec's joints and feet.

    ``received_ns`` is when this report reached this computer, on the steady clock
    (``time.monotonic_ns``): control and watchdogs go by it. ``sequence`` is the robot's own
    counter.
    """

    sequence: int
    received_ns: int
    joints: JointState
    imu: ImuSample
    foot_force: Array  #: ``(feet,)``, in the unit of the robot's sensors
    motor_temperature: Array  #: ``(n,)`` degrees Celsius
    motor_errors: NDArray[np.uint32]  #: ``(n,)`` error words, 0: none
    error: int  #: the robot's own error word, 0: none
    battery: Battery

    def age_ns(self, now_ns: int) -> int:
        """How long ago, on the steady clock, this report came."""
        return now_ns - self.received_ns


class RobotLink(Protocol):
    """A way to a robot. One thread calls everything; nothing blocks once the link is open."""

    @property
    def robot(self) -> RobotSpec: ...

    def poll(self, now_ns: int) -> RobotState | None:
        """The newest report, the same again when nothing newer came, None before the first.
        Raises LinkError as soon as the link is known to be dead or stalled."""
        ...

    def send(self, command: JointCommand, now_ns: int) -> None:
        """Tell the motors; the newest command wins. Raises LinkError when the link is dead."""
        ...

    def close(self) -> None:
        """Damp the joints and let go of the robot. May be called twice."""
        ...
