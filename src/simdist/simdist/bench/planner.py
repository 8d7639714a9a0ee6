"""How long plans take, for each backend, and how much of the machine that uses.

What is timed is :meth:`MppiPlanner.plan`: policy prior, noise, returns and weights. The share of
the peak is that of PyTorch's own matrix products, measured in the same run on as many threads.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from simdist import __version__
from simdist.bench.flops import plan_flops
from simdist.errors import ConfigError
from simdist.planning import MppiPlanner, PlannerConfig
from simdist.planning.backends import available
from simdist.planning.backends.made_up import random_inputs
from simdist.planning.backends.native import KernelUnavailable, library
from simdist.planning.backends.threads import usable_threads
from simdist.planning.timing import TimingWindow
from simdist.robots import RobotSpec
from simdist.world_model import WorldModel, WorldModelConfig

FORMAT = "simdist-bench-planner-1"
#: sizes of the SimDist authors' Go2 network, and the budget they plan with
AUTHORS_SIZES = WorldModelConfig(
    scan_shape=(21, 15),
    latent_dim=64,
    history=25,
    horizon=25,
    dynamics_heads=8,
    policy_layers=4,
    policy_heads=8,
    cnn_channels=(8, 16, 32),
    scan_hidden=(192, 128),
)
AUTHORS_BUDGET = (450, 8)
_PRODUCTS = (256, 512, 1024)  #: sizes of the square matrix products, of which the fastest counts
_FEWEST_PLANS = 3
_WARM_UP = 2
BUSY = 1.15  #: time by the clock over processor time, above which others must have been running


@dataclass(frozen=True)
class Row:
    """Plans of one backend with one budget."""

    model: str
    backend: str
    dtype: str
    threads: int
    latent: int
    samples: int
    iterations: int
    horizon: int
    plans: int  #: that were timed
    ms_p50: float
    ms_p99: float
    cpu_ms_p50: float  #: processor time, of all threads; well below ms_p50: others were running
    gflops: float  #: GFLOP/s at the median, of what needs to be computed
    peak_share: float


@dataclass(frozen=True)
class Report:
    """All rows of one run, and what they were measured on."""

    peak_gflops: float
    rows: tuple[Row, ...]
    threads: int
    closed_loop: bool
    unavailable: dict[str, str]  #: backend -> why it was not measured

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        return {
            "format": FORMAT,
            "cpu": processor_name(),
            "kernel": _kernel_kind(),
            "versions": {
                "simdist": __version__,
                "torch": torch.__version__,
                "python": platform.python_version(),
            },
            **data,
            "rows": list(data["rows"]),
        }

    def table(self) -> str:
        """As text, one line a row; the last column is the time of PyTorch divided by the row's."""
        header = ("model", "samples", "backend", "ms p50", "ms p99", "GFLOP/s", "of peak", "torch/")
        lines = [
            f"{processor_name()}, {self.threads} thread(s), matrix products: "
            f"{self.peak_gflops:.1f} GFLOP/s",
            ("{:<10}{:>10}{:>9}" + "{:>10}" * 5).format(*header),
        ]
        slow = {
            (row.model, row.samples, row.iterations): row.ms_p50
            for row in self.rows
            if row.backend == "torch"
        }
        for row in self.rows:
            reference = slow.get((row.model, row.samples, row.iterations))
            ratio = "" if reference is None else f"{reference / row.ms_p50:.2f}"
            lines.append(
                f"{row.model:<10}{f'{row.samples} x {row.iterations}':>10}{row.backend:>9}"
                f"{row.ms_p50:>10.2f}{row.ms_p99:>10.2f}{row.gflops:>10.1f}"
                f"{row.peak_share:>10.0%}{ratio:>10}"
            )
        if self.threads == 1 and any(row.ms_p50 > BUSY * row.cpu_ms_p50 for row in self.rows):
            lines.append(
                "The machine was busy: by processor time alone, plans take "
                + ", ".join(f"{row.cpu_ms_p50:.2f}" for row in self.rows)
                + " ms"
            )
        lines += [f"{name}: not measured: {why}" for name, why in self.unavailable.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Subject:
    """A model to plan with, and the budgets ``(samples, iterations)`` to try."""

    name: str
    model: WorldModel
    budgets: tuple[tuple[int, int], ...]


def authors_size() -> Subject:
    """A network of the authors' sizes with random weights, and their budget."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Subject("authors", WorldModel(AUTHORS_SIZES).eval(), (AUTHORS_BUDGET,))


def measure(
    subjects: Sequence[Subject],
    robot: RobotSpec,
    *,
    threads: int = 1,
    plans: int = 50,
    seconds: float = 10.0,
    closed_loop: bool = False,
    progress: Callable[[str], object] = lambda line: None,
) -> Report:
    """Time ``plans`` plans of every subject, budget and backend, or as many as fit into
    ``seconds`` a budget, but at least three.

    Backends take turns, so that what else the machine does meets all of them. A backend that
    cannot be had is left out, and the report says why.
    """
    unavailable: dict[str, str] = {}
    measured: list[tuple[Subject, PlannerConfig, str, _Times]] = []
    peak = 0.0
    with _threads(usable_threads(threads)) as count:
        for subject in subjects:
            inputs = random_inputs(subject.model, 1, seed=0)
            for samples, iterations in subject.budgets:
                config = replace(
                    PlannerConfig(), samples=samples, iterations=iterations, closed_loop=closed_loop
                )
                progress(f"{subject.name}: {samples} x {iterations}")
                planners: dict[str, MppiPlanner] = {}
                for name in available():
                    try:
                        planners[name] = MppiPlanner(subject.model, robot, config, name)
                    except ConfigError as error:
                        unavailable[name] = str(error)
                calls = [partial(planner.plan, *inputs) for planner in planners.values()]
                times, product = _in_turn(calls, plans, seconds)
                peak = max(peak, product)
                measured += [
                    (subject, config, name, spent)
                    for name, spent in zip(planners, times, strict=True)
                ]
    rows = tuple(_row(*entry, threads=count, peak=peak) for entry in measured)
    return Report(peak, rows, count, closed_loop, unavailable)


def _row(
    subject: Subject,
    config: PlannerConfig,
    backend: str,
    times: _Times,
    *,
    threads: int,
    peak: float,
) -> Row:
    sizes = subject.model.config
    flops = plan_flops(
        sizes,
        config.samples,
        config.iterations,
        config.prior_samples,
        closed_loop=config.closed_loop,
    )
    gflops = 1e-9 * flops / times.wall.p50
    return Row(
        model=subject.name,
        backend=backend,
        dtype="float32",
        threads=threads,
        latent=sizes.latent_dim,
        samples=config.samples,
        iterations=config.iterations,
        horizon=sizes.horizon,
        plans=times.wall.count,
        ms_p50=round(times.wall.p50 * 1e3, 3),
        ms_p99=round(times.wall.p99 * 1e3, 3),
        cpu_ms_p50=round(times.cpu.p50 * 1e3, 3),
        gflops=round(gflops, 2),
        peak_share=round(gflops / peak, 3),
    )


class _Times:
    """Durations of one call, by the clock and in processor time."""

    def __init__(self, count: int) -> None:
        self.wall, self.cpu = TimingWindow(count), TimingWindow(count)

    def add(self, call: Callable[[], object], *, counts: bool) -> None:
        wall, cpu = time.perf_counter(), time.process_time()
        call()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        if counts:
            self.wall.add(wall)
            self.cpu.add(cpu)


def _in_turn(
    calls: Sequence[Callable[[], object]], count: int, seconds: float
) -> tuple[list[_Times], float]:
    """Durations of every call, and the GFLOP/s of the fastest matrix product in between."""
    times = [_Times(count) for _ in calls]
    factors = [(torch.randn(n, n), torch.randn(n, n)) for n in _PRODUCTS]
    peak, begin = 0.0, time.perf_counter()
    for index in range(-_WARM_UP, count):
        if index >= _FEWEST_PLANS and time.perf_counter() - begin > seconds:
            break
        for spent, call in zip(times, calls, strict=True):
            spent.add(call, counts=index >= 0)
        for left, right in factors:
            start = time.perf_counter()
            torch.mm(left, right)
            peak = max(peak, 2e-9 * len(left) ** 3 / (time.perf_counter() - start))
    return times, peak


@contextmanager
def _threads(count: int) -> Iterator[int]:
    """PyTorch on ``count`` threads, for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield count
    finally:
        torch.set_num_threads(before)


def processor_name() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    named = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.processor() or platform.machine())


def _kernel_kind() -> str | None:
    """Kind of processor that the kernel in use was compiled for."""
    try:
        return library.load().kind
    except KernelUnavailable:
        return None
