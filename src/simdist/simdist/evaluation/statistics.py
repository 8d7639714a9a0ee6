"""Means of trials with confidence intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 4000
CONFIDENCE = 0.95
_SEED = 20240


@dataclass(frozen=True)
class Estimate:
    """A mean with its bootstrap confidence interval (95 %, percentiles)."""

    mean: float
    low: float
    high: float


def bootstrap_mean(values: Sequence[float]) -> Estimate:
    """Mean of ``values`` (n,) and its interval; equal values always give equal intervals.

    The trials are resampled with replacement, whatever their commanded speed: the interval
    contains the spread between speeds and is therefore on the wide side.
    """
    data = np.asarray(values, dtype=float)
    rng = np.random.default_rng(_SEED)
    means = data[rng.integers(0, len(data), (RESAMPLES, len(data)))].mean(axis=1)
    return _estimate(float(data.mean()), means)


def bootstrap_difference(first: Sequence[float], second: Sequence[float]) -> Estimate:
    """Mean of ``first`` (n,) minus mean of ``second`` (m,), of trials that are not paired."""
    a, b = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    rng = np.random.default_rng(_SEED)
    means = a[rng.integers(0, len(a), (RESAMPLES, len(a)))].mean(axis=1)
    means -= b[rng.integers(0, len(b), (RESAMPLES, len(b)))].mean(axis=1)
    return _estimate(float(a.mean() - b.mean()), means)


def _estimate(mean: float, resampled: np.ndarray) -> Estimate:
    tail = 50.0 * (1.0 - CONFIDENCE)
    low, high = np.percentile(resampled, [tail, 100.0 - tail])
    return Estimate(mean, float(low), float(high))
