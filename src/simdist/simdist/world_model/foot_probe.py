"""A small frozen network that reads foot positions out of latents, predicted ones included.

It is trained in simulation on latents of the encoder. Relearning the dynamics leaves the encoder as
it is, so one probe serves a model and all its successors; it lies beside the model and names, by
hash, the frozen parts whose latents it reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from simdist import robots
from simdist.errors import ArtefactError, ContractError
from simdist.robots import RobotSpec
from simdist.world_model.artefact import (
    Artefact,
    check_finite,
    check_tensors,
    pack_tensors,
    read_limited,
    unpack_tensors,
    write_atomically,
)
from simdist.world_model.attention import Mlp
from simdist.world_model.config import MAX_SIZE
from simdist.world_model.network import hash_tensors

FORMAT = "simdist-foot-probe-1"
FILE_NAME = "foot_probe.safetensors"

_MOST_FEET, _MOST_LAYERS = 64, 16


class FootProbe(nn.Module):
    """Latents to foot positions in the base frame (x forward, y left, z up)."""

    latent_mean: Tensor  #: (D,)
    latent_std: Tensor  #: (D,)
    mean: Tensor  #: (feet, 3) m
    std: Tensor  #: (feet, 3) m

    def __init__(self, latent_dim: int, feet: int, hidden: tuple[int, ...] = (128, 128)) -> None:
        super().__init__()
        self.latent_dim, self.feet, self.hidden = latent_dim, feet, tuple(hidden)
        self.network = Mlp((latent_dim, *hidden, 3 * feet))
        self.register_buffer("latent_mean", torch.zeros(latent_dim))
        self.register_buffer("latent_std", torch.ones(latent_dim))
        self.register_buffer("mean", torch.zeros(feet, 3))
        self.register_buffer("std", torch.ones(feet, 3))

    def forward(self, latent: Tensor) -> Tensor:
        """Foot positions ``(..., feet, 3)`` m of latents ``(..., D)``."""
        return self.mean + self.std * self.scaled(latent)

    def scaled(self, latent: Tensor) -> Tensor:
        """The same in the network's units, in which it is trained."""
        latent = (latent - self.latent_mean) / self.latent_std
        return self.network(latent).unflatten(-1, (self.feet, 3))

    def fit_scales(self, latents: Tensor, feet: Tensor) -> None:
        """Set what is subtracted and divided by from ``latents (N, D)`` and ``feet (N, feet, 3)``
        m; what hardly varies is not blown up."""
        self.latent_mean.copy_(latents.mean(0))
        self.latent_std.copy_(latents.std(0).clamp(min=1e-4))
        self.mean.copy_(feet.mean(0))
        self.std.copy_(feet.std(0).clamp(min=1e-3))


@dataclass(frozen=True)
class LoadedProbe:
    """A probe with everything its file says about it; ``training`` tells how it was made."""

    probe: FootProbe
    robot: str
    feet: tuple[str, ...]  #: names in the order of the probe's answers
    frozen_hash: str  #: of the world model whose latents it reads
    weights_hash: str
    training: dict[str, Any]
    path: Path

    def check_model(self, artefact: Artefact) -> None:
        """Raise ContractError unless the probe reads the latents of ``artefact``."""
        robot, network = artefact.contract.robot, artefact.contract.network
        for name, mine, wanted in (
            ("robot", self.robot, robot),
            ("feet", self.feet, robots.get(robot).foot_names),
            ("latent_dim", self.probe.latent_dim, network.latent_dim),
            ("frozen_hash", self.frozen_hash[:12], artefact.frozen_hash[:12]),
        ):
            if mine != wanted:
                raise ContractError(
                    f"{self.path} reads the latents of a model with {name} {mine!r}, "
                    f"{artefact.path} has {wanted!r}; make another with 'simdist train-probe'"
                )


def probe_beside(model: Path) -> Path:
    """Where the probe of the model in file ``model`` lies, if it has one."""
    return model.parent / FILE_NAME


