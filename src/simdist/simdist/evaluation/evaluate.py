"""``simdist evaluate``: trials of expert, policy prior and planner, side by side."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from simdist import paths, robots
from simdist.errors import ConfigError
from simdist.evaluation.command_line import repeating
from simdist.evaluation.drivers import METHODS, driver_factory
from simdist.evaluation.rows import Row
from simdist.evaluation.sweep import SweepResult, parse_sweep, with_parameter
from simdist.evaluation.trials import Trial, TrialConfig, TrialResult
from simdist.planning import PlannerConfig
from simdist.simulation.world import WorldSpec, load_world
from simdist.world_model.artefact import load_artefact

#: The methods tried unless others are asked for; the oracles take far longer.
DEFAULT_METHODS = ("expert", "prior", "planner")
SPEEDS = (0.4, 0.6, 0.8)  #: m/s, the paper's three commanded speeds


@dataclass(frozen=True)
class Evaluation:
    """What to try: ``trials`` are spread over the speeds, each with a seed of its own."""

    world: WorldSpec
    model: Path
    robot: str = "go1"
    methods: tuple[str, ...] = DEFAULT_METHODS
    speeds: tuple[float, ...] = SPEEDS
    trials: int = 15
    seed: int = 0
    seconds: float = 10.0
    plan_every: int = 1
    delay_steps: int = 0
    line: float | None = None  #: m of progress that count as success; None for the world's own
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    ends_at_line: bool = False  #: else trials last all their seconds

    @property
    def line_m(self) -> float:
        """Metres of progress that count as success."""
        return self.world.success_line if self.line is None else self.line

    def trial_configs(self) -> list[TrialConfig]:
        """Speeds take turns; seeds repeat only across speeds, as in 3 speeds × 5 seeds."""
        count = len(self.speeds)
        return [
            TrialConfig(
                self.speeds[i % count],
                self.seed + i // count,
                self.seconds,
                self.plan_every,
                self.delay_steps,
            )
            for i in range(self.trials)
        ]


def _run(job: tuple[Evaluation, str, TrialConfig]) -> TrialResult:
    """One trial, in a worker process; results do not depend on which worker runs it."""
    evaluation, method, config = job
    torch.set_num_threads(1)
    robot = robots.get(evaluation.robot)
    artefact = load_artefact(evaluation.model, robot)
    factory = driver_factory(
        method, artefact, robot, evaluation.planner, evaluation.delay_steps, evaluation.world
    )
    layout = artefact.contract.observation
    trial = Trial(
        robot,
        evaluation.world,
        layout,
        config,
        line=evaluation.line_m,
        ends_at_line=evaluation.ends_at_line,
    )
    return trial.run(factory(config.seed))


def evaluate(evaluation: Evaluation, workers: int) -> list[Row]:
    """Run every trial of every method on ``workers`` processes, with a progress bar."""
    jobs = [(evaluation, m, c) for m in evaluation.methods for c in evaluation.trial_configs()]

    def collect(results: Iterable[TrialResult]) -> list[TrialResult]:
        return list(tqdm(results, total=len(jobs), unit="trial", file=sys.stderr))

    if workers <= 1:
        results = collect(map(_run, jobs))
    else:
        # Processes are spawned, not forked: torch and MuJoCo keep threads of their own.
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=context) as pool:
            results = collect(pool.map(_run, jobs))
    return [
        Row(method, tuple(results[i * evaluation.trials : (i + 1) * evaluation.trials]))
        for i, method in enumerate(evaluation.methods)
    ]


def sweep(
    evaluation: Evaluation, parameter: str, values: Sequence[float], workers: int, command: str
) -> SweepResult:
    """Run every trial of every method at every value of ``parameter``."""
    worlds = [with_parameter(evaluation.world, parameter, value) for value in values]
    start, rows = time.monotonic(), list[tuple[float, Row]]()
    for value, world in zip(values, worlds, strict=True):
        rows += [
            (value, row)
            for row in evaluate(replace(evaluation, world=world, ends_at_line=True), workers)
        ]
    return SweepResult(
        world=evaluation.world.name,
        parameter=parameter,
        values=tuple(values),
        rows=tuple(rows),
        line_m=evaluation.line_m,
        command=command,
        seed=evaluation.seed,
        wall_s=round(time.monotonic() - start, 1),
    )


def table(rows: Sequence[Row]) -> str:
    """The rows as text, one line a method."""
    lines = [f"{'method':<10}{'success':>9}{'falls':>7}{'progress (m)':>18}{'error (m/s)':>13}"]
    for row in rows:
        data = row.to_dict()
        progress = data["progress_m"]
        success = f"{data['success']}/{data['trials']}"
        error = data["velocity_error_mps"]
        lines.append(
            f"{row.method:<10}{success:>9}{data['falls']:>7}"
            f"{progress['mean']:>11.2f} ± {progress['std']:.2f}"
            f"{'-' if error is None else f'{error:.2f}':>13}"
        )
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist evaluate``."""
    parser.add_argument("--world", default="slope", help=f"one of {', '.join(paths.world_names())}")
    parser.add_argument("--model", default="go1", help="name in models/ or path of an artefact")
    parser.add_argument("--robot", default="go1", choices=robots.available())
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(DEFAULT_METHODS),
        choices=METHODS,
        metavar="METHOD",
        help=f"of {', '.join(METHODS)}",
    )
    parser.add_argument("--trials", type=int, default=15, help="per method, spread over speeds")
    parser.add_argument("--speeds", nargs="+", type=float, default=list(SPEEDS), help="m/s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=10.0, help="walked per trial")
    parser.add_argument(
        "--line",
        type=float,
        help="m that count as success, and end the trials of a sweep (default: the world's)",
    )
    parser.add_argument("--plan-every", type=int, default=1, help="control steps per plan")
    parser.add_argument(
        "--delay-steps", type=int, default=0, help="control steps until a plan reaches the robot"
    )
    parser.add_argument("--samples", type=int, default=PlannerConfig().samples)
    parser.add_argument("--iterations", type=int, default=PlannerConfig().iterations)
    parser.add_argument(
        "--lockstep",
        action="store_true",
        help="the simulation waits for every plan (trials always do; stated for the record)",
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--sweep",
        metavar="PARAMETER=V,V,...",
        help="try other values of what makes the world hard; --json then holds the sweep",
    )
    parser.add_argument("--json", metavar="FILE", help="write the rows here; - for stdout")


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist evaluate``."""
    for name in ("trials", "plan_every", "workers"):
        if getattr(arguments, name) < 1:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} must be at least 1, got {getattr(arguments, name)}")
    if not 0 <= arguments.delay_steps <= 5:
        raise ConfigError(f"--delay-steps must lie in 0..5, got {arguments.delay_steps}")
    if not 0 < arguments.seconds <= 600:
        raise ConfigError(f"--seconds must lie in (0, 600], got {arguments.seconds}")
    if not all(-1.0 <= speed <= 1.5 for speed in arguments.speeds):
        raise ConfigError(f"--speeds must lie within -1.0..1.5 m/s, got {arguments.speeds}")
    if arguments.line is not None and not 0 < arguments.line <= 100:
        raise ConfigError(f"--line must lie in (0, 100], got {arguments.line}")
    robot = robots.get(arguments.robot)
    world = load_world(arguments.world)
    model = paths.model_file(arguments.model)
    load_artefact(model, robot)
    evaluation = Evaluation(
        world=world,
        model=model,
        robot=arguments.robot,
        methods=tuple(arguments.methods),
        speeds=tuple(arguments.speeds),
        trials=arguments.trials,
        seed=arguments.seed,
        seconds=arguments.seconds,
        plan_every=arguments.plan_every,
        delay_steps=arguments.delay_steps,
        line=arguments.line,
        planner=PlannerConfig(samples=arguments.samples, iterations=arguments.iterations),
    )
    if arguments.sweep is not None:
        swept = sweep(
            evaluation,
            *parse_sweep(arguments.sweep),
            workers=arguments.workers,
            command=repeating("evaluate", add_arguments, arguments, leave_out=("workers", "json")),
        )
        print(swept.table(), file=sys.stderr)
        _write(swept.to_dict(), arguments.json)
        return 0
    rows = evaluate(evaluation, arguments.workers)
    print(table(rows), file=sys.stderr)
    result = {
        "world": arguments.world,
        "model": arguments.model,
        "seed": arguments.seed,
        "line_m": evaluation.line_m,
        "seconds": arguments.seconds,
        "plan_every": arguments.plan_every,
        "delay_steps": arguments.delay_steps,
        "planner": asdict(evaluation.planner),
        "rows": [row.to_dict() for row in rows],
    }
    _write(result, arguments.json)
    return 0


def _write(result: dict[str, Any], file: str | None) -> None:
    """JSON to ``file``, to stdout for "-", or nowhere."""
    if file == "-":
        print(json.dumps(result, indent=2))
    elif file:
        Path(file).write_text(json.dumps(result, indent=2) + "\n")
