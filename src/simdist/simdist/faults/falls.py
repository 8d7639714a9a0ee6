"""Falling over."""

from __future__ import annotations

import functools

import numpy as np
from numpy.random import Generator

from simdist.errors import ConfigError
from simdist.faults.measurement import Measurement, at_most, exactly
from simdist.faults.registry import Family
from simdist.faults.rig import MS, Rig, is_damped, rig_in, tilted
from simdist.faults.state import ms_until_damped, walking
from simdist.safety import LimitConfig
from simdist.types import Mode

FAMILY = Family("fall")

_LIMITS = LimitConfig()
_STIFF = (Mode.STAND_UP, Mode.STAND, Mode.ACTIVE, Mode.LIE_DOWN)


def _beyond(mode: Mode, angles: dict[str, float], rng: Generator) -> Measurement:
    rig = rig_in(mode)
    rig.run(float(rng.uniform(0.002, 0.05)))
    rig.orientation = tilted(**angles)
    measured = exactly(ms_until_damped(rig, rig.now), 0, "ms after the limit")
    return measured.unless(rig.executor.mode != Mode.FAULT, f"in {rig.executor.mode.name}")


for _mode in _STIFF:
    for _name, _limit in (("roll", _LIMITS.fall_roll), ("pitch", _LIMITS.fall_pitch)):
        for _sign, _side in ((1, ""), (-1, "-")):
            FAMILY.add(
                f"{_name} beyond {_side}{_limit} rad by 0.01 in {_mode.name}",
                "FAULT and damped in the same call",
                functools.partial(_beyond, _mode, {_name: _sign * (_limit + 0.01)}),
            )


def _tumble(name: str, limit: float, rng: Generator) -> Measurement:
    rig = walking(rng)
    rate, angle = rng.uniform(1.0, 15.0) * rng.choice([-1, 1]), 0.0
    crossed = None
    for _ in range(1000):
        if abs(angle) > limit and crossed is None:
            crossed = rig.now
        rig.orientation = tilted(**{name: angle}) if angle else (1.0, 0.0, 0.0, 0.0)
        now = rig.now
        if is_damped(rig.call()):
            early = crossed is None
            return at_most(0 if early else (now - crossed) / MS, 0, "ms after the limit").unless(
                early, f"damped at {angle:.2f} rad already"
            )
        angle += rate * 0.002
    return at_most(np.inf, 0, "ms after the limit")


for _name, _limit in (("roll", _LIMITS.fall_roll), ("pitch", _LIMITS.fall_pitch)):
    FAMILY.add(
        f"tumbles in {_name} at 1 to 15 rad/s",
        "damped in the first call beyond the limit, not before",
        functools.partial(_tumble, _name, _limit),
    )


@FAMILY.fault("staggers inside the limits", "no false alarm: walking goes on")
def _staggers(rng: Generator) -> Measurement:
    rig = walking(rng)
    damped = 0
    for _ in range(500):
        if rng.random() < 0.5:
            rig.orientation = tilted(roll=float(rng.uniform(0.01, 0.99) * _LIMITS.fall_roll))
        else:
            rig.orientation = tilted(pitch=float(rng.uniform(0.01, 0.99) * _LIMITS.fall_pitch))
        damped += is_damped(rig.call())
    return exactly(damped, 0, "damped calls").unless(
        rig.executor.mode != Mode.ACTIVE, rig.executor.reason
    )


@FAMILY.fault("limits set to nothing", "refused by name: they cannot be switched off")
def _switched_off(rng: Generator) -> Measurement:
    accepted = 0
    for name in ("fall_roll", "fall_pitch"):
        for value in (0.0, -1.0, 1.5, 3.2, 1e9, np.nan, np.inf, -float(rng.uniform(0, 9))):
            try:
                LimitConfig(**{name: value})
            except ConfigError as error:
                accepted += name not in str(error)
            else:
                accepted += 1
    return exactly(accepted, 0, "accepted")


@FAMILY.fault("lies on its side and is told to stand up", "refused until it is upright")
def _on_its_side(rng: Generator) -> Measurement:
    rig = Rig()
    granted = 0
    for _ in range(50):
        angle = float(rng.uniform(_LIMITS.fall_roll + 0.01, 3.1) * rng.choice([-1, 1]))
        rig.orientation = tilted(roll=angle)
        rig.call()
        allowed, message = rig.executor.request_mode(Mode.STAND_UP, rig.now)
        granted += allowed or "upright" not in message
    stiff = sum(not is_damped(command) for _, command in rig.commands)
    return exactly(granted, 0, "of 50 granted").unless(stiff > 0, f"{stiff} stiff commands")
