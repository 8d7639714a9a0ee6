"""Results that are only drawn: the sweep, foot tracks, and latent loss along a held-out slip.

Every reader refuses what it cannot draw with one line that names the file, the field, what was
found and what is allowed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from simdist.errors import ConfigError
from simdist.evaluation.results import read_json
from simdist.types import Array

SWEEP_FORMAT = "simdist-sweep-1"
FOOT_TRACKS_FORMAT = "simdist-foot-tracks-1"
LATENT_SLIP_FORMAT = "simdist-latent-slip-1"

LABELS = ("before", "after")  #: of finetuning

T = TypeVar("T")


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in ``path``, its numbers finite; raises ConfigError where there is none."""
    data = read_json(path)
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path}: must hold a JSON object with a 'format', got {type(data).__name__}"
        )
    return data


class Fields:
    """Checked access to the fields of one object of a results file."""

    def __init__(self, data: Any, path: Path, where: str = "") -> None:
        if not isinstance(data, Mapping):
            raise ConfigError(f"{path}: {where or 'the file'} must be an object, got {data!r:.80}")
        self._data = data
        self._path = path
        self._where = where

    def error(self, name: str, allowed: str, value: Any) -> ConfigError:
        """The one line that says that field ``name`` must not be ``value``."""
        text = repr(value)
        return self._error(name, allowed, text if len(text) <= 80 else text[:77] + "…")

    def _error(self, name: str, allowed: str, found: str) -> ConfigError:
        place = f"{self._where}.{name}" if self._where else name
        return ConfigError(f"{self._path}: {place} must be {allowed}, got {found}")

    def get(self, name: str, allowed: str) -> Any:
        if name not in self._data:
            raise self._error(name, allowed, "nothing")
        return self._data[name]

    def text(self, name: str) -> str:
        value = self.get(name, "text")
        if not isinstance(value, str):
            raise self.error(name, "text", value)
        return value

    def number(self, name: str, low: float = -math.inf, high: float = math.inf) -> float:
        allowed = f"a finite number from {low:g} to {high:g}"
        value = self.get(name, allowed)
        if not _finite(value) or not low <= value <= high:
            raise self.error(name, allowed, value)
        return float(value)

    def count(self, name: str, high: int | None = None) -> int:
        allowed = "a whole number >= 0" if high is None else f"a whole number from 0 to {high}"
        value = self.get(name, allowed)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.error(name, allowed, value)
        if high is not None and value > high:
            raise self.error(name, allowed, value)
        return value

    def array(self, name: str, shape: tuple[int | None, ...]) -> Array:
        """A non-empty array of finite numbers; ``None`` in ``shape`` leaves that length open."""
        lengths = " × ".join("n" if n is None else str(n) for n in shape)
        allowed = f"a list of {lengths} finite numbers"
        value = self.get(name, allowed)
        try:
            array = np.array(value, dtype=object)
            numbers = np.array([v if _finite(v) else math.nan for v in array.ravel()], dtype=float)
        except ValueError as error:  # lists of unequal lengths
            raise self._error(name, allowed, "lists of unequal lengths") from error
        fits = len(array.shape) == len(shape) and all(
            wanted in (None, length) for wanted, length in zip(shape, array.shape, strict=True)
        )
        if not fits or array.size == 0:
            if not array.shape:
                raise self.error(name, allowed, value)
            raise self._error(name, allowed, " × ".join(str(length) for length in array.shape))
        if not np.isfinite(numbers).all():
            bad = next(v for v in array.ravel() if not _finite(v))
            raise self.error(name, allowed, bad)
        return numbers.reshape(array.shape)

    def objects(self, name: str) -> list[Fields]:
        value = self.get(name, "a list of objects")
        if not isinstance(value, list) or not value:
            raise self.error(name, "a list of at least one object", value)
        place = f"{self._where}.{name}" if self._where else name
        return [Fields(item, self._path, f"{place}[{i}]") for i, item in enumerate(value)]

    def object(self, name: str) -> Fields:
        return Fields(self.get(name, "an object"), self._path, name)


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class SweepRow:
    """The trials of one method at one value of the swept parameter."""

    method: str
    value: float
    progress_m: tuple[float, ...]
    falls: int
    success: int
    trials: int


