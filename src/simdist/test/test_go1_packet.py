"""The Go1's packets: layout, CRC, and Unitree's own SDK as the judge of both."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdist import robots
from simdist.errors import ConfigError
from simdist.hardware.go1 import packet
from simdist.hardware.go1.counterpart import Go1Counterpart
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import load_world


def bitwise_crc(data: bytes) -> int:
    """The definition, one bit at a time."""
    value = 0xFFFFFFFF
    for word in np.frombuffer(data, "<u4", len(data) // 4).tolist():
        for bit in range(31, -1, -1):
            carry = (value >> 31) ^ ((word >> bit) & 1)
            value = ((value << 1) & 0xFFFFFFFF) ^ (0x04C11DB7 if carry else 0)
    return value


def command(position: np.ndarray, kp: float, kd: float) -> bytes:
    record = packet.new(packet.COMMAND)
    legs = record["motors"][:12]
    legs["mode"], legs["q"] = packet.SERVO, position
    legs["kp"], legs["kd"] = kp * 32, kd * 16
    return packet.seal(record)


@pytest.fixture(scope="module")
def simulation() -> RobotSimulation:
    return RobotSimulation(robots.get("go1"), load_world("flat"))


@pytest.fixture
def robot(simulation: RobotSimulation) -> Iterator[Go1Counterpart]:
    simulation.reset(0, lying=True)
    counterpart = Go1Counterpart(simulation, port=0)
    yield counterpart
    counterpart.close()


@pytest.fixture
def computer() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.bind(("127.0.0.1", 0))
        end.settimeout(1.0)
        yield end


def test_the_sizes_are_the_documented_ones() -> None:
    assert packet.COMMAND.itemsize == 614
    assert packet.STATE.itemsize == 807


@given(st.binary(max_size=64))
def test_the_crc_is_that_of_its_definition(data: bytes) -> None:
    assert packet.crc(data) == bitwise_crc(data)


@given(
    st.sampled_from([packet.COMMAND, packet.STATE]),
    st.randoms(use_true_random=False),
)
def test_a_packet_reads_back_and_a_flipped_bit_does_not(kind: np.dtype, random) -> None:
    record = packet.new(kind)
    record["remote"] = [random.randrange(256) for _ in range(40)]
    record["motors"]["q"] = [random.uniform(-4, 4) for _ in range(packet.MOTORS)]
    data = packet.seal(record)
    assert packet.read(data, kind).tobytes()[:-4] == record.tobytes()[:-4]
    # The CRC covers whole words only: of what is before it, the last bytes are left out.
    bit = random.randrange(len(data[:-4]) // 4 * 32)
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    with pytest.raises(packet.PacketError):
        packet.read(bytes(damaged), kind)


@pytest.mark.parametrize("length", [0, 1, 613, 615])
def test_another_length_is_no_packet(length: int) -> None:
    with pytest.raises(packet.PacketError, match="instead of 614"):
        packet.read(bytes(length), packet.COMMAND)


def test_the_counterpart_follows_commands_and_damps_when_they_stop(robot, computer) -> None:
    spec = robot.simulation.robot
    pose = spec.default_pose
    now = 1_000_000_000
    for share in np.clip(np.arange(800) / 500, 0.0, 1.0):
        target = (1 - share) * spec.lie_pose + share * pose
        computer.sendto(command(target, 50.0, 1.0), robot.address)
        robot.step(now)
        state = packet.read(computer.recv(4096), packet.STATE)
        now += robot.simulation.step_ns
    np.testing.assert_allclose(state["motors"]["q"][:12], pose, atol=0.2)
    assert robot.simulation.base_state().position[2] > 0.25
    assert state["foot_force"].sum() > 80
    for _ in range(24):
        robot.step(now)
        now += robot.simulation.step_ns
    assert not robot.damped
    for _ in range(500):
        robot.step(now)
        now += robot.simulation.step_ns
    assert robot.damped
    assert robot.simulation.base_state().position[2] < 0.2


def test_foreign_and_damaged_packets_move_nothing(robot, computer) -> None:
    good = command(robot.simulation.robot.default_pose, 50.0, 1.0)
    for bad in (b"hello", good[:-1], good[:-4] + bytes(4), b"\0\0" + good[2:]):
        computer.sendto(bad, robot.address)
    robot.step(1_000_000_000)
    assert robot.damped
    assert robot.accepted == 0
    assert robot.refused.total() == 4


def test_a_second_computer_is_not_heard_while_the_first_commands(robot, computer) -> None:
    data = command(robot.simulation.robot.default_pose, 50.0, 1.0)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
        computer.sendto(data, robot.address)
        second.sendto(data, robot.address)
        robot.step(1_000_000_000)
    assert robot.accepted == 1
    assert robot.refused == {"another computer is connected": 1}


def test_the_counterpart_does_not_listen_beyond_loopback(simulation) -> None:
    with pytest.raises(ConfigError, match="loopback only"):
        Go1Counterpart(simulation, "0.0.0.0", 0)


def test_unitrees_sdk_and_the_counterpart_understand_each_other(robot) -> None:
    sdk = pytest.importorskip("unitree_legged_sdk.robot_interface")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        local = probe.getsockname()[1]
    address, port = robot.address
    udp = sdk.UDP(packet.LOW_LEVEL, local, address, port)
    sent, received = sdk.LowCmd(), sdk.LowState()
    udp.InitCmdData(sent)
    pose = robot.simulation.robot.lie_pose
    for index in range(12):
        motor = sent.motorCmd[index]
        motor.mode, motor.q, motor.dq = packet.SERVO, float(pose[index]), 0.25 * index
        motor.Kp, motor.Kd, motor.tau = 20.0 + index, 1.0 + index / 4, index / 4 - 1.0
    udp.SetSend(sent)
    assert udp.Send() == packet.COMMAND.itemsize
    robot.step(1_000_000_000)
    assert robot.accepted == 1, robot.refused
    torque, kp, kd = packet.gains(robot._command["motors"][:12])
    np.testing.assert_array_equal(kp, 20.0 + np.arange(12))
    np.testing.assert_array_equal(kd, 1.0 + np.arange(12) / 4)
    np.testing.assert_array_equal(torque, np.arange(12) / 4 - 1.0)
    np.testing.assert_allclose(robot._command["motors"]["q"][:12], pose, atol=1e-6)
    for _ in range(100):
        if udp.Recv() == 0:
            break
        time.sleep(0.01)
    udp.GetRecv(received)
    truth = robot.state()
    joints = received.motorState[:12]
    np.testing.assert_array_equal([m.q for m in joints], truth["motors"]["q"][:12])
    np.testing.assert_array_equal([m.dq for m in joints], truth["motors"]["dq"][:12])
    np.testing.assert_array_equal([m.tauEst for m in joints], truth["motors"]["torque"][:12] / 256)
    assert [m.mode for m in joints] == [packet.SERVO] * 12
    assert [m.temperature for m in joints] == [30] * 12
    np.testing.assert_array_equal(received.imu.quaternion, truth["quaternion"])
    np.testing.assert_array_equal(received.imu.accelerometer, truth["accelerometer"])
    assert received.footForce == truth["foot_force"].tolist()
    assert received.tick == truth["tick"]
    assert received.bms.SOC == 100
    assert received.bms.cell_vol == [4000] * 10
