"""``simdist experiment``: results that repeat, runs that resume, and refusals that explain."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from simdist import cli, robots
from simdist.adaptation.finetune import DynamicsFinetuner, FinetuneConfig
from simdist.adaptation.windows import robot_windows
from simdist.errors import ArtefactError, BagError, ConfigError
from simdist.evaluation import collection, experiment, methods, online, trial_pool
from simdist.evaluation.collection import (
    CollectionPlan,
    RecordedTrial,
    RobotData,
    collection_seed,
    evaluation_seed,
)
from simdist.evaluation.results import FORMAT, ExperimentResult, Nominal, Point
from simdist.evaluation.trial_pool import NoisyDriver
from simdist.evaluation.trials import TrialResult
from simdist.observation import Observation
from simdist.observation.spec import legged_observation
from simdist.planning import PlannerConfig
from simdist.replay import Episode
from simdist.simulation.world import load_world
from simdist.types import ActionChunk, AppliedStep, Mode
from simdist.world_model import WorldModel, WorldModelConfig
from simdist.world_model.artefact import load_artefact, save_artefact
from simdist.world_model.contract import Contract
from simdist.world_model.simulation_replay import (
    FILE_NAME,
    SimulationReplay,
    export_simulation_replay,
)

GO1 = robots.get("go1")
DT = GO1.control_dt
LAYOUT = legged_observation(GO1.joint_count, history=3)
NETWORK = WorldModelConfig(
    proprio_dim=LAYOUT.size,
    scan_shape=(LAYOUT.scan.nx, LAYOUT.scan.ny),
    latent_dim=16,
    history=3,
    horizon=4,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    cnn_channels=(2, 2),
    scan_hidden=(8,),
)


def episode(steps: int, seed: int = 0, number: int = 0, begin: int = 0) -> Episode:
    rng = np.random.default_rng(seed)

    def values(width: int) -> np.ndarray:
        return (0.1 * rng.normal(size=(steps, width))).astype(np.float32)

    return Episode(
        (begin + np.arange(steps, dtype=np.int64)) * round(DT * 1e9),
        values(LAYOUT.size),
        values(LAYOUT.scan.size),
        values(GO1.joint_count),
        values(3),
        number,
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small untrained model, with what stands for simulation data."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("models") / "world_model.safetensors"
    contract = Contract.of(GO1, LAYOUT, NETWORK)
    save_artefact(path, WorldModel(NETWORK), contract, 0, None, {})
    train, validation = (
        robot_windows([episode(100, seed) for seed in seeds], 3, 4) for seeds in ((1, 2), (3, 4))
    )
    export_simulation_replay(path.parent / FILE_NAME, train, validation, contract, count=100)
    return path


class QuickTrial:
    """Stands in for a trial: what is observed and how far it goes depends on seed and driver."""

    def __init__(self, robot, world, layout, config, line) -> None:
        self.config, self.layout, self.line = config, layout, line

    def run(self, driver, on_step=None) -> TrialResult:
        rng = np.random.default_rng(self.config.seed)
        history = np.zeros((self.layout.history + 1, self.layout.size), np.float32)
        actions = np.zeros((self.layout.history, GO1.joint_count), np.float32)
        chunk, progress, steps = None, 0.0, round(self.config.seconds / DT)
        for step in range(steps):
            stamp = step * round(DT * 1e9)
            now = 0.8 * history[-1] + 0.1 * rng.normal(size=self.layout.size)
            now[: GO1.joint_count] += 0.5 * actions[-1]
            history = np.concatenate([history[1:], now[None]]).astype(np.float32)
            scan = 0.1 * rng.normal(size=self.layout.scan.size)
            command = np.array([self.config.speed, 0.0, 0.0])
            seen = Observation(stamp, now, scan, command, actions[-1], history, actions)
            if step % self.config.plan_every == 0:
                chunk = driver.act(seen)
            assert chunk is not None
            row = (stamp - chunk.stamp_ns) // chunk.dt_ns
            action = GO1.action(chunk.values[row])
            actions = np.concatenate([actions[1:], action[None]]).astype(np.float32)
            progress += DT * float(np.tanh(action).mean())
            if on_step is not None:
                target = chunk.values[row]
                on_step(seen, AppliedStep(stamp, step, action, target, Mode.ACTIVE, 1, row))
        speed, seed = self.config.speed, self.config.seed
        return TrialResult(speed, seed, progress, False, steps * DT, 0.0, "", False)


@pytest.fixture
def real_simulation() -> None:
    """A test that takes this walks in MuJoCo."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(methods, "LEAST_STEPS", 10)
    monkeypatch.setattr(online, "STEPS_PER_UPDATE", 20)
    monkeypatch.setattr(online, "MIN_NEW_SECONDS", 1.0)
    if "real_simulation" not in request.fixturenames:
        monkeypatch.setattr(trial_pool, "Trial", QuickTrial)


