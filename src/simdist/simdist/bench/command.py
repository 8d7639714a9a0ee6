"""``simdist bench planner``: what planning costs on this machine."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from simdist import paths, robots
from simdist.bench.planner import Subject, authors_size, measure
from simdist.errors import ConfigError
from simdist.planning import PlannerConfig
from simdist.world_model import load_artefact


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist bench``."""
    what = parser.add_subparsers(dest="what", metavar="WHAT", required=True)
    text = "ms per plan, GFLOP/s and share of the peak: samples x iterations x backend"
    planner = what.add_parser("planner", help=text, description=text)
    planner.add_argument("--model", default="go1", help="name in models/ or path of an artefact")
    planner.add_argument("--samples", type=int, nargs="+", default=[128, 512])
    planner.add_argument("--iterations", type=int, nargs="+", default=[1, 2])
    planner.add_argument("--threads", type=int, default=1)
    planner.add_argument("--plans", type=int, default=100, help="timed per row, at most")
    planner.add_argument(
        "--seconds", type=float, default=10.0, help="per budget, after which plans are enough"
    )
    planner.add_argument(
        "--closed-loop", action="store_true", help="plan around the model's reactive policy"
    )
    planner.add_argument(
        "--authors",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="also a random network of the SimDist authors' size, at their 450 x 8",
    )
    planner.add_argument("--json", metavar="FILE", help="write the rows here; - for stdout")


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist bench planner``."""
    if arguments.plans < 1:
        raise ConfigError(f"--plans must be at least 1, got {arguments.plans}")
    if not 0 < arguments.seconds <= 3600:
        raise ConfigError(f"--seconds must lie in (0, 3600], got {arguments.seconds}")
    artefact = load_artefact(paths.model_file(arguments.model))
    budgets = tuple((n, k) for n in arguments.samples for k in arguments.iterations)
    for samples, iterations in budgets:
        PlannerConfig(samples=samples, iterations=iterations)
    if arguments.closed_loop and artefact.model.reactive is None:
        raise ConfigError(
            f"--closed-loop: model {arguments.model!r} has no reactive policy; make one with "
            "'simdist refine-policy'"
        )
    subjects = [Subject(artefact.contract.robot, artefact.model, budgets)]
    # The authors' network has no reactive policy.
    if arguments.authors and not arguments.closed_loop:
        subjects.append(authors_size())
    report = measure(
        subjects,
        robots.get(artefact.contract.robot),
        threads=arguments.threads,
        plans=arguments.plans,
        seconds=arguments.seconds,
        closed_loop=arguments.closed_loop,
        progress=lambda line: print(line, file=sys.stderr),
    )
    if arguments.json == "-":
        print(json.dumps(report.to_dict(), indent=2))
        print(report.table(), file=sys.stderr)
        return 0
    print(report.table())
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(report.to_dict(), indent=2) + "\n")
    return 0
