"""MuJoCo's own window onto a running simulation."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from simdist.simulation.robot_simulation import RobotSimulation


def display_problem() -> str | None:
    """Why no window can be opened here, or None."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)"
    return None


class Viewer:
    """A window that shows the simulation; it reads and never changes it."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def show(self) -> None:
        """Show the present state; does nothing once the window was closed."""
        if self._handle.is_running():
            self._handle.sync(state_only=True)

    def close(self) -> None:
        self._handle.close()


def open_viewer(simulation: RobotSimulation, warn: Callable[[str], object]) -> Viewer | None:
    """Open a window, or warn why there is none and go on without."""
    problem = display_problem()
    if problem is None:
        try:
            viewer = importlib.import_module("mujoco.viewer")
            handle = viewer.launch_passive(
                simulation.model, simulation.data, show_left_ui=False, show_right_ui=False
            )
            return Viewer(handle)
        except Exception as error:  # a broken graphics stack must not keep the robot from walking
            problem = f"the viewer did not start: {error}"
    warn(f"headless:=false, but {problem}; running without a window")
    return None
