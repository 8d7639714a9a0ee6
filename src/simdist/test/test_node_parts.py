"""Nodes without a graph: every endpoint agrees with its table, messages keep their meaning, and
parameters are refused by name."""

from __future__ import annotations

import dataclasses
import importlib
import os

import numpy as np
import pytest

pytest.importorskip("rclpy")

import rclpy
from graph_rig import free_domain, random_model
from hypothesis import given, settings
from hypothesis import strategies as st
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message, serialize_message
from visualization_msgs.msg import Marker

from simdist import robots
from simdist.errors import ConfigError, ContractError
from simdist.nodes import convert, qos
from simdist.nodes.parameters import _matches, checked, parameter, refuse_ignored_parameters
from simdist.nodes.planner_markers import PlannerMarkers
from simdist.observation.spec import ScanGrid
from simdist.planning import MppiPlanner, PlannerConfig
from simdist.planning.probe import random_inputs
from simdist.ranges import Checked, bounded
from simdist.replay import Episode
from simdist.types import ActionChunk, AppliedStep, BaseState, JointState, Mode
from simdist.world_model import load_artefact
from simdist.world_model.foot_probe import FootProbe, probe_beside, save_foot_probe

NODES = ("mujoco_bridge", "encoder", "planner", "replay", "finetune", "operator")
GO1 = robots.get("go1")
#: Topics that belong to rclpy itself.
OWN = {"/rosout", "/parameter_events"}


@pytest.fixture(scope="module")
def ros():
    os.environ["ROS_DOMAIN_ID"] = str(free_domain())
    rclpy.init()
    yield
    rclpy.shutdown()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return random_model(tmp_path_factory.mktemp("model"))


def overrides(**values):
    return [Parameter(name.replace("__", "."), value=value) for name, value in values.items()]


# --- endpoints ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoints(ros, model, tmp_path_factory):
    """(node, topic) -> profile, as the nodes really make them."""
    publishers, subscriptions = {}, {}
    for name in NODES:
        given_values = {}
        if name == "replay":
            given_values = {"record": True, "bag_dir": str(tmp_path_factory.mktemp("bags"))}
            given_values["record_depth"] = True
        if name in ("encoder", "planner", "finetune"):
            given_values["model"] = str(model)
        if name in ("encoder", "planner"):
            given_values["lockstep"] = True  # the planner then does not mind a slow machine
        if name == "finetune":
            given_values.update(nice=0, idle=False)
        if name == "mujoco_bridge":
            given_values["depth_rate"] = 10.0
        node = Node(name, parameter_overrides=overrides(**given_values))
        graph_node = importlib.import_module(f"simdist.nodes.{name}").NODE(node)
        publishers.update({(name, p.topic_name): p for p in node.publishers})
        subscriptions.update({(name, s.topic_name): s for s in node.subscriptions})
        if name != "mujoco_bridge":
            graph_node.close()
    return publishers, subscriptions


def test_the_nodes_have_exactly_the_endpoints_of_the_table(endpoints):
    publishers, subscriptions = endpoints
    optional = {("mujoco_bridge", f"/depth/{t}") for t in ("image_rect_raw", "camera_info")}
    made = {key for key in publishers if key[1] not in OWN}
    assert made | optional == _table("publishers"), "depth only where there is OpenGL"
    made = {key for key in subscriptions if key[1] not in OWN}
    assert made == _table("subscribers")


def _table(side: str) -> set[tuple[str, str]]:
    return {
        (node, f"/{topic}") for topic, entry in qos.TOPICS.items() for node in getattr(entry, side)
    }


def test_every_subscription_gets_what_every_publisher_offers(endpoints):
    publishers, subscriptions = endpoints
    pairs = 0
    for (publisher_node, topic), publisher in publishers.items():
        for (subscriber_node, other), subscription in subscriptions.items():
            if topic != other or topic in OWN:
                continue
            pairs += 1
            assert publisher.msg_type is subscription.msg_type, topic
            problem = qos.incompatible(publisher.qos_profile, subscription.qos_profile)
            assert problem is None, f"{publisher_node} -> {subscriber_node} {topic}: {problem}"
    assert pairs > 15


