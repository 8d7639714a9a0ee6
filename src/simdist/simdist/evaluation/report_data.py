"""What a report is made of: results files sorted by world, and the numbers derived from them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simdist.errors import ConfigError
from simdist.evaluation import results
from simdist.evaluation.figures_data import (
    FOOT_TRACKS_FORMAT,
    LATENT_SLIP_FORMAT,
    SWEEP_FORMAT,
    FootTracks,
    LatentSlip,
    SweepResult,
    load_foot_tracks,
    load_latent_slip,
    load_sweep,
    read_object,
)
from simdist.evaluation.method_styles import order, style
from simdist.evaluation.results import ExperimentResult
from simdist.evaluation.statistics import Estimate, bootstrap_difference, bootstrap_mean
from simdist.simulation.world import WorldSpec, load_world

REPORT_FORMAT = "simdist-report-1"
#: worlds in the order of the tables: the headline, what grades it, soft ground, the other gaps, and
#: that of the pretraining; further ones follow by name
WORLDS = (
    *("slope_sheet", "slope_slippery", "slope_gentle", "ice", "foam"),
    *("payload", "weak_motor", "latency", "nominal"),
)
GOAL_MINUTES = 15.0  #: of robot data, after which the method is judged
MINIMUM_HEADROOM = 0.05  #: m between expert and oracle below which a share of it says nothing

_LOADERS = {
    results.FORMAT: results.ExperimentResult.load,
    SWEEP_FORMAT: load_sweep,
    FOOT_TRACKS_FORMAT: load_foot_tracks,
    LATENT_SLIP_FORMAT: load_latent_slip,
}


@dataclass(frozen=True)
class Source:
    """A result and the file it was read from."""

    path: Path
    result: ExperimentResult


@dataclass(frozen=True)
class TableRow:
    """One method after some minutes of robot data."""

    world: str
    method: str
    learns: bool
    minutes: float
    trials: int
    progress: Estimate
    success: int
    falls: int
    way: float | None  #: 0 at the expert, 1 at the oracle; None without headroom

    def to_dict(self) -> dict[str, Any]:
        row = asdict(self)
        progress = row.pop("progress")
        row["mean_m"], row["low_m"], row["high_m"] = progress.values()
        return row


@dataclass(frozen=True)
class WorldReport:
    """Everything there is about one world; ``sources`` by method, in the order of the tables."""

    name: str
    sources: dict[str, Source]
    sweeps: tuple[SweepResult, ...] = ()
    tracks: tuple[FootTracks, ...] = ()
    slips: tuple[LatentSlip, ...] = ()

    @functools.cached_property
    def spec(self) -> WorldSpec | None:
        """The world's description, if it is one of config/worlds."""
        try:
            return load_world(self.name)
        except ConfigError:
            return None

    @property
    def line_m(self) -> float:
        return next(iter(self.sources.values())).result.line_m

    def final_progress(self, method: str) -> Sequence[float] | None:
        """Progress (m) of each trial of ``method`` at its last point."""
        source = self.sources.get(method)
        return source.result.points[-1].progress_m if source else None

    @functools.cached_property
    def rows(self) -> tuple[TableRow, ...]:
        expert, oracle = (self.final_progress(name) for name in ("expert", "oracle"))
        rows = []
        for method, source in self.sources.items():
            for point in source.result.points:
                progress = bootstrap_mean(point.progress_m)
                way = None
                if expert is not None and oracle is not None:
                    start = bootstrap_mean(expert).mean
                    headroom = bootstrap_mean(oracle).mean - start
                    if headroom >= MINIMUM_HEADROOM:
                        way = (progress.mean - start) / headroom
                rows.append(
                    TableRow(
                        self.name,
                        method,
                        style(method).learns,
                        point.minutes,
                        len(point.progress_m),
                        progress,
                        point.success,
                        point.falls,
                        way,
                    )
                )
        return tuple(rows)

    @functools.cached_property
    def relearning(self) -> Estimate | None:
        """Metres that relearning dynamics can buy: oracle minus oracle_nominal."""
        if "oracle" not in self.sources or "oracle_nominal" not in self.sources:
            return None
        oracle = self.sources["oracle"].result.points[-1]
        nominal = self.sources["oracle_nominal"].result.points[-1]
        if (oracle.speeds, oracle.seeds) == (nominal.speeds, nominal.seeds):
            pairs = zip(oracle.progress_m, nominal.progress_m, strict=True)
            return bootstrap_mean([a - b for a, b in pairs])
        return bootstrap_difference(oracle.progress_m, nominal.progress_m)

    def descriptions(self) -> dict[str, list[str]]:
        """Methods by the hash of the world's file that they were measured with."""
        found: dict[str, list[str]] = {}
        for method, source in self.sources.items():
            found.setdefault(str(source.result.settings.get("world_file")), []).append(method)
        return found

    def models(self) -> dict[str, list[str]]:
        """Methods by the weights they start from; ``through`` has a model of its own."""
        found: dict[str, list[str]] = {}
        for method, source in self.sources.items():
            if method != "through":
                found.setdefault(str(source.result.model.get("weights_hash")), []).append(method)
        return found

    def judged(self, method: str) -> TableRow | None:
        """The last row of ``method`` within GOAL_MINUTES of robot data."""
        rows = [r for r in self.rows if r.method == method and r.minutes <= GOAL_MINUTES]
        return rows[-1] if rows else None

    def chosen(self, sweep: SweepResult) -> float | None:
        """This world's own value of the swept parameter."""
        return None if self.spec is None else own_value(self.spec, sweep.parameter)

    def to_dict(self) -> dict[str, Any]:
        relearning = self.relearning
        return {
            "world": self.name,
            "line_m": self.line_m if self.sources else None,
            "relearning_can_buy_m": asdict(relearning) if relearning else None,
            "files": {method: source.path.name for method, source in self.sources.items()},
            "nominal_kept": {
                method: source.result.nominal.kept
                for method, source in self.sources.items()
                if source.result.nominal is not None
            },
        }


