"""The promises of the command executor, each test named after the failure it injects."""

from __future__ import annotations

import numpy as np
import pytest
from executor_rig import DT, MS, QUICK, Rig, is_damped, rig_in, tilted
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist import robots
from simdist.errors import ConfigError
from simdist.safety import ExecutorConfig, LimitConfig, Refusal
from simdist.types import ActionChunk, ImuSample, JointCommand, JointState, Mode

ROBOT = robots.get("go1")


@pytest.fixture
def acting() -> Rig:
    return rig_in(Mode.ACTIVE)


def time_until_damped(rig: Rig, limit_s: float = 1.0) -> float:
    start = rig.now
    for _ in range(round(limit_s * 500)):
        now = rig.now
        if is_damped(rig.call()):
            return (now - start) / 1e9
    raise AssertionError("never damped")


# ------------------------------------------------------------------ silence and staleness


def test_dead_planner_damps_within_its_period_and_three_control_steps(acting: Rig) -> None:
    acting.run(0.2)
    acting.planner = False
    assert time_until_damped(acting) <= 0.04 + 3 * 0.02 + 0.002
    assert acting.executor.mode == Mode.DAMP
    assert not acting.executor.armed
    assert "no new chunk" in acting.executor.reason


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_open_loop_steps_bound_what_is_played_after_a_chunk_was_due(steps: int) -> None:
    rig = Rig(ExecutorConfig(**QUICK, chunk_period=0.02, max_open_loop_steps=steps))
    rig.planner = False
    rig.bring_to(Mode.STAND)
    rig.executor.request_mode(Mode.ACTIVE, rig.now)
    rig.now = rig.executor.next_boundary(rig.now)
    rig.executor.receive(rig.chunk(), rig.now)
    rig.applied.clear()
    rig.run(0.4)
    played = [step for step in rig.applied if step.mode == Mode.ACTIVE]
    # One for the period.
    assert len(played) == steps + 1
    assert rig.executor.mode == Mode.DAMP


def test_chunks_that_answer_old_observations_damp_although_they_keep_coming(acting: Rig) -> None:
    acting.planner = False
    answered = acting.now
    for _ in range(100):
        if acting.executor.mode != Mode.ACTIVE:
            break
        acting.executor.receive(acting.chunk(observation_stamp_ns=answered), acting.now)
        acting.call()
    assert acting.executor.mode == Mode.DAMP
    assert acting.now - answered <= 164 * MS
    assert "chunk is" in acting.executor.reason


def test_short_chunk_that_runs_out_damps(acting: Rig) -> None:
    acting.planner = False
    acting.executor.receive(acting.chunk(values=np.tile(ROBOT.default_pose, (1, 1))), acting.now)
    assert time_until_damped(acting) <= 0.042


def test_no_motion_returns_before_rearming(acting: Rig) -> None:
    acting.planner = False
    time_until_damped(acting)
    acting.planner = True
    assert is_damped(acting.run(0.5))
    granted, message = acting.executor.request_mode(Mode.STAND_UP, acting.now)
    assert not granted
    assert "re-arm" in message
    assert acting.executor.rearm(acting.now)[0]
    assert acting.executor.request_mode(Mode.STAND_UP, acting.now)[0]
    acting.executor.request_mode(Mode.ACTIVE, acting.now)
    acting.run(0.8)
    assert acting.executor.mode == Mode.ACTIVE


@pytest.mark.parametrize("mode", [Mode.STAND_UP, Mode.STAND, Mode.ACTIVE, Mode.LIE_DOWN])
def test_old_state_holds_then_damps(mode: Mode) -> None:
    rig = rig_in(mode)
    rig.sensors = False
    last_seen = rig.state_stamp
    held: list[JointCommand] = []
    while True:
        age = rig.now - last_seen
        command = rig.call()
        if age <= 50 * MS:
            held = [command]
        elif age <= 100 * MS:
            held.append(command)
        else:
            assert is_damped(command)
            break
    assert len(held) > 20
    for command in held:
        np.testing.assert_array_equal(command.position, held[0].position)
        np.testing.assert_array_equal(command.kp, held[0].kp)
    assert rig.executor.mode == Mode.DAMP
    assert "state is" in rig.executor.reason


def test_state_from_the_future_does_not_keep_a_dead_sensor_alive(acting: Rig) -> None:
    acting.sensors = False
    acting.state_stamp = acting.now + 10**12
    assert time_until_damped(acting) <= 0.104
    assert acting.executor.status().future_states > 0


