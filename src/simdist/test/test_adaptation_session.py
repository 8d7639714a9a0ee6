"""Learning beside a running robot, and checking updates beside a running planner."""

from __future__ import annotations

import dataclasses
import time

import pytest
from test_adaptation import HELD_OUT, SLIPPERY, TRAINING, drive, running, simulation
from test_adaptation import pretrained as pretrained  # the fixture

from simdist.adaptation import (
    AcceptanceGate,
    DynamicsFinetuner,
    FinetuneConfig,
    GateConfig,
    RunningModel,
    UpdateStore,
    pack_update,
)
from simdist.adaptation.desk import UpdateDesk, Verdict
from simdist.adaptation.session import AdaptationSession, Attempt, SessionConfig, State
from simdist.world_model import WorldModel

DT = 0.02


def session_of(model: WorldModel, **gate: float) -> AdaptationSession:
    config = FinetuneConfig(steps=60, batch=32, learning_rate=3e-3)
    return AdaptationSession(
        running(model),
        DynamicsFinetuner(model, simulation(), config),
        AcceptanceGate(GateConfig(**{"seconds": 5.0, "simulation_margin": 10.0, **gate})),
        SessionConfig(min_new_seconds=5.0, capacity_seconds=60.0),
        DT,
    )


def feed(session: AdaptationSession, seed: int, steps: int = 600) -> None:
    segment = drive(SLIPPERY, seed, steps=steps, episode=seed)
    assert session.add(dataclasses.replace(segment, contract="contract")) is None


def learn(session: AdaptationSession) -> Attempt:
    assert session.begin()
    for _ in range(1000):
        attempt = session.step(5)
        if attempt is not None:
            return attempt
    raise AssertionError("the update never ended")


def test_learning_begins_when_there_is_enough_new_data(pretrained):
    session = session_of(pretrained)
    feed(session, 1, steps=200)
    assert not session.begin()
    feed(session, 2)
    assert session.begin()
    assert session.state == State.LEARNING


def test_what_the_gate_accepts_is_an_update_of_the_running_model(pretrained):
    session = session_of(pretrained)
    feed(session, 1)
    attempt = learn(session)
    assert attempt.accepted, attempt.reason
    assert attempt.update is not None
    assert attempt.update.parent == pretrained.weights_hash()
    assert attempt.version == 4
    assert attempt.losses.robot_after < attempt.losses.robot_before
    assert (session.tried, session.accepted, session.state) == (1, 1, State.ACCEPTED)
    assert not session.begin(), "the same data is not new twice"


def test_what_the_gate_refuses_is_not_an_update(pretrained):
    session = session_of(pretrained, seconds=1000.0)
    feed(session, 1)
    attempt = learn(session)
    assert attempt.update is None
    assert "1000" in attempt.reason
    assert session.state == State.REFUSED


def test_the_next_update_continues_what_the_planner_runs(pretrained):
    session = session_of(pretrained)
    feed(session, 1)
    first = learn(session)
    assert first.update is not None
    feed(session, 2)
    refused_there = learn(session)  # the planner never reported version 4: it still runs 3
    if refused_there.update is not None:
        assert refused_there.update.parent == pretrained.weights_hash()
        assert refused_there.version == 5
    assert session.running(4) is None
    feed(session, 3)
    assert session.begin()
    following = None
    while following is None:
        following = session.step(5)
    assert session.version == 4
    assert following.version > first.version
    if following.update is not None:
        assert following.update.parent != pretrained.weights_hash()


def test_a_rollback_drops_the_update_under_way(pretrained):
    session = session_of(pretrained)
    feed(session, 1)
    assert learn(session).update is not None
    session.running(4)
    feed(session, 2)
    assert session.begin()
    session.running(3)
    assert session.step() is None
    assert session.version == 3


def test_an_unknown_version_and_foreign_data_are_complained_about(pretrained):
    session = session_of(pretrained)
    assert "version 9" in str(session.running(9))
    assert session.version == 3
    problem = session.add(dataclasses.replace(drive(SLIPPERY, 1), contract="another"))
    assert problem is not None
    assert session.refused_segments == 1


# --- the planner's side ---------------------------------------------------------------------------


def ask(desk: UpdateDesk) -> Verdict:
    for _ in range(1000):
        verdict = desk.collect()
        if verdict is not None:
            return verdict
        time.sleep(0.01)
    raise AssertionError("no verdict")


@pytest.fixture
def base(pretrained) -> RunningModel:
    return running(pretrained)


@pytest.fixture
def update(pretrained, base):
    config = FinetuneConfig(steps=20, batch=32, learning_rate=3e-3)
    candidate = DynamicsFinetuner(pretrained, simulation(), config).update(
        TRAINING, HELD_OUT, pretrained
    )
    return pack_update(candidate, base, 4)


@pytest.fixture
def desk(base):
    desk = UpdateDesk(UpdateStore(base), lambda model: None)
    yield desk
    desk.close()


def test_a_good_update_becomes_current_only_when_it_is_collected(desk, base, update):
    desk.submit(4, update.weights, update.weights_sha256)
    for _ in range(1000):
        if not desk._done.empty():
            break
        time.sleep(0.01)
    assert desk.current is base
    verdict = ask(desk)
    assert verdict.model is desk.current
    assert desk.current.version == 4
    assert base.model.weights_hash() == base.weights_hash, "the model in use was not touched"


@pytest.mark.parametrize(
    "damage", ["byte", "version", "nothing", "self-test"], ids=lambda name: name
)
def test_a_bad_update_is_refused_with_its_reason(base, update, damage):
    def complain(model: WorldModel) -> str | None:
        return "plans are not finite" if damage == "self-test" else None

    desk = UpdateDesk(UpdateStore(base), complain)
    weights = bytearray(update.weights)
    if damage == "byte":
        weights[-1] ^= 1
    if damage == "nothing":
        weights.clear()
    version = 7 if damage == "version" else 4
    desk.submit(version, bytes(weights), update.weights_sha256)
    verdict = ask(desk)
    assert verdict.model is None
    assert verdict.reason
    assert desk.current is base
    desk.close()


def test_rollback_goes_back_and_the_same_update_does_not_return(desk, base, update):
    desk.submit(4, update.weights, update.weights_sha256)
    assert ask(desk).model is not None
    assert desk.rollback() is base
    assert desk.rollback() is None
    desk.submit(4, update.weights, update.weights_sha256)
    assert "newer" in ask(desk).reason


def test_an_update_checked_for_a_model_that_was_rolled_back_meanwhile_is_dropped(
    desk, base, update, pretrained
):
    desk.submit(4, update.weights, update.weights_sha256)
    assert ask(desk).model is not None
    config = FinetuneConfig(steps=5, batch=32)
    candidate = DynamicsFinetuner(pretrained, simulation(), config).update(
        TRAINING, HELD_OUT, desk.current.model
    )
    following = pack_update(candidate, desk.current, 5)
    desk.submit(5, following.weights, following.weights_sha256)
    while desk._done.empty():
        time.sleep(0.01)
    desk.rollback()
    assert ask(desk).model is None
    assert desk.current is base
