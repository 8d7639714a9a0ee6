"""Robot constants must agree with the model they describe."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest

from simdist import robots
from simdist.errors import ConfigError
from simdist.simulation.robot_model import REALTIME_SOLVER, build_robot, foot_geoms
from simdist.simulation.scene import compose
from simdist.simulation.world import parse_world


@pytest.fixture(scope="module", params=robots.available())
def robot(request: pytest.FixtureRequest) -> robots.RobotSpec:
    return robots.get(request.param)


@pytest.fixture(scope="module")
def model(robot: robots.RobotSpec) -> mujoco.MjModel:
    world = parse_world("plain", {"course": [{"length": 10.0}]})
    return compose(world, robot, REALTIME_SOLVER, visual=False)


def test_joint_order_and_limits_are_those_of_the_mjcf(robot, model):
    names = [model.joint(i).name for i in range(1, model.njnt)]
    assert tuple(names) == robot.joint_names
    np.testing.assert_allclose(model.jnt_range[1:, 0], robot.position_lower, atol=1e-6)
    np.testing.assert_allclose(model.jnt_range[1:, 1], robot.position_upper, atol=1e-6)


def test_motors_follow_the_joint_order_with_the_given_gains_and_limits(robot, model):
    for index, name in enumerate(robot.joint_names):
        motor = model.actuator(name)
        assert motor.id == index
        assert model.joint(motor.trnid[0]).name == name
    np.testing.assert_allclose(model.actuator_gainprm[:, 0], robot.kp)
    np.testing.assert_allclose(model.actuator_biasprm[:, 2], -robot.kd)
    np.testing.assert_allclose(model.actuator_forcerange[:, 1], robot.torque_limit)


def test_poses_lie_within_the_joint_limits(robot):
    for pose in (robot.default_pose, robot.stand_pose, robot.lie_pose):
        assert (pose >= robot.position_lower).all()
        assert (pose <= robot.position_upper).all()


def test_feet_are_the_only_geoms_with_high_friction(robot, model):
    feet = foot_geoms(model, robot)
    assert len(set(feet)) == len(robot.foot_names)
    on_robot = model.geom_bodyid > 0
    assert set(np.flatnonzero(on_robot & (model.geom_friction[:, 0] == 0.8))) == set(feet)


def test_actions_and_targets_are_inverse(robot):
    target = np.linspace(-1, 1, robot.joint_count)
    np.testing.assert_allclose(robot.target(robot.action(target)), target)
    np.testing.assert_array_equal(robot.target(np.zeros(robot.joint_count)), robot.default_pose)


def test_constants_cannot_be_changed_by_accident(robot):
    with pytest.raises(ValueError, match="read-only"):
        robot.default_pose[0] = 1.0


def test_the_camera_looks_forward_and_down(robot, model):
    if robot.camera is None:
        pytest.skip(f"{robot.name} has no camera")
    data = mujoco.MjData(model)
    mujoco.mj_forward(model, data)
    axes = data.cam("depth").xmat.reshape(3, 3)
    expected = [np.cos(robot.camera.pitch), 0.0, -np.sin(robot.camera.pitch)]
    np.testing.assert_allclose(-axes[:, 2], expected, atol=1e-6)
    assert axes[2, 1] > 0  # image up is world up


def test_an_unknown_robot_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"go9.*go1"):
        robots.get("go9")


def test_visual_meshes_are_only_loaded_on_request(robot):
    assert not list(build_robot(robot).meshes)
    assert list(build_robot(robot, visual=True).meshes)
