"""Messages of the graph to a recording, as they arrive, with the stamps of their headers."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rclpy.node import Node

from simdist.errors import BagError
from simdist.nodes.qos import LATCHED, TOPICS, subscription
from simdist.replay.bag_writer import BagWriter, new_recording
from simdist.replay.messages import header_stamp_ns

#: A model update is 0.5 MB and rare, so its weights are kept as well.
RECORDED = (
    "observation",
    "applied_command",
    "action_chunk",
    "robot_mode",
    "joint_states",
    "imu/data",
    "foot_contacts",
    "height_scan",
    "odom",
    "cmd_vel",
    "progress",
    "model_update",
)
#: Large: recorded on request.
DEPTH = ("depth/image_rect_raw", "depth/camera_info")


class Recording:
    """Records topics of a node's graph until the disk fails; the node then goes on without."""

    def __init__(self, node: Node, directory: Path, topics: Sequence[str], queue: int) -> None:
        self._log = node.get_logger()
        self._newest_ns = 0
        self._told = False
        self._bag: BagWriter | None = None
        names = {topic: node.resolve_topic_name(topic) for topic in topics}
        try:
            self._bag = new_recording(
                directory,
                time.strftime("simdist_%Y%m%d_%H%M%S"),
                {names[topic]: _type_name(TOPICS[topic].kind) for topic in topics},
                latched=[names[topic] for topic in topics if TOPICS[topic].profile is LATCHED],
                queue_size=queue,
            )
        except BagError as error:
            # The launch refuses a bad directory before it starts. What fails later, as when this
            # node is started again on a full disk, must not end the walk.
            self._log.error(f"{error}; the robot goes on unrecorded")
            return
        for topic in topics:
            subscription(node, topic, self._writer(self._bag, names[topic]), depth=100, raw=True)
        self._log.info(f"recording to {self._bag.path}")

    @property
    def going_on(self) -> bool:
        return self._bag is not None and self._bag.error is None

    @property
    def path(self) -> str:
        """Directory of the recording; empty when there is none."""
        return "" if self._bag is None else str(self._bag.path)

    def check(self) -> None:
        """Say once that the disk failed."""
        if self._bag is not None and self._bag.error is not None and not self._told:
            self._told = True
            self._log.error(f"{self._bag.error}; the robot goes on unrecorded")

    def close(self) -> None:
        if self._bag is None:
            return
        self._bag.close()
        self.check()
        written, dropped = self._bag.written, self._bag.dropped
        self._log.info(f"recorded {written} messages to {self._bag.path}, {dropped} dropped")

    def _writer(self, bag: BagWriter, topic: str) -> Callable[[bytes], None]:
        def write(data: bytes) -> None:
            # Log time is the time of the robot: a recording then plays at its pace, however fast
            # the simulation was.
            stamp_ns = header_stamp_ns(data) or 0
            if stamp_ns > 0:
                self._newest_ns = stamp_ns
            bag.write(topic, data, stamp_ns if stamp_ns > 0 else self._newest_ns)

        return write


def _type_name(kind: type) -> str:
    package = kind.__module__.split(".")[0]
    return f"{package}/msg/{kind.__name__}"
