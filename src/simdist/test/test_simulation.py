"""Worlds, ground heights, reality gaps and the robot's stand-in."""

from __future__ import annotations

import dataclasses

import mujoco
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist import robots
from simdist.errors import ConfigError, SimulationError
from simdist.observation import ScanGrid
from simdist.paths import world_names
from simdist.simulation.depth import DepthCamera
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.scene import Ground
from simdist.simulation.world import load_world, parse_world
from simdist.types import JointCommand

ROBOT = robots.get("go1")
FLAT = parse_world("flat", {"course": [{"length": 30.0}]})


def hold(pose=ROBOT.default_pose, kp=60.0, kd=2.0) -> JointCommand:
    zeros = np.zeros(12)
    return JointCommand(np.array(pose), zeros, np.full(12, kp), np.full(12, kd), zeros)


def world(**changes):
    return parse_world("test", {"course": [{"length": 30.0}], **changes})


def stand(simulation: RobotSimulation, seconds: float = 0.6) -> None:
    for _ in range(round(seconds * 1e9) // simulation.step_ns):
        simulation.step(hold())


def down_ray(simulation: RobotSimulation, x: float, y: float) -> float:
    """Height of the ground found by MuJoCo itself."""
    group, geom = np.array([1, 1, 1, 0, 0, 0], np.uint8), np.zeros(1, np.int32)
    body = simulation.model.body(ROBOT.base_body).id
    start = np.array([x, y, 50.0])
    distance = mujoco.mj_ray(
        simulation.model, simulation.data, start, np.array([0.0, 0.0, -1.0]), group, 1, body, geom
    )
    return 50.0 - distance


def test_every_shipped_world_loads_and_carries_a_standing_robot():
    assert {"flat", "slope", "rough"} <= set(world_names())
    for name in world_names():
        simulation = RobotSimulation(ROBOT, load_world(name))
        stand(simulation, 0.4)
        assert not simulation.fallen(), name


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "course"),
        ({"course": []}, "at least one strip"),
        ({"course": [{"length": -1}]}, "length must be positive"),
        ({"course": [{"length": "long"}]}, "must be a number"),
        ({"course": [{"length": 1, "friction": 0}]}, "friction"),
        ({"course": [{"length": 1, "slope": 80}]}, "slope"),
        ({"course": [{"length": 1, "colour": "red"}]}, "unknown key 'colour'"),
        ({"course": [{"length": 1}], "gaps": {"wind": 3}}, "unknown key 'wind'"),
        ({"course": [{"length": float("nan")}]}, "finite"),
        ({"course": [{"length": 1}, {"length": 1, "slope": -5}]}, "below the floor"),
    ],
)
def test_a_bad_world_is_refused_naming_the_value(data, message):
    with pytest.raises(ConfigError, match=message):
        parse_world("bad", data)


def test_an_unknown_world_is_refused_with_the_known_ones():
    with pytest.raises(ConfigError, match=r"mars.*slope"):
        load_world("mars")


def test_ground_heights_agree_with_rays_cast_by_mujoco():
    uneven = parse_world(
        "uneven",
        {
            "course": [
                {"length": 1.0},
                {"length": 2.0, "slope": 10.0},
                {"length": 3.0, "rough": {"kind": "noise", "difficulty": 0.8, "seed": 3}},
                {"length": 1.0, "rise": 0.1},
                {"length": 2.0, "slope": -8.0},
                {"length": 5.0},
            ],
            "boxes": [{"x": 0.6, "y": 0.5, "length": 0.3, "width": 0.2, "height": 0.08}],
        },
    )
    simulation = RobotSimulation(ROBOT, uneven)
    ground = Ground(uneven)
    rng = np.random.default_rng(0)
    for x, y in zip(rng.uniform(0.0, 11.0, 200), rng.uniform(-1.5, 1.5, 200), strict=True):
        seen = ground.height(np.array([x]), np.array([y]))[0]
        # Rough ground is interpolated by triangles in MuJoCo and bilinearly here.
        assert abs(seen - down_ray(simulation, x, y)) < 0.02, (x, y)


@given(st.floats(-3, 20), st.floats(0, 25), st.floats(0.2, 5))
@settings(max_examples=50)
def test_progress_grows_with_x_and_counts_surface_metres(x, slope, flat):
    spec = parse_world(
        "ramp",
        {"course": [{"length": flat}, {"length": 40, "slope": slope}], "progress_from": flat},
    )
    assert spec.distance(x + 0.1) > spec.distance(x)
    along = flat + np.cos(np.deg2rad(slope))
    assert spec.distance(along) == pytest.approx(1.0, abs=1e-6)
    assert spec.distance(flat) == pytest.approx(0.0, abs=1e-9)


def test_the_same_seed_gives_the_same_motion():
    runs = []
    for _ in range(2):
        simulation = RobotSimulation(ROBOT, world(gaps={"sensor_noise": 1.0}), seed=4)
        stand(simulation, 0.2)
        runs.append(np.concatenate([simulation.data.qpos, simulation.joint_state().velocity]))
    np.testing.assert_array_equal(runs[0], runs[1])


