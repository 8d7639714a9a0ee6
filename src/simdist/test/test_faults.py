"""Every fault of the matrix, from one seed and from any; and that broken promises show."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.faults import Fault, faults, run
from simdist.faults.measurement import at_most, exactly
from simdist.planning import mppi
from simdist.safety.chunks import ChunkInbox
from simdist.safety.limits import JointLimiter
from simdist.safety.modes import ModeMachine
from simdist.safety.watchdog import AgeWatch, FreezeWatch

ROOT = Path(__file__).resolve().parents[3]
SEED = 7
FAULTS = faults()
#: Those that take more than a moment.
SLOW = ("1,000 swaps", "another thread", "killed at", "storm")


def failure(fault: Fault, seed: int) -> str:
    """Why the promise was not held; empty if it was."""
    row = next(run([fault], seed))
    measurement = row.measurement
    return "" if row.held else f"{fault.name}: {measurement} ({measurement.trouble}), seed {seed}"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_promise_is_held(fault: Fault) -> None:
    assert failure(fault, SEED) == ""


@given(
    fault=st.sampled_from([f for f in FAULTS if not any(word in f.name for word in SLOW)]),
    seed=st.integers(0, 2**63),
)
@settings(max_examples=60, deadline=None)
def test_promises_do_not_depend_on_the_seed(fault: Fault, seed: int) -> None:
    assert failure(fault, seed) == ""


def test_there_are_enough_faults_and_each_has_a_name_of_its_own() -> None:
    names = [fault.name for fault in FAULTS]
    assert len(names) == len(set(names)) >= 60
    families = {name.partition(":")[0] for name in names}
    assert len(families) == 8


def test_a_measurement_is_judged_by_its_number_and_by_whatever_else_went_wrong() -> None:
    assert at_most(3, 3, "ms").held
    assert not at_most(3.1, 3, "ms").held
    assert not at_most(float("nan"), 3, "ms").held
    assert not exactly(1, 0, "played").held
    broken = exactly(0, 0, "played").unless(True, "it was not counted")
    assert not broken.held
    assert broken.trouble == "it was not counted"


def follow_blindly(planner, problem, deviations, prior, first):
    """Plans in closed loop whose actions are believed although the prediction broke down."""
    begin = planner._admissible(prior[:, None, :1] + deviations[:, :, :1], first)
    actions, returns = problem.follow(deviations, begin, planner._limits)
    return actions, deviations, returns


# What is broken, and a fault whose promise then cannot be held: the matrix measures the real thing.
SABOTAGE = [
    (AgeWatch, "age_ns", lambda self, now: 0, "older than 100 ms in ACTIVE"),
    (FreezeWatch, "age_ns", lambda self, now: 0, "frozen"),
    (AgeWatch, "seen", lambda self, stamp, now: setattr(self, "_stamp_ns", now) or True, "future"),
    (ChunkInbox, "_check_times", lambda self, chunk, rows, now: None, "numbered lower"),
    (ChunkInbox, "_check_times", lambda self, chunk, rows, now: None, "over already"),
    (JointLimiter, "target", lambda self, wanted, previous: wanted, "targets of 1e308 rad"),
    (ModeMachine, "stop", lambda self, reason, now: None, "planner dies"),
    (ModeMachine, "rearm", lambda self, now: (True, "armed"), "re-arming while"),
    (ModeMachine, "fault", lambda self, reason, now: self.stop(reason, now), "roll beyond 0.9"),
    (
        mppi,
        "_weights",
        lambda returns, temperature, elites: returns.nan_to_num(1e3).softmax(1),
        "50% of the returns are nan",
    ),
    (mppi.MppiPlanner, "_score", follow_blindly, "1% of the returns are nan"),
    (mppi.MppiPlanner, "swap", lambda self, model: None, "another thread"),
]


@pytest.mark.parametrize(("owner", "name", "broken", "pattern"), SABOTAGE)
def test_a_promise_that_is_broken_shows(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, broken: object, pattern: str
) -> None:
    chosen = faults(pattern)
    assert chosen
    # Robots that are brought to a mode before the sabotage stay as they are.
    for fault in chosen:
        assert failure(fault, SEED) == ""
    monkeypatch.setattr(owner, name, broken)
    assert any(failure(fault, SEED) for fault in chosen)


def test_the_table_is_written_as_json_and_the_exit_code_tells(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    main = runpy.run_path(str(ROOT / "benchmarks" / "faults.py"))["main"]
    file = tmp_path / "faults.json"
    arguments = ["--only", "planner dies", "--seed", "3", "--json", str(file)]
    assert main(arguments) == 0
    document = json.loads(file.read_text())
    assert (document["format"], document["seed"]) == ("simdist-faults-1", 3)
    assert {row["held"] for row in document["rows"]} == {True}
    assert set(document["rows"][0]) == {"fault", "promise", "measured", "held"}
    assert "3 of 3 promises held" in capsys.readouterr().out

    monkeypatch.setattr(ModeMachine, "stop", lambda self, reason, now: None)
    assert main(arguments) == 1
    assert "NOT HELD" in capsys.readouterr().out
    assert not all(row["held"] for row in json.loads(file.read_text())["rows"])
    torch.set_num_threads(threads)


def test_a_pattern_that_matches_nothing_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    main = runpy.run_path(str(ROOT / "benchmarks" / "faults.py"))["main"]
    with pytest.raises(SystemExit) as ended:
        main(["--only", "no such fault"])
    assert ended.value.code == 2
    assert "--list" in capsys.readouterr().err
