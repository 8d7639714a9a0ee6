"""`ros2 bag play`: publish the messages of a bag with their timing."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from builtin_interfaces.msg import Time
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rosbags.interfaces import Connection, QosDurability, QosReliability
from rosbags.rosbag2 import Reader

from simdist.local_ros import graph, messages
from simdist.local_ros.bags import log, open_bag
from simdist.local_ros.errors import CommandError

PLAYER = "rosbag2_player"
# Time for subscribers to find the publishers, so that the first messages are not lost.
MATCHING = 1.0
LINGER = 0.2


def play(options: argparse.Namespace) -> None:
    reader = open_bag(options.bag_path)
    try:
        with graph.command_node("rosbag2_player") as node:
            player = Player(node, reader, options.topics, options.rate, options.clock)
            player.wait_for_subscribers()
            while True:
                player.play_once(options.start_offset)
                if not options.loop:
                    break
            time.sleep(LINGER)
    finally:
        reader.close()


class Player:
    """Publishes serialised messages at the distances in time at which they were recorded."""

    def __init__(
        self,
        node: Node,
        reader: Reader,
        topics: list[str] | None,
        rate: float,
        clock_rate: float | None,
    ) -> None:
        self._node = node
        self._reader = reader
        self._rate = rate
        chosen = None if topics is None else {graph.absolute(name) for name in topics}
        self._publishers: dict[int, Any] = {}
        for connection in reader.connections:
            if chosen is None or connection.topic in chosen:
                self._add_publisher(connection)
        self._clock = None
        self._clock_period = 0
        if clock_rate is not None:
            from rosgraph_msgs.msg import Clock

            self._clock = node.create_publisher(Clock, "/clock", 10)
            self._clock_period = int(1e9 / clock_rate)

    def wait_for_subscribers(self) -> None:
        """Wait until each publisher has a subscriber, if they come soon."""
        publishers = self._publishers.values()
        graph.wait_until(
            lambda: all(one.get_subscription_count() for one in publishers), limit=MATCHING
        )

    def play_once(self, start_offset: float) -> None:
        """Play from `start_offset` seconds after the first message to the end."""
        first = self._reader.start_time + int(start_offset * 1e9)
        begin = time.monotonic_ns()
        next_clock = first
        for publisher, stamp, data in self._messages(first):
            while self._clock is not None and next_clock <= stamp:
                self._sleep_until(begin, next_clock - first)
                self._publish_clock(next_clock)
                next_clock += self._clock_period
            self._sleep_until(begin, stamp - first)
            publisher.publish(data)

    def _messages(self, first: int) -> Iterator[tuple[Any, int, bytes]]:
        connections = [one for one in self._reader.connections if one.id in self._publishers]
        if connections:
            for connection, stamp, data in self._reader.messages(connections, start=first):
                yield self._publishers[connection.id], stamp, bytes(data)

    def _sleep_until(self, begin: int, since_first: int) -> None:
        left = begin + int(since_first / self._rate) - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)

    def _publish_clock(self, stamp: int) -> None:
        from rosgraph_msgs.msg import Clock

        assert self._clock is not None
        self._clock.publish(Clock(clock=Time(sec=stamp // 10**9, nanosec=stamp % 10**9)))

    def _add_publisher(self, connection: Connection) -> None:
        try:
            message_type = messages.get_message(connection.msgtype)
        except CommandError:
            log(
                "WARN",
                PLAYER,
                f"Ignoring a topic '{connection.topic}', reason: no type '{connection.msgtype}'",
            )
            return
        self._publishers[connection.id] = self._node.create_publisher(
            message_type, connection.topic, offered_qos(connection)
        )


def offered_qos(connection: Connection) -> QoSProfile:
    """Return what the recorded publisher offered, as far as it decides who can listen."""
    profile = QoSProfile(depth=100)
    for recorded in getattr(connection.ext, "offered_qos_profiles", [])[:1]:
        if recorded.reliability == QosReliability.BEST_EFFORT:
            profile.reliability = ReliabilityPolicy.BEST_EFFORT
        if recorded.durability == QosDurability.TRANSIENT_LOCAL:
            profile.durability = DurabilityPolicy.TRANSIENT_LOCAL
    return profile
