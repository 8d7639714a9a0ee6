"""The base of event handlers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .event import Event
from .launch_description_entity import LaunchDescriptionEntity

if TYPE_CHECKING:
    from .launch_context import LaunchContext

SomeEntitiesType = LaunchDescriptionEntity | Iterable[LaunchDescriptionEntity]
Reaction = SomeEntitiesType | Callable[[Any, "LaunchContext"], Any]


class BaseEventHandler:
    """Decides which events it takes."""

    def __init__(self, *, matcher: Callable[[Event], bool], handle_once: bool = False) -> None:
        self._matcher = matcher
        self.handle_once = handle_once

    def matches(self, event: Event) -> bool:
        return self._matcher(event)

    def handle(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        raise NotImplementedError


class EventHandler(BaseEventHandler):
    """Answers an event with entities to visit, or with a function that returns them."""

    def __init__(
        self,
        *,
        matcher: Callable[[Event], bool],
        entities: Reaction | None = None,
        handle_once: bool = False,
    ) -> None:
        super().__init__(matcher=matcher, handle_once=handle_once)
        self.entities = entities

    def handle(self, event: Event, context: LaunchContext) -> SomeEntitiesType | None:
        return react(self.entities, event, context)


def react(
    reaction: Reaction | None, event: Event, context: LaunchContext
) -> SomeEntitiesType | None:
    """Return the entities of `reaction`, calling it if it is a function."""
    if callable(reaction):
        return reaction(event, context)
    return reaction
