"""Entries of the diagnostics to their topic."""

from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from simdist.diagnostics import Entry
from simdist.nodes import convert
from simdist.nodes.qos import publisher


class Diagnostics:
    """Publishes entries under the name of their node."""

    def __init__(self, node: Node) -> None:
        self._node = node.get_fully_qualified_name().lstrip("/")
        self._publisher = publisher(node, "diagnostics")

    def publish(self, stamp_ns: int, entry: Entry) -> None:
        status = DiagnosticStatus(
            level=bytes([entry.level]),
            name=f"{self._node}: {entry.name}",
            message=entry.message,
            hardware_id="simdist",
            values=[KeyValue(key=key, value=value) for key, value in entry.values.items()],
        )
        header = convert.header(stamp_ns)
        self._publisher.publish(DiagnosticArray(header=header, status=[status]))
