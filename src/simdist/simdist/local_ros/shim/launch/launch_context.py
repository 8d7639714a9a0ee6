"""The state that actions and substitutions share."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .substitution import Substitution

if TYPE_CHECKING:
    from .event import Event
    from .event_handler import BaseEventHandler
    from .launch_service import LaunchService


class LaunchContext:
    """Launch configurations, the environment of new processes, and the event handlers."""

    def __init__(self, *, argv: Iterable[str] | None = None, noninteractive: bool = False) -> None:
        self.argv = list(argv or [])
        self.noninteractive = noninteractive
        self.launch_configurations: dict[str, str] = {}
        self.environment: dict[str, str] = dict(os.environ)
        self.ros_parameters: dict[str, Any] = {}
        self.current_launch_file: str | None = None
        self.is_shutdown = False
        self._handlers: list[BaseEventHandler] = []
        self._service: LaunchService | None = None

    @property
    def service(self) -> LaunchService:
        if self._service is None:
            raise RuntimeError("this action needs a running LaunchService")
        return self._service

    def attach(self, service: LaunchService) -> None:
        self._service = service

    @property
    def event_handlers(self) -> list[BaseEventHandler]:
        """The registered handlers, newest first; a copy, so handlers may change the list."""
        return list(self._handlers)

    def register_event_handler(self, handler: BaseEventHandler) -> None:
        self._handlers.insert(0, handler)

    def unregister_event_handler(self, handler: BaseEventHandler) -> None:
        self._handlers.remove(handler)

    def emit_event_sync(self, event: Event) -> None:
        self.service.emit_event(event)

    def perform_substitution(self, substitution: Substitution) -> str:
        return substitution.perform(self)

    @contextmanager
    def scope(self, *, forwarding: bool = True) -> Iterator[None]:
        """Undo, at the end, every change of configurations, environment and parameters."""
        saved = (self.launch_configurations, self.environment, self.ros_parameters)
        self.launch_configurations = dict(saved[0]) if forwarding else {}
        self.environment = dict(saved[1])
        self.ros_parameters = dict(saved[2]) if forwarding else {}
        try:
            yield
        finally:
            self.launch_configurations, self.environment, self.ros_parameters = saved

    @contextmanager
    def loading(self, launch_file: str | None) -> Iterator[None]:
        """Make `launch_file` the one that ThisLaunchFileDir speaks of."""
        saved = self.current_launch_file
        if launch_file is not None:
            self.current_launch_file = launch_file
        try:
            yield
        finally:
            self.current_launch_file = saved
