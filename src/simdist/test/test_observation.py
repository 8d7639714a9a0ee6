"""Observations: one layout and one code path for training and for the robot."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simdist import robots
from simdist.errors import ContractError
from simdist.observation import (
    History,
    ObservationBuilder,
    ObservationSpec,
    Observer,
    projected_gravity,
    rotation_matrix,
)
from simdist.observation.spec import legged_observation
from simdist.types import BaseState, JointState

ROBOT = robots.get("go1")
SPEC = legged_observation(ROBOT.joint_count, history=3)
DT = round(ROBOT.control_dt * 1e9)


def joints(position=None, names=ROBOT.joint_names) -> JointState:
    position = np.array(ROBOT.default_pose) if position is None else position
    return JointState(names, position, np.arange(12.0), np.zeros(12))


def base(**changes) -> BaseState:
    values = {
        "position": np.array([0.0, 0.0, 0.3]),
        "orientation": np.array([1.0, 0.0, 0.0, 0.0]),
        "linear_velocity": np.array([0.5, 0.1, 0.0]),
        "angular_velocity": np.array([0.0, 0.0, 0.2]),
    }
    return BaseState(**{**values, **changes})


def observe(observer: Observer, step: int, action=0.0, **changes):
    return observer.observe(
        step * DT,
        changes.get("joints", joints()),
        changes.get("base", base()),
        changes.get("scan", np.zeros(SPEC.scan.size)),
        changes.get("command", np.zeros(3)),
        np.full(12, action),
    )


@given(
    st.lists(st.floats(-1, 1), min_size=4, max_size=4).filter(lambda q: sum(x * x for x in q) > 0.1)
)
def test_projected_gravity_is_the_rotated_down_vector(q):
    quaternion = np.array(q) / np.linalg.norm(q)
    rotation = rotation_matrix(quaternion)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(3), atol=1e-9)
    np.testing.assert_allclose(projected_gravity(quaternion), rotation.T @ [0, 0, -1], atol=1e-9)


def test_every_named_field_holds_its_own_quantity():
    builder, where = ObservationBuilder(SPEC, ROBOT), SPEC.slices()
    vector = builder.proprioception(
        linear_velocity=np.array([1.0, 2.0, 3.0]),
        angular_velocity=np.array([4.0, 5.0, 6.0]),
        orientation=np.array([1.0, 0.0, 0.0, 0.0]),
        joint_position=ROBOT.default_pose + 0.1,
        joint_velocity=np.arange(12.0),
        seconds=SPEC.gait_period / 4,
    )
    assert vector.shape == (SPEC.size,) == (35,)
    np.testing.assert_array_equal(vector[where["base_lin_vel"]], [1, 2, 3])
    np.testing.assert_array_equal(vector[where["base_ang_vel"]], [4, 5, 6])
    np.testing.assert_array_equal(vector[where["projected_gravity"]], [0, 0, -1])
    np.testing.assert_allclose(vector[where["joint_pos"]], 0.1)
    np.testing.assert_array_equal(vector[where["joint_vel"]], np.arange(12.0))
    np.testing.assert_allclose(vector[where["gait_phase"]], [0, 1], atol=1e-12)


def test_a_layout_survives_json_and_refuses_a_foreign_one():
    assert ObservationSpec.from_dict(json.loads(json.dumps(SPEC.to_dict()))) == SPEC
    broken = SPEC.to_dict()
    del broken["scan"]
    with pytest.raises(ContractError, match="scan"):
        ObservationSpec.from_dict(broken)


def test_permuted_joint_names_give_the_same_observation():
    position = np.linspace(-0.5, 0.5, 12)
    order = np.random.default_rng(0).permutation(12)
    straight = JointState(ROBOT.joint_names, position, position * 2, position * 0)
    permuted = JointState(
        tuple(ROBOT.joint_names[i] for i in order), position[order], position[order] * 2, position
    )
    first = observe(Observer(SPEC, ROBOT), 0, joints=straight)
    second = observe(Observer(SPEC, ROBOT), 0, joints=permuted)
    np.testing.assert_array_equal(first.proprioception, second.proprioception)


def test_foreign_joints_are_refused_by_name():
    names = ("left_knee", *ROBOT.joint_names[1:])
    with pytest.raises(ContractError, match="left_knee"):
        observe(Observer(SPEC, ROBOT), 0, joints=joints(names=names))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_non_finite_sensor_value_never_reaches_the_history(bad):
    observer = Observer(SPEC, ROBOT)
    observe(observer, 0)
    with pytest.raises(ContractError, match="not finite"):
        observe(observer, 1, base=base(linear_velocity=np.array([bad, 0.0, 0.0])))
    scan = np.zeros(SPEC.scan.size)
    scan[7] = bad
    with pytest.raises(ContractError, match="height scan is not finite: element 7"):
        observe(observer, 1, scan=scan)
    assert np.isfinite(observe(observer, 1).proprioception_history).all()


def test_the_history_holds_actions_between_the_observations_they_connect():
    observer = Observer(SPEC, ROBOT)
    for step in range(5):
        seen = observe(observer, step, action=float(step))
    # The action handed in with observation k was applied between k - 1 and k.
    np.testing.assert_array_equal(seen.action_history[:, 0], [2.0, 3.0, 4.0])
    assert seen.previous_action[0] == 4.0


def test_a_gap_starts_the_history_anew():
    observer = Observer(SPEC, ROBOT)
    for step in (0, 1, 2, 3, 7):
        seen = observe(observer, step, action=1.0)
    np.testing.assert_array_equal(seen.action_history, 0.0)
    np.testing.assert_array_equal(
        seen.proprioception_history, np.tile(seen.proprioception.astype(np.float32), (4, 1))
    )


@given(st.integers(1, 6), st.integers(1, 20))
def test_history_is_the_tail_of_everything_pushed(length, pushes):
    history = History(length, 1, 1)
    for value in range(pushes):
        history.push(np.array([float(value)]), np.array([float(value)]))
    past, actions = history.arrays()
    expected = [max(0, pushes - 1 - length + i) for i in range(length + 1)]
    np.testing.assert_array_equal(past[:, 0], expected)
    np.testing.assert_array_equal(actions[:, 0], expected[1:])
