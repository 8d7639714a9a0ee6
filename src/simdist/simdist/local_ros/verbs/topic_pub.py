"""`ros2 topic pub`: publish a message, once or at a rate."""

from __future__ import annotations

import argparse
import time
from typing import Any

from rclpy.qos import QoSProfile

from simdist.local_ros import graph, messages, qos
from simdist.local_ros.options import add_verb, positive_float, positive_int


def add_verb_to(verbs: Any) -> None:
    parser = add_verb(verbs, "pub", "Publish a message to a topic", publish)
    parser.add_argument("topic_name", help="Name of the ROS topic to publish to")
    parser.add_argument("message_type", help="Type, such as std_msgs/msg/String")
    parser.add_argument("values", nargs="?", default="{}", help="the message in YAML format")
    parser.add_argument("-r", "--rate", type=positive_float, default=1.0, help="Hz (default: 1)")
    parser.add_argument("-p", "--print", type=positive_int, default=1, help="show every Nth")
    parser.add_argument("-1", "--once", action="store_true", help="publish one message and exit")
    parser.add_argument("-t", "--times", type=positive_int, help="publish this many and exit")
    parser.add_argument(
        "-w",
        "--wait-matching-subscriptions",
        type=int,
        help="subscriptions to wait for (default: 1 with --once or --times, else 0)",
    )
    parser.add_argument(
        "--keep-alive", type=float, default=0.1, help="seconds to stay after the last message"
    )
    parser.add_argument("-n", "--node-name", help="name of the publishing node")
    qos.add_qos_options(parser)


def publish(options: argparse.Namespace) -> None:
    message_type = messages.get_message(options.message_type)
    values = messages.read_yaml_mapping(options.values)
    times = 1 if options.once else options.times
    with graph.command_node(options.node_name) as node:

        def build() -> Any:
            message = message_type()
            messages.set_fields(message, values, lambda: node.get_clock().now().to_msg())
            return message

        build()  # refuses bad values before anything is announced
        profile = qos.apply_options(options, QoSProfile(depth=10))
        publisher = node.create_publisher(message_type, options.topic_name, profile)
        wanted = options.wait_matching_subscriptions
        wait_for_subscriptions(publisher, (1 if times else 0) if wanted is None else wanted)
        print("publisher: beginning loop", flush=True)
        due = time.monotonic()
        count = 0
        while times is None or count < times:
            message = build()
            count += 1
            if count % options.print == 0:
                print(f"publishing #{count}: {message!r}\n", flush=True)
            publisher.publish(message)
            if count == times:
                break
            due = max(due + 1.0 / options.rate, time.monotonic())
            time.sleep(max(0.0, due - time.monotonic()))
        time.sleep(options.keep_alive)


def wait_for_subscriptions(publisher: Any, wanted: int) -> None:
    reported = 0.0
    while publisher.get_subscription_count() < wanted:
        if time.monotonic() - reported > 1.0:
            reported = time.monotonic()
            print(f"Waiting for at least {wanted} matching subscription(s)...", flush=True)
        time.sleep(graph.POLL)
