"""Launch descriptions within launch descriptions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..action import Action
from ..condition import Condition
from ..launch_context import LaunchContext
from ..launch_description import LaunchDescription
from ..launch_description_sources import LaunchDescriptionSource
from ..substitution import SomeSubstitutionsType, TextSubstitution, perform_substitutions

if TYPE_CHECKING:
    from ..launch_description_entity import LaunchDescriptionEntity

Argument = tuple[SomeSubstitutionsType, SomeSubstitutionsType]


class IncludeLaunchDescription(Action):
    """Sets the given arguments and visits another description. Not a scope of its own."""

    def __init__(
        self,
        launch_description_source: LaunchDescriptionSource | LaunchDescription,
        *,
        launch_arguments: Iterable[Argument] | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        if isinstance(launch_description_source, LaunchDescription):
            launch_description_source = LaunchDescriptionSource(launch_description_source)
        self.source = launch_description_source
        self.launch_arguments: list[Argument] = list(launch_arguments or [])

    def given_argument_names(self) -> set[str]:
        """Return the argument names that are known before the launch."""
        names = set()
        for name, _ in self.launch_arguments:
            if isinstance(name, TextSubstitution):
                names.add(name.text)
            elif isinstance(name, str):
                names.add(name)
        return names

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        # The path may depend on values that only a running launch has; then it stays unknown.
        try:
            return [self.source.get_launch_description(LaunchContext())]
        except Exception:
            return []

    def execute(self, context: LaunchContext) -> None:
        description = self.source.get_launch_description(context)
        given = {
            perform_substitutions(context, name): perform_substitutions(context, value)
            for name, value in self.launch_arguments
        }
        for declared, conditional in description.get_launch_arguments_with_conditions():
            required = declared.default_value is None and not conditional
            if required and declared.name not in {**context.launch_configurations, **given}:
                raise RuntimeError(
                    f"Included launch description missing required argument '{declared.name}' "
                    f"(description: '{declared.description}'), "
                    f"given: [{', '.join(given)}]"
                )
        context.launch_configurations.update(given)
        with context.loading(self.source.location):
            context.service.visit(description)
