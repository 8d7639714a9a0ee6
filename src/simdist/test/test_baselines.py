"""Baselines start from the expert or the model, keep to their robot time, and can be continued."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from simdist import robots
from simdist.adaptation import FinetuneConfig
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ArtefactError, ConfigError
from simdist.evaluation.baselines import continued_ppo
from simdist.evaluation.baselines.full_finetuning import FullFinetuning, WatchedDriver
from simdist.evaluation.baselines.policies import PolicyMethod
from simdist.evaluation.baselines.rlpd import Rlpd, RlpdConfig, simulate
from simdist.evaluation.baselines.weaken import weaken
from simdist.evaluation.collection import CollectionPlan, RobotData
from simdist.evaluation.drivers import ExpertDriver
from simdist.evaluation.methods import METHODS, LearningConfig, MethodContext, make_method
from simdist.evaluation.trial_pool import TrialPool, TrialSetting
from simdist.evaluation.trials import TrialConfig
from simdist.paths import model_file
from simdist.planning import PlannerConfig
from simdist.simulation.world import Strip, WorldSpec
from simdist.world_model.artefact import load_artefact

ROBOT = robots.get("go1")
SMALL_RLPD = RlpdConfig(
    updates_per_action=1,
    batch=16,
    critic_sizes=(16, 16),
    simulated_robots=4,
    simulated_actions=20,
    critic_updates=4,
)


@pytest.fixture
def context() -> MethodContext:
    artefact = load_artefact(model_file("go1"), ROBOT)
    contract = artefact.contract
    setting = TrialSetting(
        "go1", WorldSpec("flat", "", (Strip(60.0),)), contract.observation, contract.hash(), 20.0
    )
    return MethodContext(
        artefact=artefact,
        robot=ROBOT,
        pool=TrialPool(setting, 1),
        plan=CollectionPlan(seed=0, seconds=0.6, plan_every=2),
        planner=PlannerConfig(samples=4, iterations=1),
        learning=LearningConfig(steps_per_minute=1),
        finetune=FinetuneConfig(batch=8),
    )


@pytest.fixture
def small_ppo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continued_ppo, "ACTIONS", 6)


def small(name: str, context: MethodContext) -> PolicyMethod:
    if name == "rlpd":
        return Rlpd(context, SMALL_RLPD)
    return continued_ppo.ContinuedPpo(context)


def actions(policy: ExpertPolicy) -> torch.Tensor:
    inputs = torch.randn(8, policy.sizes[0][0], generator=torch.Generator().manual_seed(1))
    return policy.act(inputs)


@pytest.mark.parametrize("name", ["ppo", "rlpd"])
@pytest.mark.usefixtures("small_ppo")
def test_policies_start_from_the_expert_and_can_be_continued(
    name: str, context: MethodContext, tmp_path: Path
) -> None:
    method = small(name, context)
    torch.testing.assert_close(actions(method.policy()), actions(method.expert))
    data = RobotData(ROBOT.control_dt)
    report = method.learn(data, 1.5 / 60)
    assert report.accepted
    assert report.steps > 0
    assert not torch.allclose(actions(method.policy()), actions(method.expert))
    # The time of a fall at the very end is owed, as when data is collected for other methods.
    assert sum(trial.seconds for trial in data.trials) * 1.0 <= 1.5 + 1e-9
    method.save(tmp_path)
    again = small(name, context)
    again.restore(tmp_path)
    assert torch.equal(actions(again.policy()), actions(method.policy()))
    assert again.source() == method.source()
    factory = again.source().load(ROBOT, context.pool.setting.world)
    assert isinstance(factory(0, False), ExpertDriver)
    assert again.learn(data, data.minutes + 1.0 / 60).accepted


@pytest.mark.parametrize("name", ["ppo", "rlpd"])
@pytest.mark.usefixtures("small_ppo")
def test_same_seed_same_policy(name: str, context: MethodContext) -> None:
    def learned() -> torch.Tensor:
        method = small(name, context)
        method.learn(RobotData(ROBOT.control_dt), 0.7 / 60)
        return actions(method.policy())

    assert torch.equal(learned(), learned())


@pytest.mark.usefixtures("small_ppo")
def test_a_damaged_state_is_refused(context: MethodContext, tmp_path: Path) -> None:
    (tmp_path / "ppo.pt").write_bytes(b"no state")
    with pytest.raises(ArtefactError, match="begin anew"):
        small("ppo", context).restore(tmp_path)


def test_half_of_a_batch_comes_from_simulation(context: MethodContext) -> None:
    method = Rlpd(context, SMALL_RLPD)
    buffer = method._buffer
    buffer.simulation = simulate(method.expert, ROBOT, SMALL_RLPD, hold=1, seed=0)
    assert not (buffer.sample(10).rewards == 7).any()
    state = np.zeros((1, buffer.simulation.observation.shape[1]), np.float32)
    zero = np.zeros(1)
    buffer.add(state, state, np.zeros((1, 12)), zero + 7, zero, [{}])
    assert int((buffer.sample(10).rewards == 7).sum()) == 5


def test_simulation_data_is_what_its_seed_says_and_held_actions_add_up(
    context: MethodContext,
) -> None:
    expert = Rlpd(context, SMALL_RLPD).expert
    one, same = (simulate(expert, ROBOT, SMALL_RLPD, hold=1, seed=4) for _ in range(2))
    np.testing.assert_array_equal(one.following, same.following)
    held = simulate(expert, ROBOT, SMALL_RLPD, hold=2, seed=4)
    # The first control step is the same one.
    np.testing.assert_array_equal(held.action[:4], one.action[:4])
    assert np.mean(held.reward) > 1.5 * np.mean(one.reward)


def test_labels_are_the_rewards_and_what_follows(context: MethodContext) -> None:
    method = FullFinetuning(context)
    expert, runner = method._expert, context.pool.local
    watched = WatchedDriver(ExpertDriver(expert, ROBOT, runner.setting.contract), ROBOT)
    outcome = runner.drive(
        watched, TrialConfig(0.6, 5, 1.0), record=True, on_step=lambda segments: watched.note()
    )
    period = runner.setting.layout.gait_period
    standing, fallen = (
        watched.labels(outcome.segments, fell, expert, period) for fell in (False, True)
    )
    assert len(standing.reward) == 50
    # A good walker gets most of 0.02 s times (1.5 + 0.75 + 0.15 * 4 feet + 0.5 * 2 feet).
    assert 0.05 < standing.reward[10:].mean() < 0.077
    np.testing.assert_allclose(
        standing.value[:-1], standing.reward[:-1] + 0.99 * standing.value[1:], rtol=1e-5
    )
    assert standing.value[-1] > 1.0
    assert fallen.value[-1] == pytest.approx(fallen.reward[-1])


def test_everything_is_finetuned_and_can_be_continued(
    context: MethodContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("simdist.evaluation.baselines.full_finetuning.LEAST_STEPS", 3)
    method, data = FullFinetuning(context), RobotData(ROBOT.control_dt)
    before = {n: p.clone() for n, p in context.artefact.model.named_parameters()}
    report = method.learn(data, 1.0 / 60)
    assert report.accepted, report.reason
    assert data.minutes * 60 == pytest.approx(1.0)
    assert [len(label.reward) for label in method._labels] == [30, 20]
    moved = {n.split(".")[0] for n, p in method.model.named_parameters() if (p != before[n]).any()}
    assert {"encoder", "dynamics", "reward", "value", "policy"} <= moved
    method.save(tmp_path)
    again = FullFinetuning(context)
    again.restore(tmp_path)
    assert again.source() == method.source()
    assert again.learn(data, 1.6 / 60).accepted
    assert len(again._labels) == len(data.trials)


def test_a_weakened_model_is_another_one(tmp_path: Path) -> None:
    path = weaken(model_file("go1"), tmp_path, policy=0.5, world_model=0.0, seed=0)
    assert load_artefact(path).weights_hash == load_artefact(model_file("go1")).weights_hash
    shipped = ExpertPolicy.load(model_file("go1/expert"))
    weak = ExpertPolicy.load(tmp_path / "expert.safetensors")
    assert not torch.allclose(actions(weak), actions(shipped))
    with pytest.raises(ConfigError, match="--policy"):
        weaken(model_file("go1"), tmp_path, policy=-1.0, world_model=0.0, seed=0)


def test_baselines_are_methods(context: MethodContext) -> None:
    assert {"ppo", "rlpd", "full"} <= set(METHODS)
    for name in ("ppo", "rlpd", "full"):
        method = make_method(name, context)
        assert (method.name, method.learns, method.wants_data) == (name, True, False)
