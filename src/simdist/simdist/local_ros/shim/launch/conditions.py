"""Conditions on actions: run them if, or unless, a value is true."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .condition import Condition
from .substitution import SomeSubstitutionsType, perform_substitutions
from .substitutions import SubstitutionFailure, parse_boolean
from .unsupported import unsupported_names

if TYPE_CHECKING:
    from .launch_context import LaunchContext

__all__ = [
    "IfCondition",
    "InvalidConditionExpressionError",
    "UnlessCondition",
    "evaluate_condition_expression",
]

__getattr__ = unsupported_names(__name__)


class InvalidConditionExpressionError(SubstitutionFailure):
    """A condition evaluates to something other than true, false, 1 or 0."""


def evaluate_condition_expression(
    context: LaunchContext, expression: SomeSubstitutionsType
) -> bool:
    """Return the truth of `expression`; raise InvalidConditionExpressionError for other text."""
    try:
        return parse_boolean(perform_substitutions(context, expression))
    except SubstitutionFailure as error:
        raise InvalidConditionExpressionError(str(error)) from error


class IfCondition(Condition):
    def __init__(self, predicate_expression: SomeSubstitutionsType) -> None:
        super().__init__(
            predicate=lambda context: evaluate_condition_expression(context, predicate_expression)
        )


class UnlessCondition(Condition):
    def __init__(self, predicate_expression: SomeSubstitutionsType) -> None:
        super().__init__(
            predicate=lambda context: (
                not evaluate_condition_expression(context, predicate_expression)
            )
        )
