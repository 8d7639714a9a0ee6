"""Python functions as actions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..action import Action
from ..condition import Condition

if TYPE_CHECKING:
    from ..event_handler import SomeEntitiesType
    from ..launch_context import LaunchContext


class OpaqueFunction(Action):
    """Calls `function(context, *args, **kwargs)` and visits the entities it returns."""

    def __init__(
        self,
        *,
        function: Callable[..., SomeEntitiesType | None],
        args: Iterable[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        condition: Condition | None = None,
    ) -> None:
        super().__init__(condition=condition)
        self.function = function
        self.args = tuple(args or ())
        self.kwargs = dict(kwargs or {})

    def execute(self, context: LaunchContext) -> SomeEntitiesType | None:
        return self.function(context, *self.args, **self.kwargs)
