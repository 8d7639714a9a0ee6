"""The channel between a driver and the process that holds a robot's SDK.

A pair of connected sockets that keep messages whole (``SOCK_SEQPACKET``): the kernel delivers a
message entirely or not at all, so a torn one cannot be read, nothing is left behind by a process
that is killed, and the end of the other side shows as the end of the stream. Nobody ever waits: a
full queue drops the message at hand and counts it. A reader who was away therefore finds old
messages, and must go by their stamps.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from simdist.hardware.link import Battery, LinkError, RobotState
from simdist.robots import RobotSpec
from simdist.types import ImuSample, JointCommand, JointState

#: format, kind, sequence number, steady time in ns
_HEADER = struct.Struct("<IIQq")
_FORMAT = 0x53440001
_LARGEST = 16384
#: Bytes of queued messages, with the kernel's overhead: some ten cycles.
_QUEUE = 32768


class Kind(IntEnum):
    """What a message is; texts are UTF-8."""

    STATE = 1
    COMMAND = 2
    READY = 3  #: the robot is there, and its joints are ours
    REFUSED = 4  #: a text for the user; the sender ends
    ALIVE = 5  #: the sender runs, and has no newer state
    NOTE = 6  #: a text for the log
    CLOSE = 7  #: damp the joints and end


@dataclass(frozen=True)
class Packet:
    """A message: ``sequence`` counts what the sender sent, also what was dropped; ``stamp_ns`` is
    when it was sent, on the steady clock."""

    kind: Kind
    sequence: int
    stamp_ns: int
    payload: bytes

    @property
    def text(self) -> str:
        return self.payload.decode("utf8", "replace")


class Channel:
    """One end of the channel; not thread-safe."""

    def __init__(self, end: socket.socket) -> None:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _QUEUE)
        self._socket = end
        self._sequence = 0
        self._last_seen = 0
        self.dropped = 0  #: messages that did not fit into the other side's queue
        self.missed = 0  #: messages of the other side that never came
        self.ended = False  #: whether the other side is gone, and all it sent has been received
        self.cut = False  #: whether nothing can be sent any more

    @classmethod
    def pair(cls) -> tuple[Channel, socket.socket]:
        """This side, and the socket for the other: pass its descriptor to a child process."""
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(mine), theirs

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        """The other side, in the process that inherited ``descriptor``."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, kind: Kind, now_ns: int, payload: bytes = b"") -> bool:
        """Whether the message is on its way; never waits."""
        self._sequence += 1
        message = _HEADER.pack(_FORMAT, kind, self._sequence, now_ns) + payload
        if len(message) > _LARGEST:
            raise ValueError(f"a message of {len(message)} bytes; at most {_LARGEST} fit")
        try:
            self._socket.send(message)
            return True
        except BlockingIOError:
            self.dropped += 1
        except OSError:
            self.cut = True
        return False

    def receive(self) -> list[Packet]:
        """Everything that has come since the last call, oldest first; never waits.

        Raises LinkError for a message that this version does not understand.
        """
        packets = []
        while not self.ended:
            try:
                message = self._socket.recv(_LARGEST)
            except BlockingIOError:
                break
            except ConnectionResetError:
                # The other side left messages unread. Its own last words may still be queued.
                continue
            except OSError:
                message = b""
            if not message:
                self.ended = True
                break
            packets.append(self._unpack(message))
        return packets

    def _unpack(self, message: bytes) -> Packet:
        if len(message) < _HEADER.size:
            raise LinkError(f"the SDK process sent {len(message)} bytes that are no message")
        form, kind, sequence, stamp_ns = _HEADER.unpack_from(message)
        if form != _FORMAT or kind not in tuple(Kind):
            raise LinkError(
                f"driver and SDK process do not speak the same format ({form:#x}, kind {kind}): "
                "they come from different versions of simdist"
            )
        self.missed += max(0, sequence - self._last_seen - 1)
        self._last_seen = sequence
        return Packet(Kind(kind), sequence, stamp_ns, message[_HEADER.size :])

    def close(self) -> None:
        self._socket.close()
        self.ended = self.cut = True


class Layout:
    """States and commands of one robot as the bytes of a message."""

    def __init__(self, robot: RobotSpec) -> None:
        joints, feet = robot.joint_count, len(robot.foot_names)
        self._names = robot.joint_names
        vector = ("<f8", (joints,))
        self._command = np.dtype(
            [(name, *vector) for name in ("position", "velocity", "kp", "kd", "effort")]
        )
        self._state = np.dtype(
            [
                ("sequence", "<u8"),
                ("received_ns", "<i8"),
                ("position", *vector),
                ("velocity", *vector),
                ("effort", *vector),
                ("orientation", "<f8", (4,)),
                ("angular_velocity", "<f8", (3,)),
                ("linear_acceleration", "<f8", (3,)),
                ("foot_force", "<f8", (feet,)),
                ("motor_temperature", *vector),
                ("motor_errors", "<u4", (joints,)),
                ("error", "<u4"),
                ("battery", "<f8", (3,)),
            ]
        )

    def pack_command(self, command: JointCommand) -> bytes:
        record = np.zeros((), self._command)
        for name in self._command.names or ():
            record[name] = getattr(command, name)
        return record.tobytes()

    def command(self, payload: bytes) -> JointCommand:
        record = self._read(payload, self._command)
        return JointCommand(*(record[name].copy() for name in self._command.names or ()))

    def pack_state(self, state: RobotState) -> bytes:
        record = np.zeros((), self._state)
        for name in ("sequence", "received_ns", "foot_force", "motor_temperature", "error"):
            record[name] = getattr(state, name)
        record["motor_errors"] = state.motor_errors
        for name in ("position", "velocity", "effort"):
            record[name] = getattr(state.joints, name)
        for name in ("orientation", "angular_velocity", "linear_acceleration"):
            record[name] = getattr(state.imu, name)
        battery = state.battery
        record["battery"] = battery.voltage, battery.current, battery.charge
        return record.tobytes()

    def state(self, payload: bytes) -> RobotState:
        record = self._read(payload, self._state)
        return RobotState(
            sequence=int(record["sequence"]),
            received_ns=int(record["received_ns"]),
            joints=JointState(
                self._names,
                record["position"].copy(),
                record["velocity"].copy(),
                record["effort"].copy(),
            ),
            imu=ImuSample(
                record["orientation"].copy(),
                record["angular_velocity"].copy(),
                record["linear_acceleration"].copy(),
            ),
            foot_force=record["foot_force"].copy(),
            motor_temperature=record["motor_temperature"].copy(),
            motor_errors=record["motor_errors"].copy(),
            error=int(record["error"]),
            battery=Battery(*record["battery"].tolist()),
        )

    @staticmethod
    def _read(payload: bytes, kind: np.dtype) -> np.void:
        if len(payload) != kind.itemsize:
            raise LinkError(
                f"a message of {len(payload)} bytes instead of {kind.itemsize}: driver and SDK "
                "process were started for different robots"
            )
        return np.frombuffer(payload, kind)[0]
