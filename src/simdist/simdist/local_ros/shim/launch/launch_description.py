"""Launch descriptions and the arguments they declare."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .launch_description_entity import LaunchDescriptionEntity

if TYPE_CHECKING:
    from .actions.declare_launch_argument import DeclareLaunchArgument
    from .launch_context import LaunchContext


class LaunchDescription(LaunchDescriptionEntity):
    """A list of entities, visited in order."""

    def __init__(self, initial_entities: Iterable[LaunchDescriptionEntity] | None = None) -> None:
        self.entities = list(initial_entities or [])

    def add_action(self, action: LaunchDescriptionEntity) -> None:
        self.entities.append(action)

    add_entity = add_action

    def visit(self, context: LaunchContext) -> list[LaunchDescriptionEntity]:
        return self.entities

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        return self.entities

    def get_launch_arguments(self) -> list[DeclareLaunchArgument]:
        """Return the declared arguments in order, the first declaration of each name."""
        return [declared for declared, _ in self.get_launch_arguments_with_conditions()]

    def get_launch_arguments_with_conditions(self) -> list[tuple[DeclareLaunchArgument, bool]]:
        """Return each declared argument and whether its declaration hangs on a condition."""
        from .actions.declare_launch_argument import DeclareLaunchArgument
        from .actions.include_launch_description import IncludeLaunchDescription

        found: dict[str, tuple[DeclareLaunchArgument, bool]] = {}

        def collect(
            entities: Iterable[LaunchDescriptionEntity], conditional: bool, given: set[str]
        ) -> None:
            for entity in entities:
                hangs = conditional or getattr(entity, "condition", None) is not None
                if isinstance(entity, DeclareLaunchArgument):
                    if entity.name not in given:
                        found.setdefault(entity.name, (entity, hangs))
                elif isinstance(entity, IncludeLaunchDescription):
                    names = given | entity.given_argument_names()
                    collect(entity.describe_sub_entities(), hangs, names)
                else:
                    collect(entity.describe_sub_entities(), hangs, given)

        collect(self.entities, False, set())
        return list(found.values())
