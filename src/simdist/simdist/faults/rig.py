"""A robot made of numbers that drives a command executor at 500 Hz, with the clock in its hand."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np

from simdist import robots
from simdist.safety import CommandExecutor, ExecutorConfig, LimitConfig
from simdist.types import ActionChunk, AppliedStep, ImuSample, JointCommand, JointState, Mode

MS = 1_000_000
DT = 20 * MS
UPRIGHT = (1.0, 0.0, 0.0, 0.0)
#: Standing up quickly keeps the tests short; every other time is the default.
QUICK: dict[str, Any] = {"stand_up_time": 0.3, "fold_time": 0.2, "max_ramp_speed": 10.0}


def tilted(roll: float = 0.0, pitch: float = 0.0) -> tuple[float, float, float, float]:
    """Quaternion of roll alone or pitch alone."""
    angle, axis = (roll, 1) if roll else (pitch, 2)
    quaternion = [np.cos(angle / 2), 0.0, 0.0, 0.0]
    quaternion[axis] = np.sin(angle / 2)
    return tuple(quaternion)


class Rig:
    """Joints follow their targets with a lag; a planner answers every second control step.

    It begins with straight legs, damped. ``overshoot`` is the worst that any command was beyond a
    limit: 0, unless the executor breaks its first promise.
    """

    def __init__(self, config: ExecutorConfig | None = None, contract: str | None = None) -> None:
        self.robot = robots.get("go1")
        self.executor = CommandExecutor(
            self.robot, LimitConfig(), config or ExecutorConfig(**QUICK), contract=contract
        )
        self.now = 7 * MS
        self.q = self.robot.stand_pose.copy()
        self.dq = np.zeros(12)
        self.orientation = UPRIGHT
        self.names = self.robot.joint_names
        self.planner = True
        self.sensors = True
        self.state_stamp = self.now
        self.sequence = 0
        self.commands: list[tuple[int, JointCommand]] = []
        self.applied: list[AppliedStep] = []
        self.sent = self.state()  #: what the executor was told last
        self.overshoot = 0.0
        self._calls = 0

    def chunk(self, **changes: object) -> ActionChunk:
        """A good chunk for this moment, unless changed."""
        self.sequence += 1
        fields: dict = {
            "stamp_ns": self.now,
            "observation_stamp_ns": self.now,
            "sequence": self.sequence,
            "joint_names": self.robot.joint_names,
            "kind": "joint_position",
            "dt_ns": DT,
            "values": np.tile(self.robot.default_pose + 0.1, (15, 1)),
            "model_version": 1,
            "contract": "c",
        }
        return ActionChunk(**{**fields, **changes})  # type: ignore[arg-type]

    def state(self) -> JointState:
        order = [self.robot.joint_names.index(name) for name in self.names]
        return JointState(self.names, self.q[order], self.dq[order], np.zeros(12))

    def imu(self) -> ImuSample:
        # Nothing that is measured stands perfectly still.
        rates = np.array([0.0, 0.0, 1e-4 * np.sin(self.state_stamp)])
        return ImuSample(np.array(self.orientation), rates, np.array([0.0, 0.0, 9.81]))

    def call(self, advance: int = 2 * MS) -> JointCommand:
        """One call of the executor, then let time pass."""
        if self.planner and self._calls % 20 == 0:
            self.executor.receive(self.chunk(), self.now)
        if self.sensors:
            self.state_stamp = self.now
        self.sent = self.state()
        command = self.executor.step(self.now, self.sent, self.imu(), self.state_stamp)
        self._check(command)
        self.commands.append((self.now, command))
        self.applied += self.executor.take_applied()
        if self.sensors:
            self.q = self.q + 0.15 * np.where(command.kp > 0, command.position - self.q, 0.0)
        self._calls += 1
        self.now += advance
        return command

    def run(self, seconds: float) -> JointCommand:
        command = self.call()
        for _ in range(round(seconds * 500) - 1):
            command = self.call()
        return command

    def bring_to(self, mode: Mode) -> None:
        """Reach a mode the way an operator would."""
        executor = self.executor
        self.run(0.01)
        if mode == Mode.FAULT:
            executor.request_mode(Mode.FAULT, self.now)
        elif mode != Mode.DAMP:
            granted, message = executor.request_mode(Mode.STAND_UP, self.now)
            if not granted:
                raise RuntimeError(message)
            if mode == Mode.STAND_UP:
                self.run(0.1)
            else:
                while executor.mode == Mode.STAND_UP:
                    self.call()
                self.run(0.05)
                if mode == Mode.ACTIVE:
                    executor.request_mode(Mode.ACTIVE, self.now)
                    self.run(0.25)
                elif mode == Mode.LIE_DOWN:
                    executor.request_mode(Mode.LIE_DOWN, self.now)
        self.call()
        if executor.mode != mode:
            raise RuntimeError(f"{executor.mode.name} instead of {mode.name}: {executor.reason}")

    def _check(self, command: JointCommand) -> None:
        """Note by how much a command leaves the range of the joints (rad), or the change from the
        command before what a control step allows (rad); infinity if a number is not finite."""
        robot = self.robot
        numbers = (command.position, command.velocity, command.kp, command.kd, command.effort)
        if not all(np.isfinite(values).all() for values in numbers):
            self.overshoot = np.inf
            return
        beyond = [command.position - robot.position_upper, robot.position_lower - command.position]
        if self.commands:
            change = np.abs(command.position - self.commands[-1][1].position)
            beyond.append(change - robot.velocity_limit * robot.control_dt)
        beyond += [-command.kp, -command.kd]
        worst = float(np.max(beyond))
        if worst > 1e-9:
            self.overshoot = max(self.overshoot, worst)


@functools.cache
def _brought_to(mode: Mode) -> Rig:
    rig = Rig()
    rig.bring_to(mode)
    return rig


def rig_in(mode: Mode) -> Rig:
    """A robot of one's own in this mode."""
    return copy.deepcopy(_brought_to(mode))


def is_damped(command: JointCommand) -> bool:
    return bool((command.kp == 0).all() and (command.kd > 0).all())