def command(model: Path, out: Path, *extra: str) -> list[str]:
    """Trials of one second, and a gate that lets anything through that is a little better."""
    gate = out.parent / "gate.yaml"
    gate.write_text("{seconds: 1, held_out_windows: 1, improvement: 0, simulation_margin: 10}")
    defaults = {
        "--world": "flat",
        "--method": "simdist",
        "--minutes": "0,0.1",
        "--model": str(model),
        "--out": str(out),
        "--trials": "3",
        "--seconds": "1",
        "--samples": "4",
        "--iterations": "1",
        "--workers": "1",
        "--gate": str(gate),
    }
    given = dict(zip(extra[::2], extra[1::2], strict=True))
    return ["experiment", *itertools.chain(*{**defaults, **given}.items())]


def run(model: Path, out: Path, *extra: str) -> ExperimentResult:
    assert cli.main(command(model, out, *extra)) == 0
    return ExperimentResult.load(out / "result.json")


def without_times(result: ExperimentResult) -> dict:
    data = result.to_dict()
    for point in data["points"]:
        del point["wall_s"]
    for name in ("wall_s", "command"):
        del data[name]
    return data


# ---------------------------------------------------------------------- runs


def test_a_run_writes_what_the_report_needs(model, tmp_path, capsys, real_simulation):
    out = tmp_path / "run"
    result = run(model, out, "--minutes", "0,0.05")
    assert [point.minutes for point in result.points] == [0.0, 0.05]
    for point in result.points:
        assert point.speeds == (0.4, 0.6, 0.8)
        assert point.seeds == (1000, 1000, 1000)
        assert len(point.progress_m) == 3
    (learned,) = result.rounds
    assert learned.accepted
    assert learned.steps == 12
    assert result.latent_loss is not None
    assert result.latent_loss.after < result.latent_loss.before
    assert result.model["weights_hash"] == load_artefact(model).weights_hash
    assert "--method simdist --minutes 0,0.05 --trials 3" in result.command
    assert "0.05" in capsys.readouterr().out
    text = (out / "result.json").read_text()
    assert json.loads(text)["format"] == FORMAT
    assert "NaN" not in text


def test_the_command_in_a_result_makes_it_again(model, tmp_path):
    first = run(model, tmp_path / "first", "--method", "frozen", "--minutes", "0", "--trials", "1")
    words = first.command.replace(str(tmp_path / "first"), str(tmp_path / "second")).split()
    assert cli.main([*words[1:], "--workers", "1"]) == 0
    again = ExperimentResult.load(tmp_path / "second" / "result.json")
    assert without_times(again) == without_times(first)


def test_results_do_not_depend_on_the_number_of_workers(model, tmp_path, real_simulation):
    given = ("--minutes", "0,0.02", "--seconds", "0.5", "--trials", "2")
    alone, shared = (
        run(model, tmp_path / f"with_{workers}", "--workers", workers, *given)
        for workers in ("1", "2")
    )
    assert without_times(alone) == without_times(shared)


def test_another_seed_walks_other_trials(model, tmp_path):
    result = run(model, tmp_path / "a", "--seed", "3", "--method", "prior", "--trials", "4")
    assert result.points[0].seeds == (1300, 1300, 1300, 1301)
    assert len(result.points) == 1, "a method that does not learn is evaluated once"


