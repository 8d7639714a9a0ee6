"""``simdist weaken``: a model and an expert with noise on their weights.

A method that does not get better from there in the nominal world does not learn at all, and nothing
would follow from its failure in a harder one.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from torch import nn

from simdist import paths
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ConfigError
from simdist.evaluation.drivers import expert_path
from simdist.world_model.artefact import load_artefact, save_artefact

MODEL_FILE = "world_model.safetensors"


def add_noise(parameters: dict[str, nn.Parameter], amount: float, seed: int) -> None:
    """Add to each weight matrix noise of ``amount`` times its own standard deviation."""
    draw = torch.Generator().manual_seed(seed)
    for parameter in parameters.values():
        if parameter.ndim >= 2:
            noise = torch.randn(parameter.shape, generator=draw)
            parameter.data.add_(amount * parameter.data.std() * noise)


def weaken(model: Path, out: Path, *, policy: float, world_model: float, seed: int) -> Path:
    """Write a model to ``out`` with the noise ``world_model`` on everything that plans, beside an
    expert with the noise ``policy`` on its actor; returns the path of the model."""
    for name, amount in (("policy", policy), ("world-model", world_model)):
        if not 0 <= amount <= 10:
            raise ConfigError(f"--{name} must lie in 0..10, got {amount}")
    artefact = load_artefact(model)
    expert = ExpertPolicy.load(expert_path(artefact.path))
    add_noise(dict(expert.actor.named_parameters()), policy, seed)
    weak = copy.deepcopy(artefact.model)
    add_noise(dict(weak.named_parameters()), world_model, seed)
    out.mkdir(parents=True, exist_ok=True)
    training = {"kind": "weakened", "policy": policy, "world_model": world_model, "seed": seed}
    expert.save(expert_path(out / MODEL_FILE), dict(training))
    return save_artefact(
        out / MODEL_FILE,
        weak,
        artefact.contract,
        artefact.version,
        artefact.weights_hash,
        training,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist weaken``."""
    parser.add_argument("--model", default="go1", help="name in models/, or an artefact")
    parser.add_argument("--out", type=Path, default=Path("runs/weakened"), help="directory to fill")
    parser.add_argument(
        "--policy", type=float, default=0.5, help="noise on the expert's weights, relative"
    )
    parser.add_argument(
        "--world-model", type=float, default=0.2, help="noise on the model's weights, relative"
    )
    parser.add_argument("--seed", type=int, default=0)


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist weaken``."""
    path = weaken(
        paths.model_file(arguments.model),
        arguments.out,
        policy=arguments.policy,
        world_model=arguments.world_model,
        seed=arguments.seed,
    )
    print(f"weakened model in {path}")
    return 0