def test_every_subscriber_of_the_table_has_a_publisher():
    lonely = [t for t, entry in qos.TOPICS.items() if entry.subscribers and not entry.publishers]
    assert lonely == []


def test_incompatible_profiles_are_told():
    assert qos.incompatible(qos.IMAGE, qos.STREAM) is not None
    assert qos.incompatible(qos.STREAM, qos.LATCHED) is not None
    assert qos.incompatible(qos.LATCHED, qos.STREAM) is None


def test_every_parameter_is_described(ros, model):
    node = Node("planner", parameter_overrides=overrides(model=str(model), lockstep=True))
    importlib.import_module("simdist.nodes.planner").NODE(node).close()
    for name in node._parameters:
        if name not in ("use_sim_time", "start_type_description_service"):
            assert node.describe_parameter(name).description, name


# --- messages -------------------------------------------------------------------------------------


def over_the_wire(message):
    return deserialize_message(serialize_message(message), type(message))


@given(st.integers(0, 2**31 * 10**9 - 1))
def test_stamps_keep_every_nanosecond(stamp):
    assert convert.to_ns(convert.to_time(stamp)) == stamp


def test_joint_states_base_states_and_commands_come_back_as_they_were():
    rng = np.random.default_rng(0)
    state = JointState(GO1.joint_names, *(rng.normal(size=12) for _ in range(3)))
    back = convert.joint_state(over_the_wire(convert.joint_state_message(7, state)))
    assert back.names == state.names
    for name in ("position", "velocity", "effort"):
        assert np.array_equal(getattr(back, name), getattr(state, name))
    base = BaseState(*(rng.normal(size=size) for size in (3, 4, 3, 3)))
    back = convert.base_state(over_the_wire(convert.odometry_message(7, base, "a", "b")))
    for field in dataclasses.fields(BaseState):
        assert np.array_equal(getattr(back, field.name), getattr(base, field.name)), field.name
    command = rng.normal(size=3)
    back = convert.command(over_the_wire(convert.command_message(7, command, "base")))
    assert np.array_equal(back, command)


@settings(max_examples=30)
@given(st.integers(1, 40), st.integers(0, 2**62), st.integers(0, 10**6))
def test_chunks_come_back_as_they_were(steps, stamp, seed):
    stamp %= 2**31 * 10**9
    values = np.random.default_rng(seed).normal(size=(steps, 12))
    chunk = ActionChunk(
        stamp, stamp, 5, GO1.joint_names, "joint_position", 20_000_000, values, 3, "abc"
    )
    back = convert.chunk(over_the_wire(convert.chunk_message(chunk, False)))
    assert back is not None
    assert np.array_equal(back.values, values)
    for field in dataclasses.fields(ActionChunk):
        if field.name != "values":
            assert getattr(back, field.name) == getattr(chunk, field.name), field.name


@pytest.mark.parametrize(
    "damage",
    [{"steps": 3}, {"names": []}, {"values": []}, {"dt": float("nan")}],
    ids=lambda d: next(iter(d)),
)
def test_a_chunk_of_the_wrong_size_is_no_chunk(damage):
    chunk = ActionChunk(
        0, 0, 1, GO1.joint_names, "joint_position", 20_000_000, np.zeros((2, 12)), 0, ""
    )
    message = convert.chunk_message(chunk, False)
    for name, value in damage.items():
        setattr(message, name, value)
    assert convert.chunk(message) is None


