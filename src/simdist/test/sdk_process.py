"""A robot of numbers behind an SDK process, for tests: run with a behaviour and a descriptor.

Its first joint is where the last command wanted it, and 9 while it damps.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

from simdist import robots
from simdist.hardware.child import SdkSide
from simdist.hardware.link import Battery, RobotState
from simdist.types import ImuSample, JointState

DAMPED = 9.0


def state(sequence: int, value: float) -> RobotState:
    """A state whose every joint number is ``value``, so that a torn one would show."""
    robot = robots.get("go1")
    joints = np.full(robot.joint_count, value)
    return RobotState(
        sequence=sequence,
        received_ns=time.monotonic_ns(),
        joints=JointState(robot.joint_names, joints, joints, joints),
        imu=ImuSample(np.array([1.0, 0, 0, 0]), np.zeros(3), np.array([0, 0, 9.81])),
        foot_force=np.full(4, value),
        motor_temperature=joints,
        motor_errors=np.zeros(robot.joint_count, np.uint32),
        error=0,
        battery=Battery(29.0, -1.5, 0.8),
    )


def main(behaviour: str, log: str, descriptor: int) -> int:
    side = SdkSide(robots.get("go1"), descriptor)
    if behaviour == "refuse":
        side.refuse("interface 'eth9' does not exist; available: lo")
        return 1
    if behaviour == "mute":
        time.sleep(60)
    side.ready()
    side.note("ready")
    sequence = 0
    while not side.over:
        now_ns = time.monotonic_ns()
        command = side.command(now_ns)
        sequence += 1
        report = state(sequence, DAMPED if command is None else float(command.position[0]))
        side.report(None if behaviour == "silent_robot" else report, now_ns)
        Path(log).write_text("damped" if command is None else "stiff")
        time.sleep(0.002)
    Path(log).write_text("ended damped")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
