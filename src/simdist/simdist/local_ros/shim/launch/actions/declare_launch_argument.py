"""Launch arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..action import Action
from ..condition import Condition
from ..substitution import (
    SomeSubstitutionsType,
    Substitution,
    normalize_to_list_of_substitutions,
    perform_substitutions,
)

if TYPE_CHECKING:
    from ..launch_context import LaunchContext


class DeclareLaunchArgument(Action):
    """Declares an argument, gives it its default, and refuses a value outside `choices`."""

    def __init__(
        self,
        name: str,
        *,
        default_value: SomeSubstitutionsType | None = None,
        description: str | None = None,
        choices: list[str] | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.name = name
        self.choices = choices
        self.default_value: list[Substitution] | None = None
        if default_value is not None:
            self.default_value = normalize_to_list_of_substitutions(default_value)
        if choices is not None:
            if not choices:
                raise RuntimeError(
                    "Provided choices arg is empty. Use None to ignore the choice list."
                )
            if isinstance(default_value, str) and default_value not in choices:
                raise RuntimeError(
                    f'Provided default_value "{default_value}" is not in provided choices '
                    f'"{choices}".'
                )
        self.description = _describe(description, choices)

    def execute(self, context: LaunchContext) -> None:
        configurations = context.launch_configurations
        if self.name not in configurations:
            if self.default_value is None:
                raise RuntimeError(
                    f"Required launch argument '{self.name}' (description: "
                    f"'{self.description}') was not provided"
                )
            configurations[self.name] = perform_substitutions(context, self.default_value)
        value = configurations[self.name]
        if self.choices is not None and value not in self.choices:
            raise RuntimeError(
                f'Argument "{self.name}" provided value "{value}" is not valid. '
                f"Valid options are: {self.choices}"
            )


def _describe(description: str | None, choices: list[str] | None) -> str:
    if choices is None:
        return "no description given" if description is None else description
    if description is None:
        return f"One of: {choices}"
    return f"{description.removesuffix('.')}. Valid choices are: {choices}"