def test_a_robot_on_level_ground_sees_a_level_scan():
    simulation = RobotSimulation(ROBOT, FLAT)
    grid = ScanGrid()
    scan = simulation.height_scan(grid)
    np.testing.assert_allclose(scan, simulation.base_state().position[2] - grid.offset)


def test_the_scan_turns_with_the_robot():
    simulation = RobotSimulation(
        ROBOT, world(course=[{"length": 0.5}, {"length": 30.0, "rise": 0.1}])
    )
    grid = ScanGrid()
    for yaw, column in ((0.0, -1), (np.pi, 0)):
        simulation.data.qpos[:2] = 0.0
        simulation.data.qpos[3:7] = np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)
        scan = simulation.height_scan(grid).reshape(grid.nx, grid.ny)
        step = scan[:, 4].max() - scan[:, 4].min()
        if yaw == 0.0:  # the step lies ahead
            assert step == pytest.approx(0.1)
            assert scan[column, 4] < scan[0, 4]
        else:  # and now 0.5 m behind, out of the grid's reach
            assert step == pytest.approx(0.0)


def test_gravity_and_normal_force_are_felt_by_imu_and_feet():
    simulation = RobotSimulation(ROBOT, FLAT)
    stand(simulation, 1.0)
    np.testing.assert_allclose(simulation.imu().linear_acceleration[2], 9.81, rtol=0.05)
    weight = simulation.model.body_mass.sum() * 9.81
    np.testing.assert_allclose(simulation.foot_forces().sum(), weight, rtol=0.1)


def test_added_mass_weighs_on_the_feet():
    heavy = RobotSimulation(ROBOT, world(gaps={"trunk_mass": 3.0}))
    light = RobotSimulation(ROBOT, FLAT)
    for simulation in (heavy, light):
        stand(simulation, 1.0)
    difference = heavy.foot_forces().sum() - light.foot_forces().sum()
    assert difference == pytest.approx(3.0 * 9.81, rel=0.15)


def test_a_weak_motor_gives_less_torque_and_only_that_one():
    weak = RobotSimulation(ROBOT, world(gaps={"motor_strength": {"FR_calf_joint": 0.5}}))
    limits = weak.model.actuator_forcerange[:, 1] / ROBOT.torque_limit
    expected = np.ones(12)
    expected[2] = 0.5
    np.testing.assert_allclose(limits, expected)
    weak.step(hold(kp=40.0))
    np.testing.assert_allclose(weak.model.actuator_gainprm[:, 0], 40.0 * expected)


def test_a_delayed_command_acts_later_by_the_delay():
    delayed = RobotSimulation(ROBOT, world(gaps={"action_delay": 0.02}), seed=1)
    for step in range(20):
        delayed.step(hold(kp=float(step + 1)))
        expected = max(0, step - 10) + 1
        assert delayed.model.actuator_gainprm[0, 0] == pytest.approx(expected)


def test_a_weak_motor_with_an_unknown_joint_is_refused():
    with pytest.raises(ConfigError, match="FR_elbow"):
        RobotSimulation(ROBOT, world(gaps={"motor_strength": {"FR_elbow": 0.5}}))


def test_an_exploding_simulation_stops_with_a_dump(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    simulation = RobotSimulation(ROBOT, FLAT)
    simulation.data.qvel[6:] = 1e6
    with pytest.raises(SimulationError, match="unstable"):
        simulation.step(hold())
    with np.load(next(tmp_path.glob("*.npz"))) as dump:
        assert {"qpos", "qvel", "target", "time_ns"} <= set(dump.files)


def test_a_robot_on_its_side_has_fallen():
    simulation = RobotSimulation(ROBOT, FLAT)
    assert not simulation.fallen()
    simulation.data.qpos[3:7] = np.cos(0.7), np.sin(0.7), 0, 0
    assert simulation.fallen()


def test_a_foot_slides_on_a_sheet_and_grips_beside_it():
    travelled = {}
    for friction in (0.8, 0.05):
        spec = world(course=[{"length": 30.0, "slope": 12.0, "friction": friction}])
        simulation = RobotSimulation(ROBOT, spec)
        stand(simulation, 1.0)
        travelled[friction] = -simulation.base_state().position[0]
    assert travelled[0.05] > 0.2 + travelled[0.8]


def test_depth_images_measure_the_floor_in_front():
    simulation = RobotSimulation(ROBOT, FLAT)
    camera = DepthCamera(simulation, 64, 48)
    if camera.backend == "off":
        pytest.skip("no OpenGL without a screen on this machine")
    depth = camera.render()
    assert depth is not None
    assert depth.shape == (48, 64)
    height = simulation.data.cam("depth").xpos[2]
    for row in (24, 36, 47):
        below = np.arctan((row + 0.5 - 24) / camera.focal_length)
        expected = height * np.cos(below) / np.sin(ROBOT.camera.pitch + below)
        assert depth[row, 32] == pytest.approx(expected, rel=0.02)
    camera.close()
    assert camera.render() is None


def test_a_depth_camera_that_is_off_gives_no_image():
    simulation = RobotSimulation(dataclasses.replace(ROBOT, camera=None), FLAT)
    assert DepthCamera(simulation).render() is None
    with pytest.raises(ConfigError, match="vulkan"):
        DepthCamera(simulation, backend="vulkan")
