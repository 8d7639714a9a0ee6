"""A simulated Go1 behind the robot's UDP protocol, on loopback."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections import Counter

import numpy as np

from simdist.errors import ConfigError
from simdist.hardware.go1 import packet
from simdist.simulation.realtime import Pacer
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.types import JointCommand

_NS = 1_000_000_000


class Go1Counterpart:
    """Physics driven by LowCmd packets; answers every accepted one's sender with LowState.

    Like the robot it serves one computer at a time. It damps the joints before the first command
    and ``damp_after`` s after the last. With ``sport`` the built-in controller has not been let go
    of: the motors stay in servo mode, hold still, and heed no command.
    """

    def __init__(
        self,
        simulation: RobotSimulation,
        address: str = "127.0.0.1",
        port: int = packet.ROBOT_PORT,
        *,
        damp_after: float = 0.05,
        sport: bool = False,
    ) -> None:
        if not ipaddress.ip_address(address).is_loopback:
            raise ConfigError(
                f"the simulated Go1 listens on loopback only, not on {address}; use 127.0.0.1"
            )
        self.simulation = simulation
        self.sport = sport
        self.accepted = 0
        self.refused: Counter[str] = Counter()
        self._damp_after_ns = round(damp_after * _NS)
        self._peer: tuple[str, int] | None = None
        self._heard_ns = 0
        self._command: np.ndarray | None = None
        self._rest = simulation.joint_state().position.copy()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.bind((address, port))
        except OSError as error:
            self._socket.close()
            raise ConfigError(
                f"the simulated Go1 cannot listen on {address}:{port}: {error.strerror}; "
                "another one may be running"
            ) from error
        self._socket.setblocking(False)

    @property
    def address(self) -> tuple[str, int]:
        return self._socket.getsockname()

    @property
    def damped(self) -> bool:
        """Whether no command is fresh enough to be followed."""
        return self._command is None

    def step(self, now_ns: int) -> None:
        """Take what has come, advance one physics step, tell the state; ``now_ns`` is steady."""
        self._receive(now_ns)
        if now_ns - self._heard_ns > self._damp_after_ns:
            self._command = None
            self._peer = None
        self.simulation.step(self._joint_command())
        if self._peer is not None:
            try:
                self._socket.sendto(packet.seal(self.state()), self._peer)
            except OSError as error:  # a full queue, or a computer that has gone
                self.refused[f"not sent: {error.strerror}"] += 1

    def run(self, seconds: float) -> None:
        """Step in real time; ends on KeyboardInterrupt or after ``seconds``."""
        pacer, step = Pacer(), 0
        begin = time.monotonic()
        while (now := time.monotonic()) - begin < seconds:
            wait = pacer.remaining(step * self.simulation.step_ns / _NS, now)
            if wait > 0:
                time.sleep(wait)
            self.step(time.monotonic_ns())
            step += 1

    def close(self) -> None:
        self._socket.close()

    def _receive(self, now_ns: int) -> None:
        while True:
            try:
                data, sender = self._socket.recvfrom(4096)
            except BlockingIOError:
                return
            if self._peer not in (None, sender):
                self.refused["another computer is connected"] += 1
                continue
            try:
                command = packet.read(data, packet.COMMAND)
            except packet.PacketError as error:
                self.refused[str(error)] += 1
                continue
            legs = command["motors"][: self.simulation.robot.joint_count]
            if not (np.isfinite(legs["q"]).all() and np.isfinite(legs["dq"]).all()):
                self.refused["not finite"] += 1
                continue
            self.accepted += 1
            self._peer, self._heard_ns, self._command = sender, now_ns, command

    def _joint_command(self) -> JointCommand:
        robot = self.simulation.robot
        zero = np.zeros(robot.joint_count)
        if self.sport:
            return JointCommand(self._rest, zero, robot.stand_kp, robot.kd, zero)
        if self._command is None:
            return JointCommand(self._rest, zero, zero, robot.damping, zero)
        motors = self._command["motors"][: robot.joint_count]
        on = motors["mode"] == packet.SERVO
        effort, kp, kd = (np.where(on, gain, 0.0) for gain in packet.gains(motors))
        # Positions and velocities so large mean "do not control": that gain does not count.
        position, velocity = motors["q"].astype(float), motors["dq"].astype(float)
        kp = np.where(np.abs(position) < 1e3, kp, 0.0)
        kd = np.where(np.abs(velocity) < 1e3, kd, 0.0)
        return JointCommand(
            np.where(kp > 0, position, 0.0), np.where(kd > 0, velocity, 0.0), kp, kd, effort
        )

    def state(self) -> np.ndarray:
        """What the robot reports now, a ``packet.STATE`` record without CRC."""
        simulation = self.simulation
        joints, imu = simulation.joint_state(), simulation.imu()
        record = packet.new(packet.STATE)
        record["quaternion"] = imu.orientation
        record["gyroscope"] = imu.angular_velocity
        record["accelerometer"] = imu.linear_acceleration
        legs = record["motors"][: simulation.robot.joint_count]
        if self.sport:
            legs["mode"] = packet.SERVO
        elif self._command is not None:
            legs["mode"] = self._command["motors"]["mode"][: len(legs)]
        legs["q"] = legs["q_raw"] = joints.position
        legs["dq"] = legs["dq_raw"] = joints.velocity
        packet.set_torque(legs, joints.effort)
        legs["temperature"] = 30
        record["charge"] = 100
        record["cells"] = 4000 // packet.CELL_VOLTAGE_SCALE
        record["foot_force"] = np.clip(simulation.foot_forces(), 0, 32767)
        record["tick"] = simulation.time_ns // 1_000_000
        return record
