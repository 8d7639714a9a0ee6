"""Finding a robot by its name."""

from __future__ import annotations

from collections.abc import Callable

from simdist.errors import ConfigError
from simdist.robots.go1 import go1
from simdist.robots.go2 import go2
from simdist.robots.spec import RobotSpec

_ROBOTS: dict[str, Callable[[], RobotSpec]] = {"go1": go1, "go2": go2}


def available() -> tuple[str, ...]:
    """Names that :func:`get` accepts."""
    return tuple(sorted(_ROBOTS))


def get(name: str) -> RobotSpec:
    """The constants of the robot called ``name``; raises ConfigError for an unknown one."""
    if name not in _ROBOTS:
        raise ConfigError(f"unknown robot {name!r}; known robots: {', '.join(available())}")
    return _ROBOTS[name]()
