"""The last word at the robot: modes, limits, watchdog and the command executor."""

from __future__ import annotations

from simdist.safety.executor import CommandExecutor, ExecutorConfig, ExecutorStatus, Refusal
from simdist.safety.limits import JointLimiter, LimitConfig
from simdist.safety.modes import ModeChange, ModeMachine
from simdist.safety.watchdog import AgeWatch

__all__ = [
    "AgeWatch",
    "CommandExecutor",
    "ExecutorConfig",
    "ExecutorStatus",
    "JointLimiter",
    "LimitConfig",
    "ModeChange",
    "ModeMachine",
    "Refusal",
]
