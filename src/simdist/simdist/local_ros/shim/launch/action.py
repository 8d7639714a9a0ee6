"""The base of actions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from .condition import Condition
from .launch_description_entity import LaunchDescriptionEntity

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class Action(LaunchDescriptionEntity):
    """An entity that does something, if its condition holds when it is visited."""

    def __init__(self, *, condition: Condition | None = None) -> None:
        self.condition = condition

    def visit(
        self, context: LaunchContext
    ) -> Iterable[LaunchDescriptionEntity] | LaunchDescriptionEntity | None:
        if self.condition is None or self.condition.evaluate(context):
            return self.execute(context)
        return None

    def execute(
        self, context: LaunchContext
    ) -> Iterable[LaunchDescriptionEntity] | LaunchDescriptionEntity | None:
        return None
