"""Whether a model can rank plans: what is measured, and that it is measured right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from simdist import paths, robots
from simdist.cli import main
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ConfigError, ContractError, SimulationError
from simdist.evaluation.diagnose import (
    DiagnosisConfig,
    DiagnosisStudy,
    Scout,
    portable,
)
from simdist.evaluation.diagnosis import BEST, FORMAT, Diagnosis, ModelDiagnosis, table
from simdist.evaluation.drivers import ExpertDriver
from simdist.evaluation.oracle import OracleConfig, OraclePlanner
from simdist.evaluation.ranking import (
    Futures,
    LatentErrors,
    gain_of_best,
    judge,
    rank_correlation,
)
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation import Observation
from simdist.observation.spec import ObservationSpec, legged_observation
from simdist.simulation.world import load_world, parse_world
from simdist.world_model import (
    Contract,
    WorldModel,
    WorldModelConfig,
    load_artefact,
    save_artefact,
)
from simdist.world_model.artefact import Artefact

GO1 = robots.get("go1")
LAYOUT = legged_observation(12, history=3)
HORIZON, SAMPLES = 5, 24
FLAT = parse_world("flat", {"course": [{"length": 30.0}], "success_line": 1.0})
SMALL = WorldModelConfig(
    latent_dim=16,
    history=3,
    horizon=HORIZON,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    scan_hidden=(8,),
)


def small_model(seed: int = 0, config: WorldModelConfig = SMALL) -> WorldModel:
    torch.manual_seed(seed)
    return WorldModel(config).eval()


@pytest.fixture(scope="module")
def artefact(tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    """A small model that has learned nothing, with the expert of the Go1 beside it."""
    directory = tmp_path_factory.mktemp("first")
    (directory / "expert.safetensors").symlink_to(paths.models_dir() / "go1" / "expert.safetensors")
    contract = Contract.of(GO1, LAYOUT, SMALL)
    path = save_artefact(directory / "small.safetensors", small_model(), contract, 0, None, {})
    return load_artefact(path)


@pytest.fixture(scope="module")
def relearned(artefact: Artefact, tmp_path_factory: pytest.TempPathFactory) -> Artefact:
    """The same model with other dynamics."""
    model = load_artefact(artefact.path).model
    with torch.no_grad():
        for parameter in model.dynamics_parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    path = tmp_path_factory.mktemp("second") / "relearned.safetensors"
    return load_artefact(save_artefact(path, model, artefact.contract, 1, "x", {}))


def an_observation(rng: np.random.Generator, layout: ObservationSpec = LAYOUT) -> Observation:
    past = rng.normal(size=(layout.history + 1, layout.size)).astype(np.float32)
    actions = rng.normal(size=(layout.history, 12)).astype(np.float32)
    return Observation(
        stamp_ns=0,
        proprioception=past[-1].astype(float),
        scan=0.1 * rng.normal(size=layout.scan.size),
        command=np.array([0.5, 0.0, 0.0]),
        previous_action=actions[-1].astype(float),
        proprioception_history=past,
        action_history=actions,
    )


def some_futures(seed: int = 0, samples: int = SAMPLES) -> Futures:
    """Random numbers of the right shapes."""
    rng = np.random.default_rng(seed)
    return Futures(
        observation=an_observation(rng),
        actions=rng.normal(size=(samples, HORIZON, 12)),
        returns=rng.normal(size=samples),
        proprioception=rng.normal(size=(samples, HORIZON, LAYOUT.size)),
        scan=0.1 * rng.normal(size=(samples, HORIZON, LAYOUT.scan.size)),
        standing=np.ones((samples, HORIZON), bool),
    )


class PerfectDynamics(nn.Module):
    """Stands in for a model's dynamics: knows the latents of the given futures."""

    def __init__(self, model: WorldModel, futures: Futures) -> None:
        super().__init__()
        with torch.inference_mode():
            self.latents = model.latent(
                torch.from_numpy(futures.proprioception.astype(np.float32)),
                torch.from_numpy(futures.scan.astype(np.float32)),
            )

    @property
    def decoder(self) -> PerfectDynamics:
        return self

    def prepare(self, context: torch.Tensor) -> torch.Tensor:
        return context

    def forward(self, context: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        assert actions.shape[:2] == self.latents.shape[:2]
        return self.latents


# --- one state ------------------------------------------------------------------------------------


def test_a_judgement_has_one_return_per_plan_and_one_error_per_step():
    judgement = judge(small_model(), some_futures(), 0.99)
    assert judgement.predicted.shape == judgement.with_true_latents.shape == (SAMPLES,)
    errors = judgement.latents
    for sums in (errors.samples, errors.error, errors.difference_error, errors.variance):
        assert sums.shape == (HORIZON,)
    np.testing.assert_array_equal(errors.samples, SAMPLES)
    assert (errors.error >= errors.difference_error).all()


def test_perfect_dynamics_foresee_everything_and_rank_as_the_heads_do():
    model, futures = small_model(), some_futures()
    model.dynamics = PerfectDynamics(model, futures)  # type: ignore[assignment]
    judgement = judge(model, futures, 0.99)
    np.testing.assert_array_equal(judgement.latents.explained, 1.0)
    np.testing.assert_array_equal(judgement.latents.error, 0.0)
    # Two ways through the code: the planner's, and that of the true latents.
    np.testing.assert_array_equal(judgement.predicted, judgement.with_true_latents)
    truth = replace(futures, returns=judgement.predicted)
    assert rank_correlation(judgement.predicted, truth.returns) == pytest.approx(1.0)


def test_an_error_that_all_plans_share_leaves_their_differences_foreseen():
    model, futures = small_model(), some_futures()
    dynamics = PerfectDynamics(model, futures)
    dynamics.latents = dynamics.latents + 0.7
    model.dynamics = dynamics  # type: ignore[assignment]
    errors = judge(model, futures, 0.99).latents
    np.testing.assert_allclose(errors.explained, 1.0, atol=1e-6)
    np.testing.assert_allclose(errors.error / errors.samples, 0.49, rtol=1e-5)


def test_dynamics_that_ignore_actions_foresee_no_difference_and_rank_none():
    model, futures = small_model(), some_futures()
    dynamics = PerfectDynamics(model, futures)
    dynamics.latents = dynamics.latents.mean(0, keepdim=True).expand_as(dynamics.latents)
    model.dynamics = dynamics  # type: ignore[assignment]
    same = replace(futures, actions=np.tile(futures.actions[:1], (SAMPLES, 1, 1)))
    judgement = judge(model, same, 0.99)
    np.testing.assert_allclose(judgement.latents.explained, 0.0, atol=1e-6)


def test_true_latents_give_models_with_the_same_frozen_parts_the_same_order(
    artefact: Artefact, relearned: Artefact
):
    assert artefact.frozen_hash == relearned.frozen_hash
    first, second = (judge(a.model, some_futures(), 0.99) for a in (artefact, relearned))
    np.testing.assert_array_equal(first.with_true_latents, second.with_true_latents)
    assert np.abs(first.predicted - second.predicted).max() > 1e-3
    np.testing.assert_array_equal(first.latents.variance, second.latents.variance)


def test_fallen_robots_count_neither_as_error_nor_as_difference():
    rng = np.random.default_rng(0)
    predicted, true = rng.normal(size=(2, 10, 4, 6))
    standing = np.ones((10, 4), bool)
    standing[7:, 2:] = False
    kept = LatentErrors.of(predicted, true, standing)
    true[7:, 2:] = 1e6
    np.testing.assert_array_equal(kept.samples, [10, 10, 7, 7])
    for name in ("error", "difference_error", "variance"):
        np.testing.assert_allclose(
            getattr(LatentErrors.of(predicted, true, standing), name), getattr(kept, name)
        )
        alone = LatentErrors.of(predicted[:7], true[:7], standing[:7])
        np.testing.assert_allclose(getattr(kept, name)[2:], getattr(alone, name)[2:])


def test_where_all_have_fallen_there_is_nothing_to_foresee():
    latents = np.random.default_rng(0).normal(size=(4, 2, 3))
    errors = LatentErrors.of(latents, 2 * latents, np.zeros((4, 2), bool))
    assert np.isnan(errors.explained).all()
    assert not errors.error.any()


def test_returns_that_are_not_finite_are_refused():
    futures = some_futures()
    futures.actions[3] = np.inf
    with pytest.raises(SimulationError, match="not finite"):
        judge(small_model(), futures, 0.99)


# --- order and gain -------------------------------------------------------------------------------

returns = st.lists(st.integers(-1000, 1000), min_size=3, max_size=60, unique=True)


@given(returns)
@settings(deadline=None)
def test_only_the_order_of_returns_matters(values):
    true = np.array(values, float)
    assert rank_correlation(3.0 * true + 7.0, true) == pytest.approx(1.0)
    assert rank_correlation(-true, true) == pytest.approx(-1.0)


@given(st.integers(0, 2**31), st.integers(40, 200))
@settings(max_examples=15, deadline=None)
def test_shuffled_returns_are_no_better_than_chance(seed, samples):
    rng = np.random.default_rng(seed)
    true = rng.normal(size=samples)
    correlations = [rank_correlation(rng.permutation(true), true) for _ in range(100)]
    # Of independent orders the correlation has a standard deviation of 1 / sqrt(samples - 1).
    assert abs(np.mean(correlations)) < 6.0 / np.sqrt(100 * (samples - 1))
    assert np.std(correlations) == pytest.approx(1.0 / np.sqrt(samples - 1), rel=0.4)


@pytest.mark.parametrize("predicted", [np.zeros(5), np.full(5, 3.7)])
def test_a_model_that_tells_no_differences_ranks_nothing(predicted):
    assert rank_correlation(predicted, np.arange(5.0)) == 0.0
    assert rank_correlation(np.arange(5.0), predicted) == 0.0


@given(returns, st.integers(1, 8))
@settings(deadline=None)
def test_no_choice_gains_more_than_that_by_the_truth(values, count):
    true = np.array(values, float)
    scores = np.random.default_rng(0).normal(size=len(true))
    best = gain_of_best(true, true, count)
    assert gain_of_best(scores, true, count) <= best + 1e-9
    assert gain_of_best(true, true, 1) == true.max() - true[0]


# --- states ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def policy() -> ExpertPolicy:
    return ExpertPolicy.load(paths.models_dir() / "go1" / "expert.safetensors")


def scouted(policy: ExpertPolicy, config: DiagnosisConfig, line: float, seconds: float = 0.5):
    """Futures and scout of a walk on flat ground, which begins near 0 m of progress."""
    found = list[Futures]()
    oracle = OraclePlanner(
        policy, GO1, FLAT, LAYOUT, OracleConfig(samples=config.samples, horizon=HORIZON), 0
    )
    scout = Scout(ExpertDriver(policy, GO1, ""), oracle, config, 0, line, found.append)
    Trial(GO1, FLAT, LAYOUT, TrialConfig(0.6, seed=0, seconds=seconds)).run(scout)
    return found, scout


def test_every_kth_state_of_the_hard_part_is_taken(policy):
    found, scout = scouted(policy, DiagnosisConfig(samples=8, states_every=10), line=5.0)
    assert len(found) == 3  # of 25 control steps
    stamps = [futures.observation.stamp_ns for futures in found]
    assert np.diff(stamps).tolist() == [200_000_000, 200_000_000]
    assert abs(scout.farthest) < 0.5  # but seen
    none, _ = scouted(policy, DiagnosisConfig(samples=8), line=-0.5)
    assert none == []


def test_futures_start_with_the_bare_expert_and_end_where_they_were_seen(policy):
    config = DiagnosisConfig(samples=8, states_every=1000)
    (futures,), _ = scouted(policy, config, line=5.0, seconds=0.1)
    assert futures.actions.shape == (8, HORIZON, 12)
    assert futures.proprioception.shape == (8, HORIZON, LAYOUT.size)
    assert futures.scan.shape == (8, HORIZON, LAYOUT.scan.size)
    assert futures.standing.all()
    inputs = np.concatenate(
        [
            futures.observation.proprioception,
            futures.observation.command,
            futures.observation.previous_action,
        ]
    ).astype(np.float32)
    expert = policy.act(torch.from_numpy(inputs)[None])[0].numpy()
    np.testing.assert_allclose(futures.actions[0, 0], expert, atol=1e-4)
    assert (np.abs(futures.actions[1:, 0] - expert).max(1) > 0.01).all()
    assert futures.differ


def test_the_same_seed_takes_the_same_deviations_and_another_seed_others(
    artefact: Artefact,
):
    config = DiagnosisConfig(trials=1, seconds=1.0, samples=8, states_every=20)

    def actions(seed: int) -> np.ndarray:
        study = DiagnosisStudy(FLAT, "expert", {"a": artefact}, replace(config, seed=seed))
        return study.run("").models[0].returns

    np.testing.assert_array_equal(actions(1), actions(1))
    assert np.abs(actions(1) - actions(2)).max() > 1e-3


# --- results --------------------------------------------------------------------------------------


def a_diagnosis(*artefacts: Artefact, states: int = 6) -> Diagnosis:
    futures = [some_futures(seed) for seed in range(states)]
    true = np.stack([f.returns for f in futures])
    return Diagnosis(
        world="ice",
        driver="prior",
        settings={"samples": SAMPLES, "std": 0.2, "seed": 0},
        models=tuple(
            ModelDiagnosis(
                f"m{index}", artefact, tuple(judge(artefact.model, f, 0.99) for f in futures), true
            )
            for index, artefact in enumerate(artefacts)
        ),
        command="simdist diagnose",
        wall_s=1.0,
    )


def test_the_file_tells_dynamics_from_heads(artefact: Artefact, relearned: Artefact):
    data = a_diagnosis(artefact, relearned).to_dict()
    assert data["format"] == FORMAT
    assert data["states"] == 6
    first, second = data["models"]
    assert first["weights_hash"] == artefact.weights_hash
    assert first["rank_correlation_true_latents"] == second["rank_correlation_true_latents"]
    assert first["rank_correlation"] != second["rank_correlation"]
    gained = second["rank_correlation"]["mean"] - first["rank_correlation"]["mean"]
    assert second["rank_correlation_over_first"]["mean"] == pytest.approx(gained, abs=2e-4)
    assert "rank_correlation_over_first" not in first
    assert [entry["step"] for entry in first["by_step"]] == [1, 2, 3, 4, 5]
    for entry in first["by_step"]:
        explained = 1.0 - entry["difference_error"] / entry["difference_variance"]
        assert entry["explained_share"] == pytest.approx(explained, rel=1e-3)
    json.dumps(data, allow_nan=False)


def test_a_model_that_knows_the_truth_earns_what_there_is_to_earn(artefact: Artefact):
    diagnosis = a_diagnosis(artefact)
    (model,) = diagnosis.models
    judgements = tuple(
        replace(judgement, predicted=true)
        for judgement, true in zip(model.judgements, model.returns, strict=True)
    )
    data = replace(diagnosis, models=(replace(model, judgements=judgements),)).to_dict()
    (entry,) = data["models"]
    assert entry["rank_correlation"] == {"mean": 1.0, "low": 1.0, "high": 1.0}
    assert entry["spread_ratio"] == 1.0
    assert entry["gain_predicted_best"] == data["gain_true_best_8"]
    assert data["gain_true_best"]["mean"] > data["gain_true_best_8"]["mean"]


def test_models_that_are_alike_are_reported_alike(artefact: Artefact):
    first, second = a_diagnosis(artefact, artefact).to_dict()["models"]
    assert second.pop("rank_correlation_over_first") == {"mean": 0.0, "low": 0.0, "high": 0.0}
    del first["model"], second["model"]
    assert first == second


def test_the_table_has_a_column_for_each_model(artefact: Artefact, relearned: Artefact):
    data = a_diagnosis(artefact, relearned).to_dict()
    lines = table(data).splitlines()
    assert max(len(line) for line in lines) <= 100
    (order,) = (line for line in lines if "as the model predicts it" in line and "[" in line)
    for model in data["models"]:
        assert f"{model['rank_correlation']['mean']:.3f} [" in order
    assert sum("0.02 s" in line for line in lines) == 2
    assert "more than the first model" not in table(a_diagnosis(artefact).to_dict())


# --- command --------------------------------------------------------------------------------------


def test_the_command_walks_judges_and_writes(
    artefact: Artefact, relearned: Artefact, tmp_path: Path, capsys
):
    file = tmp_path / "diagnosis.json"
    models = ["--model", str(artefact.path), "--compare", str(relearned.path)]
    settings_ = ["--trials", "1", "--seconds", "1", "--samples", "8", "--states-every", "20"]
    arguments = ["--world", "flat", *models, *settings_, "--driver", "expert"]
    assert main(["diagnose", *arguments, "--json", str(file)]) == 0
    assert "Order of the plans" in capsys.readouterr().out
    data = json.loads(file.read_text())
    assert (data["world"], data["driver"], data["states"]) == ("flat", "expert", 3)
    assert [model["weights_hash"] for model in data["models"]] == [
        artefact.weights_hash,
        relearned.weights_hash,
    ]
    assert str(tmp_path.parent) not in file.read_text()
    assert data["command"].startswith("simdist diagnose --world flat --model first0/small")


def test_file_names_do_not_tell_of_the_machine(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert portable("go1") == "go1"
    assert portable("runs/a/world_model.safetensors") == "runs/a/world_model.safetensors"
    assert portable(str(tmp_path / "runs" / "a.safetensors")) == "runs/a.safetensors"
    assert portable("/elsewhere/deep/run/a.safetensors") == "run/a.safetensors"
    assert portable("/a.safetensors") == "a.safetensors"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--world", "atlantis"], "unknown world 'atlantis'; known worlds: flat"),
        (["--model", "go9"], "model 'go9' was not found; allowed: go1"),
        (["--compare", "go9"], "model 'go9' was not found"),
        (["--compare", "go1"], "model 'go1' is given twice"),
        (["--driver", "horse"], "unknown method 'horse'; known methods: expert"),
        (["--samples", "7"], "samples = 7: must be a whole number from 8 to 4096"),
        (["--std", "0"], "std = 0.0: must be a number from 0.01"),
        (["--trials", "0"], "trials = 0: must be a whole number from 1"),
        (["--states-every", "0"], "states_every = 0"),
        (["--seed", "-1"], "seed = -1"),
    ],
)
def test_bad_arguments_are_one_clear_line(arguments, message, capsys):
    assert main(["diagnose", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.strip().splitlines()) == 1


def test_a_world_whose_hard_part_nobody_reaches_is_refused(artefact: Artefact):
    far = parse_world("far", {"course": [{"length": 60.0}], "progress_from": 9.0})
    config = DiagnosisConfig(trials=1, seconds=1.0, samples=8)
    study = DiagnosisStudy(far, "expert", {"a": artefact}, config)
    with pytest.raises(ConfigError, match=r"no state .* 'far': the expert came as far as -\d") as e:
        study.run("")
    assert "from -0.2 to 3 m" in str(e.value)
    assert "--seconds" in str(e.value)


def test_models_that_cannot_be_shown_the_same_plans_are_refused(artefact: Artefact, tmp_path: Path):
    longer = replace(SMALL, horizon=HORIZON + 1)
    contract = Contract.of(GO1, LAYOUT, longer)
    path = save_artefact(
        tmp_path / "longer.safetensors", small_model(config=longer), contract, 0, None, {}
    )
    models = {"a": artefact, "b": load_artefact(path)}
    with pytest.raises(ContractError, match=r"another horizon than .* \(6 instead of 5\)"):
        DiagnosisStudy(load_world("flat"), "expert", models, DiagnosisConfig())


def test_as_many_samples_are_needed_as_are_chosen():
    assert DiagnosisConfig(samples=BEST).samples == BEST
