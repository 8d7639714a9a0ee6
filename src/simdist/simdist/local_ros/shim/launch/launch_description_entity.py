"""The base of everything in a launch description."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class LaunchDescriptionEntity:
    """Something that can be visited: it does its part and returns what to visit next."""

    def visit(
        self, context: LaunchContext
    ) -> Iterable[LaunchDescriptionEntity] | LaunchDescriptionEntity | None:
        return None

    def describe_sub_entities(self) -> list[LaunchDescriptionEntity]:
        """Return what this entity would visit, as far as that is known before the launch."""
        return []
