"""``simdist train-probe``: teach a probe to read foot positions out of a world model's latents.

What the feet do comes from the joint positions in recorded observations, by forward kinematics; the
latents are those that the frozen encoder gives for the same observations.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from simdist import robots
from simdist.distillation.windows import Shard, find_shards, hash_files, read_header
from simdist.errors import ContractError, DatasetError
from simdist.paths import model_file
from simdist.ranges import Checked, add_options, bounded, from_options
from simdist.simulation.kinematics import FootKinematics
from simdist.world_model.artefact import Artefact, load_artefact
from simdist.world_model.foot_probe import FootProbe, probe_beside, save_foot_probe

_STRIDE = 4  #: of the steps that are taken from one environment: neighbours are nearly the same
_HELD_OUT = 0.1  #: share of the environments
_ENCODED_AT_ONCE = 4096


@dataclass(frozen=True)
class ProbeConfig(Checked):
    """Settings of one training."""

    states: int = bounded(150_000, 100, 10_000_000, "recorded states to learn from, at most")
    steps: int = bounded(2000, 1, 1_000_000, "of gradient descent")
    batch: int = bounded(1024, 2, 65536, "states per step")
    learning_rate: float = bounded(2e-3, 1e-8, 1.0, "peak")
    width: int = bounded(128, 4, 1024, "of both hidden layers")
    # Predicted latents lie beside those of the encoder; without noise feet are read out of
    # directions in which latents hardly differ, and which no prediction gets right.
    noise: float = bounded(0.15, 0.0, 1.0, "on latents, in units of their standard deviation")
    seed: int = bounded(0, 0, 2**31 - 1, "seed of weights, choice of states and batches")
    threads: int = bounded(2, 1, 1024, "CPU threads")


@dataclass(frozen=True)
class ProbeData:
    """Latents ``(N, D)`` and foot positions ``(N, feet, 3)`` m, some of them held out."""

    latents: Tensor
    feet: Tensor
    held_out: Tensor  #: (N,) bool, whole environments

    @staticmethod
    def of(artefact: Artefact, shards: Sequence[Shard], config: ProbeConfig) -> ProbeData:
        """States drawn evenly from ``shards``; raises DatasetError when there are too few, and
        ContractError when the observations of the model do not tell joint positions."""
        contract = artefact.contract
        robot = robots.get(contract.robot)
        columns = contract.observation.slices().get("joint_pos")
        if columns is None:
            raise ContractError(
                f"{artefact.path}: its observations hold no joint_pos, so that there is nothing to "
                "compute foot positions from"
            )
        per_shard = math.ceil(config.states / len(shards))
        rng = np.random.default_rng(config.seed)
        parts = [_read(shard, per_shard, rng) for shard in shards]
        proprio, scan, held_out = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        if held_out.all() or not held_out.any():
            raise DatasetError(
                f"{shards[0].path}: at least two environments are needed, one of them to hold out"
            )
        joints = robot.default_pose + proprio[:, columns]
        feet = FootKinematics(robot).positions(joints)
        return ProbeData(
            _encode(artefact, torch.from_numpy(proprio), torch.from_numpy(scan)),
            torch.from_numpy(feet).float(),
            torch.from_numpy(held_out),
        )


def _read(shard: Shard, count: int, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """About ``count`` states of some environments: proprioception, scans, and which are held out.
    Raises DatasetError for values that are not finite."""
    steps = math.ceil(shard.steps / _STRIDE)
    environments = min(max(math.ceil(count / steps), 2), shard.environments)
    rows = np.sort(rng.permutation(shard.environments)[:environments])
    chosen = rng.permutation(environments) < max(round(_HELD_OUT * environments), 1)
    arrays = []
    with h5py.File(shard.path, "r") as file:
        for name in ("proprio", "scan"):
            # The rows as a whole first: HDF5 is slow at picking single steps.
            values: np.ndarray = file[name][rows]  # type: ignore[index, assignment]
            values = values[:, ::_STRIDE].astype(np.float32)
            if not np.isfinite(values).all():
                raise DatasetError(f"{shard.path}: {name} holds values that are not finite")
            arrays.append(values.reshape(-1, values.shape[-1]))
    return *arrays, np.repeat(chosen, steps)


@torch.inference_mode()
def _encode(artefact: Artefact, proprio: Tensor, scan: Tensor) -> Tensor:
    pairs = zip(proprio.split(_ENCODED_AT_ONCE), scan.split(_ENCODED_AT_ONCE), strict=True)
    return torch.cat([artefact.model.latent(*pair) for pair in pairs])


def train(data: ProbeData, config: ProbeConfig) -> FootProbe:
    """A probe fitted to the states that are not held out, frozen."""
    torch.manual_seed(config.seed)
    draw = torch.Generator().manual_seed(config.seed)
    latents, feet = data.latents[~data.held_out].clone(), data.feet[~data.held_out]
    probe = FootProbe(latents.shape[1], feet.shape[1], (config.width, config.width))
    probe.fit_scales(latents, feet)
    wanted = (feet - probe.mean) / probe.std
    noise = config.noise * probe.latent_std
    optimiser = torch.optim.AdamW(probe.parameters(), lr=config.learning_rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.steps)
    steps = tqdm(
        range(config.steps),
        unit="step",
        desc="train-probe",
        file=sys.stderr,
        mininterval=0.5 if sys.stderr.isatty() else 10.0,
    )
    for _ in steps:
        rows = torch.randint(len(latents), (config.batch,), generator=draw)
        seen = latents[rows]
        seen = seen + noise * torch.randn(seen.shape, generator=draw)
        loss = (probe.scaled(seen) - wanted[rows]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return probe.requires_grad_(False).eval()


@torch.inference_mode()
def held_out_error(probe: FootProbe, data: ProbeData) -> dict[str, float]:
    """Distance between decoded and true feet in mm over the held-out states: mean and 95th
    percentile, and ``spread``, the mean distance that answering with the mean would give."""
    latents, feet = data.latents[data.held_out], data.feet[data.held_out]
    distance = 1e3 * (probe(latents) - feet).norm(dim=-1).flatten().numpy()
    spread = 1e3 * (probe.mean - feet).norm(dim=-1).mean().item()
    return {
        "mean": round(float(distance.mean()), 3),
        "p95": round(float(np.percentile(distance, 95)), 3),
        "spread": round(spread, 3),
    }


def train_probe(
    model: str, data: Sequence[str], out: Path | None, config: ProbeConfig
) -> tuple[Path, dict[str, float]]:
    """Train, write the probe, and return its path and its held-out error in mm.

    It goes beside the model unless ``out`` names another directory. Raises DatasetError when the
    data is unusable or for another model.
    """
    torch.set_num_threads(config.threads)
    artefact = load_artefact(model_file(model))
    contract, path = artefact.contract, probe_beside(artefact.path)
    shards = [read_header(shard) for shard in find_shards([Path(item) for item in data])]
    for shard in shards:
        if (shard.robot, shard.observation) != (contract.robot, contract.observation):
            raise DatasetError(
                f"{shard.path} was recorded with {shard.robot} and {shard.observation}, the model "
                f"is for {contract.robot} and {contract.observation}"
            )
    samples = ProbeData.of(artefact, shards, config)
    probe = train(samples, config)
    error = held_out_error(probe, samples)
    training: dict[str, Any] = {
        "config": asdict(config),
        "data_sha256": hash_files([shard.path for shard in shards]),
        "states": int((~samples.held_out).sum()),
        "held_out_states": int(samples.held_out.sum()),
        "held_out_error_mm": error,
        "model_weights_hash": artefact.weights_hash,
    }
    save_foot_probe(
        path if out is None else out / path.name,
        probe,
        robots.get(contract.robot),
        artefact.frozen_hash,
        training,
    )
    return path if out is None else out / path.name, error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``simdist train-probe``."""
    parser.add_argument("--model", default="go1", help="name in models/ or path of an artefact")
    parser.add_argument("--data", nargs="+", default=["data/go1"], metavar="PATH")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: beside the model")
    add_options(parser, ProbeConfig)


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist train-probe`` and print the path of the probe."""
    config = from_options(ProbeConfig, arguments)
    path, error = train_probe(arguments.model, arguments.data, arguments.out, config)
    print(
        f"held-out error {error['mean']:.1f} mm (95 % below {error['p95']:.1f} mm; feet move "
        f"{error['spread']:.0f} mm about their mean)",
        file=sys.stderr,
    )
    print(path)
    return 0
