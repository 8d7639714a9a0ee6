"""The simulated depth camera, rendered without a screen."""

from __future__ import annotations

import importlib
import logging
import os
from typing import Any

import mujoco
import numpy as np

from simdist.errors import ConfigError
from simdist.simulation.robot_simulation import RobotSimulation

BACKENDS = ("auto", "egl", "osmesa", "off")
CAMERA = "depth"  #: its name in the model
NEAR = 0.02  #: m, nearest visible point
MAX_RANGE = 10.0  #: m; farther points read 0, "no return", as on a RealSense

_log = logging.getLogger(__name__)


class DepthCamera:
    """Depth images of the camera on the robot's base.

    ``auto`` tries EGL, then OSMesa; where neither works, or with ``off``, :attr:`backend` is
    "off" (with a warning that says why) and :meth:`render` returns None.
    """

    def __init__(
        self,
        simulation: RobotSimulation,
        width: int = 160,
        height: int = 120,
        backend: str = "auto",
    ) -> None:
        if backend not in BACKENDS:
            raise ConfigError(
                f"depth backend {backend!r} is unknown; allowed: {', '.join(BACKENDS)}"
            )
        self.width, self.height = width, height
        self.backend = "off"
        self._simulation = simulation
        self._context: Any = None
        names = [
            mujoco.mj_id2name(simulation.model, mujoco.mjtObj.mjOBJ_CAMERA, i)
            for i in range(simulation.model.ncam)
        ]
        if CAMERA not in names:
            if backend != "off":
                _log.warning("no depth images: %s has no camera", simulation.robot.name)
            return
        failures = []
        for candidate in ("egl", "osmesa") if backend == "auto" else (backend,):
            if candidate == "off":
                return
            try:
                self._open(candidate)
            except Exception as error:  # each GL platform fails in its own way
                failures.append(f"{candidate}: {error}")
            else:
                self.backend = candidate
                return
        _log.warning(
            "no depth images: %s. Install libegl1 (or libosmesa6) to render without a screen",
            "; ".join(failures),
        )

    def _open(self, backend: str) -> None:
        # PyOpenGL chooses its platform once per process, when it is first imported.
        os.environ["PYOPENGL_PLATFORM"] = backend
        gl = importlib.import_module(f"mujoco.{backend}")
        context = gl.GLContext(self.width, self.height)
        context.make_current()
        model = self._simulation.model
        model.vis.global_.offwidth = max(model.vis.global_.offwidth, self.width)
        model.vis.global_.offheight = max(model.vis.global_.offheight, self.height)
        # MuJoCo scales the clipping planes with the world, which may be 60 m long.
        model.vis.map.znear = NEAR / model.stat.extent
        model.vis.map.zfar = 2 * MAX_RANGE / model.stat.extent
        self._gl = context
        self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._options = mujoco.MjvOption()
        self._options.sitegroup[:] = 0
        self._camera = mujoco.MjvCamera()
        self._camera.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._camera.fixedcamid = model.camera(CAMERA).id
        self._rectangle = mujoco.MjrRect(0, 0, self.width, self.height)

    @property
    def focal_length(self) -> float:
        """In pixels, equal in both directions; the principal point is the image centre."""
        fovy = np.deg2rad(self._simulation.model.camera(CAMERA).fovy[0])
        return float(self.height / 2 / np.tan(fovy / 2))

    def render(self) -> np.ndarray | None:
        """Depth ``(height, width)`` float32 in m along the optical axis, row 0 on top; 0 where
        nothing is within range. None when the camera is off."""
        if self._context is None:
            return None
        model, data = self._simulation.model, self._simulation.data
        self._gl.make_current()
        mujoco.mjv_updateScene(
            model,
            data,
            self._options,
            mujoco.MjvPerturb(),
            self._camera,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        mujoco.mjr_render(self._rectangle, self._scene, self._context)
        buffer = np.zeros((self.height, self.width), np.float32)
        mujoco.mjr_readPixels(None, buffer, self._rectangle, self._context)
        metres = NEAR / (1.0 - buffer * (1.0 - NEAR / (2 * MAX_RANGE)))
        return np.where(metres < MAX_RANGE, metres, 0.0)[::-1].astype(np.float32)

    def close(self) -> None:
        """Free the rendering context."""
        if self._context is not None:
            self._context.free()
            self._gl.free()
            self._context = None
            self.backend = "off"
