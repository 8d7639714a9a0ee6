"""Where launch descriptions come from: Python launch files."""

from __future__ import annotations

import importlib.util
import os
from importlib.machinery import SourceFileLoader
from typing import TYPE_CHECKING

from .launch_description import LaunchDescription
from .substitution import SomeSubstitutionsType, perform_substitutions
from .unsupported import NeedsFullRos, unsupported_names

if TYPE_CHECKING:
    from .launch_context import LaunchContext

__all__ = [
    "AnyLaunchDescriptionSource",
    "InvalidPythonLaunchFileError",
    "LaunchDescriptionSource",
    "PythonLaunchDescriptionSource",
]

__getattr__ = unsupported_names(__name__)


class InvalidPythonLaunchFileError(RuntimeError):
    """A launch file cannot be loaded or has no generate_launch_description()."""


class LaunchDescriptionSource:
    """A launch description given directly, or the path of a file that makes one."""

    def __init__(self, source: LaunchDescription | SomeSubstitutionsType) -> None:
        self._source = source
        self.location: str | None = None

    def get_launch_description(self, context: LaunchContext) -> LaunchDescription:
        """Load the description; raise FileNotFoundError or InvalidPythonLaunchFileError."""
        if isinstance(self._source, LaunchDescription):
            return self._source
        self.location = os.path.abspath(perform_substitutions(context, self._source))
        with context.loading(self.location):
            return load_launch_file(self.location)


class PythonLaunchDescriptionSource(LaunchDescriptionSource):
    """A Python launch file."""


class AnyLaunchDescriptionSource(LaunchDescriptionSource):
    """A launch file of any kind; here Python only."""

    def get_launch_description(self, context: LaunchContext) -> LaunchDescription:
        if not isinstance(self._source, LaunchDescription):
            path = perform_substitutions(context, self._source)
            if path.endswith((".xml", ".yaml", ".yml")):
                raise NeedsFullRos(f"the XML or YAML launch file '{path}'")
        return super().get_launch_description(context)


def load_launch_file(path: str) -> LaunchDescription:
    """Run `generate_launch_description()` of the Python file at `path`."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"launch file '{path}' does not exist")
    name = "launch_file_" + "".join(c if c.isalnum() else "_" for c in os.path.basename(path))
    loader = SourceFileLoader(name, path)
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    generate = getattr(module, "generate_launch_description", None)
    if generate is None:
        raise InvalidPythonLaunchFileError(
            f"launch file at '{path}' does not contain the required function "
            "'generate_launch_description()'"
        )
    description = generate()
    if not isinstance(description, LaunchDescription):
        raise InvalidPythonLaunchFileError(
            f"generate_launch_description() of '{path}' returned "
            f"{type(description).__name__}, expected a LaunchDescription"
        )
    return description