def test_an_applied_step_is_matched_by_joint_name():
    rng = np.random.default_rng(0)
    step = AppliedStep(40, 2, rng.normal(size=12), rng.normal(size=12), Mode.ACTIVE, 9, 3)
    message = convert.applied_message(step, GO1)
    order = rng.permutation(12)
    message.names = [GO1.joint_names[i] for i in order]
    message.action = [float(step.action[i]) for i in order]
    message.position_target = [float(step.position_target[i]) for i in order]
    back = convert.applied_step(over_the_wire(message), GO1)
    assert np.allclose(back.action, step.action, atol=1e-6)
    assert np.array_equal(back.position_target, step.position_target)
    assert (back.mode, back.chunk_sequence, back.chunk_row) == (Mode.ACTIVE, 9, 3)
    message.names[0] = "tail"
    with pytest.raises(ContractError, match="go1"):
        convert.applied_step(message, GO1)


def test_a_height_scan_of_another_grid_is_refused():
    grid = ScanGrid()
    heights = np.random.default_rng(0).normal(size=grid.size)
    message = over_the_wire(convert.height_scan_message(0, "base", grid, heights))
    assert np.allclose(convert.height_scan(message, grid), heights, atol=1e-6)
    for other in (ScanGrid(nx=5), ScanGrid(x_max=1.0)):
        with pytest.raises(ContractError, match="height scan"):
            convert.height_scan(message, other)


def test_segments_come_back_as_they_were_and_short_ones_are_refused():
    rng = np.random.default_rng(0)
    episode = Episode(
        np.arange(4, dtype=np.int64) * 20_000_000 + 2**40,
        *(rng.normal(size=(4, n)).astype(np.float32) for n in (35, 117, 12, 3)),
        episode=6,
        contract="abc",
    )
    message = over_the_wire(convert.segment_message(episode))
    back = convert.segment(message)
    for name, values in episode.to_dict().items():
        assert np.array_equal(back.to_dict()[name], values), name
    message.action = message.action[:-1]
    with pytest.raises(ContractError, match="action"):
        convert.segment(message)


# --- markers --------------------------------------------------------------------------------------


def test_markers_are_lines_through_the_predicted_feet():
    rng = np.random.default_rng(0)
    plan, elites = rng.normal(size=(5, 4, 3)), rng.normal(size=(3, 5, 4, 3))
    elites[1, 2, 3, 0] = np.nan
    message = over_the_wire(convert.markers_message(7, "base", GO1.foot_names, plan, elites))
    assert len({(m.ns, m.id) for m in message.markers}) == len(message.markers) == 8
    for marker in message.markers:
        assert marker.header.frame_id == "base"
        assert convert.to_ns(marker.header.stamp) == 7
        assert marker.lifetime.nanosec > 0
        name, foot = marker.ns.split("/")
        foot = GO1.foot_names.index(foot)
        points = [(p.x, p.y, p.z) for p in marker.points]
        if name == "plan":
            np.testing.assert_array_equal(points, plan[:, foot])
        else:  # pairs of points, without the sample that is not finite
            assert len(points) == 2 * 2 * 4
            np.testing.assert_array_equal(points[:2], elites[0, :2, foot])
            np.testing.assert_array_equal(points[-2:], elites[2, -2:, foot])


def test_a_plan_that_is_not_finite_is_taken_off_the_screen():
    plan = np.full((5, 4, 3), np.nan)
    message = convert.markers_message(7, "base", GO1.foot_names, plan, plan[None])
    assert {(marker.action, len(marker.points)) for marker in message.markers} == {
        (Marker.DELETE, 0)
    }


@pytest.fixture
def drawing(model):
    """Its artefact, a planner, a plan, and a probe beside the model."""
    artefact = load_artefact(model)
    probe, beside = FootProbe(artefact.contract.network.latent_dim, 4, (8,)), probe_beside(model)
    save_foot_probe(beside, probe, GO1, artefact.frozen_hash, {})
    planner = MppiPlanner(artefact.model, GO1, PlannerConfig(samples=8), "torch")
    yield artefact, planner, planner.plan(*random_inputs(artefact.model, 1, seed=0))
    beside.unlink()


