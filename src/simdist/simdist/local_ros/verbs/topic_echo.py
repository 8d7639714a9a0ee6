"""`ros2 topic echo`: show the messages of a topic."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from typing import Any

from rclpy.node import Node

from simdist.local_ros import graph, messages, qos
from simdist.local_ros.errors import CommandError
from simdist.local_ros.options import add_verb, positive_float


def add_verb_to(verbs: Any) -> None:
    parser = add_verb(verbs, "echo", "Output messages from a topic", echo)
    parser.add_argument("topic_name", help="Name of the ROS topic to listen to")
    parser.add_argument("message_type", nargs="?", help="Type, such as std_msgs/msg/String")
    qos.add_qos_options(parser)
    parser.add_argument("--once", action="store_true", help="exit after the first message")
    parser.add_argument(
        "--timeout", type=positive_float, metavar="N", help="exit after N seconds without message"
    )
    parser.add_argument("--field", metavar="NAME", help="show one field, such as pose.position.x")
    parser.add_argument(
        "-f", "--full-length", action="store_true", help="do not cut long arrays and texts"
    )
    parser.add_argument("-l", "--truncate-length", type=int, default=messages.TRUNCATE_LENGTH)
    parser.add_argument("--no-arr", action="store_true", help="do not show values of arrays")
    parser.add_argument("--no-str", action="store_true", help="do not show strings")
    parser.add_argument("--flow-style", action="store_true", help="show arrays on one line")
    parser.add_argument("--raw", action="store_true", help="show the serialised bytes")


def topic_type(node: Node, topic: str, given: str | None) -> Any:
    """Return the message class of a topic, from the graph unless it is given."""
    if given is not None:
        return messages.get_message(given)
    if not graph.wait_until(lambda: topic in dict(node.get_topic_names_and_types())):
        print(f"WARNING: topic [{topic}] does not appear to be published yet", file=sys.stderr)
        raise CommandError("Could not determine the type for the passed topic")
    types = dict(node.get_topic_names_and_types())[topic]
    if len(types) > 1:
        raise CommandError(
            f"Cannot echo topic '{topic}', as it contains more than one type: [{', '.join(types)}]"
        )
    return messages.get_message(types[0])


def select_field(message: Any, path: str | None) -> tuple[Any, str]:
    """Return a field of a message and its type; without a path the message itself."""
    kind = ""
    for name in path.split(".") if path else []:
        if not messages.is_message(message) or name not in message.get_fields_and_field_types():
            raise CommandError(f"Invalid field '{path}': '{name}' does not exist")
        kind = message.get_fields_and_field_types()[name]
        message = getattr(message, name)
    return message, kind


def echo(options: argparse.Namespace) -> None:
    incoming: deque[Any] = deque()
    with graph.command_node() as node:
        topic = graph.absolute(options.topic_name)
        message_type = topic_type(node, topic, options.message_type)
        select_field(message_type(), options.field)
        graph.wait_until(lambda: node.count_publishers(topic) > 0)
        profile = qos.apply_options(options, qos.subscription_qos(node, topic))
        # rclpy inspects the signature of a callback, which a built-in method does not have.
        node.create_subscription(
            message_type,
            topic,
            lambda message: incoming.append(message),
            profile,
            raw=options.raw,
        )
        while graph.spin_until(node, lambda: bool(incoming), options.timeout):
            show(incoming.popleft(), options)
            if options.once:
                break


def show(message: Any, options: argparse.Namespace) -> None:
    if options.raw:
        print(f"{message}\n---", flush=True)
        return
    value, kind = select_field(message, options.field)
    text = messages.to_yaml(
        value,
        kind=kind,
        truncate_length=None if options.full_length else options.truncate_length,
        no_arr=options.no_arr,
        no_str=options.no_str,
        flow_style=options.flow_style,
    )
    # YAML ends a bare scalar with a line of dots.
    print(text.removesuffix("...\n") + "---", flush=True)
