"""The driver of a real robot, in lockstep with a robot of numbers behind its link."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from executor_rig import DT, MS, QUICK, UPRIGHT

from simdist import robots
from simdist.diagnostics import Level
from simdist.errors import ConfigError
from simdist.hardware.driver import RobotDriver
from simdist.hardware.health import Health, HealthConfig
from simdist.hardware.link import Battery, LinkError, RobotState
from simdist.safety import CommandExecutor, ExecutorConfig
from simdist.types import ImuSample, JointCommand, JointState, Mode

ROBOT = robots.get("go2")
WELL = Battery(29.0, -2.0, 0.8)


class NumbersLink:
    """Joints follow their targets with a lag when they are stiff."""

    robot = ROBOT

    def __init__(self) -> None:
        self.q = ROBOT.lie_pose.copy()
        self.told: list[JointCommand] = []
        self.silent = self.dead = self.closed = False
        self.changes: dict = {}
        self._state: RobotState | None = None

    def poll(self, now_ns: int) -> RobotState | None:
        if self.dead:
            raise LinkError("the SDK process ended")
        if not self.silent:
            rates = np.array([0.0, 0.0, 1e-4 * np.sin(now_ns)])
            state = RobotState(
                sequence=now_ns // MS,
                received_ns=now_ns,
                joints=JointState(ROBOT.joint_names, self.q.copy(), np.zeros(12), np.zeros(12)),
                imu=ImuSample(np.array(UPRIGHT), rates, np.array([0.0, 0.0, 9.81])),
                foot_force=np.zeros(4),
                motor_temperature=np.full(12, 35.0),
                motor_errors=np.zeros(12, np.uint32),
                error=0,
                battery=WELL,
            )
            self._state = dataclasses.replace(state, **self.changes)
        return self._state

    def send(self, command: JointCommand, now_ns: int) -> None:
        self.told.append(command)
        stiff = command.kp > 0
        self.q = np.where(stiff, self.q + 0.2 * (command.position - self.q), self.q)

    def close(self) -> None:
        self.closed = True


class Ride:
    """A driver, its link, and a clock in the test's hand."""

    def __init__(self, **options: bool) -> None:
        self.link = NumbersLink()
        self.driver = RobotDriver(
            self.link, CommandExecutor(ROBOT, config=ExecutorConfig(**QUICK)), **options
        )
        self.now = 5 * MS
        self.run(0.1)

    @property
    def mode(self) -> Mode:
        return self.driver.executor.mode

    def run(self, seconds: float) -> None:
        end = self.now + round(seconds * 1e9)
        while self.now < end:
            self.driver.tick(self.now)
            self.now += 2 * MS

    def ask(self, mode: Mode) -> tuple[bool, str]:
        return self.driver.request_mode(mode, self.now)

    def stand(self) -> None:
        granted, message = self.ask(Mode.STAND_UP)
        assert granted, message
        self.run(2.0)
        assert self.mode == Mode.STAND


def damped(command: JointCommand) -> bool:
    return bool((command.kp == 0).all() and (command.kd == ROBOT.damping).all())


def test_a_robot_stands_up_and_lies_down_through_its_link():
    ride = Ride()
    assert all(map(damped, ride.link.told))
    ride.stand()
    np.testing.assert_allclose(ride.link.q, ROBOT.stand_pose, atol=0.05)
    ride.ask(Mode.LIE_DOWN)
    ride.run(3.0)
    assert ride.mode == Mode.DAMP
    np.testing.assert_allclose(ride.link.q, ROBOT.lie_pose, atol=0.1)
    assert damped(ride.link.told[-1])


def test_every_tick_commands_and_every_tenth_is_a_control_step():
    ride = Ride()
    ticks, steps = len(ride.link.told), ride.driver.ticks
    ride.run(2.0)
    assert len(ride.link.told) - ticks == 1000
    assert ride.driver.ticks - steps == 1000 * 2 * MS // DT


def test_a_silent_robot_is_held_and_then_damped():
    ride = Ride()
    ride.stand()
    ride.link.silent = True
    ride.run(0.09)
    assert ride.mode == Mode.STAND
    assert ride.driver.executor.status().holds > 0
    ride.run(0.02)
    assert ride.mode == Mode.DAMP
    assert damped(ride.link.told[-1])
    assert not ride.driver.executor.armed


def test_a_link_that_fails_latches_a_fault_at_that_tick():
    ride = Ride()
    ride.stand()
    ride.link.dead = True
    with pytest.raises(LinkError, match="ended"):
        ride.driver.tick(ride.now)
    assert ride.mode == Mode.FAULT


def test_a_dry_run_computes_but_the_wire_stays_damped():
    ride = Ride(dry_run=True)
    assert ride.ask(Mode.STAND_UP)[0]
    ride.run(0.4)
    assert ride.driver.wanted is not None
    assert (ride.driver.wanted.kp > 0).all()
    assert all(map(damped, ride.link.told))
    np.testing.assert_array_equal(ride.link.q, ROBOT.lie_pose)


HOT = np.array([35.0] * 11 + [95.0])
BAD_MOTOR = np.array([0, 2, *[0] * 10], np.uint32)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"battery": Battery(25.0, -2.0, 0.05)}, "battery at 5%"),
        ({"motor_temperature": HOT}, "RL_calf_joint at 95 degrees"),
        ({"motor_errors": BAD_MOTOR}, "FR_thigh_joint reports error 0x2"),
        ({"error": 3}, "error 0x3"),
    ],
)
def test_a_robot_that_is_not_well_does_not_stand(changes: dict, words: str):
    ride = Ride()
    ride.link.changes = changes
    ride.run(0.01)
    granted, message = ride.ask(Mode.STAND_UP)
    assert not granted
    assert words in message
    assert ride.driver.state is not None
    entry = ride.driver.health.entry(ride.driver.state)
    assert entry.level == Level.ERROR
    assert words in entry.message
    ride.link.changes = {}
    ride.run(0.01)
    ride.stand()
    ride.link.changes = changes
    ride.run(3.0)
    assert ride.mode == Mode.DAMP
    np.testing.assert_allclose(ride.link.q, ROBOT.lie_pose, atol=0.1)


def test_a_warning_comes_before_the_limit_and_unknown_values_are_none():
    ride = Ride()
    ride.link.changes = {"battery": Battery(26.0, -2.0, 0.15)}
    ride.run(0.01)
    assert ride.driver.state is not None
    assert ride.driver.health.entry(ride.driver.state).level == Level.WARN
    nothing = dataclasses.replace(
        ride.driver.state,
        battery=Battery(np.nan, np.nan, np.nan),
        motor_temperature=np.full(12, np.nan),
    )
    assert ride.driver.health.entry(nothing).level == Level.OK


def test_limits_cannot_be_switched_off():
    for changes in ({"motor_hot": np.inf}, {"battery_empty": 0.0}, {"motor_warm": 90.0}):
        with pytest.raises(ConfigError):
            Health(HealthConfig(**changes))


def test_a_robot_that_never_reported_is_told_nothing():
    link = NumbersLink()
    link.silent = True
    driver = RobotDriver(link, CommandExecutor(ROBOT))
    assert driver.tick(0) is None
    assert link.told == []
    assert not driver.request_mode(Mode.STAND_UP, 0)[0]