def test_plans_are_drawn_only_for_somebody(ros, drawing):
    artefact, planner, plan = drawing
    node = Node("drawing")
    asked = []
    planner.foresee = lambda *given: asked.append(given) or MppiPlanner.foresee(planner, *given)
    markers = PlannerMarkers(node, planner, artefact)
    markers._due = lambda: True
    markers.draw(7, plan)
    assert not asked
    received = []
    qos.subscription(node, "planner/markers", received.append)
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    for _ in range(1000):
        markers.draw(7, plan)
        executor.spin_once(0.05)
        if received:
            break
    assert asked
    assert len(received[0].markers) == 8


def test_a_probe_of_another_model_does_not_keep_the_robot_from_walking(ros, drawing, model):
    artefact, planner, plan = drawing
    save_foot_probe(probe_beside(model), FootProbe(7, 4, (8,)), GO1, "other", {})
    markers = PlannerMarkers(Node("other_probe"), planner, artefact)
    assert markers._probe is None
    markers.draw(7, plan)


# --- parameters -----------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Example(Checked):
    rate: float = bounded(50.0, 1.0, 100.0, "Hz")
    count: int = bounded(3, 1, 10, "things")
    flag: bool = True


_numbers = iter(range(1000))


def node_with(**values) -> Node:
    return Node(f"example{next(_numbers)}", parameter_overrides=overrides(**values))


def test_a_configuration_comes_from_parameters(ros):
    node = node_with(p__rate=20.0, p__flag=False)
    assert checked(node, Example, "p.", count=4) == Example(20.0, 4, False)
    descriptor = node.describe_parameter("p.rate")
    assert descriptor.description == "Hz"
    assert descriptor.floating_point_range[0].to_value == 100.0


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("rate", 1000.0, "1 to 100"),
        ("rate", 20, "decimal point from 1 to 100"),
        ("rate", float("nan"), "1 to 100"),
        ("rate", float("inf"), "1 to 100"),
        ("rate", "fast", "1 to 100"),
        ("count", 11, "1 to 10"),
        ("count", 2.0, "1 to 10"),
        ("flag", "yes", "bool"),
    ],
)
def test_a_bad_parameter_is_refused_with_value_and_range(ros, name, value, allowed):
    with pytest.raises(ConfigError) as error:
        checked(node_with(**{name: value}), Example)
    assert f"'{name}'" in str(error.value)
    assert repr(value) in str(error.value)
    assert allowed in str(error.value)


def test_a_choice_is_refused_with_the_choices(ros):
    node = node_with(robot="go9")
    with pytest.raises(ConfigError, match=r"'robot'.*'go9'.*go1"):
        parameter(node, "robot", "go1", "the robot", choices=("go1",))


def test_a_parameter_nobody_declares_is_refused(ros):
    node = node_with(perod=0.1)
    parameter(node, "period", 0.1, "s")
    with pytest.raises(ConfigError, match=r"'perod'.*period"):
        refuse_ignored_parameters(node, [])


def test_a_parameter_file_for_somebody_else_is_refused(ros, tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("/lab/planner:\n  ros__parameters:\n    period: 0.1\n")
    node = node_with()
    arguments = ["--ros-args", "--params-file", str(file)]
    with pytest.raises(ConfigError, match=r"/lab/planner"):
        refuse_ignored_parameters(node, arguments)
    file.write_text(f"/**/{node.get_name()}:\n  ros__parameters: {{}}\n")
    refuse_ignored_parameters(node, arguments)


@pytest.mark.parametrize(
    ("section", "name", "matches"),
    [
        ("/**", "/planner", True),
        ("/**", "/a/b/planner", True),
        ("/**/planner", "/planner", True),
        ("/**/planner", "/a/b/planner", True),
        ("/*/planner", "/a/planner", True),
        ("/*/planner", "/planner", False),
        ("planner", "/planner", True),
        ("planner", "/a/planner", False),
        ("/a/planner", "/a/planner", True),
        ("/**/planner", "/encoder", False),
    ],
)
def test_sections_match_as_in_rcl(section, name, matches):
    assert _matches(section, name) is matches
