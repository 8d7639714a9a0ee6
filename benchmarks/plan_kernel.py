"""Time of the returns of one plan, in PyTorch and in the compiled kernel, on one thread.

Run: python benchmarks/plan_kernel.py [--model FILE] [--plans N] [--threads N]

One plan scores all samples once and, from the second iteration on, those around the mean again.
Both are timed in turn, so that what else the machine does meets both. The share of the peak is
that of PyTorch's own matrix product (512 x 512 x 512, float32), measured in the same run.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from simdist.paths import model_file
from simdist.planning import PlannerConfig
from simdist.planning.backends import PlanningProblem
from simdist.planning.backends.native import NativeBackend
from simdist.planning.backends.torch_backend import TorchBackend
from simdist.world_model import WorldModel, load_artefact
from simdist.world_model.config import WorldModelConfig

_BUDGETS = ((64, 1), (128, 2))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=model_file("go1"))
    parser.add_argument("--plans", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = load_artefact(arguments.model, None).model
    compare(model, arguments.plans, arguments.threads)


@torch.inference_mode()
def compare(model: WorldModel, plans: int, threads: int) -> None:
    """Print one line per budget and way of planning."""
    config = model.config
    robot = (
        torch.randn(1, config.context_length, config.latent_dim),
        torch.randn(1, config.latent_dim),
        torch.zeros(1, config.command_dim),
    )
    native = NativeBackend(model, 0.99, threads)
    problems = TorchBackend(model, 0.99).prepare(*robot), native.prepare(*robot)
    print(f"latent {config.latent_dim}, horizon {config.horizon}, {threads} thread(s)", end="")
    print(f", kernel for {native.kind}")
    header = "plan", "samples", "torch ms", "native ms", "ratio", "GFLOP/s", "of peak"
    print(("{:>8}" + "{:>10}" * 6).format(*header))
    left, right = torch.randn(512, 512), torch.randn(512, 512)
    for samples, iterations in _BUDGETS:
        counts = scored(samples, iterations)
        shape = config.horizon, config.action_dim
        batches = [0.5 * torch.randn(1, count, *shape) for count in counts]
        ways: list[tuple[str, Callable[[PlanningProblem], None]]]
        ways = [("returns", lambda problem, batches=batches: score(problem, batches))]
        if model.reactive is not None:
            ways.append(("follow", lambda problem, batches=batches: follow(problem, batches)))
        for way, plan in ways:
            slow, fast, product = in_turn(
                plans,
                lambda plan=plan: plan(problems[0]),
                lambda plan=plan: plan(problems[1]),
                lambda: left @ right,
            )
            gflops = 1e-9 * sum(counts) * operations(config) / fast
            share = gflops / (2e-9 * 512**3 / product)
            print(
                f"{way:>8}{f'{samples}x{iterations}':>10}{slow * 1e3:10.2f}{fast * 1e3:10.2f}"
                f"{slow / fast:10.2f}{gflops:10.1f}{share:10.0%}"
            )


def scored(samples: int, iterations: int) -> list[int]:
    """Samples scored in each iteration: those around the prior only in the first."""
    config = PlannerConfig(samples=samples, iterations=iterations)
    return [samples, *[samples - config.prior_samples] * (iterations - 1)]


def score(problem: PlanningProblem, batches: list[Tensor]) -> None:
    for actions in batches:
        problem.returns(actions)


def follow(problem: PlanningProblem, batches: list[Tensor]) -> None:
    for deviations in batches:
        limit = torch.full(deviations.shape[-1:], 6.0)
        problem.follow(deviations, deviations[:, :, :1], (-limit, limit))


def in_turn(count: int, *calls: Callable[[], object]) -> list[float]:
    """Median seconds of every call."""
    spent: list[list[float]] = [[] for _ in calls]
    for _ in range(count + 1):
        for times, call in zip(spent, calls, strict=True):
            begin = time.perf_counter()
            call()
            times.append(time.perf_counter() - begin)
    return [statistics.median(times[1:]) for times in spent]


def operations(config: WorldModelConfig) -> float:
    """Floating-point operations per sample, counting what the matrix products of the network need
    and nothing that can be shared, folded or left out."""
    d, t = config.latent_dim, config.horizon
    feed_forward = 2 * config.ff_factor * d * d
    attention = (
        d * (t + 1) + 2 * d * config.context_length
    )  # of one position, causal and to context
    first = 3 * config.action_dim * d  # queries, keys and values of embedded actions
    dynamics = config.action_dim * d + first - 3 * d * d
    dynamics += config.dynamics_layers * (6 * d * d + feed_forward + attention)
    reward = (config.action_dim + d) * d
    reward += config.head_layers * (4 * d * d + feed_forward + 2 * d * t)
    value_others = (config.head_layers - 1) * (5 * d * d + feed_forward + 2 * d * t)
    value = t * (2 * d * d + value_others) + 3 * d * d + feed_forward + 2 * d * t
    return 2.0 * (t * (dynamics + reward) + value)


if __name__ == "__main__":
    main()
