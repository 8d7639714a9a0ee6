"""What the robot reports about itself: late, frozen, broken, foreign, out of order."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable

import numpy as np
from numpy.random import Generator

from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.rig import DT, MS, Rig, is_damped, rig_in
from simdist.types import ImuSample, JointState, Mode

FAMILY = Family("robot state")

_STIFF = (Mode.STAND_UP, Mode.STAND, Mode.ACTIVE, Mode.LIE_DOWN)
_CALL_MS = 2.0


def walking(rng: Generator) -> Rig:
    """A walking robot at a random moment of its control step and plan."""
    rig = rig_in(Mode.ACTIVE)
    rig.run(float(rng.uniform(0.05, 0.15)))
    return rig


def ms_until_damped(rig: Rig, since_ns: int, limit_s: float = 0.5) -> float:
    """Simulated ms from ``since_ns`` until the first damped command; infinity if none comes.

    The robot must stay damped for as long again, and nothing may leave its limits meanwhile.
    """
    calls = round(limit_s * 500)
    for _ in range(calls):
        now = rig.now
        if is_damped(rig.call()):
            stays = all(is_damped(rig.call()) for _ in range(calls))
            return (now - since_ns) / MS if stays and rig.overshoot == 0 else np.inf
    return np.inf


# --- state that does not come any more ------------------------------------------------------------


def _hold(mode: Mode, rng: Generator) -> Measurement:
    rig = rig_in(mode)
    rig.sensors, last_seen = False, rig.state_stamp
    commands = []
    while rig.now - last_seen <= 100 * MS:
        age, command = rig.now - last_seen, rig.call()
        if age > 50 * MS:
            commands.append(np.concatenate([command.position, command.kp, command.kd]))
    change = np.abs(np.array(commands) - commands[0]).max()
    holds = rig.executor.status().holds
    return exactly(change, 0, "rad of change").unless(holds != len(commands), f"{holds} holds")


def _damp(mode: Mode, rng: Generator) -> Measurement:
    rig = rig_in(mode)
    rig.run(float(rng.uniform(0.002, 0.02)))
    rig.sensors = False
    measured = at_most(ms_until_damped(rig, rig.state_stamp), 100 + _CALL_MS, "ms")
    return measured.unless("state is" not in rig.executor.reason, "no reason given")


for _mode in _STIFF:
    FAMILY.add(
        f"older than 50 ms in {_mode.name}",
        "the last command is held",
        functools.partial(_hold, _mode),
    )
    FAMILY.add(
        f"older than 100 ms in {_mode.name}",
        "damped at an age of 100 ms (the call after it)",
        functools.partial(_damp, _mode),
    )


@FAMILY.fault("frozen, with fresh stamps", "damped 100 ms after the last change")
def _frozen(rng: Generator) -> Measurement:
    rig = walking(rng)
    state, imu, since = rig.state(), rig.imu(), rig.now
    for _ in range(250):
        if rig.now % (40 * MS) < 2 * MS:
            rig.executor.receive(rig.chunk(), rig.now)
        if is_damped(rig.executor.step(rig.now, state, imu, rig.now)):
            break
        rig.now += 2 * MS
    else:
        return at_most(np.inf, 100 + _CALL_MS, "ms")
    return at_most((rig.now - since) / MS, 100 + _CALL_MS, "ms").unless(
        "same values" not in rig.executor.reason, f"reason: {rig.executor.reason}"
    )


@FAMILY.fault("stamps from the future", "damped at an age of 100 ms: they keep nothing alive")
def _future(rng: Generator) -> Measurement:
    rig = walking(rng)
    last_seen = rig.state_stamp
    rig.sensors = False
    rig.state_stamp = rig.now + int(rng.integers(3, 10**6)) * MS
    measured = at_most(ms_until_damped(rig, last_seen), 100 + _CALL_MS, "ms")
    return measured.unless(rig.executor.status().future_states == 0, "not counted")


@FAMILY.fault("stamps 60 s behind", "damped at an age of 100 ms")
def _sensor_clock_behind(rng: Generator) -> Measurement:
    rig = walking(rng)
    last_seen = rig.state_stamp
    rig.sensors = False
    rig.state_stamp = rig.now - 60_000 * MS
    return at_most(ms_until_damped(rig, last_seen), 100 + _CALL_MS, "ms")


# --- order ----------------------------------------------------------------------------------------


def _run_beside(rng: Generator, disturb: Callable[[Rig, int], None]) -> tuple[float, Rig]:
    """Largest difference (rad) between the commands of two walks, one of them disturbed."""
    calm = walking(rng)
    disturbed = copy.deepcopy(calm)
    worst = 0.0
    for i in range(150):
        disturb(disturbed, i)
        a, b = calm.call(), disturbed.call()
        worst = max(worst, float(np.abs(a.position - b.position).max()))
    return worst, disturbed


@FAMILY.fault("samples out of order", "those that were overtaken are ignored and counted")
def _out_of_order(rng: Generator) -> Measurement:
    sent = 0

    def disturb(rig: Rig, i: int) -> None:
        nonlocal sent
        if i == 0 or rng.random() < 0.7:
            return
        late = JointState(rig.names, rig.q + rng.normal(0, 0.2, 12), rig.dq, np.zeros(12))
        stamp = rig.state_stamp - int(rng.integers(1, 80 * MS))
        rig.executor.step(rig.now - MS, late, rig.imu(), stamp)
        sent += 1

    worst, rig = _run_beside(rng, disturb)
    counted = rig.executor.status().overtaken_states
    return exactly(worst, 0, "rad of difference").unless(counted != sent, f"{counted} of {sent}")


@FAMILY.fault("samples delivered twice", "one action per control step, as if they came once")
def _twice(rng: Generator) -> Measurement:
    def disturb(rig: Rig, i: int) -> None:
        if i > 0:
            rig.executor.step(rig.now - 2 * MS, rig.sent, rig.imu(), rig.state_stamp)

    worst, rig = _run_beside(rng, disturb)
    stamps = np.array([step.stamp_ns for step in rig.applied])
    return exactly(worst, 0, "rad of difference").unless(
        bool((np.diff(stamps) != DT).any()), "control steps repeated or lost"
    )


# --- values ---------------------------------------------------------------------------------------


def _broken(corrupt: Callable[[JointState, ImuSample, Generator], tuple], rng: Generator):
    """Damped and in FAULT in the very call that sees one broken sample, in every stiff mode."""
    late = 0
    for mode in _STIFF:
        rig = rig_in(mode)
        state, imu = corrupt(rig.state(), rig.imu(), rng)
        command = rig.executor.step(rig.now, state, imu, rig.now)
        good = is_damped(command) and bool(np.isfinite(command.position).all())
        late += not (good and rig.executor.mode == Mode.FAULT and rig.executor.reason)
    return exactly(late, 0, f"of {len(_STIFF)} modes not damped in the same call")


def _joint(name: str, value: float, state: JointState, imu: ImuSample, rng: Generator) -> tuple:
    values = getattr(state, name).copy()
    values[rng.integers(12)] = value
    return dataclasses.replace(state, **{name: values}), imu


def _imu(name: str, values: tuple, state: JointState, imu: ImuSample, rng: Generator) -> tuple:
    return state, dataclasses.replace(imu, **{name: np.array(values)})


def _named(rename: Callable[[list[str]], list[str]], state: JointState, imu: ImuSample, rng):
    names = rename(list(state.names))
    fitted = [np.resize(v, len(names)) for v in (state.position, state.velocity, state.effort)]
    return JointState(tuple(names), *fitted), imu


def _sized(size: int, state: JointState, imu: ImuSample, rng: Generator) -> tuple:
    return dataclasses.replace(state, position=np.resize(state.position, size)), imu


_NAN, _INF = float("nan"), float("inf")
_P = functools.partial
for _name, _corrupt in {
    "NaN in a joint position": _P(_joint, "position", _NAN),
    "Inf in a joint position": _P(_joint, "position", _INF),
    "NaN in a joint velocity": _P(_joint, "velocity", _NAN),
    "Inf in a joint velocity": _P(_joint, "velocity", -_INF),
    "a joint far beyond its stop": _P(_joint, "position", 12.0),
    "a joint faster than it can be": _P(_joint, "velocity", 1e4),
    "NaN in the orientation": _P(_imu, "orientation", (_NAN, 0.0, 0.0, 0.0)),
    "orientation of zeros": _P(_imu, "orientation", (0.0, 0.0, 0.0, 0.0)),
    "orientation that is no rotation": _P(_imu, "orientation", (2.0, 0.0, 0.0, 0.0)),
    "NaN in the turn rates": _P(_imu, "angular_velocity", (0.0, _NAN, 0.0)),
    "IMU of the wrong shape": _P(_imu, "angular_velocity", (0.0, 0.0)),
    "a foreign joint name": _P(_named, lambda names: ["elbow", *names[1:]]),
    "a joint named twice": _P(_named, lambda names: [names[1], *names[1:]]),
    "a joint missing": _P(_named, lambda names: names[:-1]),
    "a joint too many": _P(_named, lambda names: [*names, "tail"]),
    "no joints at all": _P(_named, lambda names: []),
    "fewer positions than names": _P(_sized, 11),
    "more positions than names": _P(_sized, 13),
}.items():
    FAMILY.add(_name, "FAULT and damped in the same call, in every mode", _P(_broken, _corrupt))


@FAMILY.fault("joint names in another order", "the identical command, joint by joint")
def _permuted(rng: Generator) -> Measurement:
    def disturb(rig: Rig, i: int) -> None:
        rig.names = tuple(np.array(rig.robot.joint_names)[rng.permutation(12)].tolist())

    worst, rig = _run_beside(rng, disturb)
    return exactly(worst, 0, "rad of difference").unless(rig.executor.mode != Mode.ACTIVE, "damped")


# --- the time of the calls ------------------------------------------------------------------------


def _jump(ms: Callable[[Generator], float], rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.now += round(ms(rng) * MS)
    jumped = rig.now
    return exactly(ms_until_damped(rig, jumped), 0, "ms after the jump")


for _name, _jump_ms in {
    "executor not called for 51 to 200 ms": lambda rng: rng.uniform(51, 200),
    "executor not called for 60 s": lambda rng: 60_000.0,
    "time goes back by 4 to 40 ms": lambda rng: -rng.uniform(4, 40),
    "time goes back by 60 s": lambda rng: -60_000.0,
}.items():
    FAMILY.add(_name, "damped in the first call, and stays so", _P(_jump, _jump_ms))
