"""Learning a world model from a data set: ``simdist pretrain``.

Two phases: everything together on the mixed-quality data, then the policy head alone on all data
including the shards recorded for it. Interrupted trainings resume from the last checkpoint.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from tqdm import tqdm

from simdist import robots
from simdist.distillation.windows import WindowData, load_windows
from simdist.errors import ConfigError, DatasetError, SimdistError
from simdist.world_model import Contract, WorldModel, WorldModelConfig, save_artefact
from simdist.world_model.artefact import Artefact, load_artefact, write_atomically
from simdist.world_model.losses import (
    Branches,
    difference_losses,
    latent_targets,
    masked_mean,
    policy_loss,
    total_loss,
    world_model_losses,
)
from simdist.world_model.simulation_replay import FILE_NAME, export_simulation_replay
from simdist.world_model.windows import WindowSet

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_log = logging.getLogger(__name__)

MODEL_FILE = "world_model.safetensors"
REPLAY_FILE = FILE_NAME
CHECKPOINT_FILE = "checkpoint.pt"
CONFIG_FILE = "config.json"
_EVALUATION_WINDOWS = 2048
_EVALUATION_GROUPS = 256
_SCALER_SAMPLES = 200_000
#: smallest standard deviations that inputs are divided by: a quantity that hardly varies in the
#: data must not turn a small surprise into a huge number (scan: 2 cm)
_SMALLEST_STD = {"scan": 0.02}
_DEFAULT_SMALLEST_STD = 1e-3
#: settings that may differ between an interrupted training and its continuation
_FREE_ON_RESUME = frozenset({"threads", "output"})


@dataclass(frozen=True)
class PretrainConfig:
    """Everything a pretraining depends on; stored beside its result.

    The budget is ``steps`` if given, else ``minutes`` of training time (interruptions do not
    count). ``policy_phase`` is the share of it spent on the policy head alone, where
    ``policy_only_share`` of each batch comes from shards of that role, if there are any.
    """

    data: tuple[str, ...]
    output: str
    steps: int | None = None
    minutes: float = 30.0
    batch_size: int = 128
    learning_rate: float = 5e-4
    #: times the learning rate. Dynamics as slow as the rest stay blind to actions for hours; an
    #: encoder as fast as they are shrinks its latents instead of having them predicted.
    dynamics_rate: float = 8.0
    fixed_encoder: bool = False  #: for a last training of all that reads latents, with ``start``
    final_rate: float = 0.03
    weight_decay: float = 1e-4
    warmup_steps: int = 300
    gradient_clip: float = 2.0
    noise_factor: float = 0.3
    policy_phase: float = 0.1
    policy_only_share: float = 0.3
    branch_share: float = 0.5  #: of a batch, groups of branches, where the data holds any
    validation_fraction: float = 0.05
    pad_starts: bool = True
    discount: float = 0.99
    latent_dim: int = 48
    horizon: int = 15
    dynamics_layers: int = 2
    policy_layers: int = 2
    ff_factor: int = 4
    reactive_width: int = 256
    residual_dynamics: bool = True
    start: str | None = None  #: artefact whose weights to begin with
    checkpoint_every: int = 1000
    evaluate_every: int = 500
    replay_windows: int = 5000
    seed: int = 0
    threads: int = 2

    def __post_init__(self) -> None:
        bounds: dict[str, tuple[float, float]] = {
            "minutes": (0.01, 1e5),
            "batch_size": (1, 65536),
            "learning_rate": (1e-8, 1.0),
            "dynamics_rate": (0.01, 100.0),
            "final_rate": (0.0, 1.0),
            "weight_decay": (0.0, 1.0),
            "warmup_steps": (0, 1_000_000),
            "gradient_clip": (1e-6, 1e6),
            "noise_factor": (0.0, 10.0),
            "policy_phase": (0.0, 0.9),
            "policy_only_share": (0.0, 1.0),
            "branch_share": (0.0, 0.9),
            "validation_fraction": (1e-6, 0.9),
            "discount": (0.0, 1.0),
            "checkpoint_every": (1, 10_000_000),
            "evaluate_every": (1, 10_000_000),
            "replay_windows": (10, 1_000_000),
            "reactive_width": (0, 8192),
            "threads": (1, 1024),
        }
        for name, (low, high) in bounds.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} is {value}, allowed are {low:g} to {high:g}")
        if self.fixed_encoder and self.start is None:
            raise ConfigError("fixed_encoder needs an encoder: name a model with --start")
        if self.steps is not None and self.steps < 1:
            raise ConfigError(f"steps is {self.steps}, allowed are 1 and more")

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        data["data"] = list(self.data)
        return data


def pretrain(config: PretrainConfig) -> Path:
    """Train, or continue training, and return the path of the finished artefact.

    Raises ConfigError when ``config.output`` holds a training with other settings, DatasetError
    for unusable data, SimdistError when a loss stops being finite (the last checkpoint stays).
    """
    output = Path(config.output)
    _claim(output, config)
    torch.set_num_threads(config.threads)
    data = load_windows(
        [Path(path) for path in config.data],
        config.horizon,
        validation_fraction=config.validation_fraction,
        seed=config.seed,
        pad_starts=config.pad_starts,
    )
    _log.info(
        "%d steps, %d training windows (%d for the policy only), %d validation windows",
        data.steps,
        len(data.train),
        len(data.train.policy_only_indices),
        len(data.validation),
    )
    trainer = Trainer(config, data)
    trainer.train()

    path = save_artefact(
        output / MODEL_FILE,
        trainer.model,
        trainer.contract,
        version=0,
        parent=None,
        training=trainer.report(),
    )
    export_simulation_replay(
        output / REPLAY_FILE, data.train, data.validation, trainer.contract, config.replay_windows
    )
    return path


class FlatParameters:
    """Parameters as views of one tensor: one optimiser step over it is far cheaper on a CPU than
    over a hundred small tensors."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        members = list(parameters)
        self.values = nn.Parameter(torch.cat([member.detach().flatten() for member in members]))
        self.values.grad = torch.zeros_like(self.values)
        begin = 0
        for member in members:
            stop = begin + member.numel()
            member.data = self.values.detach()[begin:stop].view_as(member)
            member.grad = self.values.grad[begin:stop].view_as(member)
            begin = stop

    def zero_grad(self) -> None:
        assert self.values.grad is not None
        self.values.grad.zero_()