class _Killed(BaseException):
    """Ends a run where kill -9 would: no handler catches it."""


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (RobotData, "save"),
        (methods.RelearnedDynamics, "learn"),
        (methods.RelearnedDynamics, "save"),
        (experiment.Experiment, "_evaluate"),
    ],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_run_goes_on_where_it_was(owner, name, when, model, tmp_path, monkeypatch):
    minutes = ("--minutes", "0,0.05,0.1", "--trials", "1")
    whole = run(model, tmp_path / "whole", *minutes)
    inner, calls = getattr(owner, name), itertools.count(1)
    fatal = 2 if name != "_evaluate" else 3

    def dies(*arguments):
        call = next(calls)
        if call == fatal and when == "before":
            raise _Killed
        result = inner(*arguments)
        if call == fatal:
            raise _Killed
        return result

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, dies)
        with pytest.raises(_Killed):
            cli.main(command(model, tmp_path / "cut", *minutes))
    resumed = run(model, tmp_path / "cut", *minutes)
    assert without_times(resumed) == without_times(whole)


def test_a_finished_run_is_not_run_again_but_can_be_lengthened(model, tmp_path, monkeypatch):
    short = run(model, tmp_path / "a", "--minutes", "0,0.05", "--trials", "1")
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "collect", None)
        patch.setattr(experiment.Experiment, "_evaluate", None)
        assert run(model, tmp_path / "a", "--minutes", "0,0.05", "--trials", "1") == short
    longer = run(model, tmp_path / "a", "--minutes", "0,0.05,0.1", "--trials", "1")
    assert longer.points[:2] == short.points
    whole = run(model, tmp_path / "b", "--minutes", "0,0.05,0.1", "--trials", "1")
    assert without_times(longer) == without_times(whole)


def test_refused_dynamics_leave_the_old_ones_and_a_note(model, tmp_path, monkeypatch):
    monkeypatch.setattr(
        methods.AcceptanceGate, "_refusal", lambda *_: "it walks backwards", raising=True
    )
    result = run(model, tmp_path / "a", "--trials", "1")
    assert not result.rounds[0].accepted
    assert "refused after 0.1 min: it walks backwards" in result.notes
    assert result.points[0].progress_m == result.points[1].progress_m
    kept = load_artefact(tmp_path / "a" / "state" / "round-001" / methods.MODEL_FILE)
    assert kept.weights_hash == load_artefact(model).weights_hash


def test_the_placebo_learns_as_long_and_sees_no_robot(model, tmp_path):
    result = run(model, tmp_path / "a", "--method", "placebo", "--trials", "1")
    (learned,) = result.rounds
    assert learned.steps == 24
    assert learned.trials == 0
    assert result.latent_loss is None
    assert result.simulation_loss is not None
    changed = load_artefact(tmp_path / "a" / "state" / "round-001" / methods.MODEL_FILE)
    before = load_artefact(model)
    assert changed.weights_hash != before.weights_hash
    assert changed.frozen_hash == before.frozen_hash


def test_the_online_method_swaps_while_the_robot_walks(model, tmp_path, monkeypatch):
    swaps: list[float] = []
    swap, act = online.SwappingDriver.swap, online.SwappingDriver.act
    since = 0

    def counted(self, observation):
        nonlocal since
        since += 1
        return act(self, observation)

    def swapped(self, running):
        swaps.append(since)
        return swap(self, running)

    monkeypatch.setattr(online.SwappingDriver, "act", counted)
    monkeypatch.setattr(online.SwappingDriver, "swap", swapped)
    arguments = ("--method", "simdist_online", "--online-steps-per-second", "30", "--trials", "1")
    result = run(model, tmp_path / "a", *arguments)
    (learned,) = result.rounds
    assert learned.accepted
    assert learned.trials >= 6
    assert swaps
    plans_per_trial = 25
    assert any(plans % plans_per_trial for plans in swaps), "not one fell within a trial"
    assert without_times(run(model, tmp_path / "b", *arguments)) == without_times(result)


def test_what_was_known_is_tried_again_after_learning(model, tmp_path):
    result = run(model, tmp_path / "run", "--nominal-trials", "2")
    assert result.nominal is not None
    assert len(result.nominal.before) == len(result.nominal.after) == 2
    assert result.nominal.before != result.nominal.after  # other dynamics, other plans
    frozen = run(model, tmp_path / "fixed", "--nominal-trials", "2", "--method", "frozen")
    assert frozen.nominal is None  # what does not learn forgets nothing


