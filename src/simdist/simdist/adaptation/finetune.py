"""Relearning the latent dynamics from robot data, with everything else frozen.

As in the SimDist paper, encoder, reward, value and policy keep the meaning of the latent space;
only how actions move the robot through it is learned again. Half of each batch is simulation data,
without which the model forgets what it knew.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from simdist.adaptation.windows import EncodedBatch, EncodedWindows, robot_windows
from simdist.errors import SimdistError
from simdist.ranges import Checked, bounded
from simdist.replay import Episode
from simdist.world_model import WorldModel
from simdist.world_model.losses import masked_mean
from simdist.world_model.simulation_replay import SimulationReplay


class AdaptationError(SimdistError):
    """Nothing could be learned: too little data, or learning failed."""


@dataclass(frozen=True)
class FinetuneConfig(Checked):
    """Settings of :class:`DynamicsFinetuner`."""

    steps: int = bounded(300, 1, 1_000_000, "gradient steps per update")
    batch: int = bounded(128, 2, 4096, "windows per step")
    robot_fraction: float = bounded(0.5, 0.0, 1.0, "share of robot windows in a batch")
    learning_rate: float = bounded(2e-3, 1e-7, 1.0, "peak learning rate of Adam")
    warm_up: int = bounded(30, 0, 1_000_000, "steps until the peak learning rate")
    gradient_clip: float = bounded(1.0, 1e-6, 1e6, "largest norm of the gradient")
    evaluation_windows: int = bounded(1024, 1, 1_000_000, "most windows a held-out loss looks at")
    cache_mib: int = bounded(256, 0, 65536, "memory for encoded windows of robot data, MiB")
    seed: int = bounded(0, 0, 2**31 - 1, "seed of the choice of windows")

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then cosine down to a twentieth of the peak."""
        warm = min(1.0, (step + 1) / max(self.warm_up, 1))
        cosine = 0.5 * (1.0 + math.cos(math.pi * step / self.steps))
        return self.learning_rate * warm * (0.05 + 0.95 * cosine)


@dataclass(frozen=True)
class Losses:
    """Held-out latent prediction losses, on robot and on simulation data."""

    robot_before: float
    robot_after: float
    simulation_before: float
    simulation_after: float


@dataclass(frozen=True)
class Candidate:
    """New dynamics on offer; nobody has adopted them yet."""

    state: dict[str, Tensor]  #: dynamics tensors under their full names
    losses: Losses
    steps: int
    episodes: int
    seconds_of_data: float
    training_windows: int
    held_out_windows: int


class DynamicsFinetuner:
    """Makes candidates from episodes; the models it is given are never changed.

    The simulation data is encoded once, for all updates, by the encoder of ``model``: models
    passed to :meth:`start` later must have the same frozen parts.
    """

    def __init__(
        self,
        model: WorldModel,
        simulation: SimulationReplay,
        config: FinetuneConfig | None = None,
        control_dt: float = 0.02,
    ) -> None:
        self.config = config or FinetuneConfig()
        self._control_dt = control_dt
        self._frozen_hash = model.frozen_hash()
        cache = self.config.cache_mib * 2**20
        self._simulation = EncodedWindows(model, simulation.train, cache)
        self._simulation_held_out = EncodedWindows(model, simulation.validation, cache)

    def start(
        self, training: Sequence[Episode], held_out: Sequence[Episode], model: WorldModel
    ) -> FinetuneJob:
        """Begin an update of ``model`` from robot data that is learned from and, kept apart from
        it, held out (:meth:`simdist.replay.ReplayBuffer.episodes` gives both).

        Raises AdaptationError when either side holds not a single window, unless nothing is to be
        learned from robot data (``robot_fraction`` 0) and there is none: then its losses are NaN.
        """
        if model.frozen_hash() != self._frozen_hash:
            raise AdaptationError(
                "the model's frozen parts are not those the simulation data was encoded with; "
                "make a new finetuner for this model"
            )
        robot = robot_held_out = None
        if self.config.robot_fraction > 0 or training or held_out:
            robot = self._encoded("training", training, model)
            robot_held_out = self._encoded("held-out", held_out, model)
        steps = sum(len(episode) for episode in [*training, *held_out])
        return FinetuneJob(
            model,
            self.config,
            robot,
            robot_held_out,
            self._simulation,
            self._simulation_held_out,
            episodes=len({episode.episode for episode in [*training, *held_out]}),
            seconds_of_data=steps * self._control_dt,
        )

    def update(
        self,
        training: Sequence[Episode],
        held_out: Sequence[Episode],
        model: WorldModel,
        progress: Callable[[int, int], None] | None = None,
    ) -> Candidate:
        """Run a whole update; ``progress(done, steps)`` is called now and then."""
        job = self.start(training, held_out, model)
        while job.step(10):
            if progress is not None:
                progress(job.done, self.config.steps)
        return job.candidate()

    def _encoded(self, side: str, episodes: Sequence[Episode], model: WorldModel) -> EncodedWindows:
        sizes = model.config
        if any(len(episode) for episode in episodes):
            windows = robot_windows(episodes, sizes.history, sizes.horizon)
            if len(windows):
                return EncodedWindows(model, windows, self.config.cache_mib * 2**20)
        raise AdaptationError(
            f"the {side} side of the robot data ({len(episodes)} episodes) holds no "
            f"{sizes.history + 1 + sizes.horizon} consecutive control steps; collect more"
        )


