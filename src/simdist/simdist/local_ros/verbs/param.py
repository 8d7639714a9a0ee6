"""`ros2 param`: parameters of nodes."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import yaml
from rcl_interfaces.msg import Parameter, ParameterType
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters, SetParameters
from rclpy.node import Node
from rclpy.parameter import get_parameter_value, parameter_value_to_python

from simdist.local_ros import graph
from simdist.local_ros.errors import CommandError
from simdist.local_ros.options import add_group, add_verb

# Type, its name in `describe`, and the label in `get`.
TYPES = {
    ParameterType.PARAMETER_NOT_SET: ("not set", "Parameter not set."),
    ParameterType.PARAMETER_BOOL: ("boolean", "Boolean value is:"),
    ParameterType.PARAMETER_INTEGER: ("integer", "Integer value is:"),
    ParameterType.PARAMETER_DOUBLE: ("double", "Double value is:"),
    ParameterType.PARAMETER_STRING: ("string", "String value is:"),
    ParameterType.PARAMETER_BYTE_ARRAY: ("byte array", "Byte values are:"),
    ParameterType.PARAMETER_BOOL_ARRAY: ("boolean array", "Boolean values are:"),
    ParameterType.PARAMETER_INTEGER_ARRAY: ("integer array", "Integer values are:"),
    ParameterType.PARAMETER_DOUBLE_ARRAY: ("double array", "Double values are:"),
    ParameterType.PARAMETER_STRING_ARRAY: ("string array", "String values are:"),
}


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "param", summary)
    listing = add_verb(verbs, "list", "Output a list of available parameters", list_parameters)
    listing.add_argument("node_name", nargs="?", help="Name of the ROS node (default: all)")
    listing.add_argument("--include-hidden-nodes", action="store_true")
    listing.add_argument("--param-type", action="store_true", help="also show the types")
    get = add_verb(verbs, "get", "Get parameter", get_parameter)
    get.add_argument("node_name", help="Name of the ROS node")
    get.add_argument("parameter_name", help="Name of the parameter")
    get.add_argument("--hide-type", action="store_true", help="show only the value")
    setter = add_verb(verbs, "set", "Set parameter", set_parameter)
    setter.add_argument("node_name", help="Name of the ROS node")
    setter.add_argument("parameter_name", help="Name of the parameter")
    setter.add_argument("value", help="Value of the parameter, in YAML")
    describe = add_verb(verbs, "describe", "Show descriptive information", describe_parameters)
    describe.add_argument("node_name", help="Name of the ROS node")
    describe.add_argument("parameter_names", nargs="+", help="Names of the parameters")
    dump = add_verb(verbs, "dump", "Show all of the parameters of a node in YAML", dump_parameters)
    dump.add_argument("node_name", help="Name of the ROS node")


def call(node: Node, full_name: str, service: str, kind: Any, request: Any) -> Any:
    missing = f"Node '{full_name}' has no parameter services"
    return graph.call_service(node, kind, f"{full_name}/{service}", request, missing=missing)


def parameter_names(node: Node, full_name: str) -> list[str]:
    response = call(node, full_name, "list_parameters", ListParameters, ListParameters.Request())
    return sorted(response.result.names)


def parameter_values(node: Node, full_name: str, names: list[str]) -> list[Any]:
    request = GetParameters.Request(names=names)
    return list(call(node, full_name, "get_parameters", GetParameters, request).values)


def list_parameters(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        if options.node_name is not None:
            nodes = [graph.require_node(node, options.node_name)]
        else:
            graph.discover(node)
            nodes = sorted(set(graph.node_names(node, hidden=options.include_hidden_nodes)))
            services = {name for name, _ in node.get_service_names_and_types()}
            nodes = [name for name in nodes if f"{name}/list_parameters" in services]
        for full_name in nodes:
            names = parameter_names(node, full_name)
            if options.node_name is None:
                print(f"{full_name}:")
            types = [""] * len(names)
            if options.param_type:
                values = parameter_values(node, full_name, names)
                types = [f" (type: {TYPES[value.type][0]})" for value in values]
            for name, kind in zip(names, types, strict=True):
                print(f"  {name}{kind}")


def get_parameter(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        full_name = graph.require_node(node, options.node_name)
        values = parameter_values(node, full_name, [options.parameter_name])
    if not values:
        raise CommandError("Parameter not set.")
    value = values[0]
    if value.type == ParameterType.PARAMETER_NOT_SET:
        print("Parameter not set.")
        return
    python_value = parameter_value_to_python(value)
    label = "" if options.hide_type else f"{TYPES[value.type][1]} "
    print(f"{label}{python_value}")


def set_parameter(options: argparse.Namespace) -> None:
    parameter = Parameter(name=options.parameter_name, value=get_parameter_value(options.value))
    with graph.command_node() as node:
        full_name = graph.require_node(node, options.node_name)
        request = SetParameters.Request(parameters=[parameter])
        (result,) = call(node, full_name, "set_parameters", SetParameters, request).results
    reason = f": {result.reason}" if result.reason else ""
    # Like the real tool, a refusal is reported on standard error and the exit status stays 0.
    if result.successful:
        print(f"Set parameter successful{reason}")
    else:
        print(f"Setting parameter failed{reason}", file=sys.stderr)


def describe_parameters(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        full_name = graph.require_node(node, options.node_name)
        request = DescribeParameters.Request(names=options.parameter_names)
        response = call(node, full_name, "describe_parameters", DescribeParameters, request)
    for descriptor in response.descriptors:
        print(f"Parameter name: {descriptor.name}")
        print(f"  Type: {TYPES[descriptor.type][0]}")
        if descriptor.description:
            print(f"  Description: {descriptor.description}")
        print("  Constraints:")
        if descriptor.read_only:
            print("    Read only: true")
        for limits in [*descriptor.floating_point_range, *descriptor.integer_range][:1]:
            print(f"    Min value: {limits.from_value}")
            print(f"    Max value: {limits.to_value}")
            if limits.step:
                print(f"    Step: {limits.step}")
        if descriptor.additional_constraints:
            print(f"    Additional constraints: {descriptor.additional_constraints}")


def dump_parameters(options: argparse.Namespace) -> None:
    with graph.command_node() as node:
        full_name = graph.require_node(node, options.node_name)
        names = parameter_names(node, full_name)
        values = parameter_values(node, full_name, names)
    tree: dict[str, Any] = {}
    for name, value in zip(names, values, strict=True):
        branch = tree
        *parents, leaf = name.split(".")
        for parent in parents:
            branch = branch.setdefault(parent, {})
        plain = parameter_value_to_python(value)
        branch[leaf] = plain if isinstance(plain, (bool, int, float, str)) else _plain_list(plain)
    print(yaml.safe_dump({full_name: {"ros__parameters": tree}}, default_flow_style=False), end="")


def _plain_list(value: Any) -> list[Any] | None:
    return None if value is None else list(value)
