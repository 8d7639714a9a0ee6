"""``simdist experiment``: how well a method does in a world after some minutes of robot data.

Rounds of collecting, learning and evaluating. Everything that has been finished is on disk before
it counts, so a run that ends at any moment is continued by the same command.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import itertools
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from tqdm import tqdm

from simdist import paths, robots
from simdist.adaptation import FinetuneConfig, GateConfig, Losses
from simdist.errors import ConfigError
from simdist.evaluation.collection import (
    MOST_SEED,
    SEEDS_PER_EVALUATION,
    SPEEDS,
    CollectionPlan,
    RobotData,
    collect,
    evaluation_seed,
)
from simdist.evaluation.command_line import repeating
from simdist.evaluation.methods import (
    METHODS,
    STEP_WORK,
    LearningConfig,
    LearnReport,
    Method,
    MethodContext,
    check_method,
    make_method,
)
from simdist.evaluation.results import (
    BeforeAfter,
    ExperimentResult,
    Nominal,
    Point,
    Round,
    finite,
    read_json,
    write_json,
)
from simdist.evaluation.trial_pool import DriverSource, TrialJob, TrialPool, TrialSetting
from simdist.evaluation.trials import TrialConfig
from simdist.planning import PlannerConfig
from simdist.ranges import from_mapping
from simdist.simulation.world import WorldSpec, load_world
from simdist.world_model.artefact import Artefact, load_artefact
from simdist.world_model.simulation_replay import find_simulation_replay

STATE_FORMAT = "simdist-experiment-state-1"
#: Methods that answer every control step whatever ``plan_every`` says: policies are cheap, and the
#: expert knows only the present, so that its action would be held until it is asked again.
EVERY_STEP = ("expert", "prior", "smoothed_prior", "oracle", "oracle_nominal")
NOMINAL_WORLD = "nominal"
NOMINAL_LINE = 50.0  #: m, out of reach


@dataclass(frozen=True)
class ExperimentConfig:
    """What to find out. ``settings`` of a run are this and the hashes of all files it reads."""

    world: str
    method: str
    minutes: tuple[float, ...] = (0.0,)
    trials: int = 15
    model: str = "go1"
    robot: str = "go1"
    seed: int = 0
    seconds: float = 12.0
    plan_every: int = 2  #: control steps, but for policies (EVERY_STEP)
    delay_steps: int = 0
    line: float | None = None  #: m; None for the world's own
    speeds: tuple[float, ...] = SPEEDS
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    finetune: FinetuneConfig = field(default_factory=lambda: FinetuneConfig(cache_mib=1024))
    gate: GateConfig = field(default_factory=GateConfig)
    through_model: str | None = None
    nominal_trials: int = 0  #: in the world of the pretraining, before and after learning

    def check(self) -> None:
        """Raise ConfigError for what cannot be run."""
        check_method(self.method)
        _check_minutes(self.minutes)
        most = SEEDS_PER_EVALUATION * len(self.speeds)
        for name, low, high in (
            ("trials", 1, most),
            ("nominal_trials", 0, most),
            ("seed", 0, MOST_SEED),
            ("seconds", 0.1, 600),
            ("plan_every", 1, 10),
            ("delay_steps", 0, 5),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} must lie in {low}..{high}, got {value}")
        if self.line is not None and not 0 < self.line <= 100:
            raise ConfigError(f"--line must lie in (0, 100], got {self.line}")
        if (self.through_model is not None) != (self.method == "through"):
            raise ConfigError(
                "--through-model PATH goes with --method through, and only with it; got method "
                f"{self.method!r} and model {self.through_model!r}"
            )

    def trial(self, index: int) -> TrialConfig:
        """Evaluation trial number ``index``: speeds take turns, each with the same seeds."""
        return TrialConfig(
            self.speeds[index % len(self.speeds)],
            evaluation_seed(self.seed, index // len(self.speeds)),
            self.seconds,
            1 if self.method in EVERY_STEP else self.plan_every,
            self.delay_steps,
        )


def _check_minutes(minutes: tuple[float, ...]) -> None:
    shown = ",".join(f"{value:g}" for value in minutes)
    if not minutes or minutes[0] != 0.0:
        raise ConfigError(f"--minutes must begin with 0, got {shown or 'nothing'}")
    for earlier, later in itertools.pairwise(minutes):
        if not later > earlier:
            raise ConfigError(f"--minutes must ascend, got {shown}")
    if not minutes[-1] <= 600:
        raise ConfigError(f"--minutes must not exceed 600, got {shown}")


@dataclass
class Progress:
    """How far a run has come; what it says is done is on disk."""

    settings: dict[str, Any]
    points: list[Point] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)
    data: list[str] = field(default_factory=list)  #: files of robot data, oldest first
    collected: int = 0  #: points whose data is on disk, but for the first, which needs none
    learned: int = 0  #: points that were learned for; the method was saved after this one
    latent_loss: BeforeAfter | None = None
    simulation_loss: BeforeAfter | None = None
    nominal_before: tuple[float, ...] = ()
    nominal_after: tuple[float, ...] = ()
    wall_s: float = 0.0  #: of everything finished
    point_wall_s: float = 0.0  #: of what was finished for the point under way

    def to_dict(self) -> dict[str, Any]:
        return {"format": STATE_FORMAT, **asdict(self)}

    @staticmethod
    def load(path: Path) -> Progress:
        """Read a state; raises ConfigError when it is damaged or of another version."""
        data = read_json(path)
        found = data.pop("format", None) if isinstance(data, dict) else None
        if found != STATE_FORMAT:
            raise ConfigError(
                f"{path}: format {found!r}, expected {STATE_FORMAT!r}: it belongs to another "
                "version; choose another --out"
            )
        try:
            points = [Point.from_dict(point) for point in data.pop("points")]
            rounds = [Round(**entry) for entry in data.pop("rounds")]
            losses = {
                name: None if (loss := data.pop(name)) is None else BeforeAfter(**loss)
                for name in ("latent_loss", "simulation_loss")
            }
            for name in ("nominal_before", "nominal_after"):
                data[name] = tuple(data[name])
            return Progress(points=points, rounds=rounds, **losses, **data)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{path} is damaged: {error!r}; choose another --out") from error


class Experiment:
    """One run in a directory: ``result.json``, and under ``state`` what a resumption needs."""

    def __init__(
        self, config: ExperimentConfig, out: Path, *, workers: int = 1, command: str = ""
    ) -> None:
        config.check()
        self.config, self.out, self.command = config, out, command
        self._workers = workers
        self.robot = robots.get(config.robot)
        self.world = load_world(config.world)
        self.line = self.world.success_line if config.line is None else config.line
        self.artefact = load_artefact(paths.model_file(config.model), self.robot)
        self.through = paths.model_file(config.through_model) if config.through_model else None
        self.settings = settings_of(config, self.world, self.artefact, self.through)
        self._state = out / "state"
        self._bar: Any = None

    def run(self) -> ExperimentResult:
        """Run to the end, or continue a run that was interrupted.

        Raises:
            ConfigError: the directory holds a run with other settings, or of another version.
        """
        with _locked(self._state), self._pool() as pool:
            progress = self._resume()
            method = self._method(pool)
            data = self._restore(progress, method)
            minutes = self.config.minutes if method.learns else self.config.minutes[:1]
            with self._progress_bar(minutes, progress, method) as self._bar:
                for index in range(len(progress.points), len(minutes)):
                    self._point(index, minutes[index], progress, method, data, pool)
                    # Falls and refusals make points cheaper than foreseen.
                    self._bar.n = round(self._work(minutes[: index + 1], method))
                    self._bar.refresh()
            return self._result(progress)

    def _point(
        self,
        index: int,
        minutes: float,
        progress: Progress,
        method: Method,
        data: RobotData,
        pool: TrialPool,
    ) -> None:
        label = f"{self.config.method}, {minutes:g} min"
        if index > progress.collected and method.wants_data:
            self._bar.set_description(f"{label}: collecting")
            with self._timed(progress):
                first = len(data.trials)
                plan = replace(self._plan(), with_noise=not method.explores)
                collect(data, minutes, plan, method.source(), pool, self._bar.update)
                self._keep_data(progress, data, index, first)
        progress.collected = index
        if index > progress.learned:
            self._bar.set_description(f"{label}: learning")
            with self._timed(progress):
                first = len(data.trials)
                report = method.learn(data, minutes)
                self._keep_data(progress, data, index, first)
                method.save(self._round_directory(index))
                self._note(progress, report, minutes, data)
                progress.learned = index
        self._bar.set_description(f"{label}: evaluating")
        with self._timed(progress):
            point = self._evaluate(method.source(), minutes, pool)
        if self.config.nominal_trials and method.learns:
            self._bar.set_description(f"{label}: evaluating in the nominal world")
            with self._timed(progress):
                if index == 0:
                    progress.nominal_before = self._nominal(method.source())
                elif minutes == self.config.minutes[-1]:
                    progress.nominal_after = self._nominal(method.source())
        progress.points.append(replace(point, wall_s=progress.point_wall_s))
        progress.point_wall_s = 0.0
        self._write(progress)
        self._result(progress).save(self.out / "result.json")

    def _evaluate(self, source: DriverSource, minutes: float, pool: TrialPool) -> Point:
        jobs = [TrialJob(source, self.config.trial(i)) for i in range(self.config.trials)]
        results = []
        for outcome in pool.run(jobs):
            results.append(outcome.result)
            self._bar.update(self.config.seconds)
        return Point(
            minutes=minutes,
            progress_m=tuple(result.progress for result in results),
            speeds=tuple(result.speed for result in results),
            seeds=tuple(result.seed for result in results),
            falls=sum(result.fallen for result in results),
            success=sum(result.reached for result in results),
            wall_s=0.0,
        )

    def _nominal(self, source: DriverSource) -> tuple[float, ...]:
        """Progress where nothing is hard; far enough for the speed to count."""
        contract = self.artefact.contract
        setting = TrialSetting(
            self.config.robot,
            load_world(NOMINAL_WORLD),
            contract.observation,
            contract.hash(),
            NOMINAL_LINE,
        )
        jobs = [TrialJob(source, self.config.trial(i)) for i in range(self.config.nominal_trials)]
        with TrialPool(setting, self._workers) as pool:
            return tuple(outcome.result.progress for outcome in pool.run(jobs))

    # ------------------------------------------------------------------ parts

    def _pool(self) -> TrialPool:
        contract = self.artefact.contract
        return TrialPool(
            TrialSetting(
                self.config.robot, self.world, contract.observation, contract.hash(), self.line
            ),
            self._workers,
        )

    def _plan(self) -> CollectionPlan:
        config = self.config
        return CollectionPlan(
            config.seed, config.seconds, config.plan_every, config.delay_steps, config.speeds
        )

    def _method(self, pool: TrialPool) -> Method:
        config = self.config
        return make_method(
            config.method,
            MethodContext(
                artefact=self.artefact,
                robot=self.robot,
                pool=pool,
                plan=self._plan(),
                planner=config.planner,
                learning=config.learning,
                finetune=config.finetune,
                gate=config.gate,
                through_model=self.through,
                seed=config.seed,
                progress=lambda seconds: self._bar.update(seconds),
            ),
        )

    def _work(self, minutes: Sequence[float], method: Method) -> float:
        """Of all points up to the last one of ``minutes``, roughly in seconds of robot time."""
        config = self.config
        work = config.trials * config.seconds * len(minutes)
        if method.learns and minutes:
            work += 60.0 * minutes[-1]
            work += STEP_WORK * config.learning.steps_per_minute * sum(minutes)
        return work

    def _progress_bar(self, minutes: Sequence[float], progress: Progress, method: Method) -> Any:
        return tqdm(
            total=round(self._work(minutes, method)),
            initial=round(self._work(minutes[: len(progress.points)], method)),
            file=sys.stderr,
            mininterval=0.5 if sys.stderr.isatty() else 10.0,
            bar_format="{desc}{percentage:3.0f}%|{bar}| {elapsed} gone, {remaining} to go",
        )

    # ------------------------------------------------------------------ state

    def _resume(self) -> Progress:
        result, state = self.out / "result.json", self._state / "progress.json"
        if result.exists():
            ExperimentResult.load(result)  # refuses another version's before anything is replaced
        if not state.exists():
            if result.exists():
                raise ConfigError(
                    f"{result} exists, but there is no {state} to continue it from; choose another "
                    "--out"
                )
            return Progress(self.settings)
        progress = Progress.load(state)
        _require_same(progress.settings, self.settings, len(progress.points), self.out)
        progress.settings = self.settings
        return progress

    def _restore(self, progress: Progress, method: Method) -> RobotData:
        data = RobotData(self.robot.control_dt)
        for name in progress.data:
            data.load(self._state / Path(name).name)
        if progress.learned:
            method.restore(self._round_directory(progress.learned))
        return data

    def _keep_data(self, progress: Progress, data: RobotData, index: int, first: int) -> None:
        if len(data.trials) > first:
            name = f"data-{index:03d}.npz"
            data.save(self._state / name, first)
            progress.data.append(name)
            progress.collected = index

    def _note(
        self, progress: Progress, report: LearnReport, minutes: float, data: RobotData
    ) -> None:
        losses = report.losses
        progress.rounds.append(
            Round(
                minutes=minutes,
                accepted=report.accepted,
                reason=report.reason,
                losses=None if losses is None else {k: finite(v) for k, v in vars(losses).items()},
                steps=report.steps,
                falls=data.falls,
                trials=len(data.trials),
            )
        )
        if losses is not None and report.accepted:
            progress.latent_loss = _robot_loss(losses) or progress.latent_loss
            progress.simulation_loss = BeforeAfter(
                losses.simulation_before, losses.simulation_after
            )

    @contextlib.contextmanager
    def _timed(self, progress: Progress) -> Iterator[None]:
        """Count the time of a stage, and write down that it is done."""
        begin = time.monotonic()
        yield
        spent = time.monotonic() - begin
        progress.wall_s += spent
        progress.point_wall_s += spent
        self._write(progress)

    def _write(self, progress: Progress) -> None:
        write_json(self._state / "progress.json", progress.to_dict())

    def _round_directory(self, index: int) -> Path:
        return self._state / f"round-{index:03d}"

    def _result(self, progress: Progress) -> ExperimentResult:
        refused = [r for r in progress.rounds if not r.accepted]
        return ExperimentResult(
            world=self.world.name,
            method=self.config.method,
            line_m=self.line,
            points=tuple(progress.points),
            latent_loss=progress.latent_loss,
            simulation_loss=progress.simulation_loss,
            command=self.command,
            seed=self.config.seed,
            wall_s=progress.wall_s,
            model={
                "name": self.config.model,
                "weights_hash": self.artefact.weights_hash,
                "contract": self.artefact.contract.hash(),
                "version": self.artefact.version,
            },
            settings=self.settings,
            notes="; ".join(f"refused after {r.minutes:g} min: {r.reason}" for r in refused),
            rounds=tuple(progress.rounds),
            nominal=Nominal(progress.nominal_before, progress.nominal_after)
            if progress.nominal_after
            else None,
        )


def settings_of(
    config: ExperimentConfig, world: WorldSpec, artefact: Artefact, through: Path | None
) -> dict[str, Any]:
    """Everything that two runs must agree on to be the same, as plain JSON data."""
    expert = artefact.path.parent / "expert.safetensors"
    settings = asdict(config)
    # Names may change their meaning, contents may not.
    settings["world_file"] = _hash_of(paths.world_file(config.world))
    settings["line"] = world.success_line if config.line is None else config.line
    settings["model_weights"] = artefact.weights_hash
    settings["expert_file"] = _hash_of(expert) if expert.is_file() else None
    settings["simulation_file"] = _hash_of(find_simulation_replay(artefact))
    settings["through_weights"] = through and load_artefact(through).weights_hash
    return _listed(settings)


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _listed(value: Any) -> Any:
    """Tuples as lists, as they come back from JSON."""
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, (list, tuple)) else value


def _require_same(
    before: Mapping[str, Any], now: Mapping[str, Any], points_done: int, out: Path
) -> None:
    """Refuse to continue a run with other settings; points may be added at the end."""
    old, new = _flat(before), _flat(now)
    for name in [*new, *(name for name in old if name not in new)]:
        a, b = old.get(name), new.get(name)
        if (
            name == "minutes"
            and a is not None
            and b is not None
            and a[:points_done] == b[:points_done]
        ):
            continue
        if a != b:
            raise ConfigError(
                f"{out} holds a run with {name} = {_shown(a)}, this one has {name} = {_shown(b)}; "
                "choose another --out or the same settings"
            )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _shown(value: Any) -> str:
    if isinstance(value, str) and len(value) == 64:
        return f"{value[:12]}…"
    return str(value)


def _robot_loss(losses: Losses) -> BeforeAfter | None:
    pair = (losses.robot_before, losses.robot_after)
    return BeforeAfter(*pair) if all(map(math.isfinite, pair)) else None


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Keep a second run out; the system lets go of the lock when this process ends, however."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = open(directory / "lock", "w")  # noqa: SIM115
    except OSError as error:
        raise ConfigError(f"cannot write to {directory}: {error.strerror}") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigError(f"another run is using {directory.parent}") from None
        yield


def summary(result: ExperimentResult) -> str:
    """The points as text, one line each."""
    head = f"{result.method} in {result.world}, line at {result.line_m:g} m"
    lines = [head, f"{'minutes':>8}{'success':>9}{'falls':>7}{'progress (m)':>18}"]
    for point in result.points:
        progress = point.progress_m
        lines.append(
            f"{point.minutes:>8g}{f'{point.success}/{len(progress)}':>9}{point.falls:>7}"
            f"{np.mean(progress):>11.2f} ± {np.std(progress):.2f}"
        )
    if result.latent_loss is not None:
        loss = result.latent_loss
        lines.append(f"held-out latent loss {loss.before:.4f} -> {loss.after:.4f}")
    if result.notes:
        lines.append(result.notes)
    return "\n".join(lines)


# ---------------------------------------------------------------------- command line


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist experiment``."""
    default = ExperimentConfig("", "")
    learning = default.learning
    parser.add_argument(
        "--world", required=True, help=f"one of {', '.join(paths.world_names())}, or a YAML file"
    )
    parser.add_argument("--method", required=True, help=f"one of {', '.join(METHODS)}")
    parser.add_argument(
        "--minutes", default="0", help="robot data before each evaluation, as 0,5,10,15"
    )
    parser.add_argument("--trials", type=int, default=default.trials, help="per evaluation")
    parser.add_argument("--model", default=default.model, help="name in models/, or an artefact")
    parser.add_argument("--out", type=Path, help="default: runs/experiments/WORLD_METHOD")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="walked per trial")
    parser.add_argument(
        "--line", type=float, help="m that count as success and end a trial (default: the world's)"
    )
    parser.add_argument(
        "--plan-every", type=int, default=default.plan_every, help="control steps per plan"
    )
    parser.add_argument(
        "--delay-steps",
        type=int,
        default=default.delay_steps,
        help="control steps until a plan reaches the robot",
    )
    parser.add_argument("--planner", metavar="FILE", help="YAML file of planner settings")
    parser.add_argument("--samples", type=int, help="of the planner, on top of --planner")
    parser.add_argument("--iterations", type=int, help="of the planner, on top of --planner")
    parser.add_argument("--finetune", metavar="FILE", help="YAML file of finetuning settings")
    parser.add_argument("--gate", metavar="FILE", help="YAML file of the acceptance gate")
    parser.add_argument("--steps-per-minute", type=int, default=learning.steps_per_minute)
    parser.add_argument(
        "--online-steps-per-second", type=float, default=learning.online_steps_per_second
    )
    parser.add_argument(
        "--nominal-trials",
        type=int,
        default=default.nominal_trials,
        help="in the nominal world, before and after learning: is anything forgotten?",
    )
    parser.add_argument("--through-model", metavar="PATH", help="model of method 'through'")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes")


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist experiment``."""
    config = config_of(arguments)
    if arguments.workers < 1:
        raise ConfigError(f"--workers must be at least 1, got {arguments.workers}")
    config.check()
    out = arguments.out
    if out is None:
        out = Path("runs/experiments") / f"{Path(config.world).stem}_{config.method}"
    experiment = Experiment(config, out, workers=arguments.workers, command=command_of(arguments))
    print(summary(experiment.run()))
    print(f"wrote {out / 'result.json'}", file=sys.stderr)
    return 0


def config_of(arguments: argparse.Namespace) -> ExperimentConfig:
    """Settings from the command line; raises ConfigError for those that are not allowed."""
    planner = _yaml(arguments.planner)
    for name in ("samples", "iterations"):
        if getattr(arguments, name) is not None:
            planner[name] = getattr(arguments, name)
    finetune = {"cache_mib": 1024, **_yaml(arguments.finetune)}
    for name in ("steps", "seed"):
        if name in finetune:
            raise ConfigError(f"{arguments.finetune}: {name} is set by the experiment; remove it")
    return ExperimentConfig(
        world=arguments.world,
        method=arguments.method,
        minutes=_parse_minutes(arguments.minutes),
        trials=arguments.trials,
        model=arguments.model,
        seed=arguments.seed,
        seconds=arguments.seconds,
        plan_every=arguments.plan_every,
        delay_steps=arguments.delay_steps,
        line=arguments.line,
        planner=PlannerConfig.from_mapping(planner, arguments.planner or "planner"),
        learning=LearningConfig(
            steps_per_minute=arguments.steps_per_minute,
            online_steps_per_second=arguments.online_steps_per_second,
        ),
        finetune=from_mapping(FinetuneConfig, finetune, arguments.finetune or "finetune"),
        gate=from_mapping(GateConfig, _yaml(arguments.gate), arguments.gate or "gate"),
        through_model=arguments.through_model,
        nominal_trials=arguments.nominal_trials,
    )


def command_of(arguments: argparse.Namespace) -> str:
    """The command line that repeats a run: what is not its default, and needs no default."""
    return repeating("experiment", add_arguments, arguments, leave_out=("workers",))


def _parse_minutes(text: str) -> tuple[float, ...]:
    try:
        minutes = tuple(float(word) for word in text.split(","))
    except ValueError:
        raise ConfigError(
            f"--minutes must be numbers with commas between them, as 0,5,10; got {text!r}"
        ) from None
    if not all(math.isfinite(value) for value in minutes):
        raise ConfigError(f"--minutes must be finite, got {text!r}")
    return minutes


def _yaml(file: str | None) -> dict[str, Any]:
    """The mapping in a YAML file, or an empty one without a file."""
    if file is None:
        return {}
    try:
        data = yaml.safe_load(Path(file).expanduser().read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read {file}: {error}") from error
    if data is None:
        return {}
    if not isinstance(data, Mapping):
        raise ConfigError(f"{file}: must be a mapping of names to values, got {data!r:.80}")
    return dict(data)
