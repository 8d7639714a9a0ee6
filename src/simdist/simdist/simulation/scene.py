"""Composing a world and a robot into one MuJoCo model, and knowing the height of its ground."""

from __future__ import annotations

from dataclasses import dataclass, replace

import mujoco
import numpy as np

from simdist.robots import RobotSpec
from simdist.simulation.robot_model import GROUND, Solver, build_robot, set_solver
from simdist.simulation.training_terrain import (
    CELLS,
    HALF_EXTENT,
    RESOLUTION,
    interpolate,
    rough_field,
)
from simdist.simulation.world import Strip, WorldSpec
from simdist.types import Array

_COLOURS = {"level": [0.45, 0.47, 0.5, 1], "slope": [0.55, 0.45, 0.35, 1]}
_SLIPPERY, _SOFT = [0.85, 0.9, 0.95, 1], [0.85, 0.75, 0.35, 1]
_HALF_THICKNESS = 0.2  #: m, of the slab under a strip
_PAD_OVERLAP = 0.3  #: m
SUNK_FLOOR = -0.3  #: m, height of the floor under a course whose level strips differ from it


@dataclass(frozen=True)
class _RoughPatch:
    x_start: float
    x_end: float
    z: float
    field: Array  #: (CELLS, CELLS) m, rows along y


class Ground:
    """The height of a world's ground, for scans and for progress."""

    def __init__(self, world: WorldSpec) -> None:
        self._x, self._z = world.profile()
        self._boxes = world.boxes
        self._half_width = world.width / 2
        self.floor = _floor_height(world)
        self.patches: list[_RoughPatch] = []
        for index, strip in enumerate(world.course):
            if strip.rough:
                rng = np.random.default_rng(strip.rough.seed)
                field = rough_field(strip.rough.kind, strip.rough.difficulty, rng)
                start, end = self._x[2 * index], self._x[2 * index + 1]
                self.patches.append(_RoughPatch(start, end, self._z[2 * index], field))

    def height(self, x: Array, y: Array) -> Array:
        """Height in m of the ground at world points ``x, y`` of equal shape."""
        x, y = np.broadcast_arrays(np.asarray(x, float), np.asarray(y, float))
        height = np.interp(x, self._x, self._z)
        # Beside the course there is only the floor.
        height = np.where(np.abs(y) <= self._half_width, height, self.floor)
        for patch in self.patches:
            inside = (x >= patch.x_start) & (x < patch.x_end) & (np.abs(y) < self._half_width)
            if inside.any():
                height[inside] = patch.z + interpolate(
                    patch.field[None], 0, x[inside] - patch.x_start, y[inside] + HALF_EXTENT
                )
        for box in self._boxes:
            inside = (np.abs(x - box.x) <= box.length / 2) & (np.abs(y - box.y) <= box.width / 2)
            base = np.interp(box.x, self._x, self._z)
            height = np.where(inside, np.maximum(height, base + box.height), height)
        return height


def _is_plain(strip: Strip) -> bool:
    return strip.slope == 0 and not strip.softness and not strip.rough


def _floor_height(world: WorldSpec) -> float:
    """0, where the endless floor is the first strip itself, or below a course with strips at height
    0 that are softer or more slippery: the floor would bear the robot through them."""
    first, heights = world.course[0], world.profile()[1]
    if not _is_plain(first):
        return 0.0
    for index, strip in enumerate(world.course):
        level = strip.slope == 0 and abs(heights[2 * index]) < 1e-9
        if level and (strip.softness or strip.friction != first.friction):
            return SUNK_FLOOR
    return 0.0


def _surface(strip: Strip) -> dict[str, object]:
    # MuJoCo takes the larger friction of the two geoms unless one has priority.
    surface: dict[str, object] = {
        "contype": GROUND,
        "conaffinity": 0,
        "condim": 3,
        "priority": 1,
        "friction": [strip.friction, 0.005, 0.0001],
    }
    if strip.softness:
        surface["solref"] = [strip.softness.time_constant, strip.softness.damping_ratio]
        surface["solimp"] = [0.0, 0.9, strip.softness.depth, 0.5, 2]
        surface["rgba"] = _SOFT
    elif strip.friction < 0.3:
        surface["rgba"] = _SLIPPERY
    else:
        surface["rgba"] = _COLOURS["slope" if strip.slope else "level"]
    return surface


