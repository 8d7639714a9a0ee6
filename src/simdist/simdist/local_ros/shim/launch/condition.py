"""The base of conditions on actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class Condition:
    """A predicate over the launch context."""

    def __init__(self, *, predicate: Callable[[LaunchContext], bool]) -> None:
        self._predicate = predicate

    def evaluate(self, context: LaunchContext) -> bool:
        return self._predicate(context)
