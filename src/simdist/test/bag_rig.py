"""Recordings made up for tests: a robot that walks, one observation and action per step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from simdist import robots
from simdist.replay.bag_writer import BagWriter, McapBagWriter
from simdist.replay.messages import typestore

DT = 20_000_000
START = 5_000_000_000
ROBOT = robots.get("go1")
OBSERVATION = "simdist_msgs/msg/Observation"
APPLIED = "simdist_msgs/msg/AppliedCommand"
TOPICS = {"/observation": OBSERVATION, "/applied_command": APPLIED}

Message = tuple[str, bytes]


def header(stamp_ns: int) -> Any:
    types = typestore().types
    stamp = types["builtin_interfaces/msg/Time"](stamp_ns // 10**9, stamp_ns % 10**9)
    return types["std_msgs/msg/Header"](stamp, "base")


def observation(k: int, contract: str = "c", **changed: Any) -> bytes:
    """Of step ``k``: all values are ``k`` unless ``changed``."""
    values = {
        "stamp_ns": START + k * DT,
        "sequence": k,
        "proprio": np.full(35, k, np.float32),
        "scan": np.full(20, k, np.float32),
        "command": np.zeros(3, np.float32),
        **changed,
    }
    message = typestore().types[OBSERVATION](
        header(values["stamp_ns"]), values["sequence"], contract, ["all"],
        np.array([len(values["proprio"])], np.uint32), values["proprio"], values["scan"],
        np.zeros(12, np.float32), values["command"], True,
    )  # fmt: skip
    return bytes(typestore().serialize_cdr(message, OBSERVATION))


def applied(
    k: int, mode: int = 3, names: tuple[str, ...] = ROBOT.joint_names, **changed: Any
) -> bytes:
    """Of step ``k``: joint ``i`` of the robot gets ``k + i / 100`` unless ``changed``."""
    action = [k + 0.01 * ROBOT.joint_names.index(n) if n in ROBOT.joint_names else 0 for n in names]
    values = {
        "stamp_ns": START + k * DT,
        "sequence": k,
        "action": np.array(action, np.float32),
        **changed,
    }
    message = typestore().types[APPLIED](
        header(values["stamp_ns"]), values["sequence"], list(names), np.zeros(len(names)),
        values["action"], mode, 0, 1,
    )  # fmt: skip
    return bytes(typestore().serialize_cdr(message, APPLIED))


def walk(steps: int = 300) -> list[Message]:
    return [
        message
        for k in range(steps)
        for message in (("/applied_command", applied(k)), ("/observation", observation(k)))
    ]


def record(path: Path, messages: list[Message], topics: dict[str, str] = TOPICS) -> Path:
    """A finished recording; message ``i`` is logged at ``i`` microseconds."""
    with BagWriter(path, topics, sync=False) as writer:
        for i, (topic, data) in enumerate(messages):
            assert writer.write(topic, data, i * 1000)
    assert writer.error is None
    assert (writer.written, writer.dropped) == (len(messages), 0)
    return path


def record_in_chunks(path: Path, messages: list[Message], size: int) -> list[int]:
    """A finished recording of chunks of ``size`` messages, logged 10 ms apart.

    Returns the offset at which each chunk has ended.
    """
    writer = McapBagWriter(path)
    writer.open()
    connections = {
        topic: writer.add_connection(topic, kind, typestore=typestore())
        for topic, kind in TOPICS.items()
    }
    writer.flush(sync=False)
    ends = []
    for i, (topic, data) in enumerate(messages):
        writer.write(connections[topic], i * DT // 2, data)
        if i % size == size - 1:
            writer.flush(sync=False)
            assert writer.storage is not None
            # The record of the chunk itself; its message index follows.
            ends.append(_end_of_last_chunk(path))
    writer.close()
    return ends


def _end_of_last_chunk(path: Path) -> int:
    data = (path / f"{path.name}.mcap").read_bytes()
    at, end = 8, 0
    while at < len(data):
        after = at + 9 + int.from_bytes(data[at + 1 : at + 9], "little")
        if data[at] == 0x06:
            end = after
        at = after
    return end
