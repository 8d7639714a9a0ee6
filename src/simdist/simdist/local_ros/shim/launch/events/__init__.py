"""Events of the launch itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..event import Event
from ..unsupported import unsupported_names

if TYPE_CHECKING:
    from ..action import Action

__all__ = ["Shutdown", "matches_action"]

__getattr__ = unsupported_names(__name__)


class Shutdown(Event):
    """The launch is to end: every process is stopped."""

    name = "launch.events.Shutdown"

    def __init__(self, *, reason: str = "reason not given", due_to_sigint: bool = False) -> None:
        self.reason = reason
        self.due_to_sigint = due_to_sigint


def matches_action(target: Action) -> Callable[[Action], bool]:
    """Return a process matcher for exactly one action."""
    return lambda action: action is target
