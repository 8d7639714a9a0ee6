"""``simdist refine-policy``: teach a world model's policies on ground the model does not know.

The policy prior and the reactive policy are trained again on everything, slippery shards included;
encoder, dynamics, reward and value stay as they are, bit for bit. What has to be relearned on a
robot is therefore still unknown to the model, but plans start from a policy that imitates the
expert there too.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from simdist.distillation.pretrain import MODEL_FILE, reactive_layers
from simdist.distillation.windows import WindowData, load_windows
from simdist.errors import DatasetError
from simdist.paths import model_file
from simdist.ranges import Checked, add_options, bounded, from_options
from simdist.world_model import Contract, WorldModel
from simdist.world_model.artefact import Artefact, load_artefact, save_artefact
from simdist.world_model.losses import policy_loss
from simdist.world_model.windows import WindowSet

_EVALUATION = 4096


@dataclass(frozen=True)
class RefineConfig(Checked):
    """Settings of one refinement."""

    minutes: float = bounded(10.0, 0.01, 1e4, "training time")
    batch: int = bounded(128, 2, 65536, "windows per step of the prior")
    reactive_batch: int = bounded(1024, 2, 65536, "states per step of the reactive policy")
    reactive_steps: int = bounded(2, 1, 100, "steps of the reactive policy per step of the prior")
    policy_only_share: float = bounded(0.4, 0.0, 1.0, "share of policy_only shards in a batch")
    learning_rate: float = bounded(4e-4, 1e-8, 1.0, "peak, of the prior")
    reactive_rate: float = bounded(2e-3, 1e-8, 1.0, "peak, of the reactive policy")
    noise_factor: float = bounded(0.3, 0.0, 10.0, "sensor noise, in units of the layout's")
    reactive_width: int = bounded(256, 8, 8192, "first hidden layer of the reactive policy")
    seed: int = bounded(0, 0, 2**31 - 1, "seed of weights and batches")
    threads: int = bounded(2, 1, 1024, "CPU threads")


def with_reactive_policy(
    artefact: Artefact, hidden: tuple[int, ...]
) -> tuple[WorldModel, Contract]:
    """A copy of the model with a fresh reactive policy of these hidden layers, unless it has one
    already, and its contract."""
    network = artefact.contract.network
    if network.reactive_hidden:
        hidden = network.reactive_hidden
    network = dataclasses.replace(network, reactive_hidden=hidden)
    model = WorldModel(network)
    model.load_state_dict(artefact.model.state_dict(), strict=False)
    return model, dataclasses.replace(artefact.contract, network=network)


class Refinement:
    """Trains the two policies of a model; everything else is frozen."""

    def __init__(self, model: WorldModel, data: WindowData, config: RefineConfig) -> None:
        assert model.reactive is not None
        self.model, self.data, self.config = model.requires_grad_(False), data, config
        self._reactive = model.reactive
        self._draw = torch.Generator().manual_seed(config.seed)
        self._only = torch.Generator().manual_seed(0)
        self._noise = config.noise_factor * data.train.noise_std
        self._heads = [
            (list(model.policy.parameters()), config.learning_rate),
            (list(model.reactive.parameters()), config.reactive_rate),
        ]
        self._optimisers = []
        for parameters, rate in self._heads:
            for parameter in parameters:
                parameter.requires_grad_(True)
            optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=1e-4, fused=True)
            self._optimisers.append(optimiser)
        self.steps = 0

    def step(self, done: float) -> None:
        """One step of the prior and some of the reactive policy; ``done`` is the share of the
        budget that is spent."""
        config, windows = self.config, self.data.train
        warm = min(1.0, (self.steps + 1) / 100)
        factor = warm * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * done)))
        batch = windows.get(self._sample(windows, config.batch), config.noise_factor, self._draw)
        self._descend(0, policy_loss(self.model, batch), factor)
        for _ in range(config.reactive_steps):
            rows = self._sample(windows, config.reactive_batch)
            loss = self.reactive_loss(windows, rows, self._draw)
            self._descend(1, loss, factor)
        self.steps += 1

    def reactive_loss(
        self, windows: WindowSet, rows: Tensor, noise: torch.Generator | None = None
    ) -> Tensor:
        """Squared error of the reactive policy's actions in the present states of windows."""
        data, scale = windows.trajectories, self.model.scaler.scale
        now = windows.present[rows]
        proprio = data.proprio[now].float()
        if noise is not None:
            proprio = proprio + self._noise * torch.randn(proprio.shape, generator=noise)
        first = now == windows.episode_start[rows]
        previous = data.action[(now - 1).clamp(min=0)].float()
        previous = torch.where(first[:, None], 0.0, previous)
        latent = self.model.latent(proprio, data.scan[now].float())
        answer = self._reactive.scaled(
            latent, scale("action", previous), scale("command", data.command[now].float())
        )
        return (answer - scale("action", data.expert_action[now].float())).square().mean()

    @torch.no_grad()
    def losses(self) -> dict[str, float]:
        """Held-out losses of both policies, on the model's own data and on policy_only shards."""
        windows, result = self.data.validation, {}
        for name, indices in (
            ("world", windows.world_indices),
            ("policy_only", windows.policy_only_indices),
        ):
            if not len(indices):
                continue
            draw = torch.Generator().manual_seed(0)
            rows = windows.sample(_EVALUATION, draw, indices)
            batches = [policy_loss(self.model, windows.get(part)) for part in rows.split(512)]
            result[f"prior_{name}"] = torch.stack(batches).mean().item()
            result[f"reactive_{name}"] = self.reactive_loss(windows, rows).item()
        return result

    def _sample(self, windows: WindowSet, count: int) -> Tensor:
        share = self.config.policy_only_share if len(windows.policy_only_indices) else 0.0
        few = round(count * share)
        parts = [windows.sample(count - few, self._draw, windows.world_indices)]
        if few:
            parts.append(windows.sample(few, self._draw, windows.policy_only_indices))
        return torch.cat(parts)

    def _descend(self, head: int, loss: Tensor, factor: float) -> None:
        (parameters, rate), optimiser = self._heads[head], self._optimisers[head]
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 2.0)
        for group in optimiser.param_groups:
            group["lr"] = rate * factor
        optimiser.step()


