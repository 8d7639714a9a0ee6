"""`ros2 bag record`: write what is published, as it is serialised, to an MCAP bag."""

from __future__ import annotations

import argparse
import datetime
import time
from pathlib import Path
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.qos import QoSProfile
from rosbags.interfaces import (
    Connection,
    Qos,
    QosDurability,
    QosHistory,
    QosLiveliness,
    QosReliability,
    QosTime,
)
from rosbags.rosbag2 import StoragePlugin, Writer

from simdist.local_ros import graph, messages, qos
from simdist.local_ros.bags import log, typestore_for
from simdist.local_ros.errors import CommandError

RECORDER = "rosbag2_recorder"
METADATA_VERSION = 9
DISCOVERY_PERIOD = 0.1


def record(options: argparse.Namespace) -> None:
    wanted = [graph.absolute(name) for name in [*options.topics_positional, *options.topics]]
    if bool(wanted) == options.all:
        raise CommandError(
            "[ERROR] [ros2bag]: Must specify either --all or topics to record, and not both"
        )
    output = options.output or Path(datetime.datetime.now().strftime("rosbag2_%Y_%m_%d-%H_%M_%S"))
    if output.exists():
        raise CommandError(f"[ERROR] [ros2bag]: Output folder '{output}' already exists.")
    try:
        writer = Writer(output, version=METADATA_VERSION, storage_plugin=StoragePlugin.MCAP)
        writer.open()
    except OSError as error:
        raise CommandError(
            f"[ERROR] [ros2bag]: cannot write '{output}': {error.strerror}"
        ) from None
    try:
        with graph.command_node("rosbag2_recorder") as node:
            recorder = Recorder(node, writer, wanted, hidden=options.include_hidden_topics)
            log("INFO", RECORDER, "Listening for topics...")
            log("INFO", RECORDER, "Recording...")
            recorder.run()
    except KeyboardInterrupt:
        pass  # the ordinary way to stop recording
    finally:
        writer.close()
        log("INFO", RECORDER, "Recording stopped")


class Recorder:
    """Subscribes to topics as they appear and writes their messages with the time of receipt."""

    def __init__(self, node: Node, writer: Writer, wanted: list[str], *, hidden: bool) -> None:
        self._node = node
        self._writer = writer
        self._wanted = set(wanted)
        self._hidden = hidden
        self._seen: set[str] = set()

    def run(self) -> None:
        """Record until interrupted."""
        looked = float("-inf")
        while True:
            if time.monotonic() - looked >= DISCOVERY_PERIOD:
                looked = time.monotonic()
                self._subscribe_to_new_topics()
            rclpy.spin_once(self._node, timeout_sec=DISCOVERY_PERIOD)

    def _subscribe_to_new_topics(self) -> None:
        for topic, types in self._node.get_topic_names_and_types():
            if topic in self._seen or (self._wanted and topic not in self._wanted):
                continue
            if not self._wanted and not self._hidden and graph.is_hidden(topic):
                continue
            # Until a publisher is known, neither is the quality of service that reaches it.
            if self._node.count_publishers(topic):
                self._seen.add(topic)
                self._subscribe(topic, types)

    def _subscribe(self, topic: str, types: list[str]) -> None:
        try:
            if len(types) > 1:
                raise CommandError(f"it has more than one type: {', '.join(types)}")
            message_type = messages.get_message(types[0])
            store = typestore_for(types)
        except CommandError as error:
            log("WARN", RECORDER, f"Topic '{topic}' is not recorded: {error}")
            return
        profile = qos.subscription_qos(self._node, topic)
        connection = self._writer.add_connection(
            topic, types[0], typestore=store, offered_qos_profiles=[to_bag_qos(profile)]
        )
        self._node.create_subscription(
            message_type, topic, self._writing_to(connection), profile, raw=True
        )
        log("INFO", RECORDER, f"Subscribed to topic '{topic}'")

    def _writing_to(self, connection: Connection) -> Any:
        def write(data: bytes) -> None:
            self._writer.write(connection, time.time_ns(), data)

        return write


def to_bag_qos(profile: QoSProfile) -> Qos:
    """Return the profile as a bag stores it; times without limit are written as zero."""
    unlimited = QosTime(0, 0)
    return Qos(
        QosHistory(int(profile.history)),
        profile.depth,
        QosReliability(int(profile.reliability)),
        QosDurability(int(profile.durability)),
        unlimited,
        unlimited,
        QosLiveliness(int(profile.liveliness)),
        unlimited,
        False,
    )