class FinetuneJob:
    """One update in the making, on a copy of the model; may be stopped or dropped at any step."""

    def __init__(
        self,
        model: WorldModel,
        config: FinetuneConfig,
        robot: EncodedWindows | None,
        robot_held_out: EncodedWindows | None,
        simulation: EncodedWindows,
        simulation_held_out: EncodedWindows,
        episodes: int,
        seconds_of_data: float,
    ) -> None:
        self.done = 0
        self._config = config
        self._robot, self._robot_held_out = robot, robot_held_out
        self._simulation, self._simulation_held_out = simulation, simulation_held_out
        self._episodes, self._seconds_of_data = episodes, seconds_of_data
        self._model = copy.deepcopy(model).requires_grad_(False)
        self._parameters = self._model.dynamics_parameters()
        for parameter in self._parameters:
            parameter.requires_grad_(True)
        self._optimizer = torch.optim.Adam(self._parameters, lr=config.learning_rate, fused=True)
        self._draw = torch.Generator().manual_seed(config.seed)
        self._before = self._held_out_losses()

    def step(self, count: int = 1) -> bool:
        """Up to ``count`` gradient steps; returns whether any remain. Raises AdaptationError when
        the loss is no longer finite."""
        for _ in range(min(count, self._config.steps - self.done)):
            self._step()
        return self.done < self._config.steps

    def candidate(self) -> Candidate:
        """What has been learned so far, with its held-out losses."""
        robot_before, simulation_before = self._before
        robot_after, simulation_after = self._held_out_losses()
        state = self._model.dynamics_state()
        for name, tensor in state.items():
            if not tensor.isfinite().all():
                raise AdaptationError(f"finetuning made {name} non-finite; the update is dropped")
        return Candidate(
            state=state,
            losses=Losses(robot_before, robot_after, simulation_before, simulation_after),
            steps=self.done,
            episodes=self._episodes,
            seconds_of_data=self._seconds_of_data,
            training_windows=len(self._robot or ()),
            held_out_windows=len(self._robot_held_out or ()),
        )

    def _step(self) -> None:
        config = self._config
        from_robot = round(config.batch * config.robot_fraction)
        parts = [
            windows.batch(torch.randint(len(windows), (count,), generator=self._draw))
            for windows, count in (
                (self._robot, from_robot),
                (self._simulation, config.batch - from_robot),
            )
            if windows is not None and count
        ]
        loss = latent_loss(self._model, EncodedBatch.concatenate(parts))
        if not math.isfinite(loss.item()):
            raise AdaptationError(
                f"finetuning failed: the loss is {loss.item()} at step {self.done}; the update is "
                "dropped and the running model stays"
            )
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self._parameters, config.gradient_clip)
        for group in self._optimizer.param_groups:
            group["lr"] = config.learning_rate_at(self.done)
        self._optimizer.step()
        self.done += 1

    def _held_out_losses(self) -> tuple[float, float]:
        most, robot = self._config.evaluation_windows, self._robot_held_out
        return (
            math.nan if robot is None else mean_latent_loss(self._model, robot, most),
            mean_latent_loss(self._model, self._simulation_held_out, most),
        )


def latent_loss(model: WorldModel, batch: EncodedBatch) -> Tensor:
    """Mean squared error of predicted latents over the steps that count."""
    predicted = model.dynamics(batch.context, batch.action)
    error = (predicted - batch.target).square().mean(-1)
    return masked_mean(error, batch.mask)


@torch.no_grad()
def mean_latent_loss(model: WorldModel, windows: EncodedWindows, most: int) -> float:
    """Latent loss over evenly spaced windows, at most ``most`` of them."""
    count = min(most, len(windows))
    rows = torch.linspace(0, len(windows) - 1, count).long()
    total, steps = 0.0, 0.0
    for part in rows.split(256):
        batch = windows.batch(part)
        weight = batch.mask.sum().item()
        total += latent_loss(model, batch).item() * weight
        steps += weight
    return total / max(steps, 1.0)
