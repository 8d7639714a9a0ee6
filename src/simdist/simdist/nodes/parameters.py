"""Parameters of nodes: declared with description and range, and refused by name."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

import yaml
from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node

from simdist.errors import ConfigError

T = TypeVar("T")

#: Parameters that rclpy itself declares or reads.
_FOREIGN = re.compile(r"use_sim_time|start_type_description_service|qos_overrides\..*")


def parameter(
    node: Node,
    name: str,
    default: T,
    description: str,
    *,
    low: float | None = None,
    high: float | None = None,
    choices: Sequence[str] = (),
    read_only: bool = True,
) -> T:
    """Declare a parameter and return its value.

    Raises ConfigError naming the parameter, its value and what is allowed.
    """
    descriptor = ParameterDescriptor(description=description, read_only=read_only)
    allowed = f"a value of type {type(default).__name__}"
    if choices:
        descriptor.additional_constraints = allowed = f"one of: {', '.join(choices)}"
    if low is not None and high is not None:
        if isinstance(default, int):
            descriptor.integer_range = [IntegerRange(from_value=int(low), to_value=int(high))]
            allowed = f"a whole number from {int(low)} to {int(high)}"
        else:
            descriptor.floating_point_range = [
                FloatingPointRange(from_value=float(low), to_value=float(high))
            ]
            allowed = f"a number with a decimal point from {low:g} to {high:g}"
    override = node._parameter_overrides.get(name)
    given: Any = default if override is None else override.value
    try:
        value: Any = node.declare_parameter(name, default, descriptor).value
    except (InvalidParameterValueException, InvalidParameterTypeException):
        raise _not_allowed(node, name, given, allowed) from None
    # Comparisons written so that NaN, which passes rclpy's range check, is refused.
    in_range = low is None or high is None or low <= value <= high
    if not in_range or (choices and value not in choices):
        raise _not_allowed(node, name, given, allowed)
    return value


def checked(node: Node, kind: type[T], prefix: str = "", **defaults: Any) -> T:
    """A configuration whose fields are the node's parameters ``prefix + field``.

    ``kind`` is a :class:`simdist.ranges.Checked` dataclass; ``defaults`` replace its own.
    """
    values = {}
    for item in fields(kind):  # type: ignore[arg-type]
        default = defaults.get(item.name, item.default)
        if default is MISSING:
            continue
        low, high = item.metadata.get("range", (None, None))
        description = item.metadata.get("description", item.name.replace("_", " "))
        values[item.name] = parameter(
            node, f"{prefix}{item.name}", default, description, low=low, high=high
        )
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"parameters of {node.get_fully_qualified_name()}: {error}") from None


def _not_allowed(node: Node, name: str, value: object, allowed: str) -> ConfigError:
    return ConfigError(
        f"parameter '{name}' of {node.get_fully_qualified_name()} is {value!r}: must be {allowed}"
    )


def refuse_ignored_parameters(node: Node, arguments: list[str]) -> None:
    """Raise ConfigError for parameters that would silently have no effect: of unknown name, or in
    a file none of whose sections is for this node."""
    name = node.get_fully_qualified_name()
    for given in node._parameter_overrides:
        if not node.has_parameter(given) and not _FOREIGN.fullmatch(given):
            known = sorted(p for p in node._parameters if not _FOREIGN.fullmatch(p))
            raise ConfigError(f"unknown parameter '{given}' of {name}; known: {', '.join(known)}")
    for flag, path in itertools.pairwise(arguments):
        if flag == "--params-file" and not any(_matches(s, name) for s in _sections(path)):
            raise ConfigError(
                f"the parameter file {path} has no section for {name}, but for "
                f"{', '.join(_sections(path)) or 'nobody'}; rename the section or use /**"
            )


def _sections(path: str) -> list[str]:
    """Node names that a parameter file, which rcl has read already, is for."""
    with open(path, encoding="utf8") as file:
        content = yaml.safe_load(file) or {}
    found = []
    for key, value in content.items():
        nested = value if isinstance(value, dict) else {}
        if "ros__parameters" in nested:
            found.append(str(key))
        else:
            found += [f"{key}/{inner}" for inner in nested]
    return found


def _matches(section: str, name: str) -> bool:
    """Whether rcl applies a section such as ``/**``, ``/*/encoder`` or ``encoder`` to a node."""
    parts = {"**": "(/[^/]+)*", "*": "/[^/]+"}
    tokens = [token for token in section.split("/") if token]
    pattern = "".join(parts.get(token, "/" + re.escape(token)) for token in tokens)
    return re.fullmatch(pattern, name) is not None
