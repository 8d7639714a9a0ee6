"""Battery, motor temperatures and error words of a robot: what they allow, and how to tell them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from simdist.diagnostics import Entry, Level
from simdist.errors import ConfigError
from simdist.hardware.link import RobotState
from simdist.ranges import Checked, bounded


@dataclass(frozen=True)
class HealthConfig(Checked):
    """Limits. Each has a range: none of them can be switched off."""

    battery_low: float = bounded(0.2, 0.05, 0.9, "of full charge; less is a warning")
    battery_empty: float = bounded(0.1, 0.02, 0.5, "of full charge; with less the robot lies down")
    motor_warm: float = bounded(70.0, 30.0, 100.0, "degrees Celsius; a warmer motor is a warning")
    motor_hot: float = bounded(85.0, 40.0, 105.0, "degrees Celsius; then the robot lies down")

    def __post_init__(self) -> None:
        super().__post_init__()
        for low, high in (("battery_empty", "battery_low"), ("motor_warm", "motor_hot")):
            if getattr(self, low) >= getattr(self, high):
                raise ConfigError(
                    f"HealthConfig.{low} = {getattr(self, low)}: must be less than {high} = "
                    f"{getattr(self, high)}"
                )


class Health:
    """Judges reports of a robot by limits."""

    def __init__(self, config: HealthConfig | None = None) -> None:
        self.config = config or HealthConfig()

    def obstacle(self, state: RobotState) -> str | None:
        """Why this robot must not stand, or None."""
        config = self.config
        hottest = _hottest(state)
        if state.battery.charge < config.battery_empty:
            return (
                f"battery at {state.battery.charge:.0%} (limit {config.battery_empty:.0%}): "
                "charge it"
            )
        if state.motor_temperature[hottest] > config.motor_hot:
            return (
                f"{_motor(state, hottest)} is above {config.motor_hot:g} degrees: let it cool down"
            )
        if state.motor_errors.any():
            faulty = int(np.flatnonzero(state.motor_errors)[0])
            return (
                f"motor {state.joints.names[faulty]} reports error "
                f"{int(state.motor_errors[faulty]):#x}: restart the robot"
            )
        if state.error:
            return f"the robot reports error {state.error:#x}: restart it"
        return None

    def entry(self, state: RobotState) -> Entry:
        """The robot's diagnostics: ERROR with an obstacle, WARN near one."""
        config, battery, hottest = self.config, state.battery, _hottest(state)
        obstacle = self.obstacle(state)
        warnings = []
        if battery.charge < config.battery_low:
            warnings.append(f"battery at {battery.charge:.0%}")
        if state.motor_temperature[hottest] > config.motor_warm:
            warnings.append(_motor(state, hottest))
        if obstacle is not None:
            level, message = Level.ERROR, obstacle
        elif warnings:
            level, message = Level.WARN, "; ".join(warnings)
        else:
            charge = "unknown" if math.isnan(battery.charge) else f"{battery.charge:.0%}"
            level, message = Level.OK, f"battery {charge}, {_motor(state, hottest)}"
        values = {
            "battery charge": f"{battery.charge:.2f}",
            "battery voltage (V)": f"{battery.voltage:.2f}",
            "battery current (A)": f"{battery.current:.2f}",
            "error word": f"{state.error:#x}",
        }
        for index, name in enumerate(state.joints.names):
            values[f"{name} (C)"] = f"{state.motor_temperature[index]:.0f}"
            if state.motor_errors[index]:
                values[f"{name} error word"] = f"{int(state.motor_errors[index]):#x}"
        return Entry("robot", level, message, values)


def _hottest(state: RobotState) -> int:
    return int(np.argmax(np.nan_to_num(state.motor_temperature, nan=-np.inf)))


def _motor(state: RobotState, index: int) -> str:
    return f"motor {state.joints.names[index]} at {state.motor_temperature[index]:.0f} degrees"
