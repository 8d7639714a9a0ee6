"""Packets of the Go1's low-level protocol: LowCmd, 614 bytes, and LowState, 807 bytes.

Fields and their order are those of unitree_legged_sdk 3.8 (``comm.h``). On the wire some are
shorter than there: torques, gains and accelerations are integers of a fixed scale, cell voltages a
byte each. Offsets and scales were measured with that SDK; a test repeats it.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

ROBOT_ADDRESS = "192.168.123.10"
ROBOT_PORT = 8007
LOCAL_PORT = 8090

MOTORS = 20  #: places for motors; the first twelve are the legs FR, FL, RR, RL, hip, thigh, calf
IDLE, SERVO = 0x00, 0x0A  #: modes of a motor
LOW_LEVEL = 0xFF
CELL_VOLTAGE_SCALE = 32  #: mV per count
_HEAD = (0xFE, 0xEF)
_TORQUE, _STIFFNESS, _DAMPING = 256.0, 32.0, 16.0

_FRONT = [
    ("head", "u1", (2,)),
    ("level", "u1"),
    ("frame", "u1"),
    ("serial", "<u4", (2,)),
    ("version", "<u4", (2,)),
    ("bandwidth", "<u2"),
]
_BACK = [("remote", "u1", (40,)), ("reserve", "<u4"), ("crc", "<u4")]
_MOTOR_COMMAND = [
    ("mode", "u1"),
    ("q", "<f4"),
    ("dq", "<f4"),
    ("torque", "<i2"),
    ("kp", "<i2"),
    ("kd", "<i2"),
    ("reserve", "<u4", (3,)),
]
_MOTOR_STATE = [
    ("mode", "u1"),
    ("q", "<f4"),
    ("dq", "<f4"),
    ("ddq", "<i2"),
    ("torque", "<i2"),
    ("q_raw", "<f4"),
    ("dq_raw", "<f4"),
    ("ddq_raw", "<i2"),
    ("temperature", "i1"),
    ("reserve", "<u4", (2,)),
]
COMMAND = np.dtype([*_FRONT, ("motors", _MOTOR_COMMAND, (MOTORS,)), ("bms", "u1", (4,)), *_BACK])
STATE = np.dtype(
    [
        *_FRONT,
        ("quaternion", "<f4", (4,)),
        ("gyroscope", "<f4", (3,)),
        ("accelerometer", "<f4", (3,)),
        ("rpy", "<f4", (3,)),
        ("imu_temperature", "i1"),
        ("motors", _MOTOR_STATE, (MOTORS,)),
        ("bms_version", "u1", (2,)),
        ("bms_status", "u1"),
        ("charge", "u1"),
        ("current", "<i4"),
        ("cycles", "<u2"),
        ("bms_temperature", "i1", (4,)),
        ("cells", "u1", (10,)),
        ("foot_force", "<i2", (4,)),
        ("foot_force_estimate", "<i2", (4,)),
        ("tick", "<u4"),
        *_BACK,
    ]
)
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


class PacketError(ValueError):
    """Bytes that are no packet of this protocol; the message says why."""


def crc(data: bytes) -> int:
    """CRC-32 with polynomial 0x04C11DB7, from 0xFFFFFFFF, highest bit first, over the whole
    little-endian 32-bit words of ``data``; bytes after the last whole word do not count."""
    words = np.frombuffer(data, "<u4", len(data) // 4).byteswap().tobytes()
    # zlib computes the same sum with every bit reversed, and inverts the result.
    reflected = zlib.crc32(words.translate(_REVERSED)) ^ 0xFFFFFFFF
    return int(f"{reflected:032b}"[::-1], 2)


def new(kind: np.dtype) -> np.ndarray:
    """An empty COMMAND or STATE record of low level, of shape ``()``."""
    record = np.zeros((), kind)
    record["head"] = _HEAD
    record["level"] = LOW_LEVEL
    return record


def seal(record: np.ndarray) -> bytes:
    """The record as bytes, with its CRC."""
    body = record.tobytes()[:-4]
    return body + crc(body).to_bytes(4, "little")


def read(data: bytes, kind: np.dtype) -> np.ndarray:
    """The COMMAND or STATE in ``data``; raises PacketError if it is none."""
    if len(data) != kind.itemsize:
        raise PacketError(f"{len(data)} bytes instead of {kind.itemsize}")
    if tuple(data[:2]) != _HEAD:
        raise PacketError(f"starts with {data[:2].hex()} instead of {bytes(_HEAD).hex()}")
    if int.from_bytes(data[-4:], "little") != crc(data[:-4]):
        raise PacketError("wrong CRC")
    record = np.frombuffer(data, kind)[0].copy()
    if record["level"] != LOW_LEVEL:
        raise PacketError(f"level {int(record['level']):#x} instead of {LOW_LEVEL:#x} (low level)")
    return record


def gains(motors: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Torque in Nm, stiffness in Nm/rad and damping in Nm s/rad of motor commands."""
    return motors["torque"] / _TORQUE, motors["kp"] / _STIFFNESS, motors["kd"] / _DAMPING


def set_torque(motors: Any, torque: np.ndarray) -> None:
    """Write torques in Nm into motor states, or motor commands, saturated at 128 Nm."""
    motors["torque"] = np.clip(np.trunc(torque * _TORQUE), -32768, 32767)
