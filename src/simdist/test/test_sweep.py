"""Sweeping the parameter that makes a world hard."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist import cli
from simdist.errors import ConfigError
from simdist.evaluation.rows import Row
from simdist.evaluation.sweep import (
    FORMAT,
    PARAMETERS,
    SweepResult,
    parameters_of,
    parse_sweep,
    with_parameter,
)
from simdist.evaluation.trials import TrialResult
from simdist.simulation.world import load_world

SHEET = load_world("slope_sheet")


@given(st.floats(0.01, 1.5))
@settings(max_examples=40)
def test_friction_changes_only_where_it_is_slippery(friction):
    changed = with_parameter(SHEET, "friction", friction)
    for was, now in zip(SHEET.course, changed.course, strict=True):
        assert now.friction == (friction if was.friction < 0.3 else was.friction)
        assert (now.length, now.slope) == (was.length, was.slope)


@pytest.mark.parametrize(
    ("world", "parameter", "value"),
    [
        ("foam", "time_constant", 0.1),
        ("foam", "depth", 0.1),
        ("payload", "trunk_mass", 2.0),
        ("weak_motor", "motor_strength", 0.5),
        ("latency", "action_delay", 0.02),
    ],
)
def test_a_sweep_sets_the_value_it_names(world, parameter, value):
    changed = with_parameter(load_world(world), parameter, value)
    (softness, *_) = [s.softness for s in changed.course if s.softness] or [None]
    holder = softness if hasattr(softness, parameter) else changed.gaps
    found = getattr(holder, parameter)
    assert found == value or set(found.values()) == {value}


def test_every_hard_world_has_something_to_sweep_and_the_nominal_one_nothing():
    for name in ("slope_sheet", "slope_slippery", "slope_gentle", "ice", "foam", "payload"):
        assert parameters_of(load_world(name)), name
    assert parameters_of(load_world("nominal")) == ()


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("gravity", 1.0, f"unknown sweep parameter 'gravity'; known: {', '.join(PARAMETERS)}"),
        ("action_delay", 0.02, "'slope_sheet' has no action_delay to sweep; it has: friction"),
        ("friction", 0.0, r"friction must lie in \(0, 2\], got 0.0"),
    ],
)
def test_a_parameter_that_cannot_be_swept_is_refused(parameter, value, message):
    with pytest.raises(ConfigError, match=message):
        with_parameter(SHEET, parameter, value)


@pytest.mark.parametrize("text", ["friction", "friction=", "friction=a,b", "friction=nan", "=1"])
def test_a_malformed_sweep_is_refused_with_the_form_it_should_have(text):
    with pytest.raises(ConfigError, match="PARAMETER=VALUE,VALUE"):
        parse_sweep(text)


def test_a_value_named_twice_is_refused():
    with pytest.raises(ConfigError, match="twice"):
        parse_sweep("friction=0.2,0.20")
    assert parse_sweep("friction=0.2,0.3") == ("friction", (0.2, 0.3))


def test_a_result_says_all_that_a_report_needs():
    trials = [
        TrialResult(0.4, 0, 1.82, False, 8.0, 0.1, "", reached=True),
        TrialResult(0.6, 0, 0.3, True, 2.0, 0.1, "fell"),
    ]
    rows = tuple((value, Row("expert", tuple(trials))) for value in (0.2, 0.3))
    result = SweepResult("w", "friction", (0.2, 0.3), rows, 1.82, "simdist evaluate", 0, 3.0)
    data = json.loads(json.dumps(result.to_dict()))
    assert data["format"] == FORMAT
    assert data["values"] == [0.2, 0.3]
    assert data["rows"][1] == {
        "method": "expert",
        "value": 0.3,
        "progress_m": [1.82, 0.3],
        "falls": 1,
        "success": 1,
        "trials": 2,
    }
    assert "expert" in result.table()


def test_the_command_line_writes_a_sweep(tmp_path, capsys):
    file = tmp_path / "sweep.json"
    arguments = ["--world", "slope_sheet", "--methods", "expert", "--sweep", "friction=0.2,0.5"]
    short = ["--trials", "1", "--seconds", "0.3", "--workers", "1", "--json", str(file)]
    assert cli.main(["evaluate", *arguments, *short]) == 0
    data = json.loads(file.read_text())
    assert [row["value"] for row in data["rows"]] == [0.2, 0.5]
    assert data["line_m"] == SHEET.success_line
    assert data["parameter"] == "friction"


def test_a_refused_sweep_is_one_line_and_exit_code_2(capsys):
    assert cli.main(["evaluate", "--world", "flat", "--sweep", "friction=0.2"]) == 2
    captured = capsys.readouterr()
    assert "has no friction to sweep; it has: none" in captured.err
    assert "Traceback" not in captured.err
