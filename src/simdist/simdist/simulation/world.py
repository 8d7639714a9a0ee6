"""Worlds described in YAML: a course of strips along x, obstacles, and reality gaps.

A course is a list of strips, each ``length`` metres of surface along +x with a ``slope`` (degrees,
uphill positive), a ``friction``, a ``rise`` (m, a step up where it begins), ``softness`` (foam) or
``rough`` ground. The last strip should be long. See config/worlds/ for examples.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import yaml

from simdist import paths
from simdist.errors import ConfigError
from simdist.types import Array

NOMINAL_FRICTION = 0.8  #: in the middle of what pretraining draws from


@dataclass(frozen=True)
class Rough:
    """Uneven ground on a level strip; kinds as in training_terrain, difficulty 0..1."""

    kind: str = "noise"
    difficulty: float = 0.5
    seed: int = 0


@dataclass(frozen=True)
class Softness:
    """A soft pad level with its surroundings: MuJoCo's contact time constant (s) and damping
    ratio, and the ``depth`` (m) below the surface at which firm ground begins."""

    time_constant: float = 0.06
    damping_ratio: float = 0.7
    depth: float = 0.06


@dataclass(frozen=True)
class Strip:
    """One piece of a course."""

    length: float
    slope: float = 0.0
    friction: float = NOMINAL_FRICTION
    rise: float = 0.0
    softness: Softness | None = None
    rough: Rough | None = None


@dataclass(frozen=True)
class Box:
    """An obstacle: centre ``x, y`` m, extents ``length, width`` m, ``height`` m above ground."""

    x: float
    y: float
    length: float
    width: float
    height: float
    friction: float = NOMINAL_FRICTION


@dataclass(frozen=True)
class RealityGaps:
    """What differs from the simulation the world model was trained in."""

    trunk_mass: float = 0.0  #: kg added to the trunk
    trunk_offset: tuple[float, float, float] = (0.0, 0.0, 0.0)  #: m, where it is added
    motor_strength: Mapping[str, float] = field(default_factory=dict)  #: joint -> factor on torque
    action_delay: float = 0.0  #: s between a command and its effect
    sensor_noise: float = 0.0  #: factor on the noise levels of the observation layout


@dataclass(frozen=True)
class WorldSpec:
    """A named world; progress is measured along the surface from ``progress_from`` (m on x), and
    a robot that makes ``success_line`` metres of it without a fall has succeeded."""

    name: str
    description: str
    course: tuple[Strip, ...]
    progress_from: float = 0.0
    success_line: float = 3.0
    width: float = 6.0  #: m, of sloped, soft and rough strips
    boxes: tuple[Box, ...] = ()
    gaps: RealityGaps = RealityGaps()

    def nominal(self) -> WorldSpec:
        """The same geometry as pretraining would have it: nominal friction, firm, no gaps."""
        return replace(
            self,
            course=tuple(
                replace(strip, friction=NOMINAL_FRICTION, softness=None) for strip in self.course
            ),
            boxes=tuple(replace(box, friction=NOMINAL_FRICTION) for box in self.boxes),
            gaps=RealityGaps(),
        )

    def profile(self) -> tuple[Array, Array]:
        """Corner points of the ground along x: ``x (2k,)`` and height ``z (2k,)`` in m."""
        x, z, xs, zs = -0.5 * self.width, 0.0, [], []
        for index, strip in enumerate(self.course):
            # The first strip also reaches back behind the start.
            length = strip.length + (-x if index == 0 else 0.0)
            z += strip.rise
            angle = math.radians(strip.slope)
            xs += [x, x + length * math.cos(angle)]
            zs += [z, z + length * math.sin(angle)]
            x, z = xs[-1], zs[-1]
        return np.array(xs), np.array(zs)

    @functools.cached_property
    def _arc(self) -> tuple[Array, Array]:
        """Corner points along x, and the metres of surface up to each; steps count nothing."""
        xs, zs = self.profile()
        lengths = np.hypot(np.diff(xs), np.where(np.diff(xs) > 0, np.diff(zs), 0.0))
        return xs, np.concatenate([[0.0], np.cumsum(lengths)])

    def distance(self, x: float) -> float:
        """Metres of surface between ``progress_from`` and ``x``."""
        xs, along = self._arc
        return float(np.interp(x, xs, along) - np.interp(self.progress_from, xs, along))


def _build(kind: type, data: Any, where: str) -> Any:
    """Make a dataclass of ``kind`` from a mapping, refusing unknown keys and wrong types."""
    if not isinstance(data, Mapping):
        raise ConfigError(f"{where} must be a mapping, got {data!r}")
    known = {f.name: f for f in fields(kind)}
    for key in data:
        if key not in known:
            raise ConfigError(f"{where}: unknown key {key!r}; allowed: {', '.join(known)}")
    values = {}
    for key, value in data.items():
        if str(known[key].type) == "float":
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ConfigError(f"{where}.{key} must be a number, got {value!r}")
            if not math.isfinite(value):
                raise ConfigError(f"{where}.{key} must be finite, got {value!r}")
            value = float(value)
        values[key] = value
    try:
        return kind(**values)
    except TypeError as error:
        raise ConfigError(f"{where}: {error}") from error


def _strip(data: Any, where: str) -> Strip:
    data = dict(data) if isinstance(data, Mapping) else data
    if isinstance(data, dict):
        for key, kind in (("softness", Softness), ("rough", Rough)):
            if data.get(key) is not None:
                data[key] = _build(kind, data[key], f"{where}.{key}")
    return _build(Strip, data, where)


def _check_strip(strip: Strip, where: str) -> None:
    if strip.length <= 0:
        raise ConfigError(f"{where}.length must be positive, got {strip.length}")
    if not abs(strip.slope) < 60:
        raise ConfigError(f"{where}.slope must lie within +-60 degrees, got {strip.slope}")
    if not 0 < strip.friction <= 2:
        raise ConfigError(f"{where}.friction must lie in (0, 2], got {strip.friction}")
    if strip.softness:
        _refuse_impossible_softness(strip.softness, f"{where}.softness")
    if strip.rough and strip.slope:
        raise ConfigError(f"{where}: rough ground must be level, got slope {strip.slope}")


def _refuse_impossible_softness(softness: Softness, where: str) -> None:
    for name, most in (("time_constant", 1.0), ("damping_ratio", 10.0), ("depth", 0.2)):
        value = getattr(softness, name)
        if not 0 < value <= most:
            raise ConfigError(f"{where}.{name} must lie in (0, {most:g}], got {value}")


def _check_gaps(gaps: RealityGaps, where: str) -> None:
    for joint, factor in gaps.motor_strength.items():
        if not 0 < factor <= 2:
            raise ConfigError(f"{where}.motor_strength of {joint} must lie in (0, 2], got {factor}")
    if not 0 <= gaps.action_delay <= 0.2:
        raise ConfigError(f"{where}.action_delay must lie in [0, 0.2] s, got {gaps.action_delay}")
    if not -3 <= gaps.trunk_mass <= 20:
        raise ConfigError(f"{where}.trunk_mass must lie in [-3, 20] kg, got {gaps.trunk_mass}")


def check_world(world: WorldSpec) -> WorldSpec:
    """``world`` itself; raises ConfigError naming a value that is not possible."""
    for index, strip in enumerate(world.course):
        _check_strip(strip, f"world {world.name!r}: course[{index}]")
    for index, height in enumerate(world.profile()[1]):
        if height < -1e-9:
            raise ConfigError(
                f"world {world.name!r}: course[{index // 2}] leads to height {height:.2f} m, below "
                "the floor at 0; begin with a rise or an uphill strip"
            )
    if world.success_line <= 0:
        raise ConfigError(
            f"world {world.name!r}: success_line must be positive, got {world.success_line}"
        )
    _check_gaps(world.gaps, f"world {world.name!r}: gaps")
    return world


def parse_world(name: str, data: Any) -> WorldSpec:
    """A world from the content of its YAML file."""
    if not isinstance(data, Mapping) or "course" not in data:
        raise ConfigError(f"world {name!r} must be a mapping with a 'course'")
    data = dict(data)
    course = data.pop("course")
    if not isinstance(course, list) or not course:
        raise ConfigError(f"world {name!r}: course must be a list of at least one strip")
    strips = tuple(_strip(s, f"world {name!r}: course[{i}]") for i, s in enumerate(course))
    boxes = tuple(
        _build(Box, box, f"world {name!r}: boxes[{i}]")
        for i, box in enumerate(data.pop("boxes", ()))
    )
    gaps = dict(data.pop("gaps", {}))
    if "trunk_offset" in gaps:
        gaps["trunk_offset"] = tuple(float(v) for v in gaps["trunk_offset"])
    world = _build(
        WorldSpec,
        {
            **data,
            "name": name,
            "description": data.get("description", ""),
            "course": strips,
            "boxes": boxes,
            "gaps": _build(RealityGaps, gaps, f"world {name!r}: gaps"),
        },
        f"world {name!r}",
    )
    return check_world(world)


def load_world(name: str) -> WorldSpec:
    """The world called ``name``, or the one in the YAML file ``name``."""
    path = paths.world_file(name)
    try:
        data = yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the world {path}: {error}") from error
    return parse_world(path.stem, data)