@pytest.mark.parametrize("gap_ms", [51, 200, 60_000])
def test_stopped_process_does_not_jump_when_it_continues(acting: Rig, gap_ms: int) -> None:
    acting.now += gap_ms * MS
    command = acting.call()
    assert is_damped(command)
    assert "did not run" in acting.executor.reason
    assert is_damped(acting.run(0.5))


@pytest.mark.parametrize("back_ms", [1, 500, 3_600_000])
def test_clock_that_goes_back_damps_and_starts_a_new_grid(acting: Rig, back_ms: int) -> None:
    acting.now += -back_ms * MS - 2 * MS
    assert is_damped(acting.call())
    assert "clock went back" in acting.executor.reason
    boundary = acting.executor.next_boundary(acting.now)
    acting.applied.clear()
    acting.run(0.1)
    assert [s.stamp_ns for s in acting.applied] == [boundary + i * DT for i in range(5)]


# ------------------------------------------------------------------ posture and broken values


@pytest.mark.parametrize(
    ("orientation", "falls"),
    [
        (tilted(roll=0.89), False),
        (tilted(roll=0.91), True),
        (tilted(roll=-0.91), True),
        (tilted(pitch=1.29), False),
        (tilted(pitch=1.31), True),
        (tilted(pitch=-1.31), True),
        (tilted(roll=3.1), True),
    ],
)
def test_tilt_beyond_the_limit_damps_in_one_call(
    acting: Rig, orientation: tuple[float, float, float, float], falls: bool
) -> None:
    acting.orientation = orientation
    assert is_damped(acting.call()) == falls
    assert acting.executor.mode == (Mode.FAULT if falls else Mode.ACTIVE)


