"""The process that speaks to a Go1 with Unitree's SDK, started by ``link.open_link``.

It sends at 500 Hz whatever happens above it: the newest command, or damping when there is none.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from simdist import robots
from simdist.hardware.child import SdkSide
from simdist.hardware.go1 import packet
from simdist.hardware.link import Battery, LinkError, RobotState
from simdist.robots import RobotSpec
from simdist.types import ImuSample, JointCommand, JointState

_NS = 1_000_000_000
_PERIOD_NS = 2_000_000
_SILENT_AFTER = 2.0  #: s without any answer until the robot counts as absent
_IDLE_TIME = 0.3  #: s that motors get to heed the command to be idle
_FAREWELL = 0.2  #: s of damping at the end
_POWER_LEVEL = 10  #: of the SDK's power protection: 1 (10 % of the rated power) to 10
#: rad inside the SDK's joint limits at which its position protection stops; negative: beyond them.
#: Folded legs rest at the calf's stop, 0.1 rad beyond, so that no robot could start with more.
_POSITION_MARGIN = -0.2
_SILENT = (
    "no Go1 answers at {address}:{port} within {seconds:g} s; is it switched on, has it started up "
    "(one minute), and is the cable in?"
)
_SPORT = (
    "the Go1 at {address}:{port} is under its built-in controller: motors {motors} stay in servo "
    "mode although they were told to be idle. With the robot lying: press L2+A until it lies, then "
    "L2+B to damp it, then L1+L2+START for low level; or end 'legged_sport' on the robot's computer"
)


class Go1Sdk:
    """Unitree's UDP client for one Go1, with the SDK's protections before every send."""

    def __init__(self, sdk: Any, robot: RobotSpec, address: str, port: int, local: int) -> None:
        self._robot = robot
        self._udp = sdk.UDP(packet.LOW_LEVEL, local, address, port)
        self._safety = sdk.Safety(sdk.LeggedType.Go1)
        self._command, self._state = sdk.LowCmd(), sdk.LowState()
        self._udp.InitCmdData(self._command)
        self._motors = [self._command.motorCmd[i] for i in range(robot.joint_count)]
        self._zero = np.zeros(robot.joint_count)
        self.report: RobotState | None = None

    def receive(self) -> None:
        """Take what has come; the newest is ``report``."""
        while self._udp.Recv() == 0:
            self._udp.GetRecv(self._state)
            self.report = self._report()

    def servos(self) -> list[str]:
        """Joints whose motors are under position or torque control."""
        modes = [motor.mode for motor in self._state.motorState]
        names = self._robot.joint_names
        return [name for name, mode in zip(names, modes, strict=False) if mode == packet.SERVO]

    def idle(self) -> None:
        """Tell the motors to do nothing."""
        self._send(self._damping(0.0), packet.IDLE)

    def damp(self) -> None:
        self._send(self._damping(1.0), packet.SERVO)

    def follow(self, command: JointCommand) -> None:
        """Send a command. Raises LinkError if one of the SDK's protections objects; then nothing
        is sent."""
        self._write(command, packet.SERVO)
        self._safety.PositionLimit(self._command)
        if self._safety.PowerProtect(self._command, self._state, _POWER_LEVEL) < 0:
            raise LinkError("the Go1 draws too much power: the SDK's power protection stopped it")
        if self._safety.PositionProtect(self._command, self._state, _POSITION_MARGIN) < 0:
            raise LinkError(
                "a joint of the Go1 is beyond its limit: the SDK's position protection stopped it; "
                f"joints in rad: {np.round([m.q for m in self._state.motorState[:12]], 2).tolist()}"
            )
        self._udp.SetSend(self._command)
        self._udp.Send()

    def _damping(self, share: float) -> JointCommand:
        here = self._zero if self.report is None else self.report.joints.position
        return JointCommand(here, self._zero, self._zero, share * self._robot.damping, self._zero)

    def _send(self, command: JointCommand, mode: int) -> None:
        self._write(command, mode)
        self._udp.SetSend(self._command)
        self._udp.Send()

    def _write(self, command: JointCommand, mode: int) -> None:
        for index, motor in enumerate(self._motors):
            motor.mode = mode
            motor.q = float(command.position[index])
            motor.dq = float(command.velocity[index])
            motor.Kp = float(command.kp[index])
            motor.Kd = float(command.kd[index])
            motor.tau = float(command.effort[index])

    def _report(self) -> RobotState:
        state, count = self._state, self._robot.joint_count
        motors, imu, bms = state.motorState[:count], state.imu, state.bms
        return RobotState(
            sequence=state.tick,
            received_ns=time.monotonic_ns(),
            joints=JointState(
                self._robot.joint_names,
                np.array([motor.q for motor in motors]),
                np.array([motor.dq for motor in motors]),
                np.array([motor.tauEst for motor in motors]),
            ),
            imu=ImuSample(
                np.array(imu.quaternion), np.array(imu.gyroscope), np.array(imu.accelerometer)
            ),
            foot_force=np.array(state.footForce, float),
            motor_temperature=np.array([motor.temperature for motor in motors], float),
            # The Go1's packet has no error words.
            motor_errors=np.zeros(count, np.uint32),
            error=0,
            battery=Battery(sum(bms.cell_vol) / 1e3, bms.current / 1e3, bms.SOC / 100),
        )


class Clock:
    """Waits for the next cycle; cycles that were missed are left out."""

    def __init__(self) -> None:
        self._due = time.monotonic_ns()

    def wait(self) -> int:
        self._due = max(self._due + _PERIOD_NS, time.monotonic_ns() - _PERIOD_NS)
        time.sleep(max(0, self._due - time.monotonic_ns()) / _NS)
        return time.monotonic_ns()


def take_over(go1: Go1Sdk, side: SdkSide, clock: Clock, address: str, port: int) -> None:
    """Until the robot answers and its motors heed us. Raises LinkError if they do not."""
    begin = time.monotonic_ns()
    answered: int | None = None
    while answered is None or clock.wait() - answered < _IDLE_TIME * _NS:
        if side.over:
            return
        go1.idle()
        go1.receive()
        if answered is None:
            now = clock.wait()
            if go1.report is not None:
                answered = now
            elif now - begin > _SILENT_AFTER * _NS:
                raise LinkError(_SILENT.format(address=address, port=port, seconds=_SILENT_AFTER))
    if servos := go1.servos():
        raise LinkError(_SPORT.format(address=address, port=port, motors=", ".join(servos)))


def serve(go1: Go1Sdk, side: SdkSide, clock: Clock) -> None:
    """Until the driver asks for the end, or is gone."""
    side.ready()
    while not side.over:
        now = clock.wait()
        go1.receive()
        command = side.command(now)
        if command is None:
            go1.damp()
        else:
            go1.follow(command)
        side.report(go1.report, now)


def main(arguments: list[str]) -> int:
    """ADDRESS PORT LOCAL_PORT DESCRIPTOR."""
    address, port, local, descriptor = arguments
    robot = robots.get("go1")
    side = SdkSide(robot, int(descriptor))
    try:
        from unitree_legged_sdk import robot_interface as sdk
    except ImportError as error:
        side.refuse(
            f"the Go1 needs Unitree's SDK, which cannot be loaded ({error}): pip install --no-deps "
            "unitree-legged-sdk==3.8.20231105 (Python 3.10 to 3.12; x86_64 and aarch64 Linux)"
        )
        return 1
    go1, clock = Go1Sdk(sdk, robot, address, int(port), int(local)), Clock()
    try:
        take_over(go1, side, clock, address, int(port))
        serve(go1, side, clock)
    except LinkError as error:
        side.refuse(str(error))
        return 1
    finally:
        if go1.report is not None:
            end = time.monotonic_ns() + round(_FAREWELL * _NS)
            while clock.wait() < end:
                go1.damp()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
