"""The whole graph, launched as a user does it: walking, adapting, recording, and ending cleanly."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from graph_rig import TRACEBACK, WALKING_MODEL, Launched, random_model

from simdist import robots
from simdist.replay.bag import read_episodes

pytestmark = pytest.mark.launch

LOCKSTEP = ("lockstep:=true", "headless:=true")


@pytest.fixture(scope="module")
def unlearned(tmp_path_factory) -> Path:
    """A model that has learned nothing: enough to start and stop the graph with."""
    return random_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def launch(tmp_path):
    """Start launches; whatever a test leaves running is ended."""
    running = []

    def start(*arguments: str) -> Launched:
        running.append(Launched(*arguments, log=tmp_path / f"log{len(running)}.txt"))
        return running[-1]

    yield start
    for launched in running:
        launched.kill()


def walking_model() -> str:
    assert WALKING_MODEL.is_file(), f"{WALKING_MODEL} is shipped with the project"
    return f"model:={WALKING_MODEL}"


def assert_clean(launched: Launched, code: int = 0) -> None:
    assert launched.wait() == code, launched.output
    # What was told to end may need a moment after its launch.
    deadline = time.monotonic() + 20.0
    while launched.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert launched.processes() == []
    assert TRACEBACK not in launched.output, launched.output


# --- walking --------------------------------------------------------------------------------------


def test_go1_walks_up_the_slope_is_recorded_and_does_the_same_again(launch, tmp_path):
    common = (*LOCKSTEP, walking_model(), "adapt:=false", "duration:=8", "seed:=3")
    summaries = []
    for run, arguments in enumerate(
        (("record:=true", f"bag_dir:={tmp_path / 'bags'}"), ("namespace:=lab/go1",))
    ):
        file = tmp_path / f"summary{run}.json"
        launched = launch(*common, *arguments, f"summary:={file}")
        assert_clean(launched)
        summaries.append(json.loads(file.read_text()))

    first, second = summaries
    assert first["falls"] == 0
    assert first["progress_m"] > 2.0
    assert first["plans"] > 190
    assert first["episodes"] == 1, "every control step was observed and applied"
    assert [change["mode"] for change in first["mode_changes"]] == [
        "DAMP",
        "STAND_UP",
        "STAND",
        "ACTIVE",
        "LIE_DOWN",
        "DAMP",
    ]
    assert first["model_versions"] == [0]
    # Nothing of the machine's speed gets into a lockstep run. (The number of plans is only what the
    # operator last heard of, once a second.)
    for name in ("progress_m", "ticks", "mode_changes"):
        assert first[name] == second[name], name

    (bag,) = (tmp_path / "bags").iterdir()
    episodes, report = read_episodes(bag, robots.get("go1"))
    assert len(episodes) == 1
    assert report.steps == 400
    assert report.rejected == {}


def test_a_model_update_is_swapped_in_while_walking_and_no_step_is_lost(launch, tmp_path):
    file = tmp_path / "summary.json"
    launched = launch(*LOCKSTEP, walking_model(), "adapt:=true", f"summary:={file}")
    launched.wait_for(r"swapped in: version 1 is current")
    launched.wait_for(r"ACTIVE .* model v1")
    launched.interrupt()
    assert_clean(launched)
    summary = json.loads(file.read_text())
    assert summary["falls"] == 0
    assert summary["model_versions"] == [0, 1]
    assert summary["updates"][-1]["accepted"]
    assert summary["updates"][-1]["loss_after"] < summary["updates"][-1]["loss_before"]
    assert summary["episodes"] == 1, "the recording of every control step went on without a gap"
    stops = [c for c in summary["mode_changes"] if c["mode"] == "FAULT"]
    assert stops == []


def test_a_planner_that_dies_is_started_again_and_the_robot_walks_on(launch, tmp_path):
    file = tmp_path / "summary.json"
    launched = launch(*LOCKSTEP, walking_model(), "adapt:=false", "duration:=6", f"summary:={file}")
    launched.wait_for(r"ACTIVE .*progress +(-?[0-9.]+) m")
    pid = int(re.search(r"\[planner-\d+\]: process started with pid \[(\d+)\]", launched.output)[1])
    os.kill(pid, signal.SIGKILL)
    assert_clean(launched)
    assert launched.output.count("planner-") > 1
    summary = json.loads(file.read_text())
    assert summary["falls"] == 0
    assert summary["progress_m"] > 0.5


# --- ending ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        (r"process started with pid", signal.SIGINT),
        (r"\[planner-\d+\]: process started", signal.SIGTERM),
        (r"DAMP -> STAND_UP", signal.SIGINT),
        (r"STAND_UP -> STAND", signal.SIGTERM),
        (r"STAND -> ACTIVE", signal.SIGINT),
    ],
    ids=["starting", "starting-term", "standing-up", "standing-term", "active"],
)
def test_the_end_is_clean_at_any_moment(launch, unlearned, tmp_path, moment, number):
    file = tmp_path / "summary.json"
    launched = launch(*LOCKSTEP, f"model:={unlearned}", "adapt:=true", f"summary:={file}")
    launched.wait_for(moment)
    launched.interrupt(number)
    assert_clean(launched)
    if "ACTIVE" in moment:
        assert "ACTIVE -> DAMP: requested" in launched.output
        assert json.loads(file.read_text())["mode_changes"]


def test_a_launch_that_is_killed_leaves_no_process(launch, unlearned):
    launched = launch(*LOCKSTEP, f"model:={unlearned}", "adapt:=false")
    launched.wait_for(r"DAMP -> STAND_UP")
    launched.interrupt(signal.SIGKILL)
    launched.wait()
    deadline = time.monotonic() + 30.0
    while launched.processes() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert launched.processes() == []


def test_the_death_of_the_bridge_ends_the_launch_with_an_error(launch, unlearned):
    launched = launch(*LOCKSTEP, f"model:={unlearned}", "adapt:=false")
    launched.wait_for(r"DAMP -> STAND_UP")
    pid = re.search(r"\[mujoco_bridge-1\]: process started with pid \[(\d+)\]", launched.output)
    assert pid is not None
    with contextlib.suppress(ProcessLookupError):
        os.kill(int(pid[1]), signal.SIGKILL)
    assert_clean(launched, code=1)
    assert "the bridge ended with exit code -9" in launched.output


# --- refusing -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "said"),
    [("world:=moon", "slope"), ("command_vx:=9", "-0.5 to 1.2"), ("model:=nobody", "not found")],
)
def test_a_bad_argument_ends_the_launch_before_anything_starts(launch, argument, said):
    launched = launch("adapt:=false", argument)
    assert_clean(launched, code=1)
    assert f"argument {argument}" in launched.output
    assert said in launched.output
    assert "process started" not in launched.output