@pytest.mark.parametrize("name", ["fall_roll", "fall_pitch"])
@pytest.mark.parametrize("value", [0.0, -1.0, 3.2, float("nan"), float("inf")])
def test_fall_limits_cannot_be_switched_off(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        LimitConfig(**{name: value})


@pytest.mark.parametrize("name", ["hold_after", "damp_after", "max_call_gap", "max_chunk_age"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_watchdogs_cannot_be_switched_off(name: str, value: float) -> None:
    with pytest.raises(ConfigError, match=name):
        ExecutorConfig(**{name: value})


@pytest.mark.parametrize("mode", [m for m in Mode if m != Mode.FAULT])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e30, 12.0])
@pytest.mark.parametrize("where", ["q", "dq"])
def test_broken_joint_value_latches_fault_in_the_same_call(
    mode: Mode, value: float, where: str
) -> None:
    rig = rig_in(mode)
    broken = getattr(rig, where).copy()
    broken[5] = value if where == "q" else value * 100
    setattr(rig, where, broken)
    command = rig.call()
    assert is_damped(command)
    assert np.isfinite(command.position).all()
    assert rig.executor.mode == Mode.FAULT
    assert ROBOT.joint_names[5] in rig.executor.reason


def test_caller_that_reuses_its_arrays_cannot_poison_the_command(acting: Rig) -> None:
    state = JointState(ROBOT.joint_names, acting.q.copy(), acting.dq.copy(), np.zeros(12))
    imu = ImuSample(np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
    acting.executor.step(acting.now, state, imu, acting.now)
    state.position[:] = np.nan
    command = acting.executor.step(acting.now + 2 * MS, state, imu, acting.now)
    assert acting.executor.mode == Mode.FAULT
    assert np.isfinite(command.position).all()


@pytest.mark.parametrize("orientation", [(np.nan, 0, 0, 0), (0.0, 0, 0, 0), (2.0, 0, 0, 0)])
def test_broken_orientation_latches_fault(
    acting: Rig, orientation: tuple[float, float, float, float]
) -> None:
    acting.orientation = orientation
    assert is_damped(acting.call())
    assert acting.executor.mode == Mode.FAULT


@pytest.mark.parametrize(
    "names",
    [
        ("elbow", *ROBOT.joint_names[1:]),
        (ROBOT.joint_names[1], *ROBOT.joint_names[1:]),
        ROBOT.joint_names[:11],
    ],
)
def test_foreign_joint_state_latches_fault(acting: Rig, names: tuple[str, ...]) -> None:
    state = JointState(names, acting.q[: len(names)], acting.dq[: len(names)], acting.dq)
    imu = ImuSample(np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
    assert is_damped(acting.executor.step(acting.now, state, imu, acting.now))
    assert acting.executor.mode == Mode.FAULT


def test_joint_state_of_the_wrong_length_latches_fault(acting: Rig) -> None:
    state = JointState(ROBOT.joint_names, acting.q[:11], acting.dq, acting.dq)
    imu = ImuSample(np.array([1.0, 0, 0, 0]), np.zeros(3), np.zeros(3))
    assert is_damped(acting.executor.step(acting.now, state, imu, acting.now))
    assert acting.executor.mode == Mode.FAULT


def test_joint_names_in_a_thousand_orders_take_no_more_memory_than_in_a_few(acting: Rig) -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        acting.names = tuple(np.array(ROBOT.joint_names)[draw.permutation(12)].tolist())
        acting.call()
    assert acting.executor.mode == Mode.ACTIVE
    assert len(acting.executor._columns) <= 64


def test_a_robot_that_stands_may_report_the_same_values_for_ever() -> None:
    rig = rig_in(Mode.STAND)
    state, imu = rig.state(), rig.imu()
    for _ in range(200):
        rig.now += 2 * MS
        rig.executor.step(rig.now, state, imu, rig.now)
    assert rig.executor.mode == Mode.STAND


# ------------------------------------------------------------------ refused chunks

GOOD = np.tile(ROBOT.default_pose, (15, 1))


def poisoned(value: float) -> np.ndarray:
    values = GOOD.copy()
    values[14, 11] = value
    return values


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"kind": "ee_twist"}, Refusal.KIND),
        ({"joint_names": ("elbow", *ROBOT.joint_names[1:])}, Refusal.NAMES),
        ({"joint_names": ROBOT.joint_names[:11]}, Refusal.NAMES),
        ({"joint_names": (*ROBOT.joint_names, "tail")}, Refusal.NAMES),
        ({"joint_names": (*ROBOT.joint_names[:11], ROBOT.joint_names[0])}, Refusal.NAMES),
        ({"joint_names": ()}, Refusal.NAMES),
        ({"values": GOOD[:, :11]}, Refusal.SHAPE),
        ({"values": np.zeros((15, 13))}, Refusal.SHAPE),
        ({"values": GOOD[:0]}, Refusal.SHAPE),
        ({"values": GOOD.ravel()}, Refusal.SHAPE),
        ({"values": np.zeros((5000, 12))}, Refusal.SHAPE),
        ({"values": [["a"] * 12]}, Refusal.SHAPE),
        ({"values": poisoned(np.nan)}, Refusal.NOT_FINITE),
        ({"values": poisoned(np.inf)}, Refusal.NOT_FINITE),
        ({"values": poisoned(-np.inf)}, Refusal.NOT_FINITE),
        ({"dt_ns": 0}, Refusal.STEP_LENGTH),
        ({"dt_ns": -DT}, Refusal.STEP_LENGTH),
        ({"dt_ns": 2 * DT}, Refusal.STEP_LENGTH),
        ({"contract": "other"}, Refusal.CONTRACT),
        ({"sequence": 1}, Refusal.SEQUENCE),
        ({"sequence": 0}, Refusal.SEQUENCE),
        ({"stamp_ns": 10**15}, Refusal.FUTURE),
        ({"observation_stamp_ns": 10**15}, Refusal.FUTURE),
        ({"stamp_ns": -(10**15)}, Refusal.EXPIRED),
    ],
)
def test_bad_chunk_is_refused_counted_and_never_played(
    acting: Rig, changes: dict, refusal: Refusal
) -> None:
    acting.planner = False
    before = acting.executor.status()
    wild = {"values": GOOD + 0.3, **changes}
    assert acting.executor.receive(acting.chunk(**wild), acting.now) == refusal
    after = acting.executor.status()
    assert after.chunks_accepted == before.chunks_accepted
    assert after.chunks_refused == {refusal.value: 1}
    played = acting.applied[-1].chunk_sequence
    acting.applied.clear()
    acting.run(0.06)
    assert {step.chunk_sequence for step in acting.applied} == {played}


def test_late_chunk_is_refused(acting: Rig) -> None:
    old = acting.chunk()
    acting.planner = False
    acting.executor.rearm(acting.now)
    for _ in range(100):
        acting.call()
    assert acting.executor.receive(old, acting.now) == Refusal.STALE


def test_duplicate_chunk_is_refused(acting: Rig) -> None:
    chunk = acting.chunk()
    assert acting.executor.receive(chunk, acting.now) is None
    assert acting.executor.receive(chunk, acting.now) == Refusal.SEQUENCE