def test_through_drives_with_the_other_model(model, tmp_path, capsys):
    out = tmp_path / "a"
    assert cli.main(command(model, out, "--method", "through")) == 2
    assert "--through-model PATH goes with --method through" in capsys.readouterr().err
    other = tmp_path / "other.safetensors"
    torch.manual_seed(1)
    save_artefact(other, WorldModel(NETWORK), load_artefact(model).contract, 0, None, {})
    extra = ("--trials", "1", "--minutes", "0")
    through = run(model, out, "--method", "through", "--through-model", str(other), *extra)
    frozen = run(model, tmp_path / "b", "--method", "frozen", *extra)
    assert through.points[0].progress_m != frozen.points[0].progress_m


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--method", "magic", "unknown method 'magic'; known methods: expert, prior"),
        ("--world", "moon", "unknown world 'moon'; known worlds: flat"),
        ("--minutes", "5,10", "--minutes must begin with 0, got 5,10"),
        ("--minutes", "0,10,5", "--minutes must ascend, got 0,10,5"),
        ("--minutes", "0,5,5", "--minutes must ascend, got 0,5,5"),
        ("--minutes", "-5,0", "--minutes must begin with 0, got -5,0"),
        ("--minutes", "0,nan", "--minutes must be finite"),
        ("--minutes", "0,ten", "--minutes must be numbers"),
        ("--minutes", "", "--minutes must be numbers"),
        ("--trials", "0", "--trials must lie in 1..300, got 0"),
        ("--trials", "301", "--trials must lie in 1..300, got 301"),
        ("--seed", "-1", "--seed must lie in 0..899, got -1"),
        ("--seed", "900", "--seed must lie in 0..899, got 900"),
        ("--workers", "0", "--workers must be at least 1, got 0"),
        ("--samples", "1", "PlannerConfig.samples = 1: must be a whole number from 2"),
        ("--steps-per-minute", "0", "LearningConfig.steps_per_minute = 0"),
        ("--planner", "nowhere.yaml", "cannot read nowhere.yaml"),
    ],
)
def test_bad_arguments_are_one_clear_line(option, value, message, model, tmp_path, capsys):
    words = command(model, tmp_path / "run")
    if option in words:
        words[words.index(option) + 1] = value
        words[words.index(option) : words.index(option) + 2] = [f"{option}={value}"]
    else:
        words += [option, value]
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert not (tmp_path / "run").exists(), "a refused run leaves nothing behind"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[1, 2]", "must be a mapping"),
        ("{speed: 1}", "unknown name 'speed'"),
        ("{std: 9}", "PlannerConfig.std = 9"),
        ("{", "cannot read"),
    ],
)
def test_a_bad_planner_file_is_named(text, message, model, tmp_path, capsys):
    file = tmp_path / "planner.yaml"
    file.write_text(text)
    assert cli.main(command(model, tmp_path / "run", "--planner", str(file))) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "planner.yaml" in error


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--trials", "2", "trials = 1, this one has trials = 2"),
        ("--seed", "1", "seed = 0, this one has seed = 1"),
        ("--method", "placebo", "method = frozen, this one has method = placebo"),
        ("--samples", "8", "planner.samples = 4, this one has planner.samples = 8"),
        ("--line", "1.5", "line = 3.0, this one has line = 1.5"),
    ],
)
def test_a_run_with_other_settings_is_not_continued(
    option, value, message, model, tmp_path, capsys
):
    first = ("--method", "frozen", "--minutes", "0", "--trials", "1", "--seconds", "0.2")
    before = run(model, tmp_path / "a", *first)
    given = {**dict(zip(first[::2], first[1::2], strict=True)), option: value}
    assert cli.main(command(model, tmp_path / "a", *itertools.chain(*given.items()))) == 2
    assert message in capsys.readouterr().err
    assert ExperimentResult.load(tmp_path / "a" / "result.json") == before


