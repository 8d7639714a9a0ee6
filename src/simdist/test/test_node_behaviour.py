"""What encoder, planner and replay do with good and with bad messages, without a graph."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

import rclpy
from graph_rig import free_domain, random_model
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import Reader
from simdist_msgs import msg

from simdist import robots
from simdist.adaptation import Candidate, Losses, pack_update
from simdist.nodes import convert
from simdist.observation.spec import legged_observation
from simdist.types import AppliedStep, BaseState, JointState, Mode

GO1 = robots.get("go1")
GRID = legged_observation(12).scan
DT_NS = 20_000_000


@pytest.fixture(scope="module", autouse=True)
def ros():
    os.environ["ROS_DOMAIN_ID"] = str(free_domain())
    rclpy.init()
    yield
    rclpy.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model"))


def start(name: str, **values):
    node = Node(name, parameter_overrides=[Parameter(n, value=v) for n, v in values.items()])
    return importlib.import_module(f"simdist.nodes.{name}").NODE(node)


class Sent(list):
    """Stands in for a publisher."""

    def publish(self, message) -> None:
        self.append(message)


# --- encoder --------------------------------------------------------------------------------------


@pytest.fixture
def encoder(model):
    encoder = start("encoder", model=str(model))
    encoder._observation, encoder._latent = Sent(), Sent()
    yield encoder
    encoder._node.destroy_node()


def sensed(encoder, k: int, mode: Mode = Mode.ACTIVE, **changed) -> None:
    """The messages that belong to the observation at step ``k``, in an awkward order."""
    stamp = k * DT_NS
    values = {
        "names": GO1.joint_names,
        "q": GO1.default_pose,
        "velocity": np.zeros(3),
        "scan": np.zeros(GRID.size),
        **changed,
    }
    applied = AppliedStep(stamp - DT_NS, k, np.full(12, 0.5), GO1.default_pose, mode, 1, 0)
    state = JointState(values["names"], values["q"], np.zeros(12), np.zeros(12))
    base = BaseState(np.zeros(3), np.array([1.0, 0, 0, 0]), values["velocity"], np.zeros(3))
    encoder._on_sensor("scan", convert.height_scan_message(stamp, "base", GRID, values["scan"]))
    encoder._on_odometry(convert.odometry_message(stamp, base, "world", "base"))
    encoder._on_applied(convert.applied_message(applied, GO1))
    encoder._on_sensor("joints", convert.joint_state_message(stamp, state))


def test_an_observation_and_a_latent_state_per_control_step(encoder):
    for k in range(1, 6):
        sensed(encoder, k)
    assert [convert.to_ns(m.header.stamp) for m in encoder._latent] == [
        k * DT_NS for k in range(1, 6)
    ]
    assert [m.sequence for m in encoder._observation] == [1, 2, 3, 4, 5]
    context, latent = convert.latent_arrays(encoder._latent[-1])
    assert context.shape == (21, 48)
    assert np.isfinite(latent).all()
    assert encoder._observation[-1].active
    assert np.allclose(encoder._observation[-1].previous_action, 0.5)


def test_there_is_nothing_to_observe_while_the_robot_gets_up(encoder):
    for k, mode in enumerate((Mode.DAMP, Mode.STAND_UP, Mode.STAND, Mode.ACTIVE), start=1):
        sensed(encoder, k, mode)
    assert [m.active for m in encoder._observation] == [False, True]


@pytest.mark.parametrize(
    "bad",
    [
        {"velocity": np.array([np.nan, 0, 0])},
        {"q": np.full(12, np.inf)},
        {"scan": np.full(GRID.size, np.nan)},
        {"names": ("tail", *GO1.joint_names[1:])},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_bad_sensors_give_no_observation_and_a_new_history(encoder, bad):
    for k in range(1, 15):
        sensed(encoder, k)
    sensed(encoder, 15, **bad)
    assert len(encoder._latent) == 14
    sensed(encoder, 16)
    assert len(encoder._latent) == 15
    # The past up to the bad values is not continued: nothing was applied in it.
    assert np.allclose(encoder._observation[-1].previous_action, 0.0)


def test_joints_are_matched_by_name(encoder, model):
    order = np.random.default_rng(0).permutation(12)
    q = GO1.default_pose + np.linspace(-0.2, 0.2, 12)
    sensed(encoder, 1, q=q)
    sensed(encoder, 2, q=q[order], names=tuple(GO1.joint_names[i] for i in order))
    first, second = (np.array(m.proprioception) for m in encoder._observation)
    joints = legged_observation(12).slices()["joint_pos"]
    assert np.array_equal(first[joints], second[joints])


def test_the_same_step_sent_again_is_answered_again_and_not_counted_twice(encoder):
    sensed(encoder, 1)
    sensed(encoder, 1)
    assert len(encoder._latent) == 2
    assert encoder._latent[0] is encoder._latent[1]
    sensed(encoder, 2)
    assert encoder._latent[-1].sequence == 2


# --- planner --------------------------------------------------------------------------------------


@pytest.fixture
def planner(model):
    planner = start("planner", model=str(model), lockstep=True, **{"mppi.samples": 16})
    planner._chunks = Sent()
    yield planner
    planner.close()
    planner._node.destroy_node()


def latent_state(planner, k: int, **changed) -> msg.LatentState:
    message = msg.LatentState(
        header=convert.header(k * DT_NS),
        contract=planner._contract,
        latent=convert.floats(np.zeros(48)),
        context_rows=21,
        context=convert.floats(np.zeros((21, 48))),
        command=np.array([0.5, 0, 0], np.float32),
    )
    for name, value in changed.items():
        setattr(message, name, value)
    return message


def answer(planner, message) -> int:
    """How many chunks the latent state brings."""
    before = len(planner._chunks)
    planner._on_latent(message)
    if planner._newest is not None:
        planner._answer(planner._newest)
        planner._newest = None
    return len(planner._chunks) - before


def test_every_second_latent_state_is_answered_for_its_own_time(planner):
    assert [answer(planner, latent_state(planner, k)) for k in range(10, 16)] == [1, 0] * 3
    chunk = convert.chunk(planner._chunks[-1])
    assert chunk is not None
    assert chunk.stamp_ns == chunk.observation_stamp_ns == 14 * DT_NS
    assert chunk.values.shape == (15, 12)
    assert chunk.contract == planner._contract


@pytest.mark.parametrize(
    "bad",
    [
        {"latent": convert.floats(np.full(48, np.nan))},
        {"context": convert.floats(np.full((21, 48), np.inf))},
        {"command": np.array([np.nan, 0, 0], np.float32)},
        {"context_rows": 3},
        {"latent": []},
        {"contract": "another"},
    ],
    ids=lambda bad: next(iter(bad)),
)
def test_a_bad_latent_state_brings_no_chunk_and_planning_goes_on(planner, bad):
    assert answer(planner, latent_state(planner, 10, **bad)) == 0
    assert planner._status.degraded == 1
    assert answer(planner, latent_state(planner, 12)) == 1


def test_the_same_latent_state_sent_again_is_answered_by_the_same_chunk(planner):
    answer(planner, latent_state(planner, 10))
    assert answer(planner, latent_state(planner, 10)) == 1
    assert planner._chunks[0] is planner._chunks[1]
    assert planner._status._plans == 1


def test_a_robot_that_stopped_following_makes_the_planner_begin_anew(planner):
    def applied(k: int, mode: Mode) -> None:
        step = AppliedStep(k * DT_NS, k, np.zeros(12), GO1.default_pose, mode, 1, 0)
        planner._on_applied(convert.applied_message(step, GO1))

    answer(planner, latent_state(planner, 10))
    applied(9, Mode.STAND_UP)  # late news of a time before the plan
    assert planner._loop._actions is not None
    applied(11, Mode.FAULT)
    assert planner._loop._actions is None
    assert answer(planner, latent_state(planner, 12)) == 1


def test_bad_latent_states_and_refused_updates_show_in_the_diagnostics(planner):
    sent = planner._status._diagnostics._publisher = Sent()
    planner._status.publish(0, 0.04)
    answer(planner, latent_state(planner, 10, contract="another"))
    planner._updates._on_update(msg.ModelUpdate(version=1, weights=[1, 2, 3]))
    verdict = until(lambda: planner._updates.take() or planner._updates.refused)
    assert verdict == 1
    planner._status.publish(DT_NS, 0.04)
    before, after = (message.status[0] for message in sent)
    assert (before.level, after.level) == (b"\x00", b"\x01")
    values = {pair.key: pair.value for pair in after.values}
    assert (values["plans degraded"], values["model updates refused"]) == ("1", "1")
    assert values["last event"].startswith("update 1 refused")


def test_a_planner_starts_with_the_update_that_it_ended_with(model, tmp_path):
    def begin():
        values = {"model": str(model), "lockstep": True, "updates_dir": str(tmp_path)}
        return start("planner", **values)

    planner = begin()
    base = planner._updates.current
    state = {name: tensor * 1.01 for name, tensor in base.model.dynamics_state().items()}
    candidate = Candidate(state, Losses(1.0, 0.5, 1.0, 1.0), 1, 1, 60.0, 100, 100)
    update = pack_update(candidate, base, base.version + 1)
    planner._updates._on_update(convert.update_message(0, update))
    until(lambda: planner._updates.take() or planner._updates.current is not base)
    adopted = planner._updates.current.weights_hash
    planner.close()
    planner._node.destroy_node()

    planner = begin()
    assert planner._updates.current.weights_hash == adopted != base.weights_hash
    assert planner._planner._model is planner._updates.current.model
    planner.close()
    planner._node.destroy_node()


def until(condition: Callable[[], Any]) -> Any:
    """The first answer that is true, of a thread that works meanwhile."""
    for _ in range(10_000):
        if answer := condition():
            return answer
        time.sleep(0.01)
    raise AssertionError("it did not happen")


# --- bridge ---------------------------------------------------------------------------------------


def test_refused_chunks_show_in_the_diagnostics_of_the_bridge():
    bridge = start("mujoco_bridge", world="flat")
    topics = bridge._topics
    sent = topics._diagnostics._publisher = Sent()
    topics._diagnostics_due = lambda: True
    topics.publish_surroundings()
    bridge._on_chunk(msg.ActionChunk(names=["elbow"], steps=1, values=[0.0], dt=0.02))
    bridge._on_chunk(msg.ActionChunk(names=["elbow"], steps=2, values=[0.0], dt=0.02))
    topics.publish_surroundings()
    bridge._node.destroy_node()
    before, after = (message.status[0] for message in sent)
    assert (before.level, after.level) == (b"\x00", b"\x01")
    values = {pair.key: pair.value for pair in after.values}
    assert values["chunks refused"] == "2"
    assert values["chunks refused (joint_names)"] == values["chunks refused (shape)"] == "1"
    assert after.name == "mujoco_bridge: command executor"


# --- replay ---------------------------------------------------------------------------------------


@pytest.fixture
def replay(tmp_path):
    replay = start("replay", record=True, bag_dir=str(tmp_path), segment_steps=10)
    replay._segments, replay._status = Sent(), Sent()
    yield replay
    replay._node.destroy_node()


def observed(k: int, contract: str = "abc") -> msg.Observation:
    return msg.Observation(
        header=convert.header(k * DT_NS),
        sequence=k,
        contract=contract,
        proprioception=convert.floats(np.zeros(35)),
        exteroception=convert.floats(np.zeros(117)),
        command=np.zeros(3, np.float32),
    )


def applied_at(k: int, mode: Mode = Mode.ACTIVE) -> msg.AppliedCommand:
    step = AppliedStep(k * DT_NS, k, np.zeros(12), GO1.default_pose, mode, 1, 0)
    return convert.applied_message(step, GO1)


def test_segments_are_passed_on_as_they_fill_up(replay):
    for k in range(1, 26):
        replay._on_observation(observed(k))
        replay._on_applied(applied_at(k))
    assert [m.steps for m in replay._segments] == [10, 10]
    replay._on_applied(applied_at(26, Mode.STAND))
    replay._on_mode(msg.RobotMode(mode=2))
    assert [m.steps for m in replay._segments] == [10, 10, 5]
    assert {m.episode for m in replay._segments} == {1}
    replay.close()


def test_another_contract_begins_another_recording_of_episodes(replay):
    for k in range(1, 16):
        replay._on_observation(observed(k, "abc" if k <= 8 else "xyz"))
        replay._on_applied(applied_at(k))
    replay.close()
    assert [(m.contract, m.steps) for m in replay._segments] == [("abc", 8), ("xyz", 7)]


def test_a_disk_that_fails_stops_the_recording_and_nothing_else(replay):
    replay._bag._bag.error = "no space left on device"
    replay._report = lambda: True
    replay._tick()
    status = replay._status[-1]
    assert not status.recording
    for k in range(1, 12):
        replay._on_observation(observed(k))
        replay._on_applied(applied_at(k))
    assert len(replay._segments) == 1
    replay.close()


def test_a_bag_that_cannot_be_made_does_not_end_the_walk(tmp_path):
    (tmp_path / "file").write_text("")
    replay = start("replay", record=True, bag_dir=str(tmp_path / "file" / "bags"))
    replay._segments, replay._status, replay._report = Sent(), Sent(), lambda: True
    replay._tick()
    assert not replay._status[-1].recording
    for k in range(1, 4):
        replay._on_observation(observed(k))
        replay._on_applied(applied_at(k))
    replay.close()
    assert [m.steps for m in replay._segments] == [3]


def test_recordings_carry_the_time_of_the_headers(replay):
    recording = replay._bag
    write = recording._writer(recording._bag, "/observation")
    write(serialize_message(observed(100)))
    write(serialize_message(observed(0)))  # without a stamp: the time of its neighbour
    replay.close()
    with Reader(Path(recording.path)) as bag:
        assert [stamp for _, stamp, _ in bag.messages()] == [100 * DT_NS, 100 * DT_NS]


# --- operator -------------------------------------------------------------------------------------


def test_the_operator_stays_silent_in_lockstep_until_its_request_is_answered():
    operator = start("operator", lockstep=True)
    operator._commands = Sent()
    asked = []
    answer_to = SimpleNamespace(success=True, message="")

    class Client:
        def service_is_ready(self) -> bool:
            return True

        def call_async(self, request):
            asked.append(request)
            return SimpleNamespace(
                done=lambda: len(answers) >= len(asked), result=lambda: answer_to
            )

    answers: list[int] = []
    operator._set_mode = Client()
    base = BaseState(np.array([0, 0.1, 0]), np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))

    def step(k: int, mode: Mode) -> None:
        operator._on_odometry(convert.odometry_message(k * DT_NS, base, "world", "base"))
        operator._on_applied(applied_at(k - 1, mode))

    operator._on_mode(msg.RobotMode(mode=2, name="STAND", reason="stands"))
    step(1, Mode.STAND)
    assert [request.mode for request in asked] == [3]
    assert operator._commands == []
    answers.append(1)
    operator._pursue()
    operator._release()
    assert [convert.command(m).tolist() for m in operator._commands] == [[0.0, 0.0, 0.0]]
    for k in range(2, 60):
        step(k, Mode.ACTIVE)
    assert convert.to_ns(operator._commands[-1].header.stamp) == 59 * DT_NS
    assert convert.command(operator._commands[-1]) == pytest.approx([0.5, -0.1, 0.0])
    operator._node.destroy_node()
