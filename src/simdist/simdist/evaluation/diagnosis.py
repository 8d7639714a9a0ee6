"""What ``simdist diagnose`` found out, as a file and as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from simdist.evaluation.ranking import Judgement, LatentErrors, gain_of_best, rank_correlation
from simdist.evaluation.results import finite
from simdist.evaluation.statistics import bootstrap_mean
from simdist.types import Array
from simdist.world_model.artefact import Artefact

FORMAT = "simdist-diagnosis-1"
BEST = 8  #: samples whose true returns tell what a choice by prediction is worth

_STEPS_IN_TABLE = 6
_NAME_WIDTH, _CELL_WIDTH = 42, 25


@dataclass(frozen=True)
class ModelDiagnosis:
    """One model's judgements, one for each state, and the true returns ``(states, N)``."""

    name: str
    artefact: Artefact
    judgements: tuple[Judgement, ...]
    returns: Array

    @property
    def rank_correlations(self) -> Array:
        """Of predicted and true returns, by state."""
        return self._by_state(rank_correlation, _predicted)

    def to_dict(self) -> dict[str, Any]:
        """The model's part of the file."""
        return {
            "model": self.name,
            "weights_hash": self.artefact.weights_hash,
            "frozen_hash": self.artefact.frozen_hash,
            "rank_correlation": _estimate(self.rank_correlations),
            "rank_correlation_true_latents": _estimate(
                self._by_state(rank_correlation, _with_true_latents)
            ),
            "spread_ratio": self._spread_ratio(_predicted),
            "spread_ratio_true_latents": self._spread_ratio(_with_true_latents),
            "gain_predicted_best": _estimate(self._by_state(_gain, _predicted)),
            "gain_predicted_best_true_latents": _estimate(
                self._by_state(_gain, _with_true_latents)
            ),
            "by_step": self._by_step(),
        }

    def _by_state(
        self, measure: Callable[[Array, Array], float], returns: Callable[[Judgement], Array]
    ) -> Array:
        pairs = zip(self.judgements, self.returns, strict=True)
        return np.array([measure(returns(judgement), true) for judgement, true in pairs])

    def _spread_ratio(self, returns: Callable[[Judgement], Array]) -> float:
        """A quotient of means: single states in which all plans are alike would rule a mean of
        quotients."""
        spreads = [returns(judgement).std() for judgement in self.judgements]
        return round(float(np.mean(spreads) / self.returns.std(1).mean()), 4)

    def _by_step(self) -> list[dict[str, Any]]:
        errors = LatentErrors.sum([judgement.latents for judgement in self.judgements])
        dt, standing = self.artefact.contract.control_dt, np.maximum(errors.samples, 1.0)
        columns = {
            "latent_error": errors.error / standing,
            "difference_variance": errors.variance / standing,
            "difference_error": errors.difference_error / standing,
            "explained_share": errors.explained,
        }
        return [
            {
                "step": step + 1,
                "time_s": round((step + 1) * dt, 6),
                **{name: _rounded(values[step]) for name, values in columns.items()},
            }
            for step in range(len(standing))
        ]