def test_a_run_whose_points_are_no_longer_wanted_is_not_continued(model, tmp_path, capsys):
    short = ("--method", "placebo", "--trials", "1", "--seconds", "0.2")
    run(model, tmp_path / "a", *short, "--minutes", "0,0.1")
    assert cli.main(command(model, tmp_path / "a", *short, "--minutes", "0,0.2")) == 2
    assert "minutes = [0.0, 0.1], this one has minutes = [0.0, 0.2]" in capsys.readouterr().err


def test_the_same_name_with_another_content_is_another_setting(model, tmp_path, capsys):
    world = tmp_path / "mine.yaml"
    world.write_text("course: [{length: 20.0}]")
    given = ("--world", str(world), "--method", "frozen", "--minutes", "0", "--trials", "1")
    run(model, tmp_path / "a", *given)
    world.write_text("course: [{length: 20.0, friction: 0.3}]")
    assert cli.main(command(model, tmp_path / "a", *given)) == 2
    assert "world_file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"format": "simdist-experiment-0"}', "format 'simdist-experiment-0', expected"),
        ("{", "is not JSON"),
        (json.dumps({"format": FORMAT}), "damaged results"),
    ],
)
def test_a_directory_with_foreign_results_is_left_alone(content, message, model, tmp_path, capsys):
    out = tmp_path / "a"
    out.mkdir()
    (out / "result.json").write_text(content)
    assert cli.main(command(model, out)) == 2
    assert message in capsys.readouterr().err
    assert (out / "result.json").read_text() == content


def test_results_without_a_state_are_not_overwritten(model, tmp_path, capsys):
    given = ("--method", "frozen", "--minutes", "0", "--trials", "1", "--seconds", "0.2")
    run(model, tmp_path / "a", *given)
    (tmp_path / "a" / "state" / "progress.json").unlink()
    assert cli.main(command(model, tmp_path / "a", *given)) == 2
    assert "choose another --out" in capsys.readouterr().err


def test_a_state_of_another_version_is_refused(model, tmp_path, capsys):
    given = ("--method", "frozen", "--minutes", "0", "--trials", "1", "--seconds", "0.2")
    run(model, tmp_path / "a", *given)
    state = tmp_path / "a" / "state" / "progress.json"
    state.write_text(state.read_text().replace("state-1", "state-9"))
    assert cli.main(command(model, tmp_path / "a", *given)) == 2
    assert "simdist-experiment-state-9" in capsys.readouterr().err


def test_two_runs_do_not_share_a_directory(model, tmp_path, capsys):
    with experiment._locked(tmp_path / "a" / "state"):
        assert cli.main(command(model, tmp_path / "a")) == 2
    assert "another run is using" in capsys.readouterr().err


def test_damaged_robot_data_is_named(model, tmp_path, capsys):
    run(model, tmp_path / "a", "--minutes", "0,0.05", "--trials", "1")
    file = tmp_path / "a" / "state" / "data-001.npz"
    file.write_bytes(file.read_bytes()[:-200])
    words = command(model, tmp_path / "a", "--minutes", "0,0.05,0.1", "--trials", "1")
    assert cli.main(words) == 2
    assert "data-001.npz is damaged" in capsys.readouterr().err


# ---------------------------------------------------------------------- results


def test_results_survive_the_way_through_a_file(tmp_path):
    point = Point(5.0, (1.0, 2.5), (0.4, 0.6), (1000, 1000), 1, 0, 3.5)
    result = ExperimentResult(
        "ice", "frozen", 3.0, (point,), None, None, "simdist experiment", 0, 3.5, {}, {"a": [1]}
    )
    result = dataclasses.replace(result, nominal=Nominal((4.0, 6.0), (4.5, 5.0)))
    assert result.nominal is not None
    assert result.nominal.kept == pytest.approx(0.95)
    result.save(tmp_path / "r.json")
    assert ExperimentResult.load(tmp_path / "r.json") == result


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "simdist-experiment-7"}, "'simdist-experiment-7', expected"),
        ({"points": None}, "damaged results"),
        ({"line_m": "far"}, "damaged results"),
        ({"nominal": {"before": [1.0], "after": []}}, "nominal trials do not match"),
        (
            {
                "points": [
                    {
                        "minutes": 0,
                        "progress_m": [1, 2],
                        "speeds": [0.4],
                        "seeds": [1],
                        "falls": 0,
                        "success": 0,
                        "wall_s": 0,
                    }
                ]
            },
            "2 progress values for 1 trials",
        ),
    ],
)
def test_damaged_results_are_refused(change, message):
    good = ExperimentResult("ice", "frozen", 3.0, (), None, None, "", 0, 0.0, {}, {}).to_dict()
    with pytest.raises(ConfigError, match=message):
        ExperimentResult.from_dict({**good, **change}, "r.json")


