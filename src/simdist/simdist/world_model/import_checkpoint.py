"""``simdist import-checkpoint``: a world model of the SimDist authors as an artefact.

The source is either one of their checkpoint directories (``model_config.yaml`` beside numbered
Orbax steps; needs the packages ``orbax-checkpoint`` and ``jax``), or a ``.safetensors`` file of
flax parameters under their dotted paths with a ``.json`` of the same name that holds ``config``.
"""

from __future__ import annotations

import argparse
import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from simdist import robots
from simdist.errors import ArtefactError, ContractError
from simdist.robots import RobotSpec
from simdist.world_model.artefact import (
    check_finite,
    check_tensors,
    read_limited,
    save_artefact,
    unpack_tensors,
)
from simdist.world_model.contract import Contract
from simdist.world_model.flax_checkpoint import (
    joint_names,
    network_config,
    network_state,
    observation_layout,
)
from simdist.world_model.network import WorldModel

ORBAX_CONFIG = "model_config.yaml"


@dataclass(frozen=True)
class Checkpoint:
    """What was read from a source: flax parameters by dotted path, and their configuration."""

    parameters: dict[str, Tensor]
    config: Mapping[str, Any]
    origin: str  #: which step of what


def read_checkpoint(source: Path, step: int | None = None) -> Checkpoint:
    """Read a directory or file; raises ArtefactError saying what is missing."""
    if source.is_dir():
        return _read_orbax(source, step)
    if step is not None:
        raise ArtefactError(f"{source} is one file; a step can be chosen in a directory only")
    return _read_file(source)


def _read_file(source: Path) -> Checkpoint:
    parameters, _ = unpack_tensors(read_limited(source), str(source))
    beside = source.with_suffix(".json")
    try:
        described = json.loads(read_limited(beside))
        config = described["config"]
        origin = str(described.get("source", source.name))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ArtefactError(f"{beside} has no readable 'config': {error!r}") from error
    return Checkpoint(parameters, config, origin)


def _read_orbax(directory: Path, step: int | None) -> Checkpoint:
    try:
        config = yaml.safe_load(read_limited(directory / ORBAX_CONFIG))
    except yaml.YAMLError as error:
        raise ArtefactError(f"{directory / ORBAX_CONFIG} is not YAML: {error}") from error
    steps = sorted(int(path.name) for path in directory.iterdir() if path.name.isdigit())
    if not steps or (step is not None and step not in steps):
        wanted = "a numbered step" if step is None else f"step {step}"
        raise ArtefactError(f"{directory} does not hold {wanted}; steps: {steps or 'none'}")
    chosen = steps[-1] if step is None else step
    try:
        orbax = importlib.import_module("orbax.checkpoint")
    except ImportError as error:
        raise ArtefactError(
            f"{directory} is an Orbax checkpoint, and the package to read it is not installed "
            f"({error}): pip install orbax-checkpoint"
        ) from error
    path = (directory / str(chosen) / "default").resolve()
    try:
        tree = orbax.StandardCheckpointer().restore(path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ArtefactError(f"cannot read the Orbax checkpoint {path}: {error}") from error
    return Checkpoint(flatten(tree), config, f"{directory.name}, step {chosen}")


def flatten(tree: Mapping[Any, Any], prefix: str = "") -> dict[str, Tensor]:
    """Nested parameters by dotted path, without the states of random generators."""
    flat: dict[str, Tensor] = {}
    for key, value in tree.items():
        if key == "rngs":
            continue
        path = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{path}."))
        else:
            # Copied: arrays of JAX are read-only.
            flat[path] = torch.tensor(value.__array__(), dtype=torch.float32)
    return flat


def convert(checkpoint: Checkpoint, robot: RobotSpec) -> tuple[WorldModel, Contract]:
    """The model, and what it was trained for.

    Raises ContractError if it is for other joints or has no counterpart here, ArtefactError if
    parameters are missing, of the wrong shape or not finite.
    """
    network = network_config(checkpoint.config)
    names = joint_names(checkpoint.config)
    if names != robot.joint_names:
        raise ContractError(
            f"the checkpoint moves the joints {', '.join(names)}, but {robot.name} has "
            f"{', '.join(robot.joint_names)}, in this order"
        )
    contract = Contract.of(robot, observation_layout(checkpoint.config, network), network)
    check_finite(checkpoint.parameters, checkpoint.origin)
    state = network_state(checkpoint.parameters, network)
    model = WorldModel(network)
    check_tensors(state, model.state_dict(), checkpoint.origin)
    model.load_state_dict(state)
    return model.eval(), contract


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist import-checkpoint``."""
    parser.add_argument(
        "source",
        type=Path,
        help="checkpoint directory (Orbax), or .safetensors file with its .json",
    )
    parser.add_argument("--robot", required=True, choices=robots.available())
    parser.add_argument("--out", type=Path, required=True, help="artefact to write (.safetensors)")
    parser.add_argument("--step", type=int, help="of a directory (default: the last one)")


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist import-checkpoint``."""
    if arguments.out.suffix != ".safetensors":
        raise ArtefactError(f"--out {arguments.out}: artefacts end in .safetensors")
    checkpoint = read_checkpoint(arguments.source, arguments.step)
    model, contract = convert(checkpoint, robots.get(arguments.robot))
    training = {"imported_from": checkpoint.origin}
    save_artefact(arguments.out, model, contract, version=0, parent=None, training=training)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{arguments.out}: {count} parameters for {contract.robot}, from {checkpoint.origin}")
    return 0
