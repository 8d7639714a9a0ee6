"""Actions that change launch configurations and the environment of later processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..action import Action
from ..condition import Condition
from ..substitution import SomeSubstitutionsType, perform_substitutions

if TYPE_CHECKING:
    from ..launch_context import LaunchContext


class SetLaunchConfiguration(Action):
    def __init__(
        self,
        name: SomeSubstitutionsType,
        value: SomeSubstitutionsType,
        *,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.name = name
        self.value = value

    def execute(self, context: LaunchContext) -> None:
        name = perform_substitutions(context, self.name)
        context.launch_configurations[name] = perform_substitutions(context, self.value)


class UnsetLaunchConfiguration(Action):
    def __init__(self, name: SomeSubstitutionsType, *, condition: Condition | None = None) -> None:
        super().__init__(condition=condition)
        self.name = name

    def execute(self, context: LaunchContext) -> None:
        context.launch_configurations.pop(perform_substitutions(context, self.name), None)


class SetEnvironmentVariable(Action):
    def __init__(
        self,
        name: SomeSubstitutionsType,
        value: SomeSubstitutionsType,
        *,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.name = name
        self.value = value

    def execute(self, context: LaunchContext) -> None:
        name = perform_substitutions(context, self.name)
        context.environment[name] = perform_substitutions(context, self.value)


class UnsetEnvironmentVariable(Action):
    def __init__(self, name: SomeSubstitutionsType, *, condition: Condition | None = None) -> None:
        super().__init__(condition=condition)
        self.name = name

    def execute(self, context: LaunchContext) -> None:
        context.environment.pop(perform_substitutions(context, self.name), None)