# ---------------------------------------------------------------------- data


def test_no_trial_is_both_evaluated_and_collected():
    evaluated = {
        evaluation_seed(seed, index)
        for seed in range(collection.MOST_SEED + 1)
        for index in range(collection.SEEDS_PER_EVALUATION)
    }
    assert max(evaluated) < collection_seed(0, 0)
    assert len(evaluated) == (collection.MOST_SEED + 1) * collection.SEEDS_PER_EVALUATION
    last = collection_seed(0, collection.SEEDS_PER_COLLECTION - 1)
    assert last < collection_seed(1, 0), "experiments with different seeds share no trial"
    with pytest.raises(ConfigError, match="at most"):
        collection_seed(0, collection.SEEDS_PER_COLLECTION)
    with pytest.raises(ConfigError, match="at most"):
        evaluation_seed(0, collection.SEEDS_PER_EVALUATION)


def trial(steps: int, fallen: bool = False, seed: int = 0) -> RecordedTrial:
    segments = tuple(
        episode(min(100, steps - begin), seed + begin, begin=begin)
        for begin in range(0, steps, 100)
    )
    return RecordedTrial(seed, 0.5, False, steps * DT, fallen, not fallen, segments)


def test_falls_cost_time_and_the_last_trial_is_cut_where_the_minutes_end():
    data = RobotData(DT)
    data.add(trial(250, fallen=True), 0.25)
    assert data.minutes == pytest.approx((5.0 + 5.0) / 60)
    data.add(trial(300, fallen=True), 0.25)
    assert data.minutes == pytest.approx(0.25)
    assert data.falls == 1, "the second fall came after the time was up"
    assert [len(s) for s in data.trials[1].segments] == [100, 100, 50]
    assert not data.room(0.25)
    assert data.room(0.5) == pytest.approx(15.0)


def test_a_fall_at_the_very_end_is_paid_for_by_the_next_round():
    data = RobotData(DT)
    data.add(trial(250, fallen=True), 5.5 / 60)
    assert data.room(5.5 / 60) == 0.0
    assert data.room(11.0 / 60) == pytest.approx(1.0)


def test_what_is_held_out_is_whole_trials_of_every_kind_and_stays_held_out():
    data, plan = RobotData(DT), CollectionPlan(0)
    before: list[int] = []
    for index in range(24):
        data.add(trial(310, seed=1000 * index), 60.0)
        held_out = [part.episode for part in data.buffer().episodes(True)]
        assert held_out[: len(before)] == before
        before = held_out
    buffer = data.buffer()
    assert all(len(part) == 310 for part in buffer.episodes(True) + buffer.episodes(False))
    chosen = [number - 1 for number in before]
    assert len(chosen) == 6
    assert {plan.trial(i).speed for i in chosen} == set(collection.SPEEDS)
    assert {plan.noisy(i) for i in chosen} == {True, False}
    learned = set(range(24)) - set(chosen)
    assert {plan.noisy(i) for i in learned} == {True, False}


