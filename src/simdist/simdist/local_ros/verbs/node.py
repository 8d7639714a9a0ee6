"""`ros2 node`: the nodes of the graph and what they offer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

from simdist.local_ros import graph
from simdist.local_ros.options import add_group, add_verb

SEND_GOAL = "/_action/send_goal"


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "node", summary)
    listing = add_verb(verbs, "list", "Output a list of available nodes", list_nodes)
    listing.add_argument("-a", "--all", action="store_true", help="also hidden nodes")
    listing.add_argument("-c", "--count-nodes", action="store_true", help="only the number")
    info = add_verb(verbs, "info", "Output information about a node", show_info)
    info.add_argument("node_name", help="Node name to request information")
    info.add_argument("--include-hidden", action="store_true", help="also hidden topics")


def list_nodes(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        graph.discover(node)
        names = graph.node_names(node, hidden=options.all)
    if options.count_nodes:
        print(len(names))
        return
    if len(set(names)) < len(names):
        print(
            "WARNING: Be aware that there are nodes in the graph that share an exact name, "
            "which can have unintended side effects.",
            file=sys.stderr,
        )
    for name in names:
        print(name)


def show_info(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        missing = f"Unable to find node '{options.node_name}'"
        full_name = graph.require_node(node, options.node_name, missing)
        graph.discover(node)
        namespace, _, name = full_name.rpartition("/")
        namespace = namespace or "/"

        def collect(query: Callable[[str, str], Any]) -> list[tuple[str, list[str]]]:
            return [
                (topic, types)
                for topic, types in sorted(query(name, namespace))
                if options.include_hidden or not graph.is_hidden(topic)
            ]

        servers = node.get_service_names_and_types_by_node(name, namespace)
        clients = node.get_client_names_and_types_by_node(name, namespace)
        sections = (
            ("Subscribers", collect(node.get_subscriber_names_and_types_by_node)),
            ("Publishers", collect(node.get_publisher_names_and_types_by_node)),
            ("Service Servers", collect(lambda *_: servers)),
            ("Service Clients", collect(lambda *_: clients)),
            ("Action Servers", actions(servers)),
            ("Action Clients", actions(clients)),
        )
    print(full_name)
    for title, entries in sections:
        print(f"  {title}:")
        for topic, types in entries:
            print(f"    {topic}: {', '.join(types)}")
        if title not in ("Subscribers", "Publishers", "Service Servers"):
            print()


def actions(services: list[tuple[str, list[str]]]) -> list[tuple[str, list[str]]]:
    """Return the actions behind the send_goal services of a node."""
    return [
        (name.removesuffix(SEND_GOAL), [one.removesuffix("_SendGoal") for one in types])
        for name, types in sorted(services)
        if name.endswith(SEND_GOAL)
    ]
