"""Message types by name, and messages to and from YAML."""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import yaml
from rosidl_parser.definition import AbstractNestedType, NamespacedType

from simdist.local_ros.errors import CommandError

TRUNCATE_LENGTH = 128


def get_interface(name: str, kind: str) -> Any:
    """Return the class for 'package/kind/Type' or 'package/Type'; kind is 'msg' or 'srv'."""
    parts = name.split("/")
    if len(parts) == 2:
        parts.insert(1, kind)
    what = {"msg": "message", "srv": "service"}[kind]
    if len(parts) != 3 or parts[1] != kind or not all(part.isidentifier() for part in parts):
        raise CommandError(f"The passed {what} type is invalid")
    try:
        return getattr(importlib.import_module(f"{parts[0]}.{kind}"), parts[2])
    except (ImportError, AttributeError):
        raise CommandError(f"The passed {what} type is invalid") from None


def get_message(name: str) -> Any:
    return get_interface(name, "msg")


def is_message(value: Any) -> bool:
    return hasattr(value, "get_fields_and_field_types")


def to_yaml(
    value: Any,
    *,
    kind: str = "",
    truncate_length: int | None = TRUNCATE_LENGTH,
    no_arr: bool = False,
    no_str: bool = False,
    flow_style: bool = False,
) -> str:
    """Return a message, or a field of type `kind`, as YAML.

    Arrays and texts longer than `truncate_length` are cut.
    """
    if is_message(value):
        plain = to_plain(value, truncate_length, no_arr, no_str)
    else:
        plain = _field_to_plain(value, kind, truncate_length, no_arr, no_str)
    return yaml.safe_dump(
        plain,
        sort_keys=False,
        allow_unicode=True,
        width=float("inf"),
        default_flow_style=flow_style,
    )


def to_plain(
    value: Any, truncate_length: int | None, no_arr: bool = False, no_str: bool = False
) -> Any:
    """Return a message as dictionaries, lists and scalars."""
    if is_message(value):
        return {
            name: _field_to_plain(getattr(value, name), kind, truncate_length, no_arr, no_str)
            for name, kind in value.get_fields_and_field_types().items()
        }
    return _field_to_plain(value, "", truncate_length, no_arr, no_str)


def _field_to_plain(
    value: Any, kind: str, truncate_length: int | None, no_arr: bool, no_str: bool
) -> Any:
    if isinstance(value, bytes):
        value = value.decode("latin-1")
    if isinstance(value, str):
        if no_str:
            return f"<string length: <{len(value)}>>"
        if truncate_length is not None and len(value) > truncate_length:
            return value[:truncate_length] + "..."
        return value
    if isinstance(value, (list, tuple, array, np.ndarray)):
        if no_arr:
            return _describe_sequence(kind, len(value))
        cut = truncate_length is not None and len(value) > truncate_length
        items = value[:truncate_length] if cut else value
        if isinstance(items, (array, np.ndarray)):
            items = items.tolist()
        plain = [to_plain(item, truncate_length, no_arr, no_str) for item in items]
        return [*plain, "..."] if cut else plain
    if isinstance(value, np.generic):
        return value.item()
    return to_plain(value, truncate_length, no_arr, no_str) if is_message(value) else value


def _describe_sequence(kind: str, length: int) -> str:
    """Describe an array without its values; kind is like 'sequence<float>' or 'double[9]'."""
    if kind.startswith("sequence<"):
        element = kind.removeprefix("sequence<").rsplit(">", 1)[0].split(",")[0]
        return f"<sequence type: {element}, length: {length}>"
    return f"<array type: {kind}>"


def read_yaml_mapping(text: str) -> dict[str, Any]:
    """Read the values of a message given on the command line."""
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise CommandError(f"The passed value is not valid YAML: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise CommandError("The passed value needs to be a dictionary in YAML format")
    return values


def set_fields(message: Any, values: Mapping[str, Any], now: Callable[[], Any]) -> None:
    """Set fields from plain values.

    As in ROS 2, a std_msgs/Header may be given as 'auto' and a builtin_interfaces/Time as 'now';
    both take the stamp that `now()` returns. Raises CommandError for a field that does not exist
    or a value that does not fit.
    """
    types = dict(zip(message.get_fields_and_field_types(), message.SLOT_TYPES, strict=True))
    for name, value in values.items():
        if name not in types:
            raise CommandError(
                f"Failed to populate field: '{type(message).__name__}' has no field '{name}', "
                f"its fields are {', '.join(types)}"
            )
        try:
            setattr(message, name, _from_plain(getattr(message, name), types[name], value, now))
        except (AssertionError, TypeError, ValueError, OverflowError) as error:
            raise CommandError(f"Failed to populate field: '{name}': {error}") from None


def _from_plain(current: Any, slot_type: Any, value: Any, now: Callable[[], Any]) -> Any:
    if is_message(current):
        return _message_from_plain(current, value, now)
    if isinstance(slot_type, AbstractNestedType):
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise TypeError(f"expected a list, got {value!r}")
        return _sequence_from_plain(slot_type.value_type, list(value), now)
    if isinstance(current, bytes):
        return bytes([value]) if isinstance(value, int) else str(value).encode("latin-1")
    if isinstance(current, bool):
        if not isinstance(value, bool):
            raise TypeError(f"expected true or false, got {value!r}")
        return value
    if isinstance(current, str):
        return str(value)
    return _number(type(current), value)


def _number(kind: type, value: Any) -> Any:
    number = kind(value)
    if kind is int and number != value:
        raise ValueError(f"expected an integer, got {value!r}")
    return number


def _message_from_plain(message: Any, value: Any, now: Callable[[], Any]) -> Any:
    kind = f"{type(message).__module__.split('.')[0]}/{type(message).__name__}"
    if kind == "std_msgs/Header" and value == "auto":
        message.stamp = now()
    elif kind == "builtin_interfaces/Time" and value == "now":
        return now()
    elif isinstance(value, Mapping):
        set_fields(message, value, now)
    else:
        raise TypeError(f"expected the fields of a {kind}, got {value!r}")
    return message


def _sequence_from_plain(
    element_type: Any, items: Sequence[Any], now: Callable[[], Any]
) -> list[Any]:
    if isinstance(element_type, NamespacedType):
        element = get_message("/".join(element_type.namespaced_name()))
        return [_message_from_plain(element(), item, now) for item in items]
    if getattr(element_type, "typename", "") in ("float", "double"):
        return [float(item) for item in items]
    if getattr(element_type, "typename", "") == "octet":
        return [bytes([item]) if isinstance(item, int) else item for item in items]
    return list(items)
