"""Substitutions: values that are known only when the launch runs."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from .launch_context import LaunchContext


class Substitution:
    """Base of everything that turns into text at launch time."""

    def perform(self, context: LaunchContext) -> str:
        raise NotImplementedError

    def describe(self) -> str:
        """Return the text that `ros2 launch --show-args` prints for a default."""
        return f"{type(self).__name__}()"


class TextSubstitution(Substitution):
    """Literal text."""

    def __init__(self, *, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"TextSubstitution expected a str, got {text!r}")
        self.text = text

    def perform(self, context: LaunchContext) -> str:
        return self.text

    def describe(self) -> str:
        return f"'{self.text}'"


SomeSubstitutionsType = Union[
    str, "os.PathLike[str]", Substitution, Iterable[str | Substitution | Any]
]


def normalize_to_list_of_substitutions(value: SomeSubstitutionsType) -> list[Substitution]:
    """Turn text, a path, a substitution or a list of these into a list of substitutions."""
    if isinstance(value, Substitution):
        return [value]
    if isinstance(value, str):
        return [TextSubstitution(text=value)]
    if isinstance(value, os.PathLike):
        return [TextSubstitution(text=os.fspath(value))]
    if isinstance(value, Iterable):
        return [one for item in value for one in normalize_to_list_of_substitutions(item)]
    raise TypeError(
        f"expected text, a path, a Substitution or a list of them, got {value!r} "
        f"of type {type(value).__name__}"
    )


def perform_substitutions(context: LaunchContext, value: SomeSubstitutionsType) -> str:
    """Evaluate and concatenate."""
    return "".join(one.perform(context) for one in normalize_to_list_of_substitutions(value))
