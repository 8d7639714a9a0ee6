"""What the trials of one method amounted to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simdist.evaluation.trials import TrialResult


def finite_mean(values: Sequence[float]) -> float | None:
    """Mean of the finite values, or None where there are none (JSON knows no NaN)."""
    finite = [value for value in values if np.isfinite(value)]
    return float(np.mean(finite)) if finite else None


@dataclass(frozen=True)
class Row:
    """All trials of one method."""

    method: str
    results: tuple[TrialResult, ...]

    def to_dict(self) -> dict[str, Any]:
        progress = [r.progress for r in self.results]
        return {
            "method": self.method,
            "trials": len(self.results),
            "success": sum(r.reached and not r.fallen for r in self.results),
            "falls": sum(r.fallen for r in self.results),
            "progress_m": {
                "mean": float(np.mean(progress)),
                "std": float(np.std(progress)),
                "values": progress,
            },
            "velocity_error_mps": finite_mean([r.velocity_error for r in self.results]),
        }