def test_chunk_that_answers_an_older_observation_is_refused(acting: Rig) -> None:
    acting.executor.receive(acting.chunk(), acting.now)
    late = acting.chunk(observation_stamp_ns=acting.now - DT)
    assert acting.executor.receive(late, acting.now) == Refusal.SEQUENCE


def test_expected_contract_is_enforced_from_the_first_chunk() -> None:
    rig = Rig(contract="mine")
    rig.call()
    assert rig.executor.receive(rig.chunk(contract="theirs"), rig.now) == Refusal.CONTRACT
    assert rig.executor.receive(rig.chunk(contract="mine"), rig.now) is None


def test_restarted_planner_is_heard_again_only_after_its_predecessor_is_too_old() -> None:
    rig = Rig()
    rig.planner = False
    rig.call()
    rig.sequence = 900
    assert rig.executor.receive(rig.chunk(), rig.now) is None
    rig.sequence = 0
    rig.now += 100 * MS
    assert rig.executor.receive(rig.chunk(), rig.now) == Refusal.SEQUENCE
    rig.now += 100 * MS
    assert rig.executor.receive(rig.chunk(), rig.now) is None


@given(order=st.permutations(range(12)), state_order=st.permutations(range(12)))
@settings(max_examples=10, deadline=None)
def test_permuted_joint_names_give_the_identical_command(
    order: list[int], state_order: list[int]
) -> None:
    commands = []
    for permute in (False, True):
        rig = Rig()
        rig.planner = False
        if permute:
            rig.names = tuple(ROBOT.joint_names[i] for i in state_order)
        # Activation needs no standing up here: the legs are in the stand pose already.
        rig.q = ROBOT.stand_pose + np.linspace(-0.02, 0.02, 12)
        rig.call()
        rig.executor.request_mode(Mode.STAND_UP, rig.now)
        rig.executor.request_mode(Mode.ACTIVE, rig.now)
        for i in range(220):
            if i % 20 == 0:
                values = GOOD + np.linspace(-0.2, 0.3, 12)
                names = ROBOT.joint_names
                if permute:
                    values, names = values[:, order], tuple(names[i] for i in order)
                rig.executor.receive(rig.chunk(values=values, joint_names=names), rig.now)
            rig.call()
        assert rig.executor.mode == Mode.ACTIVE
        commands.append(rig.commands)
    for (_, a), (_, b) in zip(*commands, strict=True):
        np.testing.assert_array_equal(a.position, b.position)


# ------------------------------------------------------------------ time


def test_chunk_takes_effect_only_at_the_next_boundary(acting: Rig) -> None:
    acting.run(0.3)
    acting.planner = False
    acting.now = acting.executor.next_boundary(acting.now)
    acting.executor.receive(acting.chunk(), acting.now)
    acting.call()
    before = acting.commands[-1][1].position
    acting.executor.receive(acting.chunk(values=GOOD - 0.1), acting.now)
    for _ in range(9):
        np.testing.assert_allclose(acting.call().position, before)
    assert np.abs(acting.call().position - before).max() > 0.1


def test_new_chunk_waits_for_its_first_row(acting: Rig) -> None:
    acting.planner = False
    boundary = acting.executor.next_boundary(acting.now)
    acting.now = boundary
    acting.executor.receive(acting.chunk(), acting.now)
    old = acting.sequence
    acting.executor.receive(acting.chunk(stamp_ns=boundary + 2 * DT), acting.now)
    acting.applied.clear()
    acting.run(0.08)
    assert [(s.chunk_sequence, s.chunk_row) for s in acting.applied] == [
        (old, 0),
        (old, 1),
        (old + 1, 0),
        (old + 1, 1),
    ]


def test_rows_are_played_by_time_not_by_count(acting: Rig) -> None:
    acting.planner = False
    acting.now = acting.executor.next_boundary(acting.now)
    acting.executor.receive(acting.chunk(stamp_ns=acting.now - 4 * DT), acting.now)
    acting.applied.clear()
    acting.run(0.06)
    assert [s.chunk_row for s in acting.applied] == [4, 5, 6]


def test_missed_control_steps_show_as_a_gap_in_the_sequence(acting: Rig) -> None:
    acting.call(advance=45 * MS)
    acting.run(0.1)
    steps = np.diff([s.sequence for s in acting.applied])
    stamps = np.diff([s.stamp_ns for s in acting.applied])
    np.testing.assert_array_equal(stamps, steps * DT)
    assert steps.max() > 1
    assert acting.executor.status().missed_steps == steps.max() - 1


