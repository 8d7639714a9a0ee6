"""Parameter values and files for nodes."""

from __future__ import annotations

import os
from typing import Any

from launch import LaunchContext, SomeSubstitutionsType
from launch.unsupported import NeedsFullRos, unsupported_names
from launch.utilities import perform_substitutions

from .parameters import ScalarOrList, read_value

__all__ = ["ParameterFile", "ParameterValue"]

__getattr__ = unsupported_names(__name__)


class ParameterValue:
    """A value with an explicit type: str, int, float, bool, or List[...] of one of them."""

    def __init__(self, value: Any, *, value_type: Any = None) -> None:
        self.value = value
        self.value_type = value_type

    def evaluate(self, context: LaunchContext) -> ScalarOrList:
        value = self.value
        if not isinstance(value, (bool, int, float)):
            value = perform_substitutions(context, value)
        return read_value(value, self.value_type)


class ParameterFile:
    """A YAML parameter file."""

    def __init__(
        self,
        param_file: SomeSubstitutionsType | os.PathLike[str],
        *,
        allow_substs: bool = False,
    ) -> None:
        if allow_substs:
            raise NeedsFullRos("ParameterFile(allow_substs=True)")
        self.param_file = param_file

    def evaluate(self, context: LaunchContext) -> str:
        return perform_substitutions(context, self.param_file)