@dataclass(frozen=True)
class SweepResult:
    """Progress of several methods against one parameter of a world."""

    path: Path
    world: str
    parameter: str
    values: tuple[float, ...]
    rows: tuple[SweepRow, ...]
    line_m: float
    command: str
    seed: int
    wall_s: float

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: Path) -> SweepResult:
        fields = Fields(data, path)
        values = tuple(fields.array("values", (None,)).tolist())
        rows = []
        for row in fields.objects("rows"):
            trials = row.count("trials")
            value = row.number("value")
            if value not in values:
                listed = ", ".join(f"{v:g}" for v in values)
                raise row.error("value", f"one of the swept values {listed}", value)
            rows.append(
                SweepRow(
                    method=row.text("method"),
                    value=value,
                    progress_m=tuple(row.array("progress_m", (trials,)).tolist()),
                    falls=row.count("falls", trials),
                    success=row.count("success", trials),
                    trials=trials,
                )
            )
        return cls(
            path=path,
            world=fields.text("world"),
            parameter=fields.text("parameter"),
            values=values,
            rows=tuple(rows),
            line_m=fields.number("line_m", 0.0),
            command=fields.text("command"),
            seed=fields.count("seed"),
            wall_s=fields.number("wall_s", 0.0),
        )


@dataclass(frozen=True)
class FootEpisode:
    """Foot positions in the body frame (m): true and as predicted from the latents."""

    label: str  #: one of LABELS
    time: Array  #: (steps,) s
    true: Array  #: (steps, feet, 3) m; x forward, y left, z up
    predicted: Array  #: (steps, feet, 3) m


@dataclass(frozen=True)
class FootTracks:
    """Predicted against true foot positions in a held-out slip, before and after finetuning."""

    path: Path
    world: str
    dt: float
    feet: tuple[str, ...]
    episodes: tuple[FootEpisode, ...]
    error_m: Mapping[str, float]  #: mean distance over all held-out slips, by label
    command: str

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: Path) -> FootTracks:
        fields = Fields(data, path)
        feet = fields.get("feet", "a list of names")
        if not isinstance(feet, list) or not feet or not all(isinstance(f, str) for f in feet):
            raise fields.error("feet", "a list of names", feet)
        episodes = []
        for episode in fields.objects("episodes"):
            label = episode.text("label")
            if label not in LABELS:
                raise episode.error("label", " or ".join(LABELS), label)
            time = episode.array("time", (None,))
            shape = (len(time), len(feet), 3)
            true, predicted = episode.array("true", shape), episode.array("predicted", shape)
            episodes.append(FootEpisode(label, time, true, predicted))
        for label in LABELS:
            if label not in [episode.label for episode in episodes]:
                raise ConfigError(f"{path}: episodes must have one labelled {label!r}, got none")
        error = fields.object("error_m")
        return cls(
            path=path,
            world=fields.text("world"),
            dt=fields.number("dt", 1e-6),
            feet=tuple(feet),
            episodes=tuple(episodes),
            error_m={label: error.number(label, 0.0) for label in LABELS},
            command=fields.text("command"),
        )

    def first(self, label: str) -> FootEpisode:
        """The episode that is drawn for ``label``."""
        return next(episode for episode in self.episodes if episode.label == label)


@dataclass(frozen=True)
class LatentSlip:
    """Latent prediction loss in a held-out slip, before and after finetuning."""

    path: Path
    world: str
    time: Array  #: (steps,) s
    loss_before: Array  #: (steps,)
    loss_after: Array  #: (steps,)
    by_step_before: Array  #: (T,) loss by step of the prediction horizon
    by_step_after: Array  #: (T,)
    command: str

    @classmethod
    def parse(cls, data: Mapping[str, Any], path: Path) -> LatentSlip:
        fields = Fields(data, path)
        time = fields.array("time", (None,))
        by_step = fields.array("by_step_before", (None,))
        return cls(
            path=path,
            world=fields.text("world"),
            time=time,
            loss_before=fields.array("loss_before", (len(time),)),
            loss_after=fields.array("loss_after", (len(time),)),
            by_step_before=by_step,
            by_step_after=fields.array("by_step_after", (len(by_step),)),
            command=fields.text("command"),
        )


def load(path: Path, wanted: str, parse: Callable[[Mapping[str, Any], Path], T]) -> T:
    """Read ``path``, which must be of format ``wanted``; raises ConfigError."""
    data = read_object(path)
    if data.get("format") != wanted:
        raise ConfigError(f"{path}: format must be {wanted!r}, got {data.get('format')!r}")
    return parse(data, path)


def load_sweep(path: Path) -> SweepResult:
    """Read a sweep (``simdist evaluate --sweep``); raises ConfigError."""
    return load(path, SWEEP_FORMAT, SweepResult.parse)


def load_foot_tracks(path: Path) -> FootTracks:
    """Read predicted and true foot tracks; raises ConfigError."""
    return load(path, FOOT_TRACKS_FORMAT, FootTracks.parse)


def load_latent_slip(path: Path) -> LatentSlip:
    """Read the latent loss along a held-out slip; raises ConfigError."""
    return load(path, LATENT_SLIP_FORMAT, LatentSlip.parse)