def test_applied_steps_tell_what_was_played(acting: Rig) -> None:
    acting.planner = False
    acting.now = acting.executor.next_boundary(acting.now)
    acting.executor.receive(acting.chunk(values=GOOD + 5.0), acting.now)
    acting.applied.clear()
    acting.run(0.02)
    step = acting.applied[0]
    np.testing.assert_allclose(ROBOT.target(step.action), step.position_target)
    assert (step.position_target <= ROBOT.position_upper).all()
    # The wish is far off: what is reported is what the limits left of it.
    assert np.abs(step.position_target - (ROBOT.default_pose + 5.0)).min() > 1.0


# ------------------------------------------------------------------ whatever comes

finite = st.floats(-1e308, 1e308)
anything = st.one_of(finite, st.just(float("nan")), st.just(float("inf")), st.just(-float("inf")))
small = st.floats(-1.5, 1.5)

event = st.one_of(
    st.tuples(st.just("wait"), st.integers(1, 30)),
    st.tuples(st.just("jump"), st.integers(-200, 2000)),
    st.tuples(st.just("mode"), st.sampled_from(list(Mode))),
    st.tuples(st.just("rearm"), st.none()),
    st.tuples(
        st.just("chunk"),
        st.tuples(
            st.integers(-300, 300),
            st.integers(-300, 100),
            st.integers(0, 50),
            st.lists(st.one_of(small, anything), min_size=1, max_size=4),
            st.sampled_from([11, 12, 12, 12, 13]),
        ),
    ),
    st.tuples(st.just("joints"), st.tuples(st.one_of(small, anything), st.one_of(small, anything))),
    st.tuples(st.just("tilt"), small),
    st.tuples(st.just("sensors"), st.booleans()),
)


@given(
    start=st.sampled_from([Mode.DAMP, Mode.STAND_UP, Mode.STAND, Mode.ACTIVE]),
    events=st.lists(event, max_size=25),
)
@settings(max_examples=40, deadline=None)
def test_no_command_ever_leaves_the_limits(start: Mode, events: list) -> None:
    rig = rig_in(start)
    for kind, value in events:
        if kind == "wait":
            for _ in range(value):
                checked_call(rig)
        elif kind == "jump":
            rig.now += value * MS
        elif kind == "mode":
            rig.executor.request_mode(value, rig.now)
        elif kind == "rearm":
            rig.executor.rearm(rig.now)
        elif kind == "chunk":
            stamp, observed, sequence, row, width = value
            values = np.resize(np.array(row), (15, width))
            rig.executor.receive(
                ActionChunk(
                    rig.now + stamp * MS,
                    rig.now + observed * MS,
                    sequence,
                    ROBOT.joint_names,
                    "joint_position",
                    DT,
                    values,
                    1,
                    "c",
                ),
                rig.now,
            )
        elif kind == "joints":
            rig.q = ROBOT.stand_pose + value[0]
            rig.dq = np.full(12, value[1])
        elif kind == "tilt":
            rig.orientation = tilted(roll=value)
        elif kind == "sensors":
            rig.sensors = value
        checked_call(rig)
    stamps = [(s.sequence, s.stamp_ns) for s in rig.applied]
    assert len(stamps) == len({sequence for sequence, _ in stamps})


def checked_call(rig: Rig) -> None:
    """One call whose command must be finite, within every limit, and near the one before."""
    before = rig.commands[-1][1].position
    q, dq = rig.q.copy(), rig.dq.copy()
    holds = rig.executor.status().holds
    with np.errstate(all="ignore"):
        command = rig.call()
    for values in (command.position, command.velocity, command.kp, command.kd, command.effort):
        assert values.shape == (12,)
        assert np.isfinite(values).all()
    assert (command.position >= ROBOT.position_lower - 1e-12).all()
    assert (command.position <= ROBOT.position_upper + 1e-12).all()
    step = ROBOT.velocity_limit * ROBOT.control_dt
    assert (np.abs(command.position - before) <= step + 1e-12).all()
    assert (command.kp >= 0).all()
    assert (command.kd >= 0).all()
    plausible = (np.abs(q) < 3).all() and (np.abs(dq) < 200).all()
    if plausible and rig.executor.status().holds == holds:
        torque = command.kp * (command.position - q) - command.kd * dq
        assert (np.abs(torque) <= ROBOT.torque_limit + 1e-9).all()
    status = rig.executor.status()
    if status.mode in (Mode.DAMP, Mode.FAULT) and status.reason != "requested":
        assert command.kp.max() == 0 or "lies" in status.reason
    for applied in rig.applied[-1:]:
        assert np.isfinite(applied.action).all()
