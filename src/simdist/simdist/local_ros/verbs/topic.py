"""`ros2 topic`: topics of the graph; listening and publishing are in modules of their own."""

from __future__ import annotations

import argparse
from typing import Any

from simdist.local_ros import graph
from simdist.local_ros.errors import CommandError
from simdist.local_ros.options import add_group, add_verb
from simdist.local_ros.verbs import topic_echo, topic_hz, topic_pub


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "topic", summary)
    listing = add_verb(verbs, "list", "Output a list of available topics", list_topics)
    listing.add_argument("-t", "--show-types", action="store_true", help="also show the types")
    listing.add_argument("-c", "--count-topics", action="store_true", help="only the number")
    listing.add_argument("--include-hidden-topics", action="store_true")
    info = add_verb(verbs, "info", "Print information about a topic", show_info)
    info.add_argument("topic_name", help="Name of the ROS topic")
    info.add_argument(
        "-v", "--verbose", action="store_true", help="also nodes and quality of service"
    )
    kind = add_verb(verbs, "type", "Print a topic's type", show_type)
    kind.add_argument("topic_name", help="Name of the ROS topic")
    topic_echo.add_verb_to(verbs)
    topic_hz.add_verb_to(verbs)
    topic_pub.add_verb_to(verbs)


def list_topics(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        graph.discover(node)
        topics = [
            (name, types)
            for name, types in sorted(node.get_topic_names_and_types())
            if options.include_hidden_topics or not graph.is_hidden(name)
        ]
    if options.count_topics:
        print(len(topics))
        return
    for name, types in topics:
        print(f"{name} [{', '.join(types)}]" if options.show_types else name)


def show_type(options: argparse.Namespace) -> int:
    with graph.command_node() as node:
        name = graph.absolute(options.topic_name)
        graph.wait_until(lambda: name in dict(node.get_topic_names_and_types()))
        types = dict(node.get_topic_names_and_types()).get(name, [])
    for one in types:
        print(one)
    return 0 if types else 1


def show_info(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        name = graph.absolute(options.topic_name)
        if not graph.wait_until(lambda: name in dict(node.get_topic_names_and_types())):
            raise CommandError(f"Unknown topic '{options.topic_name}'")
        graph.discover(node)
        types = dict(node.get_topic_names_and_types()).get(name, [])
        ends = (
            ("Publisher", node.get_publishers_info_by_topic(name)),
            ("Subscription", node.get_subscriptions_info_by_topic(name)),
        )
    print(f"Type: {types[0] if len(types) == 1 else types}")
    for title, infos in ends:
        if options.verbose:
            print()
        print(f"{title} count: {len(infos)}")
        for info in infos if options.verbose else []:
            print(f"\n{info}")
