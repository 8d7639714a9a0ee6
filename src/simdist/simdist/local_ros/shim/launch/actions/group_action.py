"""Groups: a scope and a common condition for several actions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING

from ..action import Action
from ..condition import Condition
from ..substitution import SomeSubstitutionsType, perform_substitutions

if TYPE_CHECKING:
    from ..launch_context import LaunchContext
    from ..launch_description_entity import LaunchDescriptionEntity


class GroupAction(Action):
    """Visits its actions; what they set ends with the group, if it is scoped.

    Without `forwarding` the group starts from empty launch configurations.
    """

    def __init__(
        self,
        actions: Iterable[LaunchDescriptionEntity],
        *,
        scoped: bool = True,
        forwarding: bool = True,
        launch_configurations: (
            Mapping[SomeSubstitutionsType, SomeSubstitutionsType] | None
        ) = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.actions = list(actions)
        self.scoped = scoped
        self.forwarding = forwarding
        self.launch_configurations = dict(launch_configurations or {})

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        return self.actions

    def execute(self, context: LaunchContext) -> None:
        given = {
            perform_substitutions(context, name): perform_substitutions(context, value)
            for name, value in self.launch_configurations.items()
        }
        with context.scope(forwarding=self.forwarding) if self.scoped else nullcontext():
            context.launch_configurations.update(given)
            context.service.visit(self.actions)
