"""A node that looks at the ROS graph. There is no daemon: each command discovers for itself."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import try_shutdown

from simdist.local_ros.errors import CommandError

DISCOVERY_LIMIT = 2.0
STABLE_FOR = 0.7
POLL = 0.05


@contextmanager
def command_node(name: str | None = None) -> Iterator[Node]:
    """Yield a node whose name is hidden from lists; Ctrl-C stays a KeyboardInterrupt."""
    rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
    try:
        node = rclpy.create_node(name or f"_ros2cli_{os.getpid()}", start_parameter_services=False)
        yield node
        node.destroy_node()
    finally:
        try_shutdown()


def wait_until(condition: Callable[[], bool], limit: float = DISCOVERY_LIMIT) -> bool:
    """Poll until the condition holds; return whether it did within `limit` seconds."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL)
    return True


def discover(node: Node) -> None:
    """Wait until the graph has not changed for a while."""
    seen: Any = None
    since = time.monotonic()

    def stable() -> bool:
        nonlocal seen, since
        now = (
            sorted(node.get_node_names_and_namespaces()),
            sorted(node.get_topic_names_and_types()),
            sorted(node.get_service_names_and_types()),
        )
        if now != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since >= STABLE_FOR

    wait_until(stable)


def is_hidden(name: str) -> bool:
    """Return whether a part of a topic, service or node name starts with an underscore."""
    return any(part.startswith("_") for part in name.split("/") if part)


def absolute(name: str) -> str:
    return name if name.startswith("/") else f"/{name}"


def node_names(node: Node, *, hidden: bool = False) -> list[str]:
    """Return the full names of all nodes, sorted; a name used twice appears twice."""
    names = [
        f"{namespace.rstrip('/')}/{name}"
        for name, namespace in node.get_node_names_and_namespaces()
    ]
    return sorted(name for name in names if hidden or not is_hidden(name.rsplit("/", 1)[1]))


def require_node(node: Node, name: str, message: str = "Node not found") -> str:
    """Return the full name of a node of the graph, or raise CommandError."""
    full_name = absolute(name)
    if not wait_until(lambda: full_name in node_names(node, hidden=True)):
        raise CommandError(message)
    return full_name


def spin_until(node: Node, done: Callable[[], bool], limit: float | None = None) -> bool:
    """Spin until `done()`; return False if `limit` seconds passed before. Ctrl-C interrupts."""
    deadline = None if limit is None else time.monotonic() + limit
    while not done():
        if deadline is not None and time.monotonic() > deadline:
            return False
        rclpy.spin_once(node, timeout_sec=0.1)
    return True


def call_service(
    node: Node, service_type: Any, name: str, request: Any, *, missing: str, limit: float = 5.0
) -> Any:
    """Call a service once; raise CommandError(missing) if it does not answer in time."""
    client = node.create_client(service_type, name)
    if not client.wait_for_service(timeout_sec=limit):
        raise CommandError(missing)
    future = client.call_async(request)
    if not spin_until(node, future.done, limit):
        raise CommandError(f"service '{name}' did not answer within {limit:g} seconds")
    return future.result()
