"""Faults, each injected into the real thing, and what came of the promise about it.

Everything runs in lockstep: time is a number that the fault hands in, no ROS graph is there, and
no result depends on how fast the machine is.
"""

from __future__ import annotations

from simdist.faults.catalogue import Fault, Row, faults, run
from simdist.faults.measurement import Measurement

__all__ = ["Fault", "Measurement", "Row", "faults", "run"]
