"""The simulated robot with its executor: one clock, falls, restarts, damping."""

from __future__ import annotations

import pytest

from simdist import robots
from simdist.safety import CommandExecutor
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.stand_in import StandIn
from simdist.simulation.world import load_world
from simdist.types import ActionChunk, Mode

DT_NS = 20_000_000


@pytest.fixture
def robot() -> StandIn:
    spec = robots.get("go1")
    simulation = RobotSimulation(spec, load_world("flat"))
    return StandIn(simulation, CommandExecutor(spec))


def run(robot: StandIn, seconds: float) -> list:
    steps = []
    end = robot.now_ns + round(seconds * 1e9)
    while robot.now_ns < end:
        step = robot.act(*robot.sense())
        if step is not None:
            steps.append(step)
    return steps


def stand(robot: StandIn) -> None:
    run(robot, 0.02)
    assert robot.executor.request_mode(Mode.STAND_UP, robot.now_ns)[0]
    run(robot, 2.0)
    assert robot.executor.mode == Mode.STAND


def test_control_steps_begin_on_the_grid_and_once_each(robot):
    steps = run(robot, 0.2)
    assert [step.stamp_ns for step in steps] == list(range(0, 200_000_000, DT_NS))
    assert robot.at_boundary
    assert robot.ticks == 10


def test_a_damped_robot_depends_on_nobody_and_a_standing_one_does(robot):
    assert not robot.limp, "it must have been looked at before it can stand up"
    run(robot, 0.02)
    assert robot.limp
    assert not robot.answerable
    robot.executor.request_mode(Mode.STAND_UP, robot.now_ns)
    assert not robot.limp
    run(robot, 2.0)
    assert robot.answerable


def test_time_goes_on_across_a_restart_with_a_gap_on_the_grid(robot):
    stand(robot)
    run(robot, 0.006)  # in the middle of a control step
    before = robot.now_ns
    robot.restart()
    assert robot.now_ns - before >= StandIn.RESTART_GAP_NS
    assert robot.now_ns % DT_NS == 0
    assert robot.executor.mode == Mode.DAMP
    steps = run(robot, 0.04)
    assert [step.stamp_ns % DT_NS for step in steps] == [0, 0]
    assert robot.executor.status().protective_stops == 0
    stand(robot)


def test_the_same_seed_gives_the_same_course_of_events_and_another_does_not():
    spec, world = robots.get("go1"), load_world("flat")
    ends = []
    for seed in (3, 3, 4):
        robot = StandIn(RobotSimulation(spec, world), CommandExecutor(spec), seed)
        stand(robot)
        robot.restart()
        stand(robot)
        ends.append(robot.simulation.base_state().position.tolist())
    assert ends[0] == ends[1] != ends[2]


def test_a_fall_while_acting_is_counted_once_and_ends_in_fault(robot):
    stand(robot)
    robot.executor.request_mode(Mode.ACTIVE, robot.now_ns)
    spec = robot.simulation.robot
    # Legs thrown sideways: nobody stands on that.
    wild = spec.lie_pose.copy()
    wild[0::3] = 0.8
    for sequence in range(1, 150):
        chunk = ActionChunk(
            robot.now_ns,
            robot.now_ns,
            sequence,
            spec.joint_names,
            "joint_position",
            DT_NS,
            wild[None].repeat(5, axis=0),
            0,
            "",
        )
        robot.executor.receive(chunk, robot.now_ns)
        run(robot, 0.02)
        if robot.executor.mode == Mode.FAULT:
            break
    assert robot.executor.mode == Mode.FAULT
    run(robot, 0.5)
    assert robot.falls == 1
    assert robot.fallen
    robot.restart()
    assert not robot.fallen
    assert robot.falls == 1


def test_the_last_command_before_the_end_is_to_damp(robot):
    stand(robot)
    steps = robot.damp()
    assert steps[-1].mode == Mode.DAMP
    command = robot.executor.step(robot.now_ns, *robot.sense(), robot.now_ns)
    assert (command.kp == 0.0).all()
    assert (command.kd > 0.0).all()
