"""Ways of computing the returns of many action sequences."""

from __future__ import annotations

from simdist.planning.backends.base import PlanBackend, PlanningProblem
from simdist.planning.backends.registry import BackendFactory, available, choose

__all__ = ["BackendFactory", "PlanBackend", "PlanningProblem", "available", "choose"]
