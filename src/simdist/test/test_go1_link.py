"""The Go1's link with Unitree's SDK in its own process, against the simulated robot."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from simdist import robots
from simdist.hardware.child import ChildLink
from simdist.hardware.go1.address import robot_address
from simdist.hardware.go1.counterpart import Go1Counterpart
from simdist.hardware.go1.link import open_link
from simdist.hardware.link import LinkError, RobotState
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import load_world
from simdist.types import JointCommand

pytest.importorskip("unitree_legged_sdk")
ROBOT = robots.get("go1")
ZERO = np.zeros(12)


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Running:
    """A counterpart that steps in a thread."""

    def __init__(self, *, sport: bool = False) -> None:
        simulation = RobotSimulation(ROBOT, load_world("flat"))
        simulation.reset(0, lying=True)
        self.robot = Go1Counterpart(simulation, port=0, sport=sport)
        self._over = False
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over:
            self.robot.run(0.05)

    def link(self) -> ChildLink:
        return open_link("lo", port=self.robot.address[1], local_port=free_port())

    def close(self) -> None:
        self._over = True
        self._thread.join()
        self.robot.close()


@pytest.fixture
def running() -> Iterator[Running]:
    robot = Running()
    yield robot
    robot.close()


def drive(link: ChildLink, seconds: float, target: Callable[[float], np.ndarray]) -> RobotState:
    begin = time.monotonic()
    state = None
    while (share := (time.monotonic() - begin) / seconds) < 1.0:
        now = time.monotonic_ns()
        state = link.poll(now) or state
        link.send(JointCommand(target(share), ZERO, ROBOT.stand_kp, ROBOT.kd * 2, ZERO), now)
        time.sleep(0.004)
    assert state is not None
    return state


def stand_up(share: float) -> np.ndarray:
    part = min(1.0, share * 2)
    return (1 - part) * ROBOT.lie_pose + part * ROBOT.stand_pose


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_it_stands_up_and_damps_when_the_link_closes(running: Running) -> None:
    link = running.link()
    try:
        before, begin = running.robot.accepted, running.robot.simulation.time_ns
        state = drive(link, 3.0, stand_up)
        packets = running.robot.accepted - before
        steps = (running.robot.simulation.time_ns - begin) / running.robot.simulation.step_ns
        np.testing.assert_allclose(state.joints.position, ROBOT.stand_pose, atol=0.2)
        assert running.robot.simulation.base_state().position[2] > 0.25
        assert state.foot_force.sum() > 80
        assert state.battery.charge == 1.0
        assert state.motor_temperature.tolist() == [30.0] * 12
        # The robot runs at 500 Hz: four commands in ten steps are 200 Hz.
        assert packets > 0.4 * steps
    finally:
        link.close()
    wait_until(lambda: running.robot.damped)


def test_a_killed_sdk_process_is_reported_and_the_robot_damps(running: Running) -> None:
    link = running.link()
    try:
        drive(link, 0.2, lambda _: ROBOT.lie_pose)
        os.kill(link.pid, signal.SIGKILL)
        os.waitid(os.P_PID, link.pid, os.WEXITED | os.WNOWAIT)
        with pytest.raises(LinkError, match="SIGKILL"):
            link.poll(time.monotonic_ns())
        wait_until(lambda: running.robot.damped)
    finally:
        link.close()


def test_a_stopped_sdk_process_is_reported_and_the_robot_damps(running: Running) -> None:
    link = running.link()
    try:
        drive(link, 0.2, lambda _: ROBOT.lie_pose)
        os.kill(link.pid, signal.SIGSTOP)
        with pytest.raises(LinkError, match="silent"):
            drive(link, 5.0, lambda _: ROBOT.lie_pose)
        wait_until(lambda: running.robot.damped)
    finally:
        os.kill(link.pid, signal.SIGKILL)
        link.close()


def test_a_robot_that_does_not_answer_is_refused_by_address_and_port() -> None:
    port = free_port()
    with pytest.raises(LinkError, match=rf"no Go1 answers at 127\.0\.0\.1:{port} within 2 s"):
        open_link("lo", port=port, local_port=free_port())


def test_the_built_in_controller_is_refused_with_the_way_out() -> None:
    robot = Running(sport=True)
    try:
        with pytest.raises(LinkError, match=r"built-in controller.*L2\+B"):
            robot.link()
    finally:
        robot.close()


def test_a_joint_beyond_its_limit_ends_the_link(running: Running) -> None:
    link = running.link()
    try:
        drive(link, 0.2, lambda _: ROBOT.lie_pose)
        running.robot.simulation.data.qpos[7] = 1.4
        with pytest.raises(LinkError, match="position protection"):
            drive(link, 5.0, lambda _: ROBOT.lie_pose)
    finally:
        link.close()


def test_a_missing_interface_is_named() -> None:
    with pytest.raises(LinkError, match=r"'nosuch0'; this computer has .*lo"):
        robot_address("nosuch0")