def test_robot_data_comes_back_from_disk_as_it_was(tmp_path):
    data = RobotData(DT)
    for index, steps in enumerate((120, 40, 260)):
        data.add(trial(steps, fallen=index == 1, seed=10 * index), 60.0)
    data.save(tmp_path / "a.npz", 0)
    data.save(tmp_path / "b.npz", 2)
    data.save(tmp_path / "none.npz", 3)
    loaded, part = RobotData(DT), RobotData(DT)
    loaded.load(tmp_path / "a.npz")
    part.load(tmp_path / "b.npz")
    part.load(tmp_path / "none.npz")
    assert loaded.minutes == data.minutes
    assert [t.seconds for t in part.trials] == [data.trials[2].seconds]
    for before, after in zip(data.trials, loaded.trials, strict=True):
        assert dataclasses.replace(before, segments=()) == dataclasses.replace(after, segments=())
        for a, b in zip(before.segments, after.segments, strict=True):
            for name, values in a.to_dict().items():
                np.testing.assert_array_equal(values, b.to_dict()[name])


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.savez(tmp_path / "evil.npz", trials=np.array([object()], dtype=object))
    with pytest.raises(BagError, match=r"evil\.npz is damaged"):
        RobotData(DT).load(tmp_path / "evil.npz")


class _Still:
    """Stands."""

    def act(self, observation: Observation) -> ActionChunk:
        stamp = observation.stamp_ns
        values = np.tile(GO1.default_pose, (20, 1))
        return ActionChunk(
            stamp, stamp, 1, GO1.joint_names, "joint_position", round(DT * 1e9), values, 0, ""
        )


def test_noise_belongs_to_the_time_it_is_played_and_has_the_size_it_should():
    driver = NoisyDriver(_Still(), GO1, seed=3)
    rows = {}
    for step in range(0, 4000, 2):
        blank = np.zeros(0)
        chunk = driver.act(
            Observation(step * round(DT * 1e9), blank, blank, blank, blank, blank, blank)
        )
        noise = (chunk.values - GO1.default_pose) / GO1.action_scale
        for k, row in enumerate(noise):
            np.testing.assert_allclose(rows.setdefault(step + k, row), row, atol=1e-9)
    played = np.array([rows[k] for k in range(4000)])
    assert played.std() == pytest.approx(0.15, rel=0.1)
    lagged = (played[1:] * played[:-1]).mean() / played.var()
    assert lagged == pytest.approx(0.85, abs=0.03)


# ---------------------------------------------------------------------- learning without robot data


@pytest.fixture
def simulation(model) -> tuple[WorldModel, SimulationReplay]:
    artefact = load_artefact(model)
    return artefact.model, SimulationReplay.load(model.parent / FILE_NAME, artefact.contract)


def test_without_a_share_of_robot_data_none_is_needed_and_none_is_learned_from(simulation):
    network, replay = simulation
    config = FinetuneConfig(steps=5, batch=16, robot_fraction=0.0)
    without = DynamicsFinetuner(network, replay, config).update([], [], network)
    assert np.isnan(without.losses.robot_after)
    assert np.isfinite(without.losses.simulation_after)
    assert without.training_windows == 0
    data = ([episode(60, 5)], [episode(60, 6)])
    beside = DynamicsFinetuner(network, replay, config).update(*data, network)
    assert np.isfinite(beside.losses.robot_after)
    for name, tensor in without.state.items():
        torch.testing.assert_close(beside.state[name], tensor, rtol=0, atol=0)


def test_a_model_that_changes_on_disk_during_a_run_is_refused(model):
    source = methods.ModelSource("planner", model, "0" * 64, PlannerConfig(), 0)
    with pytest.raises(ArtefactError, match="changed during the experiment"):
        source.load(GO1, load_world("flat"))


# ---------------------------------------------------------------------- processes

PARENT = """
import multiprocessing, os, signal, time
from concurrent.futures import ProcessPoolExecutor
from simdist.evaluation import trial_pool
from simdist.evaluation.trial_pool import TrialSetting

if __name__ == "__main__":
    from simdist.observation.spec import legged_observation
    from simdist.simulation.world import load_world
    setting = TrialSetting("go1", load_world("flat"), legged_observation(12), "", 3.0)
    pool = ProcessPoolExecutor(
        1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=trial_pool._start_worker,
        initargs=(setting,),
    )
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_a_parent_that_was_killed(tmp_path):
    script = tmp_path / "parent.py"
    script.write_text(PARENT)
    parent = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=300, check=False
    )
    assert parent.returncode == -signal.SIGKILL, parent.stderr
    worker = int(parent.stdout)
    for _ in range(300):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        if Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("the worker outlived its parent")