class Trainer:
    """The state of a pretraining: model, optimiser, random numbers, and where it stands."""

    def __init__(self, config: PretrainConfig, data: WindowData) -> None:
        self.config, self.data = config, data
        self.output = Path(config.output)
        observation = data.observation
        robot = robots.get(data.robot)
        network = WorldModelConfig(
            proprio_dim=observation.size,
            scan_shape=(observation.scan.nx, observation.scan.ny),
            action_dim=data.train.trajectories.action.shape[1],
            command_dim=data.train.trajectories.command.shape[1],
            latent_dim=config.latent_dim,
            history=observation.history,
            horizon=config.horizon,
            dynamics_layers=config.dynamics_layers,
            policy_layers=config.policy_layers,
            ff_factor=config.ff_factor,
            reactive_hidden=reactive_layers(config.reactive_width),
            residual_dynamics=config.residual_dynamics,
        )
        self.contract = Contract.of(robot, observation, network, discount=config.discount)
        torch.manual_seed(config.seed)
        self.model = WorldModel(network)
        self.generator = torch.Generator().manual_seed(config.seed)
        self.phase = "world"
        self.phase_begin = 0.0  # share of the budget spent when the phase began
        self.phase_step = 0
        self.step = 0
        self.seconds = 0.0
        self.losses_start: dict[str, float] = {}
        self.losses_end: dict[str, float] = {}
        self._evaluation = _evaluation_indices(data.validation)
        checkpoint = self._read_checkpoint()
        if checkpoint is None:
            if config.start is None:
                fit_scaler(self.model, data.train, self.generator)
            else:
                artefact = load_artefact(Path(config.start))
                start_from(self.model, artefact, self.contract)
                if artefact.contract.robot != robot.name:
                    if config.fixed_encoder:
                        raise ConfigError(
                            f"fixed_encoder: {config.start} is a model of "
                            f"{artefact.contract.robot!r}, whose encoder knows nothing of "
                            f"{robot.name!r}; train the encoder, or start from a model of it"
                        )
                    fit_scaler(self.model, data.train, self.generator)
            self.losses_start = self._evaluate()
            self._begin("world")
        else:
            self._restore(checkpoint)

    def train(self) -> None:
        """Run what is left of the budget."""
        from torch.utils.tensorboard import SummaryWriter  # slow to import

        config = self.config
        unit, total = ("steps", config.steps) if config.steps else ("s", config.minutes * 60)
        bar = tqdm(
            total=total,
            initial=self.step if config.steps else self.seconds,
            unit=unit,
            desc="pretrain",
            file=sys.stderr,
            mininterval=0.5 if sys.stderr.isatty() else 30.0,
            bar_format="{desc}: {percentage:3.0f}%|{bar}| {n:.0f}/{total:.0f} {unit} "
            "[{elapsed}<{remaining}{postfix}]",
        )
        with (
            bar,
            open(self.output / "log.jsonl", "a", encoding="utf-8") as log,
            SummaryWriter(str(self.output / "tensorboard"), purge_step=self.step) as board,
        ):
            running: dict[str, float] = {}
            counted = 0
            clock = time.monotonic()
            while self._progress() < 1.0:
                if self.phase == "world" and self._progress() >= 1.0 - config.policy_phase:
                    self._begin("policy")
                    running, counted = {}, 0
                for name, value in self._train_step().items():
                    running[name] = running.get(name, 0.0) + value
                counted += 1
                now = time.monotonic()
                self.seconds, clock = self.seconds + now - clock, now
                bar.update(1 if config.steps else self.seconds - bar.n)
                if self.step % config.evaluate_every == 0:
                    averages = {name: value / counted for name, value in running.items()}
                    running, counted = {}, 0
                    held_out = self._evaluate()
                    self._record(log, board, averages, held_out)
                    bar.set_postfix({name: f"{value:.3f}" for name, value in held_out.items()})
                if self.step % config.checkpoint_every == 0:
                    self.save_checkpoint()
            self.losses_end = self._evaluate()
            self._record(log, board, {}, self.losses_end)
        self.save_checkpoint()

    def report(self) -> dict[str, Any]:
        """How the model was made, for the artefact."""
        return {
            "config": self.config.to_dict(),
            "data_sha256": self.data.sha256,
            "data_steps": self.data.steps,
            "training_windows": len(self.data.train),
            "steps": self.step,
            "seconds": round(self.seconds, 1),
            "losses_start": self.losses_start,
            "losses_end": self.losses_end,
        }

    def save_checkpoint(self) -> None:
        """Write everything that continuing needs, atomically."""
        state = {
            "config": json.dumps(self.config.to_dict()),
            "data_sha256": self.data.sha256,
            "model": {name: tensor.clone() for name, tensor in self.model.state_dict().items()},
            "optimiser": self.optimiser.state_dict(),
            "generator": self.generator.get_state(),
            "phase": self.phase,
            "phase_begin": self.phase_begin,
            "phase_step": self.phase_step,
            "step": self.step,
            "seconds": self.seconds,
            "losses_start": self.losses_start,
        }
        path = self.output / CHECKPOINT_FILE
        temporary = path.with_suffix(".tmp")
        torch.save(state, temporary)
        os.replace(temporary, path)

    def _progress(self) -> float:
        """Share of the budget that is spent."""
        if self.config.steps is not None:
            return self.step / self.config.steps
        return self.seconds / (self.config.minutes * 60)

    def _begin(self, phase: str) -> None:
        self.phase, self.phase_step = phase, 0
        self.phase_begin = self._progress() if phase == "policy" else 0.0
        self.model.encoder.requires_grad_(not self.config.fixed_encoder)
        fast = {id(parameter) for parameter in self.model.dynamics_parameters()}
        whole = self.model.policy if phase == "policy" else self.model
        trained = [parameter for parameter in whole.parameters() if parameter.requires_grad]
        parts = [
            (1.0, [parameter for parameter in trained if id(parameter) not in fast]),
            (self.config.dynamics_rate, [p for p in trained if id(p) in fast]),
        ]
        self.parameters = [(rate, FlatParameters(part)) for rate, part in parts if part]
        self.optimiser = torch.optim.AdamW(
            [{"params": [part.values], "lr": 0.0} for _, part in self.parameters],
            weight_decay=self.config.weight_decay,
            fused=True,
        )

    def _learning_rate(self) -> float:
        """Linear warm-up, then a cosine over the phase from full to ``final_rate``."""
        config = self.config
        phase_end = 1.0 if self.phase == "policy" else 1.0 - config.policy_phase
        share = (self._progress() - self.phase_begin) / max(phase_end - self.phase_begin, 1e-9)
        cosine = 0.5 * (1 + math.cos(math.pi * min(max(share, 0.0), 1.0)))
        warm = min(1.0, (self.phase_step + 1) / max(config.warmup_steps, 1))
        return config.learning_rate * warm * (config.final_rate + (1 - config.final_rate) * cosine)

    def _train_step(self) -> dict[str, float]:
        config, windows = self.config, self.data.train
        if self.phase == "policy":
            policy_only = 0
            if len(windows.policy_only_indices):
                policy_only = round(config.policy_only_share * config.batch_size)
            drawn = [
                windows.sample(
                    config.batch_size - policy_only, self.generator, windows.world_indices
                )
            ]
            if policy_only:
                drawn.append(
                    windows.sample(policy_only, self.generator, windows.policy_only_indices)
                )
            batch = windows.get(torch.cat(drawn), config.noise_factor, self.generator)
            losses = {"action": policy_loss(self.model, batch)}
            loss = losses["action"]
        else:
            branches = self._branches()
            single = config.batch_size - (branches.groups * branches.size if branches else 0)
            indices = windows.sample(single, self.generator, windows.world_indices)
            if branches:
                groups = windows.sample_branches(branches.groups, self.generator)
                indices = torch.cat([indices, groups])
            batch = windows.get(indices, config.noise_factor, self.generator)
            if branches:
                batch = branches.with_one_past(batch)
            losses = world_model_losses(self.model, batch, branches)
            loss = total_loss(losses)
        for group, (rate, part) in zip(self.optimiser.param_groups, self.parameters, strict=True):
            group["lr"] = rate * self._learning_rate()
            part.zero_grad()
        loss.backward()
        everything = [part.values for _, part in self.parameters]
        norm = nn.utils.clip_grad_norm_(everything, config.gradient_clip)
        values = {name: value.item() for name, value in losses.items()}
        if not (math.isfinite(norm.item()) and all(map(math.isfinite, values.values()))):
            raise SimdistError(
                f"losses stopped being finite at step {self.step}: {values}, gradient norm "
                f"{norm.item()}; the last checkpoint in {self.output} is kept. Lower "
                f"learning_rate (now {config.learning_rate}) and train into another directory"
            )
        self.optimiser.step()
        self.step += 1
        self.phase_step += 1
        return values

    def _evaluate(self) -> dict[str, float]:
        validation = self.data.validation
        losses = evaluate(self.model, validation, self._evaluation)
        groups = validation.branch_groups[:_EVALUATION_GROUPS]
        if len(groups):
            losses |= evaluate_branches(self.model, validation, groups, self.config.discount)
        return losses

    def _branches(self) -> Branches | None:
        """How many groups of branches a batch holds."""
        size = self.data.train.branch_groups.shape[1]
        groups = round(self.config.branch_share * self.config.batch_size / size) if size else 0
        return Branches(groups, size, self.config.discount) if groups else None

    def _record(
        self,
        log: Any,
        board: SummaryWriter,
        training: dict[str, float],
        held_out: dict[str, float],
    ) -> None:
        for kind, values in (("train", training), ("validation", held_out)):
            for name, value in values.items():
                board.add_scalar(f"{kind}/{name}", value, self.step)
        rate = self._learning_rate()
        board.add_scalar("learning_rate", rate, self.step)
        entry = {
            "step": self.step,
            "seconds": round(self.seconds, 1),
            "phase": self.phase,
            "learning_rate": rate,
            "train": training,
            "validation": held_out,
        }
        log.write(json.dumps(entry) + "\n")
        log.flush()

    def _read_checkpoint(self) -> dict[str, Any] | None:
        path = self.output / CHECKPOINT_FILE
        if not path.exists():
            return None
        try:
            checkpoint = torch.load(path, weights_only=True)
        except Exception as error:
            raise SimdistError(
                f"{path} cannot be read ({error}); remove it to train from the beginning"
            ) from error
        if checkpoint["data_sha256"] != self.data.sha256:
            raise DatasetError(
                f"{self.output} was trained on other data than {', '.join(self.config.data)} "
                "now holds; choose another output directory"
            )
        return checkpoint

    def _restore(self, checkpoint: dict[str, Any]) -> None:
        self.model.load_state_dict(checkpoint["model"])
        self.step, self.seconds = checkpoint["step"], checkpoint["seconds"]
        self.losses_start = checkpoint["losses_start"]
        self._begin(checkpoint["phase"])
        self.optimiser.load_state_dict(checkpoint["optimiser"])
        self.phase_begin = checkpoint["phase_begin"]
        self.phase_step = checkpoint["phase_step"]
        self.generator.set_state(checkpoint["generator"])
        _log.info("continuing at step %d after %.0f s", self.step, self.seconds)


