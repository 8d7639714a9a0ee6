"""Robots: one module per machine, found by name."""

from __future__ import annotations

from simdist.robots.registry import available, get
from simdist.robots.spec import RobotSpec

__all__ = ["RobotSpec", "available", "get"]
