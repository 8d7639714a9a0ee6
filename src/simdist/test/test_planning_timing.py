"""Rates the planner promises, with clocks that do not depend on the machine."""

from __future__ import annotations

import itertools

import pytest

from simdist import robots
from simdist.planning import (
    PlannerConfig,
    TimingWindow,
    measure_rate,
    median_seconds,
    planner_rate,
)
from simdist.planning.timing import RateReport, best_rate
from simdist.world_model import WorldModel, WorldModelConfig


def test_window_keeps_only_the_newest_durations() -> None:
    window = TimingWindow(size=100)
    assert window.p50 == 0.0
    for seconds in [9.0] * 50 + [float(i) for i in range(1, 101)]:
        window.add(seconds)
    assert window.p50 == pytest.approx(50.5)
    assert window.p99 == pytest.approx(99.01)


def test_median_ignores_the_warm_up() -> None:
    ticks = itertools.accumulate([0, 5, 1, 3, 1, 5, 1])
    calls = []
    median = median_seconds(
        lambda: calls.append(1), repeats=3, warm_up=4, clock=lambda: float(next(ticks))
    )
    assert len(calls) == 7
    assert median == 5.0


@pytest.mark.parametrize(
    ("per_sample", "fixed", "period", "samples"),
    [
        (1e-4, 0.0, 0.04, 128),  # 12.8 ms of 24 ms
        (2e-4, 0.0, 0.04, 112),  # 25.6 ms: a little too long
        (2e-4, 0.0, 0.02, 48),
        (1e-4, 0.018, 0.04, 48),  # a fixed part that does not shrink with the samples
        (1e-3, 0.0, 0.02, 0),
    ],
)
def test_samples_are_scaled_in_blocks_until_the_plan_fits_or_the_rate_is_refused(
    per_sample: float, fixed: float, period: float, samples: int
) -> None:
    report = measure_rate(lambda n: fixed + per_sample * n, period, 128)
    assert report.samples == samples
    assert report.holds == (samples > 0)
    if report.holds:
        assert fixed + per_sample * samples <= 0.6 * period
        assert report.achievable_period <= period
    else:
        assert report.achievable_period > period
        assert "cannot be held" in report.message


def test_a_real_planner_is_measured_and_told_what_it_can_hold() -> None:
    model = WorldModel(WorldModelConfig(latent_dim=16, horizon=4, dynamics_layers=1))
    config = PlannerConfig(samples=64, elites=48)
    hopeless = planner_rate(model, robots.get("go1"), config, period=1e-9)
    assert not hopeless.holds
    assert hopeless.plan_seconds > 0
    easy = planner_rate(model, robots.get("go1"), config, period=1e3)
    assert easy.samples == 64


def rate(measured: list[dict[float, int]], tries: int = 3) -> tuple[float, int, int]:
    """Best rate when the n-th try measures ``measured[n]``: samples that hold, by period."""
    paused = []

    def measure(period: float) -> RateReport:
        return RateReport(period, measured[len(paused)].get(period, 0), 0.01, 0.02, "")

    report = best_rate(measure, (0.04, 0.06), 128, tries, pause=lambda: paused.append(1))
    return report.period, report.samples, len(paused)


def test_a_rate_that_holds_is_not_measured_twice() -> None:
    assert rate([{0.04: 128}]) == (0.04, 128, 0)


def test_a_machine_that_is_busy_at_first_is_measured_again() -> None:
    assert rate([{}, {0.04: 48}, {0.04: 128}]) == (0.04, 128, 2)
    assert rate([{0.04: 64}, {0.04: 32}, {}]) == (0.04, 64, 2)


def test_fewer_samples_come_before_a_longer_period() -> None:
    assert rate([{0.06: 128}, {0.04: 32, 0.06: 128}, {0.06: 96}]) == (0.04, 32, 2)
    assert rate([{0.06: 64}, {0.06: 96}, {}]) == (0.06, 96, 2)


def test_what_never_holds_is_refused() -> None:
    assert rate([{}, {}, {}])[1] == 0