def own_value(world: WorldSpec, parameter: str) -> float | None:
    """The value of a swept ``parameter`` in ``world`` itself; None where it has none."""
    if parameter == "friction":
        return min(strip.friction for strip in world.course)
    if parameter == "motor_strength":
        return min(world.gaps.motor_strength.values(), default=None)
    if parameter in ("trunk_mass", "action_delay"):
        return getattr(world.gaps, parameter)
    soft = [strip.softness for strip in world.course if strip.softness is not None]
    return getattr(soft[0], parameter, None) if soft else None


def slug(name: str) -> str:
    """``name`` as it may stand in a file name, an id and a link; different names stay different."""
    if all(c.isascii() and (c.isalnum() or c in "_-") for c in name):
        return name
    return "x" + name.encode("utf-8", "replace").hex()


def find_files(given: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Results files in ``given`` files and directories, and JSON files that are something else.

    A file that is named must be a results file; in a directory, searched with what is below it,
    JSON files of other kinds are passed over; those of another version are not.

    Raises:
        ConfigError: a path does not exist, or holds no results file.
    """
    found: dict[Path, Path] = {}
    passed = []
    for path in given:
        if path.is_dir():
            files = sorted(path.rglob("*.json"))
            kept = []
            for file in files:
                known = _kind(read_object(file).get("format")) in map(_kind, _LOADERS)
                (kept if known else passed).append(file)
            if not kept:
                raise ConfigError(
                    f"{path} holds no results file of 'simdist experiment' ({len(files)} JSON "
                    "files in it); give the --out directory of an experiment"
                )
        elif path.is_file():
            kept = [path]
        else:
            raise ConfigError(f"{path}: no such file or directory; give results files")
        for file in kept:
            found.setdefault(file.resolve(), file)
    return list(found.values()), passed


def _kind(file_format: object) -> str:
    """A format without its version."""
    return str(file_format).rpartition("-")[0]


def load_any(path: Path) -> ExperimentResult | SweepResult | FootTracks | LatentSlip:
    """Read a results file of any format that the report knows; raises ConfigError."""
    kind = read_object(path).get("format")
    loader = _LOADERS.get(kind) if isinstance(kind, str) else None
    if loader is None:
        known = ", ".join(_LOADERS)
        raise ConfigError(f"{path}: format must be one of {known}, got {kind!r}")
    return loader(path)


def assemble(paths: Iterable[Path]) -> list[WorldReport]:
    """Read ``paths`` and sort them by world.

    Raises:
        ConfigError: a file is refused, or two contradict each other.
    """
    sources: dict[str, dict[str, Source]] = {}
    drawn: dict[str, list[SweepResult | FootTracks | LatentSlip]] = {}
    for path in paths:
        loaded = load_any(path)
        if isinstance(loaded, ExperimentResult):
            _add(sources.setdefault(loaded.world, {}), Source(path, loaded))
        else:
            drawn.setdefault(loaded.world, []).append(loaded)
    worlds = []
    # A world is shown where the reader meets it first: worlds with results before drawn ones.
    for name in sorted({*sources, *drawn}, key=lambda name: (name not in sources, _place(name))):
        figures = drawn.get(name, [])
        worlds.append(
            WorldReport(
                name,
                dict(sorted(sources.get(name, {}).items(), key=lambda item: order(item[0]))),
                tuple(item for item in figures if isinstance(item, SweepResult)),
                tuple(item for item in figures if isinstance(item, FootTracks)),
                tuple(item for item in figures if isinstance(item, LatentSlip)),
            )
        )
    return worlds


def _place(world: str) -> tuple[int, str]:
    return (WORLDS.index(world) if world in WORLDS else len(WORLDS), world)


def _add(methods: dict[str, Source], new: Source) -> None:
    """Add a result to those of its world, unless it contradicts one of them."""
    _check(new)
    other = methods.get(new.result.method)
    if other is not None:
        if other.result.to_dict() == new.result.to_dict():
            return
        raise ConfigError(
            f"{other.path} and {new.path} are both results of method {new.result.method!r} in "
            f"world {new.result.world!r} but differ in {_difference(other.result, new.result)}; "
            "give one of them"
        )
    for source in methods.values():
        if source.result.line_m != new.result.line_m:
            raise ConfigError(
                f"{source.path} and {new.path} have different success lines for world "
                f"{new.result.world!r}: line_m {source.result.line_m:g} and {new.result.line_m:g}; "
                "repeat one of them"
            )
    methods[new.result.method] = new


def _check(source: Source) -> None:
    """Refuse what cannot be drawn or counted."""
    path, result = source.path, source.result
    if not result.points:
        raise ConfigError(f"{path}: points must be a list of at least one point, got none")
    if not 0.0 < result.line_m < math.inf:
        raise ConfigError(f"{path}: line_m must be positive, got {result.line_m!r}")
    before = -math.inf
    for index, point in enumerate(result.points):
        place, trials = f"{path}: points[{index}]", len(point.progress_m)
        if point.minutes < 0.0 or not before < point.minutes < math.inf:
            raise ConfigError(f"{place}.minutes must be >= 0 and rising, got {point.minutes!r}")
        for value in point.progress_m:
            if not math.isfinite(value):
                raise ConfigError(f"{place}.progress_m must hold finite numbers, got {value!r}")
        for name in ("success", "falls"):
            if not 0 <= getattr(point, name) <= trials:
                raise ConfigError(
                    f"{place}.{name} must lie in 0..{trials}, the number of trials, got "
                    f"{getattr(point, name)}"
                )
        before = point.minutes


def _difference(first: ExperimentResult, second: ExperimentResult) -> str:
    """The first setting, or else the first field, in which two results differ."""
    one, two = first.to_dict(), second.to_dict()
    for prefix, a, b in (("settings.", one["settings"], two["settings"]), ("", one, two)):
        for key in sorted({*a, *b}):
            if a.get(key) != b.get(key):
                return f"{prefix}{key} ({str(a.get(key))[:40]} and {str(b.get(key))[:40]})"
    return "nothing that is listed"
