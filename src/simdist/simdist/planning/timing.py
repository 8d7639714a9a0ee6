"""How long plans take, and which rate follows from it."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

#: Native kernels work on this many samples at a time; other counts waste time.
SAMPLE_BLOCK = 16
#: Below this many samples a plan is hardly better than its noise.
MINIMUM_SAMPLES = 32


class TimingWindow:
    """Percentiles of the last ``size`` durations."""

    def __init__(self, size: int = 500) -> None:
        self._seconds: deque[float] = deque(maxlen=size)

    def add(self, seconds: float) -> None:
        self._seconds.append(seconds)

    @property
    def count(self) -> int:
        """Durations in the window."""
        return len(self._seconds)

    def percentile(self, percent: float) -> float:
        """In seconds; zero before the first duration."""
        return float(np.percentile(self._seconds, percent)) if self._seconds else 0.0

    @property
    def p50(self) -> float:
        return self.percentile(50.0)

    @property
    def p99(self) -> float:
        return self.percentile(99.0)


@dataclass(frozen=True)
class RateReport:
    """What a planner can hold; ``samples`` is zero when it cannot hold the period at all."""

    period: float  #: s between plans, as asked for
    samples: int  #: to plan with
    plan_seconds: float  #: median of one plan with that many (or with the fewest tried)
    achievable_period: float  #: s, what that median allows with the margin
    message: str

    @property
    def holds(self) -> bool:
        return self.samples > 0


def median_seconds(
    call: Callable[[], object],
    repeats: int = 7,
    warm_up: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """Median duration of ``call`` after ``warm_up`` calls that do not count."""
    for _ in range(warm_up):
        call()
    durations = []
    for _ in range(repeats):
        start = clock()
        call()
        durations.append(clock() - start)
    return statistics.median(durations)


def measure_rate(
    seconds_of: Callable[[int], float], period: float, samples: int, load: float = 0.6
) -> RateReport:
    """Find out whether one plan per ``period`` can be held, and with how many samples.

    ``seconds_of(samples)`` measures the median plan. A plan may take the share ``load`` of the
    period; the rest is for messages and for the other processes. When the plan takes longer, the
    samples are scaled by the excess, down to a multiple of 16, and measured again, until they fit
    or fall below 32: then the rate is refused.
    """
    asked, budget = samples, load * period
    while True:
        seconds = seconds_of(samples)
        achievable = seconds / load
        if seconds <= budget:
            scaled = "" if samples == asked else f", scaled down from {asked}"
            message = (
                f"a plan of {samples} samples{scaled} takes {seconds * 1e3:.1f} ms: "
                f"{1.0 / period:.0f} Hz holds"
            )
            return RateReport(period, samples, seconds, achievable, message)
        fewer = math.floor(samples * budget / seconds / SAMPLE_BLOCK) * SAMPLE_BLOCK
        # Fixed costs make a plan shrink less than its samples; always make progress.
        fewer = min(fewer, (samples - 1) // SAMPLE_BLOCK * SAMPLE_BLOCK)
        if fewer < MINIMUM_SAMPLES:
            if samples > MINIMUM_SAMPLES:
                fewer = MINIMUM_SAMPLES
            else:
                message = (
                    f"a plan of {samples} samples takes {seconds * 1e3:.1f} ms: "
                    f"{1.0 / period:.0f} Hz cannot be held, at most {1.0 / achievable:.0f} Hz; "
                    "lower the planning rate or use a faster backend"
                )
                return RateReport(period, 0, seconds, achievable, message)
        samples = fewer


def best_rate(
    measure: Callable[[float], RateReport],
    periods: Sequence[float],
    samples: int,
    tries: int = 3,
    pause: Callable[[], object] = lambda: time.sleep(1.0),
) -> RateReport:
    """The shortest of ``periods`` (s, ascending) that holds, with as many samples as it holds.

    Fewer samples come first, a longer period second; when not even the last one holds, the report
    says so. A rate below the first one with all ``samples`` is measured up to ``tries`` times and
    the best counts: while the other processes of a graph start, plans take longer than later.
    """

    def one_try() -> RateReport:
        report = measure(periods[0])
        for period in periods[1:]:
            if report.holds:
                break
            report = measure(period)
        return report

    def rank(report: RateReport) -> tuple[bool, float, int]:
        return report.holds, -report.period, report.samples

    best = one_try()
    for _ in range(tries - 1):
        if best.period == periods[0] and best.samples >= samples:
            break
        pause()
        best = max(best, one_try(), key=rank)
    return best
