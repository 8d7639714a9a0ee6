"""Event handlers for launch files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .action import Action
from .event import Event
from .event_handler import EventHandler, Reaction, SomeEntitiesType
from .events import Shutdown
from .events.process import ProcessExited, ProcessIO, ProcessStarted, RunningProcessEvent
from .unsupported import unsupported_names

if TYPE_CHECKING:
    from .launch_context import LaunchContext

__all__ = ["OnProcessExit", "OnProcessIO", "OnProcessStart", "OnShutdown"]

__getattr__ = unsupported_names(__name__)

TargetAction = Action | Callable[[Action], bool] | None


def _matcher(kind: type[RunningProcessEvent], target: TargetAction) -> Callable[[Event], bool]:
    """Match events of `kind` of one action, of those a function accepts, or of any."""

    def matches(event: Event) -> bool:
        if not isinstance(event, kind):
            return False
        if target is None or event.action is target:
            return True
        return not isinstance(target, Action) and target(event.action)

    return matches


class OnProcessExit(EventHandler):
    def __init__(
        self,
        *,
        target_action: TargetAction = None,
        on_exit: Reaction,
        handle_once: bool = False,
    ) -> None:
        super().__init__(
            matcher=_matcher(ProcessExited, target_action),
            entities=on_exit,
            handle_once=handle_once,
        )


class OnProcessStart(EventHandler):
    def __init__(
        self,
        *,
        target_action: TargetAction = None,
        on_start: Reaction,
        handle_once: bool = False,
    ) -> None:
        super().__init__(
            matcher=_matcher(ProcessStarted, target_action),
            entities=on_start,
            handle_once=handle_once,
        )


class OnProcessIO(EventHandler):
    """Calls functions of one argument, the ProcessIO event, with the lines of a process."""

    def __init__(
        self,
        *,
        target_action: TargetAction = None,
        on_stdout: Callable[[ProcessIO], SomeEntitiesType | None] | None = None,
        on_stderr: Callable[[ProcessIO], SomeEntitiesType | None] | None = None,
    ) -> None:
        def dispatch(event: ProcessIO, context: LaunchContext) -> SomeEntitiesType | None:
            callback = on_stdout if event.from_stdout else on_stderr
            return None if callback is None else callback(event)

        super().__init__(matcher=_matcher(ProcessIO, target_action), entities=dispatch)


class OnShutdown(EventHandler):
    def __init__(self, *, on_shutdown: Reaction) -> None:
        super().__init__(matcher=lambda event: isinstance(event, Shutdown), entities=on_shutdown)
