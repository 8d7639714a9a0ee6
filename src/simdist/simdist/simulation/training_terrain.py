"""Ground for training: tilted planes and rough height fields, one per simulated robot.

Every robot's model holds both a plane and a height field, so that all models have the same sizes
and can share MjData; the one not in use collides with nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np
from scipy.ndimage import uniform_filter

from simdist.robots import RobotSpec
from simdist.simulation.robot_model import GROUND, Solver, build_robot, set_solver
from simdist.types import Array, Rows

CELLS = 200  #: height field cells per side
RESOLUTION = 0.1  #: m per cell
HALF_EXTENT = (CELLS - 1) * RESOLUTION / 2  #: m
MAX_HEIGHT = 1.0  #: m
ROUGH_KINDS = ("noise", "wave", "blocks", "ridges")


def rough_field(kind: str, difficulty: float, rng: np.random.Generator) -> np.ndarray:
    """Heights ``(CELLS, CELLS)`` in m, rows along y; ``difficulty`` in 0..1."""
    along = np.arange(CELLS) * RESOLUTION
    if kind == "noise":
        height = uniform_filter(rng.random((CELLS, CELLS)), 3, mode="wrap")
        height = 0.02 * difficulty * (height - height.mean()) / height.std()
    elif kind == "wave":
        length_x, length_y = rng.uniform(1.5, 4.0, 2)
        height = (
            0.06
            * difficulty
            * (
                np.sin(2 * np.pi * along / length_x)[None, :]
                + np.cos(2 * np.pi * along / length_y)[:, None]
            )
        )
    elif kind == "blocks":
        size = int(rng.integers(4, 9))
        blocks = rng.random((CELLS // size + 1,) * 2)
        height = 0.10 * difficulty * np.kron(blocks, np.ones((size, size)))[:CELLS, :CELLS]
    elif kind == "ridges":
        # Ramps with sharp feet and crests, as where a floor meets a slope.
        slope = np.tan(np.deg2rad(4.0 + 8.0 * difficulty))
        period = rng.uniform(3.0, 2 * MAX_HEIGHT * 0.95 / slope)
        ridge = slope * np.abs((along + rng.uniform(0, period)) % period - period / 2)
        height = np.broadcast_to(ridge, (CELLS, CELLS))
        height = height if rng.random() < 0.5 else height.T
    else:
        raise ValueError(f"unknown terrain kind {kind!r}; known: {ROUGH_KINDS}")
    return np.clip(height - height.min(), 0.0, MAX_HEIGHT - 0.02) + 0.01


def interpolate(fields: Array, which: Rows | int, x: Array, y: Array) -> Array:
    """Bilinear heights in ``fields (k, CELLS, CELLS)`` of the fields ``which``, at ``x, y`` m from
    their first corner; points outside get the height of the border."""
    u = np.clip(x / RESOLUTION, 0, CELLS - 1.001)
    v = np.clip(y / RESOLUTION, 0, CELLS - 1.001)
    column, row = u.astype(np.int32), v.astype(np.int32)
    u, v = u - column, v - row
    near = fields[which, row, column] * (1 - u) + fields[which, row, column + 1] * u
    far = fields[which, row + 1, column] * (1 - u) + fields[which, row + 1, column + 1] * u
    return near * (1 - v) + far * v


@dataclass
class TrainingTerrain:
    """The ground of ``count`` robots: robot ``i`` stands on a plane or on ``fields[i]``."""

    count: int
    is_rough: np.ndarray  #: (count,) bool
    fields: np.ndarray  #: (count, CELLS, CELLS) m, zero where not rough
    normal: np.ndarray  #: (count, 3) of the plane through the origin

    @staticmethod
    def create(count: int, rough_fraction: float, rng: np.random.Generator) -> TrainingTerrain:
        is_rough = np.arange(count) < round(count * rough_fraction)
        fields = np.zeros((count, CELLS, CELLS), np.float32)
        for index in np.flatnonzero(is_rough):
            kind = ROUGH_KINDS[index % len(ROUGH_KINDS)]
            fields[index] = rough_field(kind, rng.uniform(0.3, 1.0), rng)
        return TrainingTerrain(count, is_rough, fields, np.tile([0.0, 0.0, 1.0], (count, 1)))

    def tilt(self, rows: Rows, angle: Array, azimuth: Array) -> None:
        """Set the planes of ``rows`` to rise by ``angle`` (rad) towards ``azimuth`` (rad)."""
        self.normal[rows] = np.stack(
            [-np.sin(angle) * np.cos(azimuth), -np.sin(angle) * np.sin(azimuth), np.cos(angle)], 1
        )

    def height(self, rows: Rows, x: Array, y: Array) -> Array:
        """Ground height in m at world points ``(len(rows), k)``."""
        normal = self.normal[rows]
        height = -(normal[:, :1] * x + normal[:, 1:2] * y) / normal[:, 2:]
        rough = np.flatnonzero(self.is_rough[rows])
        if len(rough):
            height[rough] = self._field_height(rows[rough], x[rough], y[rough])
        return height

    def _field_height(self, rows: Rows, x: Array, y: Array) -> Array:
        return interpolate(self.fields, rows[:, None], x + HALF_EXTENT, y + HALF_EXTENT)


def training_model(robot: RobotSpec, solver: Solver) -> mujoco.MjModel:
    """One robot above a plane ("plane") and a height field ("field")."""
    scene = build_robot(robot)
    set_solver(scene, solver)
    field = np.full((CELLS, CELLS), 0.5)
    field[0, 0], field[-1, -1] = 0.0, 1.0  # the compiler scales heights by their range
    scene.add_hfield(
        name="field",
        nrow=CELLS,
        ncol=CELLS,
        size=[HALF_EXTENT, HALF_EXTENT, MAX_HEIGHT, 0.1],
        userdata=field.ravel(),
    )
    # The friction of the feet counts, because the larger of the two geoms' wins.
    ground = {"contype": GROUND, "conaffinity": 0, "condim": 3, "friction": [0.01, 0.005, 0.0001]}
    # Compiled tilted and off the origin, or MuJoCo would note that the plane shares the frame of
    # the world and would ignore orientations set later.
    scene.worldbody.add_geom(
        name="plane",
        type=mujoco.mjtGeom.mjGEOM_PLANE,
        size=[0, 0, 0.05],
        pos=[0, 0, 1e-6],
        quat=[np.cos(0.1), np.sin(0.1), 0, 0],
        **ground,
    )
    scene.worldbody.add_geom(
        name="field", type=mujoco.mjtGeom.mjGEOM_HFIELD, hfieldname="field", **ground
    )
    return scene.compile()


def place_terrain(model: mujoco.MjModel, terrain: TrainingTerrain, row: int) -> None:
    """Write the ground of robot ``row`` into its ``model``."""
    plane, field = model.geom("plane"), model.geom("field")
    rough = bool(terrain.is_rough[row])
    plane.contype = 0 if rough else GROUND
    field.contype = GROUND if rough else 0
    if rough:
        model.hfield_data[:] = terrain.fields[row].ravel() / MAX_HEIGHT
    else:
        x, y, z = terrain.normal[row]
        # The shortest rotation that takes (0, 0, 1) to the normal.
        quaternion = np.array([1.0 + z, -y, x, 0.0])
        plane.quat = quaternion / np.linalg.norm(quaternion)
