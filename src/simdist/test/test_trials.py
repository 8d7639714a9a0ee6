"""Closed-loop trials and the command line around them."""

from __future__ import annotations

import json

import numpy as np
import pytest

from simdist import cli, robots
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation.spec import legged_observation
from simdist.simulation.world import load_world, parse_world
from simdist.tasks.course import Course, CourseConfig
from simdist.types import ActionChunk

ROBOT = robots.get("go1")
LAYOUT = legged_observation(ROBOT.joint_count)
FLAT = parse_world("flat", {"course": [{"length": 30.0}]})


class Constant:
    """Plays the same action for ever and remembers what it was shown."""

    def __init__(self, action: np.ndarray) -> None:
        self.action, self.seen = action, []

    def act(self, observation) -> ActionChunk:
        self.seen.append(observation)
        return ActionChunk(
            stamp_ns=observation.stamp_ns,
            observation_stamp_ns=observation.stamp_ns,
            sequence=len(self.seen),
            joint_names=ROBOT.joint_names,
            kind="joint_position",
            dt_ns=20_000_000,
            values=np.tile(ROBOT.target(self.action), (3, 1)),
            model_version=0,
            contract="",
        )


def test_a_robot_that_only_stands_neither_falls_nor_gets_anywhere():
    driver = Constant(np.zeros(12))
    result = Trial(ROBOT, FLAT, LAYOUT, TrialConfig(0.5, seed=0, seconds=1.0)).run(driver)
    assert not result.fallen
    assert abs(result.progress) < 0.15
    assert len(driver.seen) == 50
    stamps = np.diff([o.stamp_ns for o in driver.seen])
    assert set(stamps) == {20_000_000}


def test_the_history_holds_what_the_executor_applied():
    driver = Constant(np.full(12, 0.05))
    Trial(ROBOT, FLAT, LAYOUT, TrialConfig(0.5, seed=0, seconds=0.6)).run(driver)
    np.testing.assert_allclose(driver.seen[-1].action_history, 0.05, atol=1e-6)


def test_a_robot_told_to_fold_one_side_falls_and_the_trial_says_so():
    action = np.zeros(12)
    action[[1, 7]], action[[2, 8]] = 6.0, -6.0
    result = Trial(ROBOT, FLAT, LAYOUT, TrialConfig(0.5, seed=0, seconds=3.0)).run(Constant(action))
    assert result.fallen
    assert result.reason
    assert result.seconds < 3.0


def test_trials_repeat_exactly_for_a_seed_and_differ_between_seeds():
    def final(seed: int) -> np.ndarray:
        driver = Constant(np.full(12, 0.1))
        Trial(ROBOT, FLAT, LAYOUT, TrialConfig(0.5, seed=seed, seconds=0.4)).run(driver)
        return driver.seen[-1].proprioception

    np.testing.assert_array_equal(final(1), final(1))
    assert np.abs(final(1) - final(2)).max() > 1e-4


def test_a_command_is_held_between_plans():
    driver = Constant(np.zeros(12))
    config = TrialConfig(0.5, seed=0, seconds=0.4, plan_every=2)
    Trial(ROBOT, FLAT, LAYOUT, config).run(driver)
    assert len(driver.seen) == 10


def test_the_course_ramps_up_and_steers_back():
    course = Course(0.8, CourseConfig(acceleration=0.5))
    assert course.command(0.0, 0.0, 0.02)[0] == pytest.approx(0.01)
    for _ in range(200):
        command = course.command(0.2, -0.3, 0.02)
    np.testing.assert_allclose(command, [0.8, -0.2, 0.3])
    np.testing.assert_allclose(course.command(9.0, 9.0, 0.02)[1:], [-0.3, -0.6])
    course.reset()
    assert course.command(0.0, 0.0, 0.0)[0] == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--world", "moon"], "unknown world 'moon'; known worlds: flat"),
        (["--model", "nowhere.safetensors"], "nowhere.safetensors"),
        (["--trials", "0"], "--trials must be at least 1, got 0"),
        (["--speeds", "9"], "--speeds must lie within"),
        (["--seconds", "-1"], "--seconds must lie in"),
        (["--line", "-1"], "--line must lie in"),
    ],
)
def test_bad_arguments_are_one_clear_line_and_exit_code_2(arguments, message, capsys):
    assert cli.main(["evaluate", *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit) as stopped:
        cli.main(["--help"])
    assert stopped.value.code == 0
    text = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert command in text


def test_a_trial_ends_at_the_line_with_exactly_its_progress():
    driver = Constant(np.zeros(12))
    config = TrialConfig(0.5, seed=0, seconds=1.0)
    result = Trial(ROBOT, FLAT, LAYOUT, config, line=-0.5).run(driver)
    assert result.reached
    assert not result.fallen
    assert result.progress == -0.5
    assert len(driver.seen) == 1
    missed = Trial(ROBOT, FLAT, LAYOUT, config, line=5.0).run(Constant(np.zeros(12)))
    assert not missed.reached
    assert missed.progress < 0.15


def test_a_fall_before_the_line_is_no_success():
    action = np.zeros(12)
    action[[1, 7]], action[[2, 8]] = 6.0, -6.0
    config = TrialConfig(0.5, seed=0, seconds=3.0)
    result = Trial(ROBOT, FLAT, LAYOUT, config, line=5.0).run(Constant(action))
    assert result.fallen
    assert not result.reached


def test_a_privileged_driver_is_shown_the_standing_robot_before_it_acts():
    class Privileged(Constant):
        def begin(self, simulation) -> None:
            assert not self.seen
            self.height = simulation.base_state().position[2]

    driver = Privileged(np.zeros(12))
    Trial(ROBOT, FLAT, LAYOUT, TrialConfig(0.5, seed=0, seconds=0.1)).run(driver)
    assert 0.2 < driver.height < 0.4


def test_slope_progress_counts_from_the_foot_of_the_ramp():
    slope = load_world("slope")
    driver = Constant(np.zeros(12))
    result = Trial(ROBOT, slope, LAYOUT, TrialConfig(0.5, seed=0, seconds=0.2)).run(driver)
    assert -1.0 < result.progress < -0.6
    assert json.dumps(result.progress)