def save_foot_probe(
    path: Path, probe: FootProbe, robot: RobotSpec, frozen_hash: str, training: dict[str, Any]
) -> Path:
    """Write a probe atomically; raises ArtefactError when a weight is not finite or the file
    cannot be written, ContractError when the probe has not as many feet as the robot."""
    if probe.feet != len(robot.foot_names):
        raise ContractError(
            f"the probe has {probe.feet} feet, {robot.name} has {len(robot.foot_names)}"
        )
    tensors = probe.state_dict()
    check_finite(tensors, str(path))
    metadata = {
        "format": FORMAT,
        "robot": robot.name,
        "feet": json.dumps(robot.foot_names),
        "latent_dim": json.dumps(probe.latent_dim),
        "hidden": json.dumps(probe.hidden),
        "frozen_hash": frozen_hash,
        "weights_hash": hash_tensors(tensors),
        "training": json.dumps(training),
    }
    write_atomically(path, pack_tensors(tensors, metadata))
    return path


def load_foot_probe(path: Path, artefact: Artefact | None = None) -> LoadedProbe:
    """Read and check a probe, for the latents of ``artefact`` if one is given.

    Raises ArtefactError when the file is missing, too large, damaged or inconsistent, and
    ContractError when it reads the latents of another model.
    """
    path = Path(path)
    tensors, metadata = unpack_tensors(read_limited(path), str(path))
    if metadata.get("format") != FORMAT:
        raise ArtefactError(
            f"{path} is not a foot probe of this project: format {metadata.get('format')!r}, "
            f"expected {FORMAT!r}"
        )
    try:
        latent_dim = _size(json.loads(metadata["latent_dim"]), "latent_dim", MAX_SIZE)
        feet = _list(json.loads(metadata["feet"]), "feet", _MOST_FEET)
        hidden = _list(json.loads(metadata["hidden"]), "hidden", _MOST_LAYERS)
        hidden = tuple(_size(width, "hidden", MAX_SIZE) for width in hidden)
        training = json.loads(metadata["training"])
        if not feet or len(set(feet)) != len(feet) or not all(type(f) is str for f in feet):
            raise ValueError(f"feet must be different names, got {feet!r}")
        if not isinstance(training, dict):
            raise ValueError("training must be a table")
        robot, frozen_hash = metadata["robot"], metadata["frozen_hash"]
    except (KeyError, ValueError, RecursionError) as error:
        raise ArtefactError(f"{path}: damaged metadata: {error}") from error
    # As with world models: sizes that a header merely claims must not cost memory.
    with torch.device("meta"):
        probe = FootProbe(latent_dim, len(feet), hidden)
    check_tensors(tensors, probe.state_dict(), str(path))
    weights_hash = hash_tensors(tensors)
    if weights_hash != metadata.get("weights_hash"):
        raise ArtefactError(
            f"{path}: the weights hash is {weights_hash[:12]}, the file claims "
            f"{str(metadata.get('weights_hash'))[:12]}; the file was altered, make it again with "
            "'simdist train-probe'"
        )
    if any((tensors[name] <= 0).any() for name in ("std", "latent_std")):
        raise ArtefactError(f"{path}: a standard deviation is not positive")
    probe.load_state_dict(tensors, assign=True)
    probe.requires_grad_(False).eval()
    loaded = LoadedProbe(probe, robot, feet, frozen_hash, weights_hash, training, path)
    if artefact is not None:
        loaded.check_model(artefact)
    return loaded


def _size(value: Any, name: str, most: int) -> int:
    if type(value) is not int or not 1 <= value <= most:
        raise ValueError(f"{name} must be a whole number from 1 to {most}, got {value!r}")
    return value


def _list(value: Any, name: str, most: int) -> tuple[Any, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"{name} must be a list of at most {most}, got {value!r:.80}")
    return tuple(value)