def reactive_layers(width: int) -> tuple[int, ...]:
    """Hidden layers of a reactive policy whose first one is ``width`` wide; 0 for none at all."""
    return (width, width // 2) if width else ()


def start_from(model: WorldModel, artefact: Artefact, contract: Contract) -> None:
    """Take over all weights and scalers; a reactive policy, and the last layer of residual
    dynamics, may be missing on either side.

    The artefact may be another robot's: weights that fit a robot with the same joints are a better
    start than random ones. Its observations and joints must be those of ``contract``.
    """
    theirs = artefact.contract
    for name in ("joint_names", "observation"):
        if getattr(theirs, name) != getattr(contract, name):
            raise ConfigError(
                f"cannot start from {artefact.path}: it is a model of {theirs.robot!r} with other "
                f"{name} than the data, which is of {contract.robot!r}"
            )
    optional = ("reactive.", "dynamics.output.")
    own = model.state_dict()
    source = {
        name: tensor
        for name, tensor in artefact.model.state_dict().items()
        if name in own or not name.startswith(optional)
    }
    try:
        missing = model.load_state_dict(source, strict=False).missing_keys
    except RuntimeError as error:
        raise ConfigError(f"cannot start from {artefact.path}: {error}") from error
    if any(not name.startswith(optional) for name in missing):
        raise ConfigError(f"cannot start from {artefact.path}: it lacks {', '.join(missing[:3])}")


def fit_scaler(model: WorldModel, windows: WindowSet, generator: torch.Generator) -> None:
    """Set the scaler from a sample of the training windows that teach the world model."""
    data = windows.trajectories
    indices = windows.world_indices
    if len(indices) > _SCALER_SAMPLES:
        indices = windows.sample(_SCALER_SAMPLES, generator, indices)
    steps = windows.present[indices]
    for quantity, array in {
        "proprio": data.proprio,
        "scan": data.scan,
        "action": data.action,
        "command": data.command,
        "reward": data.reward[:, None],
        "value": data.value[:, None],
    }.items():
        sample = array[steps].float()
        smallest = _SMALLEST_STD.get(quantity, _DEFAULT_SMALLEST_STD)
        std = sample.std(0, correction=0).clamp(min=smallest)
        model.scaler.set(quantity, sample.mean(0), std)


@torch.no_grad()
def evaluate(model: WorldModel, windows: WindowSet, indices: Tensor) -> dict[str, float]:
    """Losses on windows without noise, averaged over chunks, and ``latent_variance``: the mean
    variance of the latents, which the latent loss is to be compared with. A falling loss means
    nothing if the latents collapse with it."""
    sums: dict[str, float] = {}
    for chunk in indices.split(256):
        batch = windows.get(chunk)
        values = world_model_losses(model, batch)
        latents = model.latent(batch.target_proprio, batch.target_scan)
        values["latent_variance"] = latents[batch.alive > 0].var(0, correction=0).mean()
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value.item() * len(chunk)
    return {name: value / len(indices) for name, value in sums.items()}


@torch.no_grad()
def evaluate_branches(
    model: WorldModel, windows: WindowSet, groups: Tensor, discount: float
) -> dict[str, float]:
    """Losses of the differences between the branches ``groups (G, size)`` of windows without
    noise, and ``latent_spread``: the mean variance of the latents within a group, which the loss
    of their differences is to be compared with."""
    sums: dict[str, float] = {}
    for part in groups.split(32):
        batch = windows.get(part.flatten())
        branches = Branches(len(part), part.shape[1], discount)
        prediction = model(
            batch.proprio_history, batch.scan, batch.action_history, batch.actions, batch.commands
        )
        targets = latent_targets(model, batch)
        values = difference_losses(model, batch, prediction, targets, branches)
        apart = branches.split(targets).var(1, correction=0).mean(-1)
        values["latent_spread"] = masked_mean(apart, branches.split(batch.alive).amin(1))
        for name, value in values.items():
            sums[name] = sums.get(name, 0.0) + value.item() * len(part)
    return {name: value / len(groups) for name, value in sums.items()}


def _evaluation_indices(windows: WindowSet) -> Tensor:
    """The same windows every time, whatever the seed of the training."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(len(windows.world_indices), generator=generator)
    return windows.world_indices[order[:_EVALUATION_WINDOWS]]


def _claim(output: Path, config: PretrainConfig) -> None:
    """Write the configuration into a new directory, or check it against the one found there."""
    path = output / CONFIG_FILE
    if path.exists():
        try:
            found = dict(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise ConfigError(f"cannot read {path}: {error}; choose another output") from error
        for name, value in config.to_dict().items():
            if name not in _FREE_ON_RESUME and found.get(name) != value:
                raise ConfigError(
                    f"{output} holds a training with {name} {found.get(name)!r}, now it is "
                    f"{value!r}; use the same value to continue, or another output directory"
                )
        return
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create {output}: {error.strerror}") from error
    write_atomically(path, (json.dumps(config.to_dict(), indent=2) + "\n").encode())


_OPTIONS = {
    "minutes": "training time, unless --steps is given",
    "batch_size": "windows per step",
    "learning_rate": "peak learning rate",
    "dynamics_rate": "learning rate of the dynamics in units of the others'",
    "noise_factor": "sensor noise on observed histories, in units of the observation layout's",
    "policy_phase": "share of the budget at the end that trains the policy head alone",
    "policy_only_share": "share of a batch from policy_only shards in that phase",
    "branch_share": "share of a batch that are futures of common states, where there are any",
    "validation_fraction": "share of the environments held out",
    "latent_dim": "width of the latent state",
    "horizon": "predicted steps",
    "dynamics_layers": "decoder layers of the dynamics",
    "policy_layers": "decoder layers of the policy prior",
    "ff_factor": "width of feed-forward layers in units of the latent",
    "fixed_encoder": "keep the encoder of --start as it is",
    "reactive_width": "first hidden layer of the reactive policy, 0 for none",
    "residual_dynamics": "predict changes of the present latent",
    "checkpoint_every": "steps between checkpoints",
    "evaluate_every": "steps between evaluations on held-out windows",
    "replay_windows": "simulation windows exported for later finetuning",
    "seed": "seed of initial weights, split and sampling",
    "threads": "CPU threads",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``simdist pretrain``."""
    parser.add_argument(
        "--data",
        nargs="+",
        default=["data/go1"],
        metavar="PATH",
        help="shards or directories of shards",
    )
    parser.add_argument(
        "--out",
        dest="output",
        default="runs/world_model",
        metavar="DIR",
        help="for checkpoints, logs and the model; an unfinished training there is continued",
    )
    parser.add_argument("--steps", type=int, metavar="N", help="budget in steps")
    parser.add_argument(
        "--start",
        metavar="PATH",
        help="artefact whose weights to begin with; another robot's will do if its joints and "
        "observations have the same names",
    )
    for name, text in _OPTIONS.items():
        default, flag = getattr(PretrainConfig, name), f"--{name.replace('_', '-')}"
        if isinstance(default, bool):
            parser.add_argument(
                flag, action=argparse.BooleanOptionalAction, default=default, help=text
            )
            continue
        parser.add_argument(
            flag,
            type=type(default),
            default=default,
            metavar="N" if isinstance(default, int) else "X",
            help=f"{text} (default {default})",
        )


def main(args: argparse.Namespace) -> int:
    """Run ``simdist pretrain`` and print the path of the model."""
    options = {name: getattr(args, name) for name in _OPTIONS}
    torch.set_flush_denormal(True)  # denormal numbers slow training down; for this process only
    config = PretrainConfig(
        data=tuple(args.data), output=args.output, steps=args.steps, start=args.start, **options
    )
    print(pretrain(config))
    return 0
