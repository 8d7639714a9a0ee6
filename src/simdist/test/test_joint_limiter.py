"""The limiter keeps position, rate and torque within bounds for every measured state."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from simdist import robots
from simdist.safety import JointLimiter, LimitConfig

ROBOT = robots.get("go1")
LIMITER = JointLimiter(ROBOT, LimitConfig())


def vector(low: float, high: float) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, 12, elements=st.floats(low, high))


inside = vector(0.0, 1.0).map(
    lambda s: ROBOT.position_lower + s * (ROBOT.position_upper - ROBOT.position_lower)
)


@given(
    target=vector(-1e6, 1e6),
    previous=inside,
    kp=st.one_of(vector(0.0, 100.0), st.just(np.zeros(12))),
    kd=vector(0.0, 5.0),
    q=vector(-6.0, 6.0),
    dq=vector(-400.0, 400.0),
)
@settings(max_examples=300, deadline=None)
def test_every_command_is_within_position_rate_and_torque_limits(
    target: np.ndarray,
    previous: np.ndarray,
    kp: np.ndarray,
    kd: np.ndarray,
    q: np.ndarray,
    dq: np.ndarray,
) -> None:
    command = LIMITER.command(target, previous, kp, kd, q, dq)
    assert (command.position >= ROBOT.position_lower).all()
    assert (command.position <= ROBOT.position_upper).all()
    assert (np.abs(command.position - previous) <= LIMITER.step + 1e-12).all()
    torque = command.kp * (command.position - q) - command.kd * dq
    assert (np.abs(torque) <= ROBOT.torque_limit).all()
    assert (command.kp <= kp).all()
    assert (command.kd <= kd).all()


def test_target_gives_way_before_the_gains_do() -> None:
    q = ROBOT.default_pose
    kp = np.full(12, 100.0)
    command = LIMITER.command(q + 0.38, q, kp, np.zeros(12), q, np.zeros(12))
    np.testing.assert_array_equal(command.kp, kp)
    torque = command.kp * (command.position - q)
    np.testing.assert_allclose(torque, np.minimum(38.0, ROBOT.torque_limit))


def test_command_within_the_limits_passes_unchanged() -> None:
    q = ROBOT.default_pose
    dq = np.full(12, 0.5)
    command = LIMITER.command(q + 0.1, q, ROBOT.kp, ROBOT.kd, q, dq)
    np.testing.assert_array_equal(command.position, q + 0.1)
    np.testing.assert_array_equal(command.kp, ROBOT.kp)
    np.testing.assert_array_equal(command.kd, ROBOT.kd)


def test_target_approaches_a_far_wish_step_by_step() -> None:
    target = ROBOT.default_pose
    wanted = ROBOT.position_upper
    for _ in range(20):
        following = LIMITER.target(wanted, target)
        assert (np.abs(following - target) <= LIMITER.step + 1e-12).all()
        target = following
    np.testing.assert_allclose(target, wanted)
