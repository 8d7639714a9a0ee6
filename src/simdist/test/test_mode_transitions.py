"""Every transition of the modes, granted or refused, and that every exit is a ramp."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from executor_rig import DT, MS, QUICK, Rig, is_damped, tilted

from simdist.safety import ExecutorConfig, ModeMachine
from simdist.types import Mode

D, U, S, A, L, F = Mode.DAMP, Mode.STAND_UP, Mode.STAND, Mode.ACTIVE, Mode.LIE_DOWN, Mode.FAULT
NO = None

# Rows: the mode it is in. Columns: the mode that is asked for. Entries: the mode it is in
# afterwards, or NO for a refusal. ACTIVE is granted as a wish: the mode follows the first chunk.
#        D  U   S   A   L   F
TABLE = {
    D: (D, U, NO, NO, NO, F),
    U: (D, U, NO, U, L, F),
    S: (D, NO, S, S, L, F),
    A: (D, NO, S, A, L, F),
    L: (D, NO, NO, NO, L, F),
    F: (NO, NO, NO, NO, NO, NO),
}
CASES = [(a, b, after) for a, row in TABLE.items() for b, after in zip(Mode, row, strict=True)]


def machine_in(mode: Mode) -> ModeMachine:
    machine = ModeMachine()
    if mode == F:
        machine.fault("broken", 0)
    elif mode != D:
        machine.request(U, 0)
        if mode != U:
            machine.complete(S, "stands", 0)
        if mode == A:
            machine.complete(A, "chunk", 0)
        elif mode == L:
            machine.request(L, 0)
    assert machine.mode == mode
    return machine


@pytest.mark.parametrize(("mode", "asked", "after"), CASES)
def test_request_follows_the_table(mode: Mode, asked: Mode, after: Mode | None) -> None:
    machine = machine_in(mode)
    granted, message = machine.request(asked, 1)
    assert granted == (after is not None)
    assert machine.mode == (mode if after is None else after)
    assert message
    if not granted:
        assert asked.name in message
        assert mode.name in message


@pytest.mark.parametrize("mode", Mode)
def test_protective_stop_damps_and_disarms_from_every_mode(mode: Mode) -> None:
    machine = machine_in(mode)
    machine.stop("planner silent", 1)
    assert machine.mode == (F if mode == F else D)
    assert not machine.armed
    granted, message = machine.request(U, 2)
    assert not granted
    assert "re-arm" in message
    assert machine.rearm(3)[0]
    assert machine.request(U, 4)[0]


@pytest.mark.parametrize("mode", Mode)
def test_fault_latches_with_its_first_reason(mode: Mode) -> None:
    machine = machine_in(mode)
    machine.fault("roll", 1)
    first = machine.reason
    machine.fault("something else", 2)
    machine.stop("silence", 3)
    for asked in Mode:
        assert not machine.request(asked, 4)[0]
    assert (machine.mode, machine.reason) == (F, first)
    assert machine.rearm(5)[0]
    assert machine.mode == D


@pytest.mark.parametrize("mode", [U, S, A, L])
def test_rearm_is_refused_while_moving_by_command(mode: Mode) -> None:
    machine = machine_in(mode)
    assert not machine.rearm(1)[0]
    assert machine.mode == mode


@pytest.mark.parametrize("mode", [U, S, A, L])
def test_requested_damp_fades_within_50_ms(mode: Mode) -> None:
    rig = Rig()
    rig.bring_to(mode)
    stiff = rig.commands[-1][1].kp.max()
    rig.executor.request_mode(D, rig.now)
    fading = [rig.call() for _ in range(25)]
    stiffness = [c.kp.max() for c in fading]
    assert 0 < stiffness[2] < stiff
    assert all(b <= a + 1e-9 for a, b in itertools.pairwise(stiffness))
    assert is_damped(fading[-1])


@pytest.mark.parametrize(("mode", "asked"), [(U, L), (S, L), (A, L), (A, S), (S, A), (D, U)])
def test_every_other_exit_moves_targets_and_gains_gradually(mode: Mode, asked: Mode) -> None:
    rig = Rig(ExecutorConfig())
    rig.q = rig.robot.lie_pose.copy()
    rig.bring_to(mode)
    before = len(rig.commands)
    assert rig.executor.request_mode(asked, rig.now)[0]
    rig.run(0.7)
    positions = np.array([c.position for _, c in rig.commands[before - 1 :]])
    stiffness = np.array([c.kp for _, c in rig.commands[before - 1 :]])
    # The fastest ramp is 4 rad/s, held for control steps of 20 ms.
    assert np.abs(np.diff(positions, axis=0)).max() <= 4.0 * 0.02 + 1e-9
    assert np.abs(np.diff(stiffness, axis=0)).max() <= 1.0


def test_lying_down_ends_damped_and_armed() -> None:
    rig = Rig()
    rig.bring_to(A)
    rig.executor.request_mode(L, rig.now)
    command = rig.run(3.0)
    assert rig.executor.mode == D
    assert rig.executor.armed
    assert is_damped(command)
    assert np.abs(rig.q - rig.robot.lie_pose).max() < 0.05
    assert rig.executor.request_mode(U, rig.now)[0]


def test_launch_may_ask_for_standing_and_acting_at_once() -> None:
    rig = Rig()
    rig.planner = False
    rig.call()
    assert rig.executor.request_mode(U, rig.now)[0]
    assert rig.executor.request_mode(A, rig.now)[0]
    rig.run(0.6)
    assert rig.executor.mode == S
    assert rig.executor.status().waiting_for_chunk
    rig.planner = True
    rig.run(0.1)
    assert rig.executor.mode == A
    modes = [change.mode for change in rig.executor.take_mode_changes()]
    assert modes == [U, S, A]


def test_waiting_for_a_chunk_ends_in_stand() -> None:
    rig = Rig(ExecutorConfig(**QUICK, activation_timeout=0.5))
    rig.planner = False
    rig.bring_to(S)
    rig.executor.request_mode(A, rig.now)
    rig.run(0.6)
    rig.planner = True
    rig.run(0.2)
    assert rig.executor.mode == S
    assert "no fresh chunk" in rig.executor.reason


def test_standing_up_is_refused_on_its_side_and_without_state() -> None:
    rig = Rig()
    granted, message = rig.executor.request_mode(U, rig.now)
    assert not granted
    assert "no state" in message
    rig.orientation = tilted(roll=1.5)
    rig.call()
    granted, message = rig.executor.request_mode(U, rig.now)
    assert not granted
    assert "upright" in message


def test_standing_up_that_does_not_succeed_damps() -> None:
    rig = Rig(ExecutorConfig(**QUICK, stand_timeout=0.1))
    rig.bring_to(U)
    for _ in range(400):
        rig.q = rig.robot.lie_pose.copy()
        rig.call()
    assert rig.executor.mode == D
    assert "stand pose" in rig.executor.reason
    assert not rig.executor.armed


def test_modes_change_on_control_step_boundaries_only_damping_at_once() -> None:
    rig = Rig()
    rig.bring_to(A)
    while (rig.executor.next_boundary(rig.now) - rig.now) != DT - 4 * MS:
        rig.call()
    rig.executor.request_mode(S, rig.now)
    held = rig.commands[-1][1].kp
    for _ in range(8):
        np.testing.assert_array_equal(rig.call().kp, held)
    assert rig.applied[-1].mode == A
    rig.run(0.02)
    assert rig.applied[-1].mode == S
