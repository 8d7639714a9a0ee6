"""Actions that emit events and register handlers for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import events
from ..action import Action
from ..condition import Condition
from ..event import Event
from ..event_handler import BaseEventHandler
from ..substitution import SomeSubstitutionsType, perform_substitutions

if TYPE_CHECKING:
    from ..launch_context import LaunchContext


class EmitEvent(Action):
    def __init__(self, *, event: Event, condition: Condition | None = None) -> None:
        super().__init__(condition=condition)
        self.event = event

    def execute(self, context: LaunchContext) -> None:
        context.emit_event_sync(self.event)


class Shutdown(Action):
    """Ends the launch."""

    def __init__(
        self,
        *,
        reason: SomeSubstitutionsType = "reason not given",
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.reason = reason

    def execute(self, context: LaunchContext) -> None:
        reason = perform_substitutions(context, self.reason)
        context.emit_event_sync(events.Shutdown(reason=reason))


class RegisterEventHandler(Action):
    def __init__(
        self, event_handler: BaseEventHandler, *, condition: Condition | None = None
    ) -> None:
        super().__init__(condition=condition)
        self.event_handler = event_handler

    def execute(self, context: LaunchContext) -> None:
        context.register_event_handler(self.event_handler)


class UnregisterEventHandler(RegisterEventHandler):
    def execute(self, context: LaunchContext) -> None:
        context.unregister_event_handler(self.event_handler)
