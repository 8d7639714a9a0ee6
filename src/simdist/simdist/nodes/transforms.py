"""Transforms, where the ROS installation has them."""

from __future__ import annotations

from typing import Any

from geometry_msgs.msg import TransformStamped

from simdist.nodes import convert, qos
from simdist.types import BaseState


def message(stamp_ns: int, base: BaseState, parent: str, child: str) -> Any:
    """A TFMessage; call it only where ``qos.TFMessage`` exists."""
    transform = TransformStamped(header=convert.header(stamp_ns, parent), child_frame_id=child)
    convert.set_vector(transform.transform.translation, base.position)
    convert.set_quaternion(transform.transform.rotation, base.orientation)
    return qos.TFMessage(transforms=[transform])
