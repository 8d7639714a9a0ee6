"""Results of experiments as files: what was tried, what came out, and how to do it again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from simdist.errors import ConfigError
from simdist.world_model.artefact import write_atomically

FORMAT = "simdist-experiment-1"


@dataclass(frozen=True)
class Point:
    """Trials after some minutes of robot data."""

    minutes: float
    progress_m: tuple[float, ...]  #: of each trial, at its end or fall; the line if it was reached
    speeds: tuple[float, ...]  #: m/s, commanded in each trial
    seeds: tuple[int, ...]
    falls: int
    success: int  #: trials that reached the line without a fall
    wall_s: float  #: for collecting, learning and evaluating

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Point:
        """From JSON data; raises KeyError, TypeError or ValueError for what is no point."""
        return Point(
            minutes=float(data["minutes"]),
            progress_m=tuple(float(value) for value in data["progress_m"]),
            speeds=tuple(float(value) for value in data["speeds"]),
            seeds=tuple(int(value) for value in data["seeds"]),
            falls=int(data["falls"]),
            success=int(data["success"]),
            wall_s=float(data["wall_s"]),
        )


@dataclass(frozen=True)
class BeforeAfter:
    """A held-out latent loss of the pretrained and of the adapted model."""

    before: float
    after: float


@dataclass(frozen=True)
class Nominal:
    """Metres in the world of the pretraining, before and after learning elsewhere: whether what
    was known is forgotten. The same trials both times; they do not end at a line."""

    before: tuple[float, ...]
    after: tuple[float, ...]

    @property
    def kept(self) -> float | None:
        """Share of the progress before that is left; None where there was none."""
        return sum(self.after) / sum(self.before) if sum(self.before) > 0 else None


@dataclass(frozen=True)
class Round:
    """What became of the learning at one point."""

    minutes: float
    accepted: bool
    reason: str
    losses: dict[str, float | None] | None = None
    steps: int = 0
    falls: int = 0  #: of all collection up to this point
    trials: int = 0  #: of all collection up to this point


@dataclass(frozen=True)
class ExperimentResult:
    """One method in one world; ``settings`` is everything that a resumed run must agree on."""

    world: str
    method: str
    line_m: float
    points: tuple[Point, ...]
    latent_loss: BeforeAfter | None
    simulation_loss: BeforeAfter | None
    command: str  #: that makes this file again
    seed: int
    wall_s: float
    model: dict[str, Any]
    settings: dict[str, Any]
    notes: str = ""
    rounds: tuple[Round, ...] = field(default_factory=tuple)
    nominal: Nominal | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON data; numbers that are not finite become None."""
        return _plain({"format": FORMAT, **asdict(self)})

    @staticmethod
    def from_dict(data: Any, source: str = "the results") -> ExperimentResult:
        """Inverse of :meth:`to_dict`; raises ConfigError naming ``source`` and what is wrong."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{source}: must hold a JSON object, got {type(data).__name__}")
        if data.get("format") != FORMAT:
            raise ConfigError(
                f"{source}: format {data.get('format')!r}, expected {FORMAT!r}; make it again "
                "with this version's 'simdist experiment'"
            )
        try:
            result = ExperimentResult(
                world=_text(data["world"]),
                method=_text(data["method"]),
                line_m=float(data["line_m"]),
                points=tuple(Point.from_dict(point) for point in data["points"]),
                latent_loss=_before_after(data["latent_loss"]),
                simulation_loss=_before_after(data["simulation_loss"]),
                command=_text(data["command"]),
                seed=int(data["seed"]),
                wall_s=float(data["wall_s"]),
                model=dict(data["model"]),
                settings=dict(data["settings"]),
                notes=_text(data.get("notes", "")),
                rounds=tuple(Round(**entry) for entry in data.get("rounds", ())),
                nominal=_nominal(data.get("nominal")),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{source}: damaged results: {error!r}") from error
        for point in result.points:
            if not len(point.progress_m) == len(point.speeds) == len(point.seeds) > 0:
                raise ConfigError(
                    f"{source}: damaged results: at {point.minutes} minutes there are "
                    f"{len(point.progress_m)} progress values for {len(point.seeds)} trials"
                )
        return result

    @staticmethod
    def load(path: Path) -> ExperimentResult:
        """Read a file; raises ConfigError when it is missing, damaged or of another format."""
        return ExperimentResult.from_dict(read_json(path), str(path))

    def save(self, path: Path) -> None:
        """Write a file; it holds the old results or all of the new ones, never a part."""
        write_json(path, self.to_dict())


def read_json(path: Path) -> Any:
    """JSON data whose numbers are all finite; raises ConfigError naming the file."""
    try:
        return json.loads(Path(path).read_text(), parse_constant=_refuse_constant)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error


def write_json(path: Path, data: Any) -> None:
    """Replace ``path`` in one step; raises ValueError for a number that is not finite."""
    write_atomically(Path(path), (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())


def finite(value: float) -> float | None:
    """The value, or None when it is not finite: JSON knows no NaN."""
    return float(value) if math.isfinite(value) else None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}, which is no number")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return finite(value) if isinstance(value, float) else value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _nominal(data: Mapping[str, Any] | None) -> Nominal | None:
    if data is None:
        return None
    before, after = (tuple(float(value) for value in data[name]) for name in ("before", "after"))
    if not len(before) == len(after) > 0:
        raise ValueError(f"nominal trials do not match: {len(before)} before, {len(after)} after")
    return Nominal(before, after)


def _before_after(data: Mapping[str, Any] | None) -> BeforeAfter | None:
    return None if data is None else BeforeAfter(float(data["before"]), float(data["after"]))
