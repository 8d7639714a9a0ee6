"""Render the picture of the README: a Go1 driven by its expert up the slope.

Usage: ./run python3 tools/render_picture.py docs/images/go1_slope.png
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ.setdefault("MUJOCO_GL", "egl")

import mujoco
import numpy as np
from PIL import Image

from simdist import paths, robots
from simdist.distillation.policy import ExpertPolicy
from simdist.evaluation.drivers import ExpertDriver
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation.spec import legged_observation
from simdist.simulation.robot_model import REALTIME_SOLVER
from simdist.simulation.scene import compose
from simdist.simulation.world import load_world


def main() -> None:
    robot, world = robots.get("go1"), load_world("slope")
    policy = ExpertPolicy.load(paths.models_dir() / "go1" / "expert.safetensors")
    trial = Trial(robot, world, legged_observation(robot.joint_count), TrialConfig(0.6, 0, 5.1))
    trial.run(ExpertDriver(policy, robot, ""))
    model = compose(world, robot, REALTIME_SOLVER, visual=True)
    model.vis.global_.offwidth, model.vis.global_.offheight = 1200, 600
    model.vis.headlight.ambient[:], model.vis.headlight.diffuse[:] = 0.5, 0.7
    model.vis.map.znear = 0.05 / model.stat.extent
    data = mujoco.MjData(model)
    data.qpos[:] = trial.simulation.data.qpos
    mujoco.mj_forward(model, data)
    camera = mujoco.MjvCamera()
    camera.lookat[:] = data.qpos[:3] + np.array([0.15, 0.0, -0.05])
    camera.distance, camera.azimuth, camera.elevation = 1.5, 115.0, -18.0
    with mujoco.Renderer(model, 600, 1200) as renderer:
        renderer.update_scene(data, camera)
        image = Image.fromarray(renderer.render())
    image.quantize(64).save(Path(sys.argv[1]), optimize=True)


if __name__ == "__main__":
    main()
