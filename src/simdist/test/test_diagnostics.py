"""What the diagnostics say, and when they are a warning or an error."""

from __future__ import annotations

import dataclasses

from executor_rig import MS, rig_in
from hypothesis import given
from hypothesis import strategies as st

from simdist.diagnostics import ExecutorReport, Increase, Level, PlannerFigures, PlannerReport
from simdist.types import Mode

FIGURES = PlannerFigures(
    model_version=4,
    plans=100,
    late=0,
    degraded=0,
    refused_updates=0,
    plan_ms_p50=11.0,
    plan_ms_p99=17.5,
    period_ms=40.0,
    last_event="version 4 loaded",
)


def test_a_walking_robot_is_well() -> None:
    rig = rig_in(Mode.ACTIVE)
    entry = ExecutorReport().entry(rig.executor.status(), 0)
    assert entry.level == Level.OK
    assert entry.message == "ACTIVE: fresh chunk"
    assert entry.values["mode"] == "ACTIVE"
    assert entry.values["chunks refused"] == "0"


def test_refused_chunks_are_told_by_reason_once_and_counted_for_ever() -> None:
    rig, report = rig_in(Mode.ACTIVE), ExecutorReport()
    report.entry(rig.executor.status(), 0)
    for _ in range(3):
        rig.executor.receive(rig.chunk(contract="another"), rig.now)
    entry = report.entry(rig.executor.status(), 0)
    assert entry.level == Level.WARN
    assert "3 chunks refused (contract)" in entry.message
    entry = report.entry(rig.executor.status(), 0)
    assert entry.level == Level.OK
    assert entry.values["chunks refused (contract)"] == entry.values["chunks refused"] == "3"


def test_missed_deadlines_are_a_warning() -> None:
    rig, report = rig_in(Mode.ACTIVE), ExecutorReport()
    report.entry(rig.executor.status(), 5)
    entry = report.entry(rig.executor.status(), 7)
    assert entry.level == Level.WARN
    assert "2 control steps late" in entry.message


def test_a_protective_stop_and_a_fault_are_errors_until_the_robot_is_armed_again() -> None:
    rig, report = rig_in(Mode.ACTIVE), ExecutorReport()
    rig.now += 60 * MS
    rig.call()
    entry = report.entry(rig.executor.status(), 0)
    assert entry.level == Level.ERROR
    assert "did not run for 6" in entry.message
    rig.executor.request_mode(Mode.FAULT, rig.now)
    assert report.entry(rig.executor.status(), 0).level == Level.ERROR
    rig.executor.rearm(rig.now)
    report.entry(rig.executor.status(), 0)
    assert report.entry(rig.executor.status(), 0).level == Level.OK


def test_the_planner_tells_its_deadline_and_what_it_took() -> None:
    entry = PlannerReport().entry(FIGURES)
    assert entry.level == Level.OK
    assert entry.message == "11.0 ms per plan, p99 17.5 ms, deadline 40 ms"
    assert entry.values["model version"] == "4"


def test_refused_updates_and_late_and_degraded_plans_are_warnings_while_they_grow() -> None:
    for name in ("late", "degraded", "refused_updates"):
        after = dataclasses.replace(FIGURES, **{name: 2})
        grown = PlannerReport()
        grown.entry(FIGURES)
        assert grown.entry(after).level == Level.WARN
        assert grown.entry(after).level == Level.OK


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 9)), max_size=5))
def test_increases_add_up_to_the_counters(steps: list[dict[str, int]]) -> None:
    increase, counts, told = Increase(), {}, {}
    for step in steps:
        for name, by in step.items():
            counts[name] = counts.get(name, 0) + by
        for name, by in increase.of(counts).items():
            assert by > 0
            told[name] = told.get(name, 0) + by
    assert told == {name: count for name, count in counts.items() if count}
