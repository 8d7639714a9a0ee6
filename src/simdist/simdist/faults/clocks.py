"""Steps of the system clock, and stamps that jump."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from unittest import mock

import numpy as np
from numpy.random import Generator

from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.rig import DT, MS
from simdist.faults.small_model import planning_loop, random_observation
from simdist.faults.state import walking
from simdist.observation.assembly import StampMatcher
from simdist.schedule import PlanSchedule
from simdist.types import Mode

FAMILY = Family("clock")

_KINDS = ("joints", "odom", "scan", "applied")


def _walk(rng: Generator, steps_s: list[float]) -> tuple[np.ndarray, float]:
    """Commands of a walk with plans of the real planner, while the system clock is stepped."""
    rig = walking(rng)
    rig.planner = False
    loop = planning_loop(seed=0)
    observation = random_observation(seed=1)
    offset = 0.0
    real, real_ns = time.time, time.time_ns
    commands = []
    with (
        mock.patch("time.time", side_effect=lambda: real() + offset),
        mock.patch("time.time_ns", side_effect=lambda: real_ns() + round(offset * 1e9)),
    ):
        for i in range(400):
            if i % 40 == 0 and steps_s:
                offset += steps_s.pop()
            if i % 20 == 0:
                chunk, _ = loop.plan(rig.now, *observation, np.zeros(3), model_version=1)
                refusal = rig.executor.receive(chunk, rig.now)
                if refusal is not None:
                    raise RuntimeError(f"chunk refused: {refusal}")
            commands.append(rig.call().position)
    return np.array(commands), float(rig.executor.mode != Mode.ACTIVE)


def _system_clock(step_s: float, rng: Generator) -> Measurement:
    seed = int(rng.integers(2**31))
    calm, _ = _walk(np.random.default_rng(seed), [])
    stepped, damped = _walk(np.random.default_rng(seed), [step_s] * 4)
    return exactly(np.abs(stepped - calm).max(), 0, "rad of difference").unless(
        damped > 0, "walking ended"
    )


for _step in (60.0, -60.0):
    FAMILY.add(
        f"system clock steps by {_step:+.0f} s, four times in a walk",
        "the identical commands: nothing goes by it",
        functools.partial(_system_clock, _step),
    )


def _lost(matcher: StampMatcher, disturb: Callable[[StampMatcher], None], then_ns: int) -> int:
    """Observations lost from ``then_ns`` on, of 50, after a disturbance."""
    for step in range(20):
        for kind in _KINDS:
            matcher.add(kind, 60_000 * MS + step * DT, None)
    disturb(matcher)
    lost = 0
    for step in range(50):
        answers = [matcher.add(kind, then_ns + step * DT, None) for kind in _KINDS]
        lost += answers[-1] is None
    return lost


def _jump(ms: int, rng: Generator) -> Measurement:
    lost = _lost(StampMatcher(_KINDS), lambda matcher: None, (60_000 + ms) * MS + 20 * DT)
    return exactly(lost, 0, "of 50 observations lost")


for _ms in (60_000, -60_000):
    FAMILY.add(
        f"/clock jumps by {_ms / 1000:+.0f} s",
        "the next stamp makes an observation again",
        functools.partial(_jump, _ms),
    )


@FAMILY.fault("a burst of absurd stamps on one topic", "observations go on: it is forgotten")
def _burst(rng: Generator) -> Measurement:
    def disturb(matcher: StampMatcher) -> None:
        for stamp in rng.integers(-(2**62), 2**62, 200):
            matcher.add("scan", int(stamp), None)

    lost = _lost(StampMatcher(_KINDS), disturb, 60_000 * MS + 20 * DT)
    return exactly(lost, 0, "of 50 observations lost")


@FAMILY.fault("one topic a second ahead of the others", "observations go on with what matches")
def _ahead(rng: Generator) -> Measurement:
    matcher = StampMatcher(_KINDS)
    lost = 0
    for step in range(200):
        now = step * DT
        # From the hundredth step on its clock is right again.
        matcher.add("scan", now + (1000 * MS if step < 100 else 0), None)
        answers = [matcher.add(kind, now, None) for kind in _KINDS if kind != "scan"]
        lost += step >= 150 and answers[-1] is None
    return exactly(lost, 0, "of the last 50 observations lost")


@FAMILY.fault("stamps that jump about (planning)", "every plan is made, and finite")
def _loop_jumps(rng: Generator) -> Measurement:
    loop, observation = planning_loop(seed=0), random_observation(seed=1)
    loop.commit_steps = 1
    stamp, bad = 10**12, 0
    for jump in (0, 1, 60_000, -60_000, 10_000_000, -9_999_999, int(rng.integers(-999, 999)), 0):
        stamp += jump * MS + 2 * DT
        chunk, plan = loop.plan(stamp, *observation, np.zeros(3), model_version=1)
        bad += chunk.stamp_ns != stamp or plan.degraded or not np.isfinite(chunk.values).all()
    return exactly(bad, 0, "bad plans")


@FAMILY.fault("stamps that jump about (schedule)", "a plan is due a period later at the latest")
def _schedule_jumps(rng: Generator) -> Measurement:
    schedule = PlanSchedule(0.04, 0.02)
    longest = 0
    for _ in range(20):
        stamp = int(rng.integers(-(2**60), 2**60))
        waits = itertools.count()
        while not schedule.due(stamp + next(waits) * DT):
            pass
        longest = max(longest, next(waits) - 1)
    return at_most(longest, 1, "control steps without a plan")
