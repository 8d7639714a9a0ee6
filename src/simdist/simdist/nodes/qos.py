"""Every topic of the graph: its type, its quality of service, and who is at its ends.

Nodes make their endpoints through :func:`publisher` and :func:`subscription` only, so that no two
ends of a topic can disagree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from geometry_msgs.msg import TwistStamped
from nav_msgs.msg import Odometry
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CameraInfo, Image, Imu, JointState
from simdist_msgs.msg import (
    ActionChunk,
    AppliedCommand,
    EpisodeSegment,
    FinetuneStatus,
    FootContacts,
    HeightScan,
    LatentState,
    ModelUpdate,
    Observation,
    PlannerStatus,
    Progress,
    ReplayStatus,
    RobotMode,
)
from visualization_msgs.msg import MarkerArray

try:  # there is no wheel of tf2_msgs: without a ROS installation the graph has no transforms
    from tf2_msgs.msg import TFMessage  # pyright: ignore[reportMissingImports]
except ImportError:
    TFMessage = None


def _profile(
    depth: int,
    reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE,
    durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
) -> QoSProfile:
    return QoSProfile(
        history=HistoryPolicy.KEEP_LAST,
        depth=depth,
        reliability=reliability,
        durability=durability,
    )


#: One message per control step or more; a lockstep simulation may lose none of them.
STREAM = _profile(10)
#: Rare and precious.
BULK = _profile(50)
#: A state that holds until the next message: who comes late gets the last one.
LATCHED = _profile(1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
#: For people to look at, who want to see the present.
PICTURE = _profile(1)
#: Large, and useless when late.
IMAGE = _profile(1, ReliabilityPolicy.BEST_EFFORT)


@dataclass(frozen=True)
class Topic:
    """A topic and the nodes at its ends."""

    kind: Any
    profile: QoSProfile
    publishers: tuple[str, ...]
    subscribers: tuple[str, ...] = ()


_BRIDGE = ("mujoco_bridge",)

TOPICS: dict[str, Topic] = {
    "clock": Topic(Clock, STREAM, _BRIDGE),
    "joint_states": Topic(JointState, STREAM, _BRIDGE, ("encoder", "replay")),
    "imu/data": Topic(Imu, STREAM, _BRIDGE, ("replay",)),
    "foot_contacts": Topic(FootContacts, STREAM, _BRIDGE, ("replay",)),
    "height_scan": Topic(HeightScan, STREAM, _BRIDGE, ("encoder", "replay")),
    "depth/image_rect_raw": Topic(Image, IMAGE, _BRIDGE, ("replay",)),
    "depth/camera_info": Topic(CameraInfo, IMAGE, _BRIDGE, ("replay",)),
    "ground_truth/odom": Topic(Odometry, STREAM, _BRIDGE, ("encoder", "operator")),
    "progress": Topic(Progress, STREAM, _BRIDGE, ("operator", "replay")),
    "robot_mode": Topic(RobotMode, LATCHED, _BRIDGE, ("operator", "replay")),
    "applied_command": Topic(
        AppliedCommand, STREAM, _BRIDGE, ("encoder", "operator", "planner", "replay")
    ),
    "cmd_vel": Topic(TwistStamped, STREAM, ("operator",), ("encoder", "replay")),
    "observation": Topic(Observation, STREAM, ("encoder",), ("replay",)),
    "latent_state": Topic(LatentState, STREAM, ("encoder",), ("planner",)),
    "odom": Topic(Odometry, STREAM, ("encoder",), ("replay",)),
    "action_chunk": Topic(ActionChunk, STREAM, ("planner",), ("mujoco_bridge", "replay")),
    "planner/status": Topic(PlannerStatus, STREAM, ("planner",), ("finetune", "operator")),
    "planner/markers": Topic(MarkerArray, PICTURE, ("planner",)),
    "replay/episodes": Topic(EpisodeSegment, BULK, ("replay",), ("finetune",)),
    "replay/status": Topic(ReplayStatus, STREAM, ("replay",), ("operator",)),
    "model_update": Topic(ModelUpdate, LATCHED, ("finetune",), ("planner", "replay")),
    "finetune/status": Topic(FinetuneStatus, STREAM, ("finetune",), ("operator",)),
    "diagnostics": Topic(DiagnosticArray, STREAM, (*_BRIDGE, "planner")),
}
if TFMessage is not None:
    TOPICS["tf"] = Topic(TFMessage, _profile(100), ("encoder",))


def publisher(node: Node, topic: str) -> Publisher:
    """A publisher of ``topic`` with the type and profile of the table.

    It does not listen to events: a subscription that does not fit says so itself, and every
    listener costs time in each wait of a loop at 500 Hz.
    """
    entry = TOPICS[topic]
    silent = PublisherEventCallbacks(use_default_callbacks=False)
    return node.create_publisher(entry.kind, topic, entry.profile, event_callbacks=silent)


def subscription(
    node: Node,
    topic: str,
    callback: Callable[[Any], None],
    *,
    depth: int | None = None,
    raw: bool = False,
) -> Subscription:
    """A subscription to ``topic``; ``depth`` keeps fewer or more messages than the publisher."""
    entry = TOPICS[topic]
    profile = entry.profile
    if depth is not None:
        profile = _profile(depth, profile.reliability, profile.durability)
    return node.create_subscription(entry.kind, topic, callback, profile, raw=raw)


def incompatible(offered: QoSProfile, requested: QoSProfile) -> str | None:
    """Why a subscription would hear nothing from a publisher, or None (requested vs offered)."""
    best_effort = ReliabilityPolicy.BEST_EFFORT
    if offered.reliability == best_effort and requested.reliability != best_effort:
        return "reliability: offered best effort, requested reliable"
    volatile = DurabilityPolicy.VOLATILE
    if offered.durability == volatile and requested.durability != volatile:
        return "durability: offered volatile, requested transient local"
    return None
