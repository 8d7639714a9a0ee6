"""Quality of service on the command line: options, and what fits the publishers."""

from __future__ import annotations

import argparse

from rclpy.node import Node
from rclpy.qos import (
    DurabilityPolicy,
    HistoryPolicy,
    QoSPresetProfiles,
    QoSProfile,
    ReliabilityPolicy,
)


def add_qos_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--qos-profile",
        choices=["system_default", "sensor_data", "services_default", "parameters", "default"],
        help="quality of service preset to start from",
    )
    parser.add_argument("--qos-depth", type=int, help="queue size")
    parser.add_argument(
        "--qos-history", choices=["system_default", "keep_last", "keep_all"], help="history"
    )
    parser.add_argument(
        "--qos-reliability",
        choices=["system_default", "reliable", "best_effort"],
        help="reliability (default: what the publishers offer)",
    )
    parser.add_argument(
        "--qos-durability",
        choices=["system_default", "transient_local", "volatile"],
        help="durability (default: what the publishers offer)",
    )


def subscription_qos(node: Node, topic: str) -> QoSProfile:
    """Return the strongest profile that matches every publisher of the topic."""
    profiles = [info.qos_profile for info in node.get_publishers_info_by_topic(topic)]
    reliable = profiles and all(
        profile.reliability == ReliabilityPolicy.RELIABLE for profile in profiles
    )
    latched = profiles and all(
        profile.durability == DurabilityPolicy.TRANSIENT_LOCAL for profile in profiles
    )
    return QoSProfile(
        depth=100,
        reliability=ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT,
        durability=DurabilityPolicy.TRANSIENT_LOCAL if latched else DurabilityPolicy.VOLATILE,
    )


def apply_options(options: argparse.Namespace, automatic: QoSProfile) -> QoSProfile:
    """Return `automatic`, or the chosen preset, changed by the single options."""
    profile = automatic
    if options.qos_profile:
        profile = QoSPresetProfiles.get_from_short_key(options.qos_profile)
    if options.qos_depth is not None:
        profile.depth = options.qos_depth
    if options.qos_history:
        profile.history = HistoryPolicy.get_from_short_key(options.qos_history)
    if options.qos_reliability:
        profile.reliability = ReliabilityPolicy.get_from_short_key(options.qos_reliability)
    if options.qos_durability:
        profile.durability = DurabilityPolicy.get_from_short_key(options.qos_durability)
    return profile
