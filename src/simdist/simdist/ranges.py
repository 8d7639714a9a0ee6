"""Configurations that check themselves: a dataclass whose numbers carry their allowed range.

The range and the description stand once, beside the default; nodes declare their parameters from
them and YAML files are checked against them.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from simdist.errors import ConfigError

T = TypeVar("T")


def bounded(default: Any, low: float, high: float, description: str) -> Any:
    """A dataclass field holding a number in ``[low, high]``."""
    return field(default=default, metadata={"range": (low, high), "description": description})


@dataclass(frozen=True)
class Checked:
    """Base of configurations: refuses values of the wrong type or out of range on creation."""

    def __post_init__(self) -> None:
        for item in fields(self):
            if "range" in item.metadata:
                low, high = item.metadata["range"]
                _check_number(
                    type(self).__name__,
                    item.name,
                    getattr(self, item.name),
                    isinstance(item.default, int),
                    low,
                    high,
                )
            elif isinstance(item.default, bool):
                value = getattr(self, item.name)
                if not isinstance(value, bool):
                    raise ConfigError(
                        f"{type(self).__name__}.{item.name} = {value!r}: must be true or false"
                    )


def _check_number(owner: str, name: str, value: Any, whole: bool, low: float, high: float) -> None:
    kind = "a whole number" if whole else "a number"
    is_number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:
        raise ConfigError(f"{owner}.{name} = {value!r}: must be {kind} from {low} to {high}")


def from_mapping(kind: type[T], values: Mapping[str, Any] | None, where: str) -> T:
    """``kind(**values)`` for values read from YAML; ``where`` names the file or section.

    Raises ConfigError for a section that is no mapping, an unknown name or a value out of range.
    """
    if values is None:
        values = {}
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: must be a mapping of names to values, got {values!r}")
    known = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise ConfigError(f"{where}: unknown name {name!r}; known names: {', '.join(known)}")
    try:
        return kind(**values)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


def add_options(parser: argparse.ArgumentParser, kind: type[Checked]) -> None:
    """One option ``--field-name`` for each field of ``kind``, whose defaults are plain numbers."""
    for item in fields(kind):
        parser.add_argument(
            f"--{item.name.replace('_', '-')}",
            type=type(item.default),
            default=item.default,
            metavar="N" if isinstance(item.default, int) else "X",
            help=f"{item.metadata['description']} (default {item.default})",
        )


def from_options(kind: type[T], arguments: argparse.Namespace) -> T:
    """The configuration that options declared by :func:`add_options` ask for."""
    return kind(**{item.name: getattr(arguments, item.name) for item in fields(kind)})  # type: ignore[arg-type]
