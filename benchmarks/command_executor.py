"""Time of one call of the command executor while it plays chunks (aim: 60 µs, called at 500 Hz).

Run: python benchmarks/command_executor.py [calls]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from simdist import robots
from simdist.safety import CommandExecutor
from simdist.types import ActionChunk, ImuSample, JointState, Mode

_CALL_NS = 2_000_000


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    robot = robots.get("go1")
    executor = CommandExecutor(robot)
    imu = ImuSample(np.array([1.0, 0.0, 0.0, 0.0]), np.zeros(3), np.array([0.0, 0.0, 9.81]))
    q, dq, effort = robot.stand_pose.copy(), np.zeros(12), np.zeros(12)
    spent = []
    for i in range(calls):
        now = i * _CALL_NS
        if i == 1:
            executor.request_mode(Mode.STAND_UP, now)
            executor.request_mode(Mode.ACTIVE, now)
        if i % 20 == 0:
            values = np.tile(robot.default_pose + 0.1 * np.sin(0.3 * i), (15, 1))
            executor.receive(
                ActionChunk(
                    now, now, i + 1, robot.joint_names, "joint_position", 20_000_000, values, 1, ""
                ),
                now,
            )
        state = JointState(robot.joint_names, q, dq, effort)
        before = time.perf_counter()
        command = executor.step(now, state, imu, now)
        spent.append(time.perf_counter() - before)
        q = q + 0.15 * (command.position - q) * (command.kp > 0)
        executor.take_applied()
    p50, p99 = np.percentile(np.array(spent) * 1e6, [50, 99])
    print(f"{calls} calls, mode {executor.mode.name}: p50 {p50:.1f} µs, p99 {p99:.1f} µs")


if __name__ == "__main__":
    main()
