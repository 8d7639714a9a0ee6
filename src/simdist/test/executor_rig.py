"""The robot of numbers that the fault matrix uses, for tests of the executor."""

from __future__ import annotations

from simdist.faults.rig import DT, MS, QUICK, UPRIGHT, Rig, is_damped, rig_in, tilted

__all__ = ["DT", "MS", "QUICK", "UPRIGHT", "Rig", "is_damped", "rig_in", "tilted"]
