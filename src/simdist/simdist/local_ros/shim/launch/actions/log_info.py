"""Messages from launch files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..action import Action
from ..condition import Condition
from ..substitution import SomeSubstitutionsType, perform_substitutions

if TYPE_CHECKING:
    from ..launch_context import LaunchContext


class LogInfo(Action):
    def __init__(self, *, msg: SomeSubstitutionsType, condition: Condition | None = None) -> None:
        super().__init__(condition=condition)
        self.msg = msg

    def execute(self, context: LaunchContext) -> None:
        message = perform_substitutions(context, self.msg)
        context.service.console.report("INFO", "launch.user", message)
