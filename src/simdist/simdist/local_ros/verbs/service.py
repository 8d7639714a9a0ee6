"""`ros2 service`: list services, show their type, call them."""

from __future__ import annotations

import argparse
from typing import Any

from simdist.local_ros import graph, messages
from simdist.local_ros.errors import CommandError
from simdist.local_ros.options import add_group, add_verb


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "service", summary)
    listing = add_verb(verbs, "list", "Output a list of available services", list_services)
    listing.add_argument("-t", "--show-types", action="store_true", help="also show the types")
    listing.add_argument("-c", "--count-services", action="store_true", help="only the number")
    listing.add_argument("--include-hidden-services", action="store_true")
    kind = add_verb(verbs, "type", "Output a service's type", show_type)
    kind.add_argument("service_name", help="Name of the ROS service")
    call = add_verb(verbs, "call", "Call a service", call_once)
    call.add_argument("service_name", help="Name of the ROS service to call to")
    call.add_argument("service_type", help="Type of the ROS service, such as std_srvs/srv/Trigger")
    call.add_argument("values", nargs="?", default="{}", help="the request in YAML format")


def list_services(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        graph.discover(node)
        services = [
            (name, types)
            for name, types in sorted(node.get_service_names_and_types())
            if options.include_hidden_services or not graph.is_hidden(name)
        ]
    if options.count_services:
        print(len(services))
        return
    for name, types in services:
        print(f"{name} [{', '.join(types)}]" if options.show_types else name)


def show_type(options: argparse.Namespace) -> int:
    with graph.command_node() as node:
        name = graph.absolute(options.service_name)
        graph.wait_until(lambda: name in dict(node.get_service_names_and_types()))
        types = dict(node.get_service_names_and_types()).get(name, [])
    for one in types:
        print(one)
    return 0 if types else 1


def call_once(options: argparse.Namespace) -> None:
    service_type = messages.get_interface(options.service_type, "srv")
    values = messages.read_yaml_mapping(options.values)
    with graph.command_node() as node:
        request = service_type.Request()
        messages.set_fields(request, values, lambda: node.get_clock().now().to_msg())
        client = node.create_client(service_type, options.service_name)
        if not client.wait_for_service(timeout_sec=graph.DISCOVERY_LIMIT):
            print("waiting for service to become available...", flush=True)
            while not client.wait_for_service(timeout_sec=0.5):
                pass
        print(f"requester: making request: {request!r}\n", flush=True)
        future = client.call_async(request)
        graph.spin_until(node, future.done)
        if future.exception() is not None:
            raise CommandError(f"Exception while calling service: {future.exception()!r}")
        print(f"response:\n{future.result()!r}\n")