def refine(model: str, data: tuple[str, ...], out: Path, config: RefineConfig) -> Path:
    """Train and write the new artefact; raises DatasetError when the data is for another model."""
    torch.set_num_threads(config.threads)
    torch.manual_seed(config.seed)
    artefact = load_artefact(model_file(model))
    network, contract = with_reactive_policy(artefact, reactive_layers(config.reactive_width))
    windows = load_windows([Path(path) for path in data], contract.horizon, seed=config.seed)
    if (windows.robot, windows.observation) != (contract.robot, contract.observation):
        raise DatasetError(
            f"{', '.join(data)} was recorded with {windows.robot} and {windows.observation}, the "
            f"model is for {contract.robot} and {contract.observation}"
        )
    refinement = Refinement(network, windows, config)
    before = refinement.losses()
    start, budget = time.monotonic(), config.minutes * 60
    with tqdm(total=round(budget), unit="s", desc="refine-policy", file=sys.stderr) as bar:
        while (spent := time.monotonic() - start) < budget:
            refinement.step(spent / budget)
            bar.update(min(round(spent), bar.total) - bar.n)
    report: dict[str, Any] = {
        "config": asdict(config),
        "data": list(data),
        "data_sha256": windows.sha256,
        "steps": refinement.steps,
        "losses_before": before,
        "losses_after": refinement.losses(),
        "model_weights_hash": artefact.weights_hash,
    }
    training = {**artefact.training, "policy_refinement": report}
    return save_artefact(
        out / MODEL_FILE,
        network.requires_grad_(False).eval(),
        contract,
        version=artefact.version,
        parent=artefact.parent,
        training=training,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``simdist refine-policy``."""
    parser.add_argument("--model", default="go1", help="name in models/ or path of an artefact")
    parser.add_argument("--data", nargs="+", default=["data/go1", "data/go1_slippery"])
    parser.add_argument("--out", type=Path, default=Path("runs/refined"), help="directory")
    add_options(parser, RefineConfig)


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist refine-policy`` and print the path of the model."""
    config = from_options(RefineConfig, arguments)
    print(refine(arguments.model, tuple(arguments.data), arguments.out, config))
    return 0
