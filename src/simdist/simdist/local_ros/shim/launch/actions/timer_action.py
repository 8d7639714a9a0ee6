"""Actions that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..action import Action
from ..condition import Condition
from ..substitution import SomeSubstitutionsType, perform_substitutions

if TYPE_CHECKING:
    from ..launch_context import LaunchContext
    from ..launch_description_entity import LaunchDescriptionEntity


class TimerAction(Action):
    """Visits its actions after `period` seconds, unless the launch ends before."""

    def __init__(
        self,
        *,
        period: float | SomeSubstitutionsType,
        actions: Iterable[LaunchDescriptionEntity],
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.period = period
        self.actions = list(actions)
        self._task: asyncio.Task[None] | None = None

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        return self.actions

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def execute(self, context: LaunchContext) -> None:
        period = self.period
        if not isinstance(period, (int, float)):
            period = float(perform_substitutions(context, period))
        self._task = context.service.start_task(self._wait(context, float(period)))

    async def _wait(self, context: LaunchContext, period: float) -> None:
        if await context.service.sleep_unless_shutdown(period):
            context.service.visit(self.actions)
