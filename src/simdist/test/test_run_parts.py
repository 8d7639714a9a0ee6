"""The pure parts of the running graph: pacing, matching by stamp, schedules, mission, summary."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdist.errors import ConfigError
from simdist.evaluation.run_summary import RunSummary, UpdateRecord
from simdist.observation.assembly import StampMatcher
from simdist.schedule import PlanSchedule, commit_steps
from simdist.simulation.realtime import Pacer
from simdist.tasks.command_watch import CommandWatch
from simdist.tasks.mission import PATIENCE, RETRY, Mission, Request
from simdist.types import Mode

MS = 1_000_000


# --- pacing ---------------------------------------------------------------------------------------


def test_simulated_time_follows_the_steady_clock():
    pacer = Pacer()
    assert pacer.remaining(5.0, 100.0) == 0.0  # whatever comes first is due at once
    assert pacer.remaining(5.002, 100.0) == pytest.approx(0.002)
    assert pacer.remaining(5.002, 100.005) == pytest.approx(-0.003)
    assert pacer.slips == 0


def test_a_stall_slips_time_and_is_not_raced_after():
    pacer = Pacer(slip_after=0.05)
    pacer.remaining(0.0, 10.0)
    assert pacer.remaining(0.002, 11.0) == pytest.approx(-0.998)
    assert pacer.slipped == pytest.approx(0.998)
    # The next steps are due one step apart again, not all at once.
    assert pacer.remaining(0.004, 11.0) == pytest.approx(0.002)


def test_a_short_delay_is_caught_up_with():
    pacer = Pacer(slip_after=0.05)
    pacer.remaining(0.0, 0.0)
    assert pacer.remaining(0.002, 0.04) == pytest.approx(-0.038)
    assert pacer.remaining(0.004, 0.04) == pytest.approx(-0.036)
    assert pacer.slips == 0


def test_late_is_what_missed_its_deadline():
    pacer = Pacer(late_after=0.01)
    assert not pacer.is_late(0.001)
    assert not pacer.is_late(-0.009)
    assert pacer.is_late(-0.011)


# --- matching -------------------------------------------------------------------------------------


def test_values_of_one_stamp_come_out_together_in_any_order_of_arrival():
    matcher = StampMatcher(("a", "b", "c"))
    assert matcher.add("b", 20, "b20") is None
    assert matcher.add("a", 40, "a40") is None
    assert matcher.add("c", 20, "c20") is None
    assert matcher.add("a", 20, "a20") == {"a": "a20", "b": "b20", "c": "c20"}


def test_an_old_set_that_completes_late_is_not_handed_out():
    matcher = StampMatcher(("a", "b"))
    matcher.add("a", 20, 1)
    matcher.add("a", 40, 2)
    assert matcher.add("b", 40, 3) is not None
    assert matcher.add("b", 20, 4) is None


def test_a_set_sent_again_as_a_whole_comes_out_again():
    matcher = StampMatcher(("a", "b"))
    matcher.add("a", 20, 1)
    assert matcher.add("b", 20, 2) is not None
    assert matcher.add("a", 20, 1) is None
    assert matcher.add("b", 20, 2) == {"a": 1, "b": 2}


def test_a_clock_that_started_over_is_believed():
    matcher = StampMatcher(("a", "b"), restart_ns=1000)
    matcher.add("a", 50_000, 1)
    matcher.add("b", 50_000, 1)
    matcher.add("a", 20, 1)
    assert matcher.add("b", 20, 2) is not None


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 50)), max_size=200))
def test_stamps_come_out_in_order_and_memory_is_bounded(arrivals):
    matcher = StampMatcher("ab", keep=5, restart_ns=1000)
    out = []
    for kind, stamp in arrivals:
        if matcher.add(kind, stamp, (kind, stamp)) is not None:
            out.append(stamp)
        assert len(matcher._waiting) <= 5
    assert out == sorted(out)


# --- commands that stop coming --------------------------------------------------------------------


def test_a_silent_command_fades_to_zero_within_its_ramp():
    watch = CommandWatch(timeout=0.5, ramp=0.4)
    assert watch.command(0.0).tolist() == [0.0, 0.0, 0.0]
    watch.receive(np.array([1.0, 0.0, -0.4]), now=10.0)
    assert watch.command(10.5).tolist() == [1.0, 0.0, -0.4]
    assert watch.command(10.7) == pytest.approx([0.5, 0.0, -0.2])
    assert watch.command(10.91).tolist() == [0.0, 0.0, 0.0]
    assert watch.silent(10.6)


@pytest.mark.parametrize("bad", [[np.nan, 0, 0], [np.inf, 0, 0], [0.0, 0.0]])
def test_a_bad_command_counts_as_silence(bad):
    watch = CommandWatch(timeout=0.5, ramp=0.5)
    watch.receive(np.array([1.0, 0.0, 0.0]), now=0.0)
    assert not watch.receive(np.array(bad), now=5.0)
    assert watch.command(5.0).tolist() == [0.0, 0.0, 0.0]


# --- schedules ------------------------------------------------------------------------------------


def test_every_second_observation_is_planned_for_at_25_hz():
    schedule = PlanSchedule(0.04, 0.02)
    assert schedule.every == 2
    due = [schedule.due(stamp) for stamp in range(0, 200 * MS, 20 * MS)]
    assert due == [True, False] * 5


@given(st.integers(1, 5), st.integers(0, 10**15), st.lists(st.booleans(), max_size=40))
def test_robot_and_planner_agree_whatever_a_planner_missed_to_hear(every, start, heard):
    # The planner hears no observation that the robot did not wait for to be answered.
    robot, planner = (PlanSchedule(every * 0.02, 0.02) for _ in range(2))
    for step, also_heard in enumerate(heard):
        stamp = start + step * 20 * MS
        due = robot.due(stamp)
        if due or also_heard:
            assert planner.due(stamp) == due


def test_the_schedule_begins_anew_after_a_reset_and_when_time_goes_back():
    schedule = PlanSchedule(0.04, 0.02)
    schedule.due(0)
    assert not schedule.due(20 * MS)
    schedule.reset()
    assert schedule.due(20 * MS)
    assert schedule.due(0)


@pytest.mark.parametrize(
    ("latency", "steps"), [(0.001, 1), (0.0199, 1), (0.0201, 2), (0.039, 2), (3.0, 4)]
)
def test_steps_that_begin_before_the_plan_arrives_are_committed(latency, steps):
    assert commit_steps(latency, 0.02, most=4) == steps


# --- mission --------------------------------------------------------------------------------------


def ask(mission: Mission, mode: Mode, reason: str, now: float, grant: bool = True):
    request = mission.next_request(mode, reason, now)
    if request is not None:
        mission.answered(grant, now)
    return request


def walk(mission: Mission) -> None:
    assert ask(mission, Mode.DAMP, "start", 0.0) == Request.STAND_UP
    assert ask(mission, Mode.STAND_UP, "requested", 0.1) is None
    assert ask(mission, Mode.STAND, "stands", 1.0) == Request.ACTIVE
    assert ask(mission, Mode.ACTIVE, "fresh chunk", 1.1) is None


def test_a_mission_stands_up_walks_and_lies_down_when_its_time_is_over():
    mission = Mission(duration=0.06)
    walk(mission)
    for _ in range(3):
        assert ask(mission, Mode.ACTIVE, "fresh chunk", 1.2) is None
        mission.acted(0.02)
    assert ask(mission, Mode.ACTIVE, "fresh chunk", 1.3) == Request.LIE_DOWN
    assert ask(mission, Mode.LIE_DOWN, "requested", 1.4) is None
    assert not mission.finished
    assert ask(mission, Mode.DAMP, "lies down", 3.0) is None
    assert mission.finished


def test_the_duration_is_counted_exactly():
    mission = Mission(duration=90.0)
    for _ in range(4499):
        mission.acted(0.02)
    assert not mission.ending
    mission.acted(0.02)
    assert mission.ending


def test_one_request_at_a_time_and_a_refused_one_again_after_a_while():
    mission = Mission()
    assert mission.next_request(Mode.DAMP, "start", 0.0) == Request.STAND_UP
    assert mission.next_request(Mode.DAMP, "start", 0.1) is None
    mission.answered(False, 0.2)
    assert mission.next_request(Mode.DAMP, "start", 0.2 + RETRY / 2) is None
    assert mission.next_request(Mode.DAMP, "start", 0.3 + RETRY) == Request.STAND_UP


def test_active_is_asked_for_again_when_no_plan_came():
    mission = Mission()
    ask(mission, Mode.DAMP, "start", 0.0)
    assert ask(mission, Mode.STAND, "stands", 1.0) == Request.ACTIVE
    assert ask(mission, Mode.STAND, "stands", 1.0 + PATIENCE / 2) is None
    late = 1.1 + PATIENCE
    assert ask(mission, Mode.STAND, "no fresh chunk within 30 s", late) == Request.ACTIVE


def test_the_time_being_over_does_not_wait_for_patience():
    mission = Mission(duration=0.02)
    ask(mission, Mode.DAMP, "start", 0.0)
    ask(mission, Mode.STAND, "stands", 1.0)
    mission.acted(0.02)
    assert ask(mission, Mode.ACTIVE, "fresh chunk", 1.05) == Request.LIE_DOWN


def test_a_fall_in_simulation_starts_again_and_the_mission_goes_on():
    mission = Mission(duration=10.0, auto_reset=True)
    walk(mission)
    mission.acted(4.0)
    assert ask(mission, Mode.FAULT, "roll 1.0 rad is beyond 0.9", 5.0) == Request.RESET
    assert ask(mission, Mode.DAMP, "reset", 5.1) == Request.STAND_UP
    assert mission.acting_seconds == 4.0


def test_a_real_robot_is_never_rearmed_by_the_mission():
    mission = Mission(auto_reset=False)
    walk(mission)
    for mode, reason in ((Mode.FAULT, "roll"), (Mode.DAMP, "no new chunk for 100 ms")):
        assert ask(mission, mode, reason, 5.0) is None
        assert "re-arm" in mission.advice
    assert ask(mission, Mode.DAMP, "re-armed after: roll", 9.0) == Request.STAND_UP


@pytest.mark.parametrize(
    ("mode", "reason"),
    [(Mode.STAND, "requested"), (Mode.DAMP, "requested"), (Mode.DAMP, "lies down")],
)
def test_a_mode_that_somebody_else_asked_for_is_left_alone(mode, reason):
    mission = Mission(auto_reset=True)
    walk(mission)
    assert ask(mission, mode, reason, 5.0) is None


def test_the_end_of_the_course_is_a_new_lap_in_simulation_and_the_end_elsewhere():
    lap, end = Mission(auto_reset=True), Mission(auto_reset=False)
    for mission, wanted in ((lap, Request.RESET), (end, Request.LIE_DOWN)):
        walk(mission)
        mission.course_ended()
        assert not mission.settled(Mode.ACTIVE, "fresh chunk")
        assert ask(mission, Mode.ACTIVE, "fresh chunk", 2.0) == wanted
    assert ask(lap, Mode.DAMP, "reset", 2.1) == Request.STAND_UP


def test_lockstep_waits_for_the_answer_before_it_goes_on():
    mission = Mission(duration=0.02)
    assert mission.next_request(Mode.DAMP, "start", 0.0) == Request.STAND_UP
    assert mission.settled(Mode.DAMP, "start")
    mission.answered(True, 0.0)
    assert not mission.settled(Mode.STAND, "stands")
    mission.next_request(Mode.STAND, "stands", 1.0)
    assert not mission.settled(Mode.STAND, "stands"), "asked, but not answered yet"
    mission.answered(True, 1.0)
    assert mission.settled(Mode.STAND, "stands")
    mission.acted(0.02)
    assert not mission.settled(Mode.ACTIVE, "fresh chunk")


# --- summary --------------------------------------------------------------------------------------


def test_a_summary_holds_what_was_measured_and_is_valid_json(tmp_path):
    summary = RunSummary()
    summary.clock(2.0, 100.0)
    summary.mode_changed(2.0, "ACTIVE", "fresh chunk")
    summary.progress, summary.falls, summary.ticks = 3.25, 1, 500
    summary.plan_ms_p50, summary.plan_ms_p99 = 15.0, float("nan")
    for version in (0, 0, 1, 1, 0):
        summary.model_seen(version)
    summary.updates.append(UpdateRecord(1, True, 0.2, 0.1, 0.05, float("nan")))
    summary.clock(12.0, 120.0)
    path = tmp_path / "summary.json"
    summary.write(path)

    def refuse(text: str) -> float:
        raise AssertionError(f"{text} is not JSON")

    read = json.loads(path.read_text(), parse_constant=refuse)
    assert read["progress_m"] == 3.25
    assert read["plan_ms"] == {"p50": 15.0, "p99": None}
    assert read["model_versions"] == [0, 1, 0]
    assert read["updates"][0]["accepted"] is True
    assert read["updates"][0]["simulation_loss_after"] is None
    assert read["duration_s"] == 10.0
    assert read["real_time_factor"] == 0.5
    assert read["mode_changes"] == [{"time": 2.0, "mode": "ACTIVE", "reason": "fresh chunk"}]
    assert [p.name for p in tmp_path.iterdir()] == ["summary.json"]


def test_laps_add_up():
    summary = RunSummary(progress=58.0)
    summary.lap_finished()
    summary.progress = 1.5
    assert summary.total_progress == pytest.approx(59.5)


def test_a_summary_that_cannot_be_written_is_a_plain_error(tmp_path):
    with pytest.raises(ConfigError, match="nowhere"):
        RunSummary().write(tmp_path / "nowhere" / "s.json")


def test_a_line_is_printable_before_anything_is_known():
    assert "model none" in RunSummary().line()
    assert len(RunSummary().closing()) == 3
