"""Tasks: what is asked of a robot, and how well it did."""

from __future__ import annotations

from simdist.tasks.locomotion import CommandRanges, LocomotionTask, RewardWeights

__all__ = ["CommandRanges", "LocomotionTask", "RewardWeights"]
