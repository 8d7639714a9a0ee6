"""Slip foresight: what a slip is, which predictions concern it, and files that the report reads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import mujoco
import numpy as np
import pytest
import torch
from graph_rig import random_model
from hypothesis import given
from hypothesis import strategies as st

from simdist import robots
from simdist.cli import main
from simdist.errors import ConfigError, ContractError
from simdist.evaluation import collection, foresight
from simdist.evaluation.drivers import driver_factory
from simdist.evaluation.figures_data import load_foot_tracks, load_latent_slip
from simdist.evaluation.results import write_json
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.planning import PlannerConfig
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.slip import SlipMeter
from simdist.simulation.world import load_world
from simdist.world_model import load_artefact, save_artefact
from simdist.world_model.artefact import Artefact
from simdist.world_model.foot_probe import FootProbe, probe_beside, save_foot_probe

GO1 = robots.get("go1")
HORIZON = 15


@pytest.fixture(scope="module")
def before(tmp_path_factory) -> Artefact:
    return load_artefact(random_model(tmp_path_factory.mktemp("before")))


@pytest.fixture(scope="module")
def after(before: Artefact, tmp_path_factory) -> Artefact:
    """The same encoder with other dynamics."""
    model = load_artefact(before.path).model
    with torch.no_grad():
        for parameter in model.dynamics_parameters():
            parameter.mul_(0.5)
    path = tmp_path_factory.mktemp("after") / "after.safetensors"
    return load_artefact(save_artefact(path, model, before.contract, 1, "x", {}))


@pytest.fixture(scope="module")
def probe() -> FootProbe:
    torch.manual_seed(0)
    return FootProbe(48, 4, (8,)).requires_grad_(False)


def a_walk(steps: int = 60, slip: tuple[int, int] = (30, 40), seed: int = 0) -> foresight.Walk:
    """Random numbers, with one slip."""
    rng = np.random.default_rng(seed)
    sliding = np.zeros((steps, 4))
    sliding[slip[0] : slip[1], 2] = 1.0
    draw = {
        name: rng.normal(size=(steps, *shape)).astype(np.float32)
        for name, shape in {
            "proprio_history": (11, 35),
            "scan": (117,),
            "action_history": (10, 12),
            "action": (12,),
        }.items()
    }
    joints = GO1.default_pose + 0.1 * rng.normal(size=(steps, 12))
    return foresight.Walk(**draw, joints=joints, sliding=sliding)


# --- sliding feet ---------------------------------------------------------------------------------


def standing() -> RobotSimulation:
    simulation = RobotSimulation(GO1, load_world("flat"), seed=0)
    data = simulation.data
    for _ in range(400):  # to come to rest on its motors
        data.ctrl[:] = GO1.default_pose
        mujoco.mj_step(simulation.model, data)
    return simulation


def test_feet_that_stand_do_not_slide_and_feet_that_are_pushed_do() -> None:
    simulation = standing()
    meter = SlipMeter(simulation)
    assert meter.speeds().max() < 0.02
    simulation.data.qvel[:3] = 0.6, 0.8, 0.0
    mujoco.mj_forward(simulation.model, simulation.data)
    np.testing.assert_allclose(meter.speeds(), 1.0, atol=0.05)


def test_feet_in_the_air_do_not_slide() -> None:
    simulation = standing()
    simulation.data.qpos[2] += 0.2
    simulation.data.qvel[:3] = 1.0, 0.0, 0.0
    mujoco.mj_forward(simulation.model, simulation.data)
    assert SlipMeter(simulation).speeds().max() == 0.0


@pytest.mark.parametrize(
    ("slipping", "expected"),
    [
        ([], []),
        (range(10, 13), []),
        (range(10, 20), [(10, 20)]),
        ([*range(10, 16), *range(18, 24)], [(10, 24)]),
        ([*range(0, 8), *range(20, 30)], [(0, 8), (20, 30)]),
    ],
    ids=["none", "a landing", "one", "with a pause", "two"],
)
def test_slips_are_long_and_go_on_through_short_pauses(slipping, expected) -> None:
    sliding = np.zeros((30, 4))
    sliding[list(slipping), 1] = 1.0
    assert foresight.find_slips(sliding) == expected


@given(st.integers(0, 60), st.integers(0, 50), st.integers(1, 20), st.integers(1, 20))
def test_predictions_that_reach_into_a_slip_are_chosen(steps, begin, length, horizon) -> None:
    end = min(begin + length, steps)
    chosen = foresight.foreseeing([(begin, end)] if begin < end else [], steps, horizon)
    assert len(chosen) == max(steps - horizon, 0)
    for made, flag in enumerate(chosen):
        assert flag == any(begin <= step < end for step in range(made, made + horizon))


def test_no_seed_of_foresight_is_one_of_collection_or_evaluation() -> None:
    last = collection.SEEDS_PER_COLLECTION - 1
    assert collection.collection_seed(collection.MOST_SEED, last) < foresight.FORESIGHT_SEED


# --- predictions ----------------------------------------------------------------------------------


def test_a_recorded_walk_holds_states_and_actions_of_the_same_time(before: Artefact) -> None:
    layout = before.contract.observation
    driver = driver_factory("prior", before, GO1, PlannerConfig())(0)
    trial = Trial(GO1, load_world("flat"), layout, TrialConfig(0.4, 0, seconds=0.4))
    walk = foresight.record(trial, driver, layout)
    columns = layout.slices()["joint_pos"]
    measured = GO1.default_pose + walk.proprio_history[:, -1, columns]
    np.testing.assert_allclose(walk.joints, measured, atol=1e-5)
    # What was applied in one step is the past of the next.
    np.testing.assert_array_equal(walk.action[:-1], walk.action_history[1:, -1])
    assert walk.sliding.shape == (len(walk), 4)


@torch.inference_mode()
def test_predictions_are_compared_with_the_state_after_the_action(
    before: Artefact, probe: FootProbe
) -> None:
    walk = a_walk(20)
    made = foresight.forecast(before.model, probe, walk)
    assert made.loss.shape == (5, HORIZON)
    step, ahead = 3, 6
    context, _ = before.model.encode(
        torch.from_numpy(walk.proprio_history[step : step + 1]),
        torch.from_numpy(walk.scan[step : step + 1]),
        torch.from_numpy(walk.action_history[step : step + 1]),
    )
    actions = torch.from_numpy(walk.action[None, step : step + HORIZON])
    predicted = before.model.dynamics(context, actions)[0, ahead]
    target = before.model.latent(
        torch.from_numpy(walk.proprio_history[step + ahead + 1, -1]),
        torch.from_numpy(walk.scan[step + ahead + 1]),
    )
    loss = (predicted - target).square().mean().item()
    assert made.loss[step, ahead] == pytest.approx(loss, rel=1e-4)
    np.testing.assert_allclose(made.feet[step, ahead], probe(predicted), atol=1e-5)


def test_feet_predicted_right_have_no_error() -> None:
    rng = np.random.default_rng(0)
    feet = rng.normal(size=(40, 4, 3))
    ahead = np.arange(25)[:, None] + np.arange(1, HORIZON + 1)
    perfect = foresight.Forecast(np.zeros((25, HORIZON)), feet[ahead])
    off = foresight.Forecast(np.zeros((25, HORIZON)), feet[ahead] + [0.03, 0.0, 0.04])
    slips = ((20, 30),)
    comparison = foresight.Comparison(
        feet, slips, foresight.foreseeing(slips, 40, HORIZON), {"before": off, "after": perfect}
    )
    assert comparison.foot_errors("after").max() == 0.0
    np.testing.assert_allclose(comparison.foot_errors("before"), 0.05)


# --- files ----------------------------------------------------------------------------------------


def a_result(study: foresight.ForesightStudy, *walks: foresight.Walk) -> foresight.ForesightResult:
    comparisons = [study.compare(walk) for walk in walks]
    assert None not in comparisons
    return foresight.ForesightResult(study, tuple(comparisons), {"command": "c"})  # type: ignore


def test_the_report_reads_what_is_written(
    before: Artefact, after: Artefact, probe: FootProbe, tmp_path: Path
) -> None:
    study = foresight.ForesightStudy(load_world("slope_sheet"), before, after, probe)
    result = a_result(study, a_walk(), a_walk(slip=(25, 43), seed=1))
    write_json(tmp_path / "t.json", result.foot_tracks())
    write_json(tmp_path / "l.json", result.latent_slip())
    tracks, slip = load_foot_tracks(tmp_path / "t.json"), load_latent_slip(tmp_path / "l.json")
    assert tracks.world == slip.world == "slope_sheet"
    assert tracks.feet == GO1.foot_names
    drawn = tracks.first("before")
    assert drawn.time[0] == pytest.approx(-0.2)  # ten steps before the longest slip
    np.testing.assert_array_equal(drawn.true, tracks.first("after").true)
    assert tracks.error_m["before"] != tracks.error_m["after"]
    assert len(slip.by_step_before) == HORIZON
    assert slip.time[0] == pytest.approx(-0.2)
    assert not np.allclose(slip.loss_before, slip.loss_after)


def test_models_that_are_alike_foresee_alike(before: Artefact, probe: FootProbe) -> None:
    study = foresight.ForesightStudy(load_world("ice"), before, before, probe)
    data = a_result(study, a_walk()).latent_slip()
    assert data["loss_before"] == data["loss_after"]
    assert data["mean_loss"]["before"] == data["mean_loss"]["after"]


def test_models_of_other_encoders_are_refused(
    before: Artefact, probe: FootProbe, tmp_path: Path
) -> None:
    model = load_artefact(before.path).model
    with torch.no_grad():
        model.encoder.time_encoding.add_(0.1)
    path = save_artefact(tmp_path / "other.safetensors", model, before.contract, 0, None, {})
    with pytest.raises(ContractError, match="other frozen parts"):
        foresight.ForesightStudy(load_world("ice"), before, load_artefact(path), probe)


def test_trials_without_a_slip_are_refused(
    before: Artefact, after: Artefact, probe: FootProbe
) -> None:
    study = foresight.ForesightStudy(load_world("flat"), before, after, probe)
    still = dataclasses.replace(a_walk(), sliding=np.zeros((60, 4)))
    with pytest.raises(ConfigError, match=r"no foot slipped in 1 trials of world 'flat'"):
        a_result(study, still)
    assert study.compare(a_walk(HORIZON, slip=(0, 10))) is None, "too short to predict anything"


def test_the_command_line_refuses_a_missing_probe_and_bad_numbers(
    before: Artefact, after: Artefact, tmp_path: Path, capsys
) -> None:
    models = ["--before", str(before.path), "--after", str(after.path), "--out", str(tmp_path)]
    assert main(["foresight", *models]) == 2
    assert "foot_probe.safetensors" in capsys.readouterr().err
    assert main(["foresight", *models, "--trials", "0"]) == 2
    assert "--trials must lie in 1..1000, got 0" in capsys.readouterr().err


def test_the_command_line_writes_both_files(
    before: Artefact, after: Artefact, probe: FootProbe, tmp_path: Path, monkeypatch, capsys
) -> None:
    beside = save_foot_probe(probe_beside(before.path), probe, GO1, before.frozen_hash, {})
    monkeypatch.setattr(foresight.ForesightStudy, "walk", lambda *_: a_walk())
    models = ["--before", str(before.path), "--after", str(after.path), "--out", str(tmp_path)]
    try:
        assert main(["foresight", "--world", "ice", "--trials", "2", *models]) == 0
    finally:
        beside.unlink()
    printed = capsys.readouterr().out.split()
    assert [Path(path).name for path in printed] == ["foot_tracks_ice.json", "latent_slip_ice.json"]
    assert load_foot_tracks(Path(printed[0])).world == "ice"
    assert load_latent_slip(Path(printed[1])).world == "ice"
