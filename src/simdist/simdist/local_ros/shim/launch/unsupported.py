"""Clear refusals for what this stand-in does not implement."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any


class NeedsFullRos(NotImplementedError):
    """A launch file uses something that only a full ROS 2 installation offers."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} is not supported by simdist's launch stand-in; "
            "it needs a full ROS 2 installation (source its setup.bash and run again)"
        )


def refuse_options(owner: str, options: Mapping[str, Any]) -> None:
    """Raise for keyword arguments that exist in real launch but not here."""
    if options:
        raise NeedsFullRos(f"{owner}({', '.join(f'{name}=...' for name in sorted(options))})")


def unsupported_names(module: str) -> Callable[[str], Any]:
    """Return a module `__getattr__` that explains a name missing from `module`.

    Submodules are imported on first use. ImportError passes through `from module import name`,
    where an AttributeError would be replaced by the unhelpful "cannot import name".
    """

    def module_getattr(name: str) -> Any:
        full_name = f"{module}.{name}"
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        if hasattr(sys.modules[module], "__path__") and importlib.util.find_spec(full_name):
            return importlib.import_module(full_name)
        raise ImportError(str(NeedsFullRos(full_name)))

    return module_getattr
