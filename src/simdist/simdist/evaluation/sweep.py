"""``simdist evaluate --sweep``: how methods fare as one parameter of a world varies.

The band of values where the expert fails and the oracle succeeds is where adaptation can show.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from simdist.errors import ConfigError
from simdist.evaluation.rows import Row
from simdist.simulation.batch import Randomisation
from simdist.simulation.outside import slippery
from simdist.simulation.world import Strip, WorldSpec, check_world

FORMAT = "simdist-sweep-1"


def _with_strips(world: WorldSpec, change: Callable[[Strip], Strip]) -> WorldSpec:
    return replace(world, course=tuple(change(strip) for strip in world.course))


def _with_friction(world: WorldSpec, value: float) -> WorldSpec:
    ranges = Randomisation()
    return _with_strips(world, lambda s: replace(s, friction=value) if slippery(s, ranges) else s)


def _with_softness(name: str) -> Callable[[WorldSpec, float], WorldSpec]:
    def change(strip: Strip, value: float) -> Strip:
        if strip.softness is None:
            return strip
        return replace(strip, softness=replace(strip.softness, **{name: value}))

    return lambda world, value: _with_strips(world, lambda strip: change(strip, value))


def _with_gap(name: str) -> Callable[[WorldSpec, float], WorldSpec]:
    return lambda world, value: replace(world, gaps=replace(world.gaps, **{name: value}))


def _with_strength(world: WorldSpec, value: float) -> WorldSpec:
    strength = dict.fromkeys(world.gaps.motor_strength, value)
    return replace(world, gaps=replace(world.gaps, motor_strength=strength))


_CHANGES: dict[str, Callable[[WorldSpec, float], WorldSpec]] = {
    "friction": _with_friction,
    "time_constant": _with_softness("time_constant"),
    "damping_ratio": _with_softness("damping_ratio"),
    "depth": _with_softness("depth"),
    "trunk_mass": _with_gap("trunk_mass"),
    "motor_strength": _with_strength,
    "action_delay": _with_gap("action_delay"),
}
PARAMETERS = tuple(_CHANGES)


def parameters_of(world: WorldSpec) -> tuple[str, ...]:
    """The parameters that can be swept in ``world``: those that make it hard."""
    soft = any(strip.softness for strip in world.course)
    present = {
        "friction": any(slippery(strip, Randomisation()) for strip in world.course),
        "time_constant": soft,
        "damping_ratio": soft,
        "depth": soft,
        "trunk_mass": world.gaps.trunk_mass != 0,
        "motor_strength": bool(world.gaps.motor_strength),
        "action_delay": world.gaps.action_delay > 0,
    }
    return tuple(name for name in PARAMETERS if present[name])


def with_parameter(world: WorldSpec, name: str, value: float) -> WorldSpec:
    """``world`` with another value of a parameter that makes it hard.

    Friction is changed on the strips that lie outside the range of pretraining, motor strength on
    the joints that are weak. Raises ConfigError for an unknown parameter, one that plays no part in
    the world, and an impossible value.
    """
    if name not in PARAMETERS:
        raise ConfigError(f"unknown sweep parameter {name!r}; known: {', '.join(PARAMETERS)}")
    present = parameters_of(world)
    if name not in present:
        raise ConfigError(
            f"world {world.name!r} has no {name} to sweep; it has: {', '.join(present) or 'none'}"
        )
    return check_world(_CHANGES[name](world, value))


def parse_sweep(text: str) -> tuple[str, tuple[float, ...]]:
    """Name and values of ``NAME=V,V,...``; raises ConfigError where it is not of that form."""
    name, _, listed = text.partition("=")
    try:
        values = tuple(float(value) for value in listed.split(","))
    except ValueError:
        values = ()
    if not name or not values or not all(math.isfinite(value) for value in values):
        raise ConfigError(
            f"--sweep {text!r} must read PARAMETER=VALUE,VALUE,...; parameters: "
            f"{', '.join(PARAMETERS)}"
        )
    if len(set(values)) != len(values):
        raise ConfigError(f"--sweep {text!r} names a value twice")
    return name, values


@dataclass(frozen=True)
class SweepResult:
    """The trials of every method at every value of ``parameter``, each row with its value."""

    world: str
    parameter: str
    values: tuple[float, ...]
    rows: tuple[tuple[float, Row], ...]
    line_m: float
    command: str
    seed: int
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "world": self.world,
            "parameter": self.parameter,
            "values": list(self.values),
            "rows": [
                {
                    "method": row.method,
                    "value": value,
                    "progress_m": [result.progress for result in row.results],
                    "falls": sum(result.fallen for result in row.results),
                    "success": sum(result.reached for result in row.results),
                    "trials": len(row.results),
                }
                for value, row in self.rows
            ],
            "line_m": self.line_m,
            "command": self.command,
            "seed": self.seed,
            "wall_s": self.wall_s,
        }

    def table(self) -> str:
        """The rows as text, one line a value and method."""
        lines = [
            f"{self.parameter:>14}  {'method':<15}{'success':>9}{'falls':>7}{'progress (m)':>14}"
        ]
        for entry in self.to_dict()["rows"]:
            mean = sum(entry["progress_m"]) / entry["trials"]
            success = f"{entry['success']}/{entry['trials']}"
            lines.append(
                f"{entry['value']:>14g}  {entry['method']:<15}{success:>9}{entry['falls']:>7}"
                f"{mean:>14.2f}"
            )
        return "\n".join(lines)