def compose(world: WorldSpec, robot: RobotSpec, solver: Solver, *, visual: bool) -> mujoco.MjModel:
    """The model of ``robot`` in ``world``."""
    scene, ground = build_robot(robot, visual=visual), Ground(world)
    set_solver(scene, solver)
    scene.worldbody.add_light(pos=[0, 0, 8], dir=[0, 0, -1])
    plain = _is_plain(world.course[0])
    scene.worldbody.add_geom(
        name="floor",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0, 0, 0.05],
        pos=[0, 0, ground.floor],
        **_surface(world.course[0] if plain else Strip(length=1.0)),
    )
    xs, zs = world.profile()
    patches = iter(ground.patches)
    for index, strip in enumerate(world.course):
        start, end = (
            np.array([xs[2 * index], zs[2 * index]]),
            np.array([xs[2 * index + 1], zs[2 * index + 1]]),
        )
        if index == 0 and plain and ground.floor == 0:
            continue  # the floor itself
        if strip.rough:
            _add_rough(scene, f"strip{index}", next(patches), world, strip)
            continue
        along = (end - start) / np.linalg.norm(end - start)
        if strip.softness:
            normal = np.array([-along[1], along[0]])
            base = strip.softness.depth * normal
            firm = replace(strip, softness=None)
            _add_slab(scene, f"strip{index}_base", start - base, end - base, world, firm)
            # MuJoCo pushes a foot out through the nearest face: the pad goes on below its firm
            # neighbours, so that the nearest face is always the upper one.
            start, end = start - _PAD_OVERLAP * along, end + _PAD_OVERLAP * along
        _add_slab(scene, f"strip{index}", start, end, world, strip)
    for index, box in enumerate(world.boxes):
        base = float(np.interp(box.x, xs, zs))
        scene.worldbody.add_geom(
            name=f"box{index}",
            type=mujoco.mjtGeom.mjGEOM_BOX,
            size=[box.length / 2, box.width / 2, box.height / 2 + 0.05],
            pos=[box.x, box.y, base + box.height / 2 - 0.05],
            **_surface(Strip(length=box.length, friction=box.friction)),
        )
    if robot.camera is not None:
        camera = robot.camera
        scene.body(robot.base_body).add_camera(
            name="depth", pos=camera.position, quat=camera.quaternion(), fovy=camera.fovy
        )
    return scene.compile()


def _add_slab(
    scene: mujoco.MjSpec, name: str, start: Array, end: Array, world: WorldSpec, strip: Strip
) -> None:
    """A box whose upper face runs from ``start`` to ``end``, points ``(x, z)`` in m."""
    length = float(np.linalg.norm(end - start))
    along = (end - start) / length
    centre = (start + end) / 2 - _HALF_THICKNESS * np.array([-along[1], along[0]])
    angle = np.arctan2(along[1], along[0])
    scene.worldbody.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=[length / 2, world.width / 2, _HALF_THICKNESS],
        pos=[centre[0], 0.0, centre[1]],
        quat=[np.cos(angle / 2), 0, -np.sin(angle / 2), 0],
        **_surface(strip),
    )


def _add_rough(
    scene: mujoco.MjSpec, name: str, patch: _RoughPatch, world: WorldSpec, strip: Strip
) -> None:
    columns = int(np.ceil((patch.x_end - patch.x_start) / RESOLUTION)) + 1
    rows = int(np.ceil(world.width / RESOLUTION)) + 1
    first = round((HALF_EXTENT - world.width / 2) / RESOLUTION)
    if columns > CELLS or rows > CELLS:
        limit = (CELLS - 1) * RESOLUTION
        raise ValueError(f"rough strips and their width are limited to {limit:.1f} m")
    field = patch.field[first : first + rows, :columns]
    low, high = float(field.min()), float(field.max())
    half = [(columns - 1) * RESOLUTION / 2, (rows - 1) * RESOLUTION / 2]
    # The compiler rescales heights to 0..1, so the lowest point goes into the position.
    scene.add_hfield(
        name=name,
        nrow=rows,
        ncol=columns,
        size=[*half, high - low, 0.2],
        userdata=((field - low) / (high - low)).ravel(),
    )
    y_centre = -HALF_EXTENT + first * RESOLUTION + half[1]
    scene.worldbody.add_geom(
        name=name,
        type=mujoco.mjtGeom.mjGEOM_HFIELD,
        hfieldname=name,
        pos=[patch.x_start + half[0], y_centre, patch.z + low],
        **_surface(strip),
    )
