"""Substitutions for launch files. `PythonExpression` is left out on purpose: no eval."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .substitution import (
    SomeSubstitutionsType,
    Substitution,
    TextSubstitution,
    normalize_to_list_of_substitutions,
    perform_substitutions,
)
from .unsupported import unsupported_names

if TYPE_CHECKING:
    from .launch_context import LaunchContext

__all__ = [
    "AndSubstitution",
    "EnvironmentVariable",
    "EqualsSubstitution",
    "IfElseSubstitution",
    "LaunchConfiguration",
    "NotEqualsSubstitution",
    "NotSubstitution",
    "OrSubstitution",
    "PathJoinSubstitution",
    "SubstitutionFailure",
    "TextSubstitution",
    "ThisLaunchFile",
    "ThisLaunchFileDir",
]

__getattr__ = unsupported_names(__name__)


class SubstitutionFailure(RuntimeError):
    """A substitution has no value."""


def parse_boolean(text: str) -> bool:
    """Read 'true', 'false', '1' or '0' in any case, as launch conditions do."""
    lowered = text.strip().lower()
    if lowered in ("true", "1"):
        return True
    if lowered in ("false", "0"):
        return False
    raise SubstitutionFailure(
        f"invalid condition expression: expected one of 'true', '1', 'false', '0', got '{text}'"
    )


def describe_all(value: SomeSubstitutionsType) -> str:
    return " + ".join(one.describe() for one in normalize_to_list_of_substitutions(value))


class LaunchConfiguration(Substitution):
    """The value of a launch argument or of another launch configuration."""

    def __init__(
        self, variable_name: SomeSubstitutionsType, *, default: SomeSubstitutionsType | None = None
    ) -> None:
        self.variable_name = normalize_to_list_of_substitutions(variable_name)
        self.default = default

    def perform(self, context: LaunchContext) -> str:
        name = perform_substitutions(context, self.variable_name)
        if name in context.launch_configurations:
            return context.launch_configurations[name]
        if self.default is None:
            raise SubstitutionFailure(f"launch configuration '{name}' does not exist")
        return perform_substitutions(context, self.default)

    def describe(self) -> str:
        return f"LaunchConfiguration({describe_all(self.variable_name)})"


class EnvironmentVariable(Substitution):
    """The value of an environment variable of the launch."""

    def __init__(
        self, name: SomeSubstitutionsType, *, default_value: SomeSubstitutionsType | None = None
    ) -> None:
        self.name = normalize_to_list_of_substitutions(name)
        self.default_value = default_value

    def perform(self, context: LaunchContext) -> str:
        name = perform_substitutions(context, self.name)
        if name in context.environment:
            return context.environment[name]
        if self.default_value is None:
            raise SubstitutionFailure(f"environment variable '{name}' does not exist")
        return perform_substitutions(context, self.default_value)

    def describe(self) -> str:
        return f"EnvVar({describe_all(self.name)})"


class PathJoinSubstitution(Substitution):
    """Path components joined with the separator of the system."""

    def __init__(self, substitutions: list[SomeSubstitutionsType]) -> None:
        self.substitutions = list(substitutions)

    def perform(self, context: LaunchContext) -> str:
        return os.path.join(*(perform_substitutions(context, one) for one in self.substitutions))

    def describe(self) -> str:
        return f"PathJoin('{', '.join(describe_all(one) for one in self.substitutions)}')"


class ThisLaunchFile(Substitution):
    """Path of the launch file being loaded."""

    def perform(self, context: LaunchContext) -> str:
        if context.current_launch_file is None:
            raise SubstitutionFailure("no launch file is being loaded")
        return context.current_launch_file


class ThisLaunchFileDir(ThisLaunchFile):
    """Directory of the launch file being loaded."""

    def perform(self, context: LaunchContext) -> str:
        return os.path.dirname(super().perform(context))


class EqualsSubstitution(Substitution):
    """'true' if both sides evaluate to the same text."""

    def __init__(
        self, left: SomeSubstitutionsType | None, right: SomeSubstitutionsType | None
    ) -> None:
        self.left = "" if left is None else left
        self.right = "" if right is None else right

    def perform(self, context: LaunchContext) -> str:
        left = perform_substitutions(context, self.left)
        return str(left == perform_substitutions(context, self.right)).lower()

    def describe(self) -> str:
        return f"{type(self).__name__}({describe_all(self.left)} {describe_all(self.right)})"


class NotEqualsSubstitution(EqualsSubstitution):
    """'true' if the two sides evaluate to different text."""

    def perform(self, context: LaunchContext) -> str:
        return str(super().perform(context) == "false").lower()


class NotSubstitution(Substitution):
    """Logical negation."""

    def __init__(self, value: SomeSubstitutionsType) -> None:
        self.value = value

    def perform(self, context: LaunchContext) -> str:
        return str(not parse_boolean(perform_substitutions(context, self.value))).lower()

    def describe(self) -> str:
        return f"NotSubstitution({describe_all(self.value)})"


class AndSubstitution(Substitution):
    """Logical and of two values."""

    def __init__(self, left: SomeSubstitutionsType, right: SomeSubstitutionsType) -> None:
        self.left = left
        self.right = right

    def operands(self, context: LaunchContext) -> tuple[bool, bool]:
        left = parse_boolean(perform_substitutions(context, self.left))
        return left, parse_boolean(perform_substitutions(context, self.right))

    def perform(self, context: LaunchContext) -> str:
        return str(all(self.operands(context))).lower()

    def describe(self) -> str:
        return f"{type(self).__name__}({describe_all(self.left)} {describe_all(self.right)})"


class OrSubstitution(AndSubstitution):
    """Logical or of two values."""

    def perform(self, context: LaunchContext) -> str:
        return str(any(self.operands(context))).lower()


class IfElseSubstitution(Substitution):
    """One of two values, by a condition."""

    def __init__(
        self,
        condition: SomeSubstitutionsType,
        if_value: SomeSubstitutionsType = "",
        else_value: SomeSubstitutionsType = "",
    ) -> None:
        self.condition = condition
        self.if_value = if_value
        self.else_value = else_value

    def perform(self, context: LaunchContext) -> str:
        chosen = parse_boolean(perform_substitutions(context, self.condition))
        return perform_substitutions(context, self.if_value if chosen else self.else_value)
