"""Chunks that must never be played, and chunks that ask for more than a joint may do."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.rig import DT, MS, Rig
from simdist.faults.state import walking
from simdist.safety import Refusal
from simdist.types import ActionChunk, Mode

FAMILY = Family("chunk")

_CALLS = 200
_REFUSED = "refused and counted, never played, and the good ones go on"

Spoil = Callable[[Rig, Generator], dict]


def _refused(spoil: Spoil, refusal: Refusal, rng: Generator) -> Measurement:
    """Bad chunks among the good ones of a walk; how many of the bad ones came through."""
    rig = walking(rng)
    bad: set[int] = set()
    through = 0
    expected = dict(rig.executor.status().chunks_refused)
    wild = rig.robot.default_pose + rng.normal(0, 0.5, (15, 12))
    for i in range(_CALLS):
        if i % 20 == 10 + int(rng.integers(-5, 5)):
            # A number of its own, so that it can be told in what was applied.
            number = 10**6 + i
            bad.add(number)
            changes = {"sequence": number, "values": wild, **spoil(rig, rng)}
            chunk = dataclasses.replace(rig.chunk(), **changes)
            rig.sequence -= 1
            verdict = rig.executor.receive(chunk, rig.now)
            through += verdict is None
            if verdict is not None:
                expected[verdict.value] = expected.get(verdict.value, 0) + 1
                through += verdict != refusal
        rig.call()
    through += sum(step.chunk_sequence in bad for step in rig.applied)
    return _verdict(exactly(through, 0, "came through"), rig, expected)


def _verdict(measured: Measurement, rig: Rig, expected: dict[str, int]) -> Measurement:
    status = rig.executor.status()
    return (
        measured.unless(status.chunks_refused != expected, f"counted {status.chunks_refused}")
        .unless(status.mode != Mode.ACTIVE, f"ended in {status.mode.name}: {status.reason}")
        .unless(rig.overshoot > 0, f"{rig.overshoot:.3g} rad beyond a limit")
    )


def _values(change: Callable[[np.ndarray, Generator], object]) -> Spoil:
    return lambda rig, rng: {"values": change(np.tile(rig.robot.default_pose, (15, 1)), rng)}


def _with(value: float) -> Callable[[np.ndarray, Generator], np.ndarray]:
    def poison(values: np.ndarray, rng: Generator) -> np.ndarray:
        values[rng.integers(len(values)), rng.integers(12)] = value
        return values

    return poison


def _names(change: Callable[[list[str], Generator], list[str]]) -> Spoil:
    return lambda rig, rng: {"joint_names": tuple(change(list(rig.robot.joint_names), rng))}


def _foreign(names: list[str], rng: Generator) -> list[str]:
    names[rng.integers(12)] = "elbow"
    return names


_S = Refusal
for _name, _refusal, _spoil in [
    ("NaN in it", _S.NOT_FINITE, _values(_with(np.nan))),
    ("Inf in it", _S.NOT_FINITE, _values(_with(np.inf))),
    ("-Inf in it", _S.NOT_FINITE, _values(_with(-np.inf))),
    ("all NaN", _S.NOT_FINITE, _values(lambda v, rng: np.full_like(v, np.nan))),
    ("a column too few", _S.SHAPE, _values(lambda v, rng: v[:, :11])),
    ("a column too many", _S.SHAPE, _values(lambda v, rng: np.zeros((15, 13)))),
    ("no rows", _S.SHAPE, _values(lambda v, rng: v[:0])),
    ("5,000 rows", _S.SHAPE, _values(lambda v, rng: np.zeros((5000, 12)))),
    ("numbers in a line", _S.SHAPE, _values(lambda v, rng: v.ravel())),
    ("rows of unequal length", _S.SHAPE, _values(lambda v, rng: [[0.0] * 12, [0.0] * 11])),
    ("text", _S.SHAPE, _values(lambda v, rng: [["a"] * 12])),
    ("a number too large for a float", _S.SHAPE, _values(lambda v, rng: [[10**400] * 12])),
    ("a foreign joint", _S.NAMES, _names(_foreign)),
    ("a joint missing", _S.NAMES, _names(lambda n, rng: n[:11])),
    ("a joint twice", _S.NAMES, _names(lambda n, rng: [*n[:11], n[0]])),
    ("a joint too many", _S.NAMES, _names(lambda n, rng: [*n, "tail"])),
    ("no joint names", _S.NAMES, lambda rig, rng: {"joint_names": ()}),
    ("of another kind", _S.KIND, lambda rig, rng: {"kind": "ee_twist"}),
    ("of another contract", _S.CONTRACT, lambda rig, rng: {"contract": "another"}),
    ("steps of no length", _S.STEP_LENGTH, lambda rig, rng: {"dt_ns": 0}),
    ("steps backwards", _S.STEP_LENGTH, lambda rig, rng: {"dt_ns": -DT}),
    ("steps of twice the length", _S.STEP_LENGTH, lambda rig, rng: {"dt_ns": 2 * DT}),
    (
        "of an observation to come",
        _S.FUTURE,
        lambda rig, rng: {"observation_stamp_ns": rig.now + int(rng.integers(3, 10**7)) * MS},
    ),
    (
        "to begin far ahead",
        _S.FUTURE,
        lambda rig, rng: {"stamp_ns": rig.now + int(rng.integers(101, 10**7)) * MS},
    ),
    (
        "over already",
        _S.EXPIRED,
        lambda rig, rng: {"stamp_ns": rig.now - 15 * DT - int(rng.integers(0, 10**7)) * MS},
    ),
    (
        "late: answers an older observation than the last",
        _S.SEQUENCE,
        lambda rig, rng: {"observation_stamp_ns": rig.now - int(rng.integers(41, 10**6)) * MS},
    ),
    (
        "numbered lower than the last",
        _S.SEQUENCE,
        lambda rig, rng: {"sequence": int(rng.integers(0, rig.sequence + 1))},
    ),
]:
    FAMILY.add(_name, _REFUSED, functools.partial(_refused, _spoil, _refusal))


@FAMILY.fault("of another contract, as the first of all", _REFUSED)
def _first_foreign(rng: Generator) -> Measurement:
    rig = Rig(contract="mine")
    rig.run(0.01)
    taken = 0
    for _ in range(10):
        taken += rig.executor.receive(rig.chunk(contract="theirs"), rig.now) != Refusal.CONTRACT
    taken += rig.executor.receive(rig.chunk(contract="mine"), rig.now) is not None
    return exactly(taken, 0, "wrong verdicts")


@FAMILY.fault("delivered twice", "the second is refused, and each row is played once")
def _twice(rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.planner = False
    taken = 0
    rig.applied.clear()
    for i in range(_CALLS):
        if i % 20 == 0:
            chunk = rig.chunk()
            rig.executor.receive(chunk, rig.now)
            for _ in range(int(rng.integers(1, 4))):
                taken += rig.executor.receive(chunk, rig.now) != Refusal.SEQUENCE
        rig.call()
    steps = [(step.chunk_sequence, step.chunk_row) for step in rig.applied]
    return exactly(taken, 0, "taken again").unless(
        len(steps) != len(set(steps)) or rig.executor.mode != Mode.ACTIVE, "a row played twice"
    )


@FAMILY.fault("overtaking each other on the way", "what is played never goes back to an older one")
def _out_of_order(rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.planner = False
    under_way: list[tuple[int, ActionChunk]] = []
    rig.applied.clear()
    for i in range(500):
        if i % 10 == 0:
            under_way.append((rig.now + int(rng.integers(0, 60)) * MS, rig.chunk()))
        for item in [item for item in under_way if item[0] <= rig.now]:
            under_way.remove(item)
            rig.executor.receive(item[1], rig.now)
        rig.call()
    played = np.array([s.chunk_sequence for s in rig.applied if s.mode == Mode.ACTIVE])
    back = int((np.diff(played) < 0).sum())
    return exactly(back, 0, "steps back").unless(
        rig.executor.mode != Mode.ACTIVE, f"damped: {rig.executor.reason}"
    )


@FAMILY.fault("columns in another order", "the identical command, joint by joint")
def _permuted(rng: Generator) -> Measurement:
    start = walking(rng)
    values = start.robot.default_pose + rng.normal(0, 0.2, (15, 12))
    order = rng.permutation(12)
    names = tuple(np.array(start.robot.joint_names)[order].tolist())
    commands = []
    for changes in ({}, {"values": values[:, order], "joint_names": names}):
        rig = walking(np.random.default_rng(1))
        rig.executor.receive(rig.chunk(**{"values": values, **changes}), rig.now)
        commands.append([rig.call().position for _ in range(19)])
    worst = np.abs(np.array(commands[0]) - commands[1]).max()
    return exactly(worst, 0, "rad of difference")


# --- more than a joint may do ---------------------------------------------------------------------


def _pushed(
    wish: Callable[[Rig, Generator], np.ndarray],
    measure: Callable[[Rig], float],
    rng: Generator,
    speed: float = 0.0,
) -> Measurement:
    """A walk whose plans ask for ``wish``; the worst of ``measure`` over all calls, in percent of
    what is allowed."""
    rig = walking(rng)
    rig.planner = False
    worst = 0.0
    for i in range(_CALLS):
        if i % 20 == 0:
            rig.executor.receive(rig.chunk(values=wish(rig, rng)), rig.now)
        # Whatever the joints are made to do meanwhile.
        rig.dq = rng.uniform(-speed, speed, 12)
        with np.errstate(over="ignore"):
            rig.call()
        worst = max(worst, measure(rig))
    return at_most(100 * worst, 100 + 1e-6, "% of the limit").unless(
        rig.overshoot > 0 or rig.executor.mode != Mode.ACTIVE, rig.executor.reason
    )


def _noise(scale: float) -> Callable[[Rig, Generator], np.ndarray]:
    return lambda rig, rng: rig.robot.default_pose + scale * rng.normal(size=(15, 12))


def _extreme(rig: Rig, rng: Generator) -> np.ndarray:
    return rng.choice([-1e308, 1e308, 0.0], size=(15, 12))


def _of_range(rig: Rig) -> float:
    robot, position = rig.robot, rig.commands[-1][1].position
    centre = (robot.position_lower + robot.position_upper) / 2
    return float((np.abs(position - centre) / (robot.position_upper - centre)).max())


def _of_step(rig: Rig) -> float:
    targets = [step.position_target for step in rig.applied[-2:]]
    allowed = rig.robot.velocity_limit * rig.robot.control_dt
    return float((np.abs(targets[-1] - targets[0]) / allowed).max())


def _of_call(rig: Rig) -> float:
    before, after = rig.commands[-2][1].position, rig.commands[-1][1].position
    return float((np.abs(after - before) / (rig.robot.velocity_limit * rig.robot.control_dt)).max())


def _of_torque(rig: Rig) -> float:
    command = rig.commands[-1][1]
    torque = command.kp * (command.position - rig.sent.position) - command.kd * rig.sent.velocity
    return float((np.abs(torque) / rig.robot.torque_limit).max())


_P = functools.partial
for _name, _promise, _inject in [
    ("targets beyond the joints' range", "commands within it", _P(_pushed, _noise(3.0), _of_range)),
    ("targets of 1e308 rad", "commands within the joints' range", _P(_pushed, _extreme, _of_range)),
    (
        "targets that jump",
        "a step changes the target by no more than the velocity limit allows",
        _P(_pushed, _noise(1.5), _of_step),
    ),
    (
        "targets of 1e308 rad that jump",
        "commands change by no more than the velocity limit allows in a step",
        _P(_pushed, _extreme, _of_call),
    ),
    (
        "targets far from where the joints are",
        "torque within its limit in every call",
        _P(_pushed, _noise(1.5), _of_torque),
    ),
    (
        "targets that jump while the joints are thrown about",
        "torque within its limit in every call",
        _P(_pushed, _noise(1.5), _of_torque, speed=60.0),
    ),
]:
    FAMILY.add(_name, _promise, _inject)


@FAMILY.fault("targets that the limits cut", "what is recorded is what was played, not the wish")
def _applied(rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.planner = False
    worst = 0.0
    for i in range(_CALLS):
        if i % 20 == 0:
            rig.executor.receive(rig.chunk(values=_noise(0.8)(rig, rng)), rig.now)
        before = len(rig.applied)
        rig.call()
        for step in rig.applied[before:]:
            target = rig.robot.default_pose + rig.robot.action_scale * step.action
            command = rig.commands[-1][1]
            free = command.kp * np.abs(step.position_target - rig.sent.position)
            # Where the motor's own limit does not cut it in this call, the command is the target.
            same = free < 0.99 * rig.robot.torque_limit
            worst = max(worst, float(np.abs(command.position - target)[same].max(initial=0.0)))
    return at_most(worst, 1e-9, "rad between played and recorded")