@dataclass(frozen=True)
class Diagnosis:
    """Models that were shown the same states, others beside the first."""

    world: str
    driver: str
    settings: Mapping[str, Any]  #: of the walks and samples
    models: tuple[ModelDiagnosis, ...]
    command: str
    wall_s: float

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data."""
        first = self.models[0]
        returns, entries = first.returns, [model.to_dict() for model in self.models]
        for model, entry in zip(self.models[1:], entries[1:], strict=True):
            # The states are the same, so differences say more than two intervals do.
            entry["rank_correlation_over_first"] = _estimate(
                model.rank_correlations - first.rank_correlations
            )
        return {
            "format": FORMAT,
            "world": self.world,
            "driver": self.driver,
            "states": len(returns),
            **self.settings,
            "best": BEST,
            "true_spread": round(float(returns.std(1).mean()), 4),
            "gain_any": _estimate(returns.mean(1) - returns[:, 0]),
            "gain_true_best": _estimate(returns.max(1) - returns[:, 0]),
            "gain_true_best_8": _estimate(np.array([_gain(row, row) for row in returns])),
            "models": entries,
            "command": self.command,
            "wall_s": self.wall_s,
        }


def _predicted(judgement: Judgement) -> Array:
    return judgement.predicted


def _with_true_latents(judgement: Judgement) -> Array:
    return judgement.with_true_latents


def _gain(scores: Array, returns: Array) -> float:
    return gain_of_best(scores, returns, BEST)


def _estimate(values: Array) -> dict[str, float]:
    """Mean over states and its interval, which takes no account of how alike the states of one
    walk are."""
    estimate = bootstrap_mean(values.tolist())
    return {name: round(getattr(estimate, name), 4) for name in ("mean", "low", "high")}


def _rounded(value: float) -> float | None:
    """Five digits, however small the latents of a model are."""
    return None if finite(value) is None else float(f"{value:.5g}")


def table(data: Mapping[str, Any]) -> str:
    """A diagnosis as text, for readers who have not met these figures before."""
    models = data["models"]
    seconds = models[0]["by_step"][-1]["time_s"]
    width = max(_CELL_WIDTH, *(len(model["model"]) + 2 for model in models))

    def row(name: str, values: list[Any]) -> str:
        return f"  {name:<{_NAME_WIDTH}}" + "".join(f"{_cell(value):>{width}}" for value in values)

    def by_model(name: str, key: str) -> str:
        return row(name, [model.get(key) for model in models])

    def in_truth(name: str, key: str) -> str:
        return row(name, [data[key]] * len(models))

    best = data["best"]
    lines = [
        f"Can a model rank plans? The {data['driver']} walked in world {data['world']}; from "
        f"{data['states']} states on its way",
        f"{data['samples']} deviations (standard deviation {data['std']:g}) from what the expert "
        f"would do for the next {seconds:g} s",
        "were tried in the simulator, which is the truth here, and in each model. Brackets hold",
        "95 % intervals over the states.",
        "",
        row("", [model["model"] for model in models]),
        "Order of the plans: rank correlation with the truth (1 is the same, 0 is chance)",
        by_model("as the model predicts it", "rank_correlation"),
        by_model("if it knew the future latents", "rank_correlation_true_latents"),
    ]
    if len(models) > 1:
        lines.append(by_model("more than the first model", "rank_correlation_over_first"))
    lines += [
        "Spread of the plans' returns, as a share of the true one "
        f"({_cell(data['true_spread'])} in units of return)",
        by_model("as the model predicts it", "spread_ratio"),
        by_model("if it knew the future latents", "spread_ratio_true_latents"),
        "What a choice is worth: true return above that of the bare expert",
        by_model(f"the {best} plans that the model finds best", "gain_predicted_best"),
        by_model(
            f"the {best} it would, knowing future latents", "gain_predicted_best_true_latents"
        ),
        in_truth(f"the {best} that are best", "gain_true_best_8"),
        in_truth("the one that is best", "gain_true_best"),
        in_truth("any, chosen blindly", "gain_any"),
    ]
    for model in models:
        lines += ["", *_latent_lines(model)]
    return "\n".join(lines)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"
    if isinstance(value, float):
        return f"{value:.3f}"
    return "-" if value is None else str(value)


def _latent_lines(model: Mapping[str, Any]) -> list[str]:
    """Latents at a few steps ahead."""
    steps = model["by_step"]
    chosen = np.unique(np.linspace(0, len(steps) - 1, _STEPS_IN_TABLE).round().astype(int))
    lines = [
        f"Latents predicted by {model['model']} (the share foreseen: 1 is all, 0 is none)",
        f"  {'':<14}{'squared':>12}   differences between plans",
        f"  {'time ahead':<14}{'error':>12}{'variance':>12}{'error':>12}{'share foreseen':>18}",
    ]
    for index in chosen:
        step = steps[index]
        time_ahead = f"{step['time_s']:.2f} s"
        figures = "".join(
            f"{step[name]:>12.4f}"
            for name in ("latent_error", "difference_variance", "difference_error")
        )
        lines.append(f"  {time_ahead:<14}{figures}{_cell(step['explained_share']):>18}")
    return lines
