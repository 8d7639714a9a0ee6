"""The worlds that adaptation is measured in."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist import robots
from simdist.errors import ConfigError
from simdist.observation import ScanGrid
from simdist.simulation.outside import outside_pretraining
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import RealityGaps, load_world, parse_world
from simdist.types import JointCommand

ROBOT = robots.get("go1")
#: world -> what makes it hard
HARD = {
    "slope_sheet": ("friction",),
    "slope_slippery": ("friction",),
    "slope_gentle": ("friction",),
    "ice": ("friction",),
    "foam": ("softness",),
    "payload": ("trunk_mass", "trunk_offset"),
    "weak_motor": ("motor_strength",),
    "latency": ("action_delay",),
}


def standing_force(world, x: float, seconds: float = 0.8) -> RobotSimulation:
    """A robot that has stood at ``x`` for a while."""
    simulation = RobotSimulation(ROBOT, world)
    simulation.data.qpos[0] = x
    zeros = np.zeros(12)
    command = JointCommand(ROBOT.default_pose, zeros, np.full(12, 60.0), np.full(12, 2.0), zeros)
    for _ in range(round(seconds * 1e9) // simulation.step_ns):
        simulation.step(command)
    return simulation


@pytest.mark.parametrize(("name", "parameters"), HARD.items())
def test_a_world_lies_outside_pretraining_in_what_makes_it_hard(name, parameters):
    assert set(parameters) <= set(outside_pretraining(load_world(name)))


def test_the_nominal_world_lies_inside_pretraining():
    assert outside_pretraining(load_world("nominal")) == ()


@pytest.mark.parametrize("name", HARD)
def test_the_nominal_version_of_a_world_has_its_ground_and_nothing_hard(name):
    world = load_world(name)
    nominal = world.nominal()
    assert outside_pretraining(nominal) == ()
    assert nominal.gaps == RealityGaps()
    for was, now in zip(world.profile(), nominal.profile(), strict=True):
        np.testing.assert_array_equal(was, now)


def test_progress_on_the_sheet_counts_from_its_edge():
    world = load_world("slope_sheet")
    edge = world.profile()[0][4]
    assert world.course[2].friction < 0.3
    assert world.distance(edge) == pytest.approx(0.0, abs=1e-3)
    assert world.success_line == 1.82


@given(st.floats(-5, 5))
@settings(max_examples=30)
def test_a_success_line_is_taken_only_if_it_lies_ahead(line):
    data = {"course": [{"length": 10}], "success_line": line}
    if line > 0:
        assert parse_world("w", data).success_line == line
    else:
        with pytest.raises(ConfigError, match="success_line must be positive"):
            parse_world("w", data)


@pytest.mark.parametrize(
    "softness", [{"depth": 0.0}, {"time_constant": -1.0}, {"damping_ratio": 0.0}, {"depth": 3.0}]
)
def test_impossible_softness_is_refused(softness):
    with pytest.raises(ConfigError, match=next(iter(softness))):
        parse_world("w", {"course": [{"length": 1}, {"length": 1, "softness": softness}]})


def test_the_scan_sees_level_ground_where_the_foam_lies():
    simulation = RobotSimulation(ROBOT, load_world("foam"))
    simulation.data.qpos[0] = 0.5
    scan = simulation.height_scan(ScanGrid())
    np.testing.assert_allclose(scan, scan[0])


def test_feet_sink_into_foam_but_not_below_its_firm_base():
    world = load_world("foam")
    depth = next(s.softness.depth for s in world.course if s.softness)
    heights = {}
    for name, spec in (("foam", world), ("firm", world.nominal())):
        simulation = standing_force(spec, 2.0)
        feet = simulation.data.geom_xpos[
            [simulation.model.geom(f"{foot}_foot_collision").id for foot in ROBOT.foot_names]
        ]
        heights[name] = feet[:, 2] - ROBOT.foot_radius
    assert (heights["firm"] > -0.01).all()
    assert (heights["foam"] < -0.01).all()
    assert (heights["foam"] > -depth - 0.01).all()


def test_a_slippery_strip_on_level_ground_does_not_borrow_the_grip_of_the_floor():
    world = parse_world("patch", {"course": [{"length": 1.0}, {"length": 30.0, "friction": 0.05}]})
    slid = {}
    for name, spec in (("slippery", world), ("gripping", world.nominal())):
        simulation = standing_force(spec, 5.0, 0.4)
        simulation.data.qvel[0] = 1.0
        start = simulation.data.qpos[0]
        zeros = np.zeros(12)
        for _ in range(100):
            simulation.step(
                JointCommand(ROBOT.default_pose, zeros, np.full(12, 60.0), np.full(12, 2.0), zeros)
            )
        slid[name] = simulation.data.qpos[0] - start
    assert slid["slippery"] > 1.3 * slid["gripping"]
