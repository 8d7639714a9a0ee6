"""`ros2 topic hz`: the rate at which messages arrive."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import deque
from itertools import pairwise
from typing import Any

from simdist.local_ros import graph, qos
from simdist.local_ros.options import add_verb, positive_int
from simdist.local_ros.verbs.topic_echo import topic_type


def add_verb_to(verbs: Any) -> None:
    parser = add_verb(verbs, "hz", "Print the average receiving rate to screen", measure)
    parser.add_argument("topic_name", help="Name of the ROS topic to listen to")
    parser.add_argument(
        "-w", "--window", type=positive_int, default=10000, help="intervals to average over"
    )


def rate_text(arrivals: deque[float]) -> str | None:
    """Return the two lines of the real tool for arrival times in s; None for fewer than two."""
    if len(arrivals) < 2:
        return None
    times = list(arrivals)
    intervals = [later - earlier for earlier, later in pairwise(times)]
    mean = statistics.fmean(intervals)
    rate = 1.0 / mean if mean > 0.0 else float("inf")
    return (
        f"average rate: {rate:.3f}\n"
        f"\tmin: {min(intervals):.3f}s max: {max(intervals):.3f}s "
        f"std dev: {statistics.pstdev(intervals):.5f}s window: {len(intervals)}"
    )


def measure(options: argparse.Namespace) -> None:
    arrivals: deque[float] = deque(maxlen=options.window + 1)
    with graph.command_node() as node:
        topic = graph.absolute(options.topic_name)
        message_type = topic_type(node, topic, None)
        graph.wait_until(lambda: node.count_publishers(topic) > 0)
        profile = qos.subscription_qos(node, topic)
        node.create_subscription(
            message_type, topic, lambda _: arrivals.append(time.monotonic()), profile, raw=True
        )
        shown: float | None = None
        while True:
            graph.spin_until(node, lambda: False, limit=1.0)
            text = rate_text(arrivals)
            if text is not None and arrivals[-1] != shown:
                shown = arrivals[-1]
                print(text, flush=True)
