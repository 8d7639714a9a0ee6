"""``simdist foresight``: does a model see slips coming, before and after it relearns dynamics?

Robots walk with the planner on the model of before, in trials that no learning has seen. Wherever a
foot slides over the ground, both models predict the latents of the next steps from what was
observed and done; they are compared with the latents of what then happened, and, read by a foot
probe, with where the feet then were.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from tqdm import tqdm

from simdist import paths, robots
from simdist.errors import ConfigError, ContractError
from simdist.evaluation.drivers import Driver, driver_factory
from simdist.evaluation.figures_data import FOOT_TRACKS_FORMAT, LABELS, LATENT_SLIP_FORMAT
from simdist.evaluation.results import write_json
from simdist.evaluation.trial_pool import torch_threads
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation import Observation, ObservationSpec
from simdist.planning import PlannerConfig
from simdist.simulation.kinematics import FootKinematics
from simdist.simulation.slip import SlipMeter
from simdist.simulation.world import WorldSpec, load_world
from simdist.types import AppliedStep, Array, Flags, Rows
from simdist.world_model import WorldModel
from simdist.world_model.artefact import Artefact, load_artefact
from simdist.world_model.foot_probe import FootProbe, load_foot_probe, probe_beside

#: Seeds of foresight lie above those of collection, which lie above those of evaluation.
FORESIGHT_SEED = 10_000_000
SPEEDS = (0.4, 0.6, 0.8)  #: m/s, the paper's three commanded speeds

SLIDING = 0.25  #: m/s along the ground from which a foot slips
_SHORTEST, _LONGEST_PAUSE = 6, 5  #: control steps, of a slip and between two parts of one
_LEAD, _LONGEST_DRAWN = 10, 75  #: control steps drawn before a slip, and of it
_EPISODES = 3  #: foot tracks that are written per model
_AT_ONCE = 256


@dataclass(frozen=True)
class Walk:
    """One trial, step by step: what was observed before each of K control steps, what was applied
    in it, and what the simulator knows about it."""

    proprio_history: np.ndarray  #: (K, H + 1, P)
    scan: np.ndarray  #: (K, S)
    action_history: np.ndarray  #: (K, H, A)
    action: np.ndarray  #: (K, A)
    joints: Array  #: (K, n) rad, at the time of the observation
    sliding: Array  #: (K, feet) m/s over the ground, at the end of the step

    def __len__(self) -> int:
        return len(self.action)


def record(trial: Trial, driver: Driver, layout: ObservationSpec) -> Walk:
    """Run ``trial``, whose observations have this ``layout``, and keep everything."""
    simulation, meter = trial.simulation, SlipMeter(trial.simulation)
    seen: list[Observation] = []
    actions, joints, sliding = list[Array](), list[Array](), list[Array]()

    def step(observation: Observation, applied: AppliedStep) -> None:
        seen.append(observation)
        actions.append(applied.action)
        sliding.append(meter.speeds())
        # The state after this step is the one of the next observation.
        joints.append(simulation.data.qpos[7:].copy())

    trial.run(driver, step)
    # There is no state from before the first step, but what the robot measured.
    columns = layout.slices()["joint_pos"]
    first = trial.robot.default_pose + seen[0].proprioception[columns]
    return Walk(
        proprio_history=np.stack([o.proprioception_history for o in seen]),
        scan=np.stack([o.scan for o in seen]).astype(np.float32),
        action_history=np.stack([o.action_history for o in seen]),
        action=np.stack(actions).astype(np.float32),
        joints=np.stack([first, *joints[:-1]]),
        sliding=np.stack(sliding),
    )


def find_slips(sliding: Array, threshold: float = SLIDING) -> list[tuple[int, int]]:
    """Steps ``[begin, end)`` in which some foot of ``sliding (K, feet)`` m/s slips.

    Feet take turns, so short pauses do not end a slip; what is shorter than a few steps is none,
    for every foot slides a little as it lands.
    """
    slips: list[tuple[int, int]] = []
    for step in np.flatnonzero((sliding >= threshold).any(1)).tolist():
        if slips and step - slips[-1][1] <= _LONGEST_PAUSE:
            slips[-1] = slips[-1][0], step + 1
        else:
            slips.append((step, step + 1))
    return [(begin, end) for begin, end in slips if end - begin >= _SHORTEST]


def foreseeing(slips: Iterable[tuple[int, int]], steps: int, horizon: int) -> Flags:
    """Which predictions ``(steps - horizon,)`` reach into a slip: the one made before step ``k``
    concerns steps ``k .. k + horizon - 1`` and is compared with observations ``k + 1 ..
    k + horizon``."""
    chosen = np.zeros(max(steps - horizon, 0), bool)
    for begin, end in slips:
        chosen[max(begin - horizon + 1, 0) : end] = True
    return chosen


@dataclass(frozen=True)
class Forecast:
    """Predictions of one model along a walk of K steps, made before each of its first K - T."""

    loss: Array  #: (K - T, T) mean squared error of the latents by step ahead
    feet: Array  #: (K - T, T, feet, 3) m, where the feet are predicted to be


@torch.inference_mode()
def forecast(model: WorldModel, probe: FootProbe, walk: Walk) -> Forecast:
    """What ``model`` predicts along ``walk`` for the actions that were then applied."""
    horizon = model.config.horizon
    latents, contexts = [], []
    for rows in torch.arange(len(walk)).split(_AT_ONCE):
        context, latent = model.encode(
            *(
                torch.from_numpy(array[rows.numpy()])
                for array in (walk.proprio_history, walk.scan, walk.action_history)
            )
        )
        contexts.append(context)
        latents.append(latent)
    context, latent = torch.cat(contexts), torch.cat(latents)
    actions = torch.from_numpy(walk.action)
    losses, feet = [], []
    for rows in torch.arange(len(walk) - horizon).split(_AT_ONCE):
        ahead = rows[:, None] + torch.arange(horizon)
        predicted = model.dynamics(context[rows], actions[ahead])
        losses.append((predicted - latent[ahead + 1]).square().mean(-1))
        feet.append(probe(predicted))
    return Forecast(torch.cat(losses).double().numpy(), torch.cat(feet).double().numpy())


@dataclass(frozen=True)
class Comparison:
    """Both models along one walk; ``forecasts`` by label."""

    feet: Array  #: (K, feet, 3) m, where they were
    slips: tuple[tuple[int, int], ...]
    chosen: Flags  #: (K - T,) predictions that reach into a slip
    forecasts: Mapping[str, Forecast]

    @property
    def horizon(self) -> int:
        return self.forecasts[LABELS[0]].loss.shape[1]

    def foot_errors(self, label: str) -> Array:
        """Distances ``(W, T, feet)`` m between predicted and true feet, of chosen predictions."""
        made = np.flatnonzero(self.chosen)
        true = self.feet[made[:, None] + np.arange(1, self.horizon + 1)]
        return np.linalg.norm(self.forecasts[label].feet[made] - true, axis=-1)

    def drawn(self, slip: tuple[int, int]) -> Rows:
        """Steps of observations to draw ``slip`` with, those that a prediction over the whole
        horizon was made for and that it can be judged at."""
        begin, end = slip
        first = max(begin - _LEAD, self.horizon)
        last = min(end, begin + _LONGEST_DRAWN, len(self.chosen) - 1)
        return np.arange(first, last + 1)


class ForesightStudy:
    """Two models of the same encoder, a probe for both, and a world to slip in."""

    def __init__(
        self, world: WorldSpec, before: Artefact, after: Artefact, probe: FootProbe
    ) -> None:
        """Raises ContractError unless the models differ in their dynamics only: latents of other
        encoders cannot be compared."""
        if before.frozen_hash != after.frozen_hash:
            raise ContractError(
                f"{after.path} has other frozen parts ({after.frozen_hash[:12]}) than "
                f"{before.path} ({before.frozen_hash[:12]}), so that their latents cannot be "
                "compared; give a model and one finetuned from it"
            )
        self.world = world
        self.robot = robots.get(before.contract.robot)
        self.artefacts = dict(zip(LABELS, (before, after), strict=True))
        self.probe = probe
        self._kinematics = FootKinematics(self.robot)

    def walk(self, config: TrialConfig, planner: PlannerConfig) -> Walk:
        """One trial with the planner on the model of before."""
        before = self.artefacts[LABELS[0]]
        with torch_threads(1):
            driver = driver_factory("planner", before, self.robot, planner)(config.seed)
            layout = before.contract.observation
            return record(Trial(self.robot, self.world, layout, config), driver, layout)

    def compare(self, walk: Walk) -> Comparison | None:
        """Both models along ``walk``, or None if it is too short to predict anything."""
        horizon = self.artefacts[LABELS[0]].contract.horizon
        if len(walk) <= horizon:
            return None
        slips = tuple(find_slips(walk.sliding))
        with torch_threads(1):
            forecasts = {
                label: forecast(artefact.model, self.probe, walk)
                for label, artefact in self.artefacts.items()
            }
        return Comparison(
            feet=self._kinematics.positions(walk.joints),
            slips=slips,
            chosen=foreseeing(slips, len(walk), horizon),
            forecasts=forecasts,
        )


@dataclass(frozen=True)
class ForesightResult:
    """All held-out slips of a study, as the two files that the report draws."""

    study: ForesightStudy
    comparisons: tuple[Comparison, ...]
    facts: dict[str, Any]  #: that both files carry beside what is drawn

    def __post_init__(self) -> None:
        if not any(c.chosen.any() for c in self.comparisons):
            raise ConfigError(
                f"no foot slipped in {len(self.comparisons)} trials of world "
                f"{self.study.world.name!r}; take more --trials, or a world that is more slippery"
            )

    @property
    def slips(self) -> list[tuple[Comparison, tuple[int, int]]]:
        """Slips that can be drawn, the longest first."""
        found = [(c, slip) for c in self.comparisons for slip in c.slips if len(c.drawn(slip)) > 1]
        return sorted(found, key=lambda pair: pair[1][0] - pair[1][1])

    def losses(self, label: str) -> Array:
        """Latent losses ``(W, T)`` of all predictions that reach into a slip."""
        return np.concatenate([c.forecasts[label].loss[c.chosen] for c in self.comparisons])

    def foot_errors(self, label: str) -> Array:
        """Foot position errors ``(W, T, feet)`` m of all predictions that reach into a slip."""
        return np.concatenate([c.foot_errors(label) for c in self.comparisons])

    def foot_tracks(self) -> dict[str, Any]:
        """Feet as predicted over the whole horizon ahead, in the longest slips."""
        dt = self.study.robot.control_dt
        episodes, horizon = [], self.comparisons[0].horizon
        for label in LABELS:
            for comparison, slip in self.slips[:_EPISODES]:
                steps = comparison.drawn(slip)
                predicted = comparison.forecasts[label].feet[steps - horizon, -1]
                episodes.append(
                    {
                        "label": label,
                        "time": _rounded((steps - slip[0]) * dt),
                        "true": _rounded(comparison.feet[steps]),
                        "predicted": _rounded(predicted),
                    }
                )
        errors = {label: self.foot_errors(label).mean((0, 2)) for label in LABELS}
        return {
            "format": FOOT_TRACKS_FORMAT,
            "world": self.study.world.name,
            "dt": dt,
            "feet": list(self.study.robot.foot_names),
            "episodes": episodes,
            "error_m": {label: round(float(errors[label][-1]), 5) for label in LABELS},
            "error_by_step_m": {label: _rounded(errors[label]) for label in LABELS},
            "lead_s": round(horizon * dt, 6),
            **self.facts,
        }

    def latent_slip(self) -> dict[str, Any]:
        """Latent loss of each prediction along the longest slip, and of all slips by step ahead."""
        comparison, slip = self.slips[0]
        steps = comparison.drawn(slip)
        losses = {label: self.losses(label) for label in LABELS}
        along = {label: comparison.forecasts[label].loss[steps].mean(1) for label in LABELS}
        return {
            "format": LATENT_SLIP_FORMAT,
            "world": self.study.world.name,
            "time": _rounded((steps - slip[0]) * self.study.robot.control_dt),
            **{f"loss_{label}": _rounded(along[label]) for label in LABELS},
            **{f"by_step_{label}": _rounded(losses[label].mean(0)) for label in LABELS},
            "mean_loss": {label: round(float(losses[label].mean()), 5) for label in LABELS},
            "predictions": len(losses[LABELS[0]]),
            **self.facts,
        }


def _rounded(values: Any) -> list[Any]:
    return np.round(values, 5).tolist()


def trial_configs(arguments: argparse.Namespace) -> list[TrialConfig]:
    """Speeds take turns; every trial has a seed of its own."""
    return [
        TrialConfig(
            SPEEDS[index % len(SPEEDS)],
            arguments.seed + index,
            arguments.seconds,
            arguments.plan_every,
        )
        for index in range(arguments.trials)
    ]


def run(arguments: argparse.Namespace, command: str) -> ForesightResult:
    """Walk, predict and compare; raises SimdistError for models, probes and settings that do not
    fit, and where nobody slipped."""
    before = load_artefact(paths.model_file(arguments.before))
    after = load_artefact(paths.model_file(arguments.after))
    probe = load_foot_probe(arguments.probe or probe_beside(before.path), before)
    study = ForesightStudy(load_world(arguments.world), before, after, probe.probe)
    planner = _planner(arguments.planner)
    comparisons = []
    configs = trial_configs(arguments)
    for config in tqdm(configs, unit="trial", desc="foresight", file=sys.stderr):
        comparison = study.compare(study.walk(config, planner))
        if comparison is not None:
            comparisons.append(comparison)
    facts = {
        "slips": sum(len(c.slips) for c in comparisons),
        "trials": len(configs),
        "seed": arguments.seed,
        "models": {label: artefact.weights_hash for label, artefact in study.artefacts.items()},
        "probe": probe.weights_hash,
        "command": command,
    }
    return ForesightResult(study, tuple(comparisons), facts)


def _planner(file: str | None) -> PlannerConfig:
    """Settings in a YAML file; raises ConfigError."""
    if file is None:
        return PlannerConfig()
    try:
        values = yaml.safe_load(Path(file).expanduser().read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    return PlannerConfig.from_mapping(values, file)


def table(result: ForesightResult) -> str:
    """Both models as text, one line each."""
    lines = [
        f"{'model':<8}{'latent loss':>13}{'foot error (mm)':>17}{'the whole horizon ahead':>25}"
    ]
    for label in LABELS:
        errors = 1e3 * result.foot_errors(label)
        loss = result.losses(label).mean()
        lines.append(f"{label:<8}{loss:>13.4f}{errors.mean():>17.1f}{errors[:, -1].mean():>25.1f}")
    return "\n".join(lines)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist foresight``."""
    parser.add_argument("--world", default="slope_sheet", help="name, or a YAML file")
    parser.add_argument("--before", default="go1", help="model: name in models/, or an artefact")
    parser.add_argument("--after", required=True, help="the same model with relearned dynamics")
    parser.add_argument("--probe", type=Path, help="default: the one beside the model of before")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--trials", type=int, default=6, help="held-out walks, over three speeds")
    parser.add_argument("--seed", type=int, default=FORESIGHT_SEED, help="of the first trial")
    parser.add_argument("--seconds", type=float, default=12.0, help="walked per trial")
    parser.add_argument("--plan-every", type=int, default=2, help="control steps per plan")
    parser.add_argument("--planner", metavar="FILE", help="YAML file of planner settings")


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist foresight`` and print the paths of both files."""
    for name, low, high in (
        ("trials", 1, 1000),
        ("plan_every", 1, 5),
        ("seconds", 1.0, 600.0),
        ("seed", 0, 2**31 - 1001),
    ):
        value = getattr(arguments, name)
        if not low <= value <= high:
            option = name.replace("_", "-")
            raise ConfigError(f"--{option} must lie in {low:g}..{high:g}, got {value}")
    result = run(arguments, shlex.join(["simdist", *sys.argv[1:]]))
    print(table(result), file=sys.stderr)
    files: Sequence[tuple[str, dict[str, Any]]] = (
        ("foot_tracks", result.foot_tracks()),
        ("latent_slip", result.latent_slip()),
    )
    for name, data in files:
        path = arguments.out / f"{name}_{result.study.world.name}.json"
        write_json(path, data)
        print(path)
    return 0
