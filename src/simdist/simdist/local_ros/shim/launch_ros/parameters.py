"""From the parameters of a launch file to values, and to a temporary YAML file.

Text written in a launch file stays text. What a substitution evaluates to is read as YAML, as
real launch_ros does, so that `LaunchConfiguration('rate')` becomes a number.
"""

from __future__ import annotations

import os
import tempfile
import typing
from collections.abc import Mapping, Sequence
from typing import Any

import yaml
from launch import LaunchContext, Substitution
from launch.utilities import perform_substitutions

Scalar = bool | int | float | str
ScalarOrList = Scalar | list[Scalar]


def evaluate_parameters(context: LaunchContext, parameters: Mapping[Any, Any]) -> dict[str, Any]:
    """Evaluate a dictionary of parameters; nested dictionaries become dotted names."""
    result: dict[str, Any] = {}
    for key, value in parameters.items():
        name = perform_substitutions(context, key)
        if isinstance(value, Mapping):
            nested = evaluate_parameters(context, value)
            result.update({f"{name}.{inner}": item for inner, item in nested.items()})
        else:
            try:
                result[name] = evaluate_value(context, value)
            except (TypeError, ValueError) as error:
                raise type(error)(f"parameter '{name}': {error}") from error
    return result


def evaluate_value(context: LaunchContext, value: Any) -> ScalarOrList:
    if hasattr(value, "evaluate"):  # a ParameterValue
        return value.evaluate(context)
    if isinstance(value, Substitution):
        return read_value(perform_substitutions(context, value), None)
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, Sequence) and not isinstance(value, bytes):
        if any(isinstance(item, Substitution) for item in value):
            return read_value(perform_substitutions(context, value), None)
        return uniform_list([evaluate_value(context, item) for item in value])
    raise TypeError(
        f"unexpected value {value!r} of type {type(value).__name__}; allowed are bool, int, "
        "float, str, lists of one of them, substitutions and ParameterValue"
    )


def read_value(value: Any, value_type: Any) -> ScalarOrList:
    """Read text as YAML, or convert it to `value_type` if one is given."""
    if value_type is str:
        return value if isinstance(value, str) else str(value)
    loaded = yaml.safe_load(value) if isinstance(value, str) else value
    if value_type is not None:
        return convert(loaded, value_type)
    if loaded is None:
        return ""
    if isinstance(loaded, list):
        return uniform_list(loaded)
    if isinstance(loaded, (bool, int, float, str)):
        return loaded
    raise TypeError(
        f"'{value}' is a {type(loaded).__name__} in YAML; if it is meant to be text, wrap it in "
        "launch_ros.parameter_descriptions.ParameterValue(value, value_type=str)"
    )


def convert(loaded: Any, value_type: Any) -> ScalarOrList:
    if typing.get_origin(value_type) is list:
        (item_type,) = typing.get_args(value_type)
        if not isinstance(loaded, list):
            raise ValueError(f"'{loaded}' is not a list")
        return [typing.cast(Scalar, convert(item, item_type)) for item in loaded]
    if value_type is float and isinstance(loaded, int) and not isinstance(loaded, bool):
        return float(loaded)
    if value_type is str and not isinstance(loaded, str):
        return str(loaded)
    if type(loaded) is not value_type:
        raise ValueError(f"'{loaded}' is not of type {value_type.__name__}")
    return loaded


def uniform_list(items: Sequence[Any]) -> list[Scalar]:
    """Return the items with one common type; integers among floats become floats."""
    kinds = {type(item) for item in items}
    if kinds == {int, float}:
        return [float(item) for item in items]
    if len(kinds) != 1 or not kinds <= {bool, int, float, str}:
        raise TypeError(
            f"expected a non-empty list with items of one type (bool, int, float or str), "
            f"got {list(items)!r}"
        )
    return list(items)


def write_parameter_file(node: str, parameters: Mapping[str, Any]) -> str:
    """Write a parameter file for the node with that full name, or '/**'; return its path."""
    descriptor, path = tempfile.mkstemp(prefix="launch_params_", suffix=".yaml")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        yaml.safe_dump({node: {"ros__parameters": dict(parameters)}}, file)
    return path
