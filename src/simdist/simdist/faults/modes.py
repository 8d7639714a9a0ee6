"""Modes: what may follow what, how it is entered, and what latches."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
from numpy.random import Generator

from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.rig import DT, MS, Rig, is_damped, rig_in
from simdist.safety import ExecutorConfig
from simdist.types import Mode

FAMILY = Family("mode")

_STIFF = (Mode.STAND_UP, Mode.STAND, Mode.ACTIVE, Mode.LIE_DOWN)
_RAMPED = [
    (Mode.DAMP, Mode.STAND_UP),
    (Mode.STAND_UP, Mode.LIE_DOWN),
    (Mode.STAND, Mode.LIE_DOWN),
    (Mode.STAND, Mode.ACTIVE),
    (Mode.ACTIVE, Mode.STAND),
    (Mode.ACTIVE, Mode.LIE_DOWN),
]


def _ramped(mode: Mode, asked: Mode, rng: Generator) -> Measurement:
    """Largest change of a target between two control steps, over the whole transition."""
    config = ExecutorConfig()
    rig = Rig(config)
    rig.q = rig.robot.lie_pose.copy()
    rig.bring_to(mode)
    # Standing up begins with half a second of folding the legs.
    rig.run(float(rng.uniform(0.7, 1.0) if mode == Mode.STAND_UP else rng.uniform(0.002, 0.04)))
    start = len(rig.commands)
    granted, message = rig.executor.request_mode(asked, rig.now)
    rig.run(2.0)
    positions = np.array([command.position for _, command in rig.commands[start - 1 :]])
    stiffness = np.array([command.kp for _, command in rig.commands[start - 1 :]])
    gain_step = np.abs(np.diff(stiffness, axis=0)).max()
    return (
        at_most(np.abs(np.diff(positions, axis=0)).max(), config.max_ramp_speed * 0.02, "rad")
        .unless(not granted, message)
        .unless(gain_step > 1.0, f"stiffness jumps by {gain_step:.2g} Nm/rad in one call")
        .unless(rig.overshoot > 0, "beyond a limit")
    )


for _mode, _asked in _RAMPED:
    FAMILY.add(
        f"{_mode.name} to {_asked.name}",
        "a ramp: targets move at most 0.08 rad per control step, gains gradually",
        functools.partial(_ramped, _mode, _asked),
    )


def _fades(mode: Mode, rng: Generator) -> Measurement:
    rig = rig_in(mode)
    rig.run(float(rng.uniform(0.002, 0.05)))
    granted, message = rig.executor.request_mode(Mode.DAMP, rig.now)
    asked, stiffness = rig.now, [rig.commands[-1][1].kp.max()]
    while stiffness[-1] > 0 and rig.now - asked < 500 * MS:
        stiffness.append(rig.call().kp.max())
    faded = rig.commands[-1][0]
    rises = any(b > a + 1e-9 for a, b in itertools.pairwise(stiffness))
    return (
        at_most((faded - asked) / MS, 50, "ms")
        .unless(not granted, message)
        .unless(rises or len(stiffness) < 5, "stiffness does not fade")
    )


for _mode in _STIFF:
    FAMILY.add(
        f"{_mode.name} to DAMP on request",
        "stiffness fades to nothing within 50 ms",
        functools.partial(_fades, _mode),
    )


def _latched(mode: Mode, rng: Generator) -> Measurement:
    """Requests, chunks and good sensors for a second after a fault."""
    rig = rig_in(mode)
    rig.dq = rig.dq.copy()
    rig.dq[rng.integers(12)] = np.nan
    rig.call()
    rig.dq = np.zeros(12)
    reason, left = rig.executor.reason, 0
    for _ in range(500):
        asked = Mode(int(rng.integers(0, 6)))
        left += rng.random() < 0.2 and rig.executor.request_mode(asked, rig.now)[0]
        left += not is_damped(rig.call()) or rig.executor.mode != Mode.FAULT
    changes = [c for c in rig.executor.take_mode_changes() if c.mode == Mode.FAULT]
    told = len(changes) == 1 and changes[0].reason == reason and "not finite" in reason
    rearmed = rig.executor.rearm(rig.now)[0] and rig.executor.mode == Mode.DAMP
    return (
        exactly(left, 0, "times left")
        .unless(rig.executor.mode == Mode.FAULT or not rearmed, "re-arming does not lead to DAMP")
        .unless(not told, f"told: {[c.reason for c in changes]}")
    )


for _mode in (Mode.DAMP, *_STIFF):
    FAMILY.add(
        f"a fault in {_mode.name}",
        "FAULT latches with its first reason until the robot is re-armed",
        functools.partial(_latched, _mode),
    )


@FAMILY.fault("every request in every mode", "granted or refused with a reason; no other mode")
def _requests(rng: Generator) -> Measurement:
    """A granted request leads to the mode asked for (ACTIVE to a wish), a refused one nowhere."""
    wrong = 0
    for mode, asked in itertools.product(Mode, Mode):
        rig = rig_in(mode)
        granted, message = rig.executor.request_mode(asked, rig.now)
        after = rig.executor.mode
        if not granted:
            good = after == mode and asked.name in message and mode.name in message
        elif asked == Mode.ACTIVE and mode != Mode.ACTIVE:
            good = after == mode and rig.executor.status().waiting_for_chunk
        else:
            good = after == asked
        wrong += not good
    return exactly(wrong, 0, "of 36 wrong")


@FAMILY.fault("a storm of requests", "commands within every limit, whatever is asked and when")
def _storm(rng: Generator) -> Measurement:
    rig = Rig()
    visited = set()
    for _ in range(3000):
        if rng.random() < 0.02:
            rig.executor.request_mode(Mode(int(rng.choice([0, 1, 1, 2, 3, 3, 4]))), rig.now)
        if rng.random() < 0.001:
            rig.executor.request_mode(Mode.FAULT, rig.now)
        if rng.random() < 0.01:
            rig.executor.rearm(rig.now)
        rig.call()
        visited.add(rig.executor.mode)
    return exactly(rig.overshoot, 0, "rad beyond a limit").unless(
        len(visited) < 4, f"only {len(visited)} modes were seen"
    )


@FAMILY.fault("a request for what is no mode", "refused, with the list of modes")
def _no_mode(rng: Generator) -> Measurement:
    rig = rig_in(Mode.STAND)
    taken = 0
    asked: list[Any] = [6, 255, -1, 2**40, int(rng.integers(6, 256)), 2.5, float("nan"), "ACTIVE"]
    for mode in asked:
        granted, message = rig.executor.request_mode(mode, rig.now)
        taken += granted or "allowed" not in message
    return exactly(taken, 0, f"of {len(asked)} granted").unless(
        rig.executor.mode != Mode.STAND, f"in {rig.executor.mode.name}"
    )


@FAMILY.fault("re-arming while the robot moves", "refused in every stiff mode")
def _rearm_moving(rng: Generator) -> Measurement:
    granted = 0
    for mode in _STIFF:
        rig = rig_in(mode)
        granted += rig.executor.rearm(rig.now)[0] or rig.executor.mode != mode
    return exactly(granted, 0, "granted")


@FAMILY.fault("STAND_UP after a protective stop", "refused until re-armed, then granted")
def _stand_up_disarmed(rng: Generator) -> Measurement:
    rig = rig_in(Mode.ACTIVE)
    rig.now += int(rng.integers(51, 500)) * MS
    rig.call()
    wrong = 0
    for _ in range(20):
        granted, message = rig.executor.request_mode(Mode.STAND_UP, rig.now)
        wrong += granted or "re-arm" not in message
        wrong += not is_damped(rig.call())
    rig.executor.rearm(rig.now)
    wrong += not rig.executor.request_mode(Mode.STAND_UP, rig.now)[0]
    return exactly(wrong, 0, "wrong answers")


@FAMILY.fault("STAND_UP before the first state", "refused, with the reason")
def _stand_up_blind(rng: Generator) -> Measurement:
    rig = Rig()
    granted, message = rig.executor.request_mode(Mode.STAND_UP, rig.now)
    return exactly(granted, 0, "granted").unless("no state" not in message, message)


@FAMILY.fault("ACTIVE without a planner", "the robot stands, for ever")
def _active_alone(rng: Generator) -> Measurement:
    rig = rig_in(Mode.STAND)
    rig.planner = False
    rig.run(0.2)
    rig.executor.request_mode(Mode.ACTIVE, rig.now)
    acted = 0
    for _ in range(1000):
        rig.call()
        acted += rig.executor.mode != Mode.STAND
    moved = max(np.abs(c.position - rig.robot.stand_pose).max() for _, c in rig.commands[-900:])
    return exactly(acted, 0, "calls in another mode").unless(moved > 1e-3, f"moved {moved:.3g} rad")


@FAMILY.fault("a mode asked for between two boundaries", "begins at the next control step")
def _boundary(rng: Generator) -> Measurement:
    rig = rig_in(Mode.ACTIVE)
    rig.run(0.02 + 0.002 * int(rng.integers(1, 9)))
    boundary = rig.executor.next_boundary(rig.now)
    rig.executor.request_mode(Mode.STAND, rig.now)
    rig.applied.clear()
    rig.run(0.1)
    first = next(step.stamp_ns for step in rig.applied if step.mode == Mode.STAND)
    gaps = np.diff([step.stamp_ns for step in rig.applied])
    return exactly((first - boundary) / MS, 0, "ms off").unless(
        bool((gaps != DT).any()), "control steps off the grid"
    )
