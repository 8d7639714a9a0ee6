"""A planner that falls silent, hangs, or answers the past; and a commander that does."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.rig import DT, MS, Rig, is_damped
from simdist.faults.state import ms_until_damped, walking
from simdist.safety import ExecutorConfig
from simdist.tasks.command_watch import CommandWatch
from simdist.types import Mode

FAMILY = Family("planner silence")

_CALL_MS = 2.0
#: The planner's period, and three control steps.
_SILENCE_MS = 1e3 * ExecutorConfig().chunk_period + 3 * 20.0
_AGE_MS = 1e3 * ExecutorConfig().max_chunk_age


def _silenced(rng: Generator, steps: int = 15) -> Rig:
    """A walking robot whose planner has just sent its last chunk, of so many control steps."""
    rig = walking(rng)
    rig.planner = False
    values = np.tile(rig.robot.default_pose, (steps, 1))
    refusal = rig.executor.receive(rig.chunk(values=values), rig.now)
    if refusal is not None:
        raise RuntimeError(f"chunk refused: {refusal}")
    rig.applied.clear()
    return rig


@FAMILY.fault("planner dies", "damped after its period and 3 control steps (100 ms)")
def _dies(rng: Generator) -> Measurement:
    rig = _silenced(rng)
    measured = at_most(ms_until_damped(rig, rig.now), _SILENCE_MS + _CALL_MS, "ms")
    return measured.unless("no new chunk" not in rig.executor.reason, rig.executor.reason)


@FAMILY.fault("planner dies (control steps)", "at most 3 control steps after a chunk was due")
def _open_loop(rng: Generator) -> Measurement:
    rig = _silenced(rng)
    due = rig.now + round(1e9 * ExecutorConfig().chunk_period)
    rig.run(0.5)
    late = sum(step.mode == Mode.ACTIVE and step.stamp_ns >= due for step in rig.applied)
    return at_most(late, 3, "control steps")


@FAMILY.fault("planner dies after a chunk of 1 row", "damped when the rest of the chunk is played")
def _short(rng: Generator) -> Measurement:
    rig = _silenced(rng, steps=1)
    return at_most(ms_until_damped(rig, rig.now), 2 * DT / MS + _CALL_MS, "ms")


@FAMILY.fault("planner hangs and repeats its last chunk", "damped as if it were dead (100 ms)")
def _repeats(rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.planner = False
    chunk, since = rig.chunk(), rig.now
    for _ in range(250):
        rig.executor.receive(chunk, rig.now)
        now = rig.now
        if is_damped(rig.call()):
            return at_most((now - since) / MS, _SILENCE_MS + _CALL_MS, "ms")
    return at_most(np.inf, _SILENCE_MS, "ms")


@FAMILY.fault("planner answers one observation again and again", "damped when that is 160 ms old")
def _answers_the_past(rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.planner = False
    observed = rig.now
    for _ in range(250):
        rig.executor.receive(rig.chunk(observation_stamp_ns=observed), rig.now)
        now = rig.now
        if is_damped(rig.call()):
            return at_most((now - observed) / MS, _AGE_MS + _CALL_MS, "ms")
    return at_most(np.inf, _AGE_MS, "ms")


@FAMILY.fault("planner comes back", "no motion before the robot is re-armed")
def _comes_back(rng: Generator) -> Measurement:
    rig = _silenced(rng)
    rig.run(0.3)
    rig.planner = True
    stiff = 0
    for i in range(500):
        if i % 50 == 0:
            rig.executor.request_mode(Mode(int(rng.integers(1, 4))), rig.now)
        stiff += not is_damped(rig.call())
    return exactly(stiff, 0, "stiff commands").unless(rig.executor.armed, "armed by itself")


@FAMILY.fault("planner restarts with lower numbers", "heard again 160 ms after its last chunk")
def _restarts(rng: Generator) -> Measurement:
    rig = walking(rng)
    rig.planner, rig.sequence = False, 10**6
    rig.executor.receive(rig.chunk(), rig.now)
    last, rig.sequence = rig.now, 0
    rig.now += int(rng.integers(1, 30)) * MS
    for _ in range(250):
        if rig.executor.receive(rig.chunk(), rig.now) is None:
            return at_most((rig.now - last) / MS, _AGE_MS + _CALL_MS, "ms")
        rig.now += 2 * MS
    return at_most(np.inf, _AGE_MS, "ms")


@FAMILY.fault("cmd_vel falls silent", "zero 0.9 s after the last one, and never faster than before")
def _commander(rng: Generator) -> Measurement:
    watch = CommandWatch(3, timeout=0.5, ramp=0.4)
    given = rng.uniform(-1, 1, 3)
    watch.receive(given, 0.0)
    # The time of each call in whole ms, so that nothing rests on rounding.
    speeds = [np.abs(watch.command(ms * 1e-3)).max() for ms in range(1200)]
    zero = next((ms for ms, speed in enumerate(speeds) if speed == 0), np.inf)
    rises = bool((np.diff(speeds) > 0).any())
    return at_most(zero, 901, "ms").unless(rises, "speed rises in silence")


@FAMILY.fault("cmd_vel of NaN and Inf", "counts as silence: none of it becomes a command")
def _poisoned_command(rng: Generator) -> Measurement:
    watch = CommandWatch(3, timeout=0.5, ramp=0.4)
    watch.receive(np.array([0.5, 0.0, 0.0]), 0.0)
    bad = 0
    for step in range(1, 60):
        command = rng.uniform(-1, 1, 3)
        command[rng.integers(3)] = rng.choice([np.nan, np.inf, -np.inf])
        watch.receive(command, step * 0.02)
        bad += not np.isfinite(watch.command(step * 0.02)).all()
    moving = bool(watch.command(1.2).any())
    return exactly(bad, 0, "bad commands").unless(
        moving or watch.refused != 59, f"{watch.refused} of 59 refused"
    )
