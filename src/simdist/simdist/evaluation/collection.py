"""Robot data: collected trial by trial, counted in minutes, kept on disk."""

from __future__ import annotations

import io
import itertools
import json
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from simdist.errors import BagError, ConfigError
from simdist.evaluation.trial_pool import DriverSource, TrialJob, TrialOutcome, TrialPool
from simdist.evaluation.trials import TrialConfig
from simdist.replay import Episode, ReplayBuffer
from simdist.world_model.artefact import read_limited, write_atomically

SPEEDS = (0.4, 0.6, 0.8)  #: m/s, the paper's three commanded speeds
RESET_SECONDS = 5.0  #: that a fall costs: somebody carries the robot back

#: Trials are told apart by their seeds. Those of evaluation lie below those of collection, for
#: every seed of an experiment up to MOST_SEED.
EVALUATION_SEED, COLLECTION_SEED = 1_000, 100_000
SEEDS_PER_EVALUATION, SEEDS_PER_COLLECTION = 100, 10_000
MOST_SEED = 899

_UNLIMITED_STEPS = 1 << 40
_BAD_ZIP = (zipfile.BadZipFile, zlib.error)


def evaluation_seed(experiment_seed: int, index: int) -> int:
    """Seed of the trials with number ``index`` of each speed."""
    if not 0 <= index < SEEDS_PER_EVALUATION:
        raise ConfigError(f"at most {SEEDS_PER_EVALUATION} trials per speed, got {index + 1}")
    return EVALUATION_SEED + experiment_seed * SEEDS_PER_EVALUATION + index


def collection_seed(experiment_seed: int, index: int) -> int:
    """Seed of the collected trial with number ``index``, counted over all rounds."""
    if not 0 <= index < SEEDS_PER_COLLECTION:
        raise ConfigError(f"at most {SEEDS_PER_COLLECTION} trials can be collected from")
    return COLLECTION_SEED + experiment_seed * SEEDS_PER_COLLECTION + index


@dataclass(frozen=True)
class RecordedTrial:
    """A trial as robot data; ``seconds`` were walked, ``segments`` are one run, oldest first."""

    seed: int
    speed: float
    noisy: bool
    seconds: float
    fallen: bool
    reached: bool
    segments: tuple[Episode, ...] = ()

    @property
    def cost(self) -> float:
        """Seconds of robot time, with that of picking it up."""
        return self.seconds + RESET_SECONDS * self.fallen

    def first(self, seconds: float, dt: float) -> RecordedTrial:
        """The beginning of the trial, which may leave out how it ended."""
        if seconds >= self.seconds:
            return self
        kept, left = list[Episode](), round(seconds / dt)
        for segment in self.segments:
            kept.append(segment[: max(left, 0)])
            left -= len(segment)
        return replace(
            self,
            seconds=seconds,
            fallen=False,
            reached=False,
            segments=tuple(segment for segment in kept if len(segment)),
        )


@dataclass
class RobotData:
    """Everything the robot has recorded so far."""

    control_dt: float
    trials: list[RecordedTrial] = field(default_factory=list)

    @property
    def minutes(self) -> float:
        """Of robot time: walking, and being picked up after falls."""
        return sum(trial.cost for trial in self.trials) / 60.0

    @property
    def falls(self) -> int:
        return sum(trial.fallen for trial in self.trials)

    def room(self, minutes: float) -> float:
        """Seconds until ``minutes`` are used up."""
        # A tolerance far below a control step: sums of seconds are not exact.
        left = minutes * 60.0 - sum(trial.cost for trial in self.trials)
        return left if left > 1e-6 else 0.0

    def add(self, trial: RecordedTrial, minutes: float) -> None:
        """Take in a trial, or as much of it as still fits into ``minutes``."""
        number = len(self.trials) + 1
        trial = replace(
            trial, segments=tuple(replace(segment, episode=number) for segment in trial.segments)
        )
        steps = round(self.room(minutes) / self.control_dt)
        self.trials.append(trial.first(max(steps, 1) * self.control_dt, self.control_dt))

    def buffer(self) -> ReplayBuffer:
        """All data, split into a part to learn from and a held-out part: every fourth trial as a
        whole, beginning with the second. Both parts only grow."""
        segments = [segment for trial in self.trials for segment in trial.segments]
        buffer = ReplayBuffer(
            round(self.control_dt * 1e9),
            capacity_steps=_UNLIMITED_STEPS,
            group_steps=_UNLIMITED_STEPS,
        )
        for segment in segments:
            buffer.add(segment)
        return buffer

    def save(self, path: Path, first: int) -> None:
        """Write the trials from number ``first`` on, atomically."""
        arrays: dict[str, np.ndarray] = {}
        facts = []
        for i, trial in enumerate(self.trials[first:]):
            facts.append({**vars(trial), "segments": len(trial.segments)})
            for k, segment in enumerate(trial.segments):
                arrays |= {f"{i}/{k}/{name}": v for name, v in segment.to_dict().items()}
        arrays["trials"] = np.frombuffer(json.dumps(facts).encode(), np.uint8)
        stream = io.BytesIO()
        np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
        write_atomically(path, stream.getvalue())

    def load(self, path: Path) -> None:
        """Append the trials that :meth:`save` wrote; raises BagError when the file is damaged."""
        try:
            with np.load(io.BytesIO(read_limited(path)), allow_pickle=False) as arrays:
                facts = json.loads(bytes(arrays["trials"]))
                trials = [_trial(entry, i, arrays) for i, entry in enumerate(facts)]
        except (OSError, ValueError, KeyError, TypeError, EOFError, *_BAD_ZIP) as error:
            raise BagError(f"{path} is damaged: {error}; begin the experiment anew") from error
        self.trials += trials


def _trial(facts: dict, index: int, arrays: np.lib.npyio.NpzFile) -> RecordedTrial:
    names = ("stamp_ns", "proprio", "scan", "action", "command", "episode", "contract")
    segments = [
        Episode.from_dict({name: arrays[f"{index}/{k}/{name}"] for name in names})
        for k in range(facts.pop("segments"))
    ]
    return RecordedTrial(**facts, segments=tuple(segments))


@dataclass(frozen=True)
class CollectionPlan:
    """How robots are driven for data: speeds take turns, and half of the trials have noise."""

    seed: int
    seconds: float = 12.0
    plan_every: int = 2
    delay_steps: int = 0
    speeds: Sequence[float] = SPEEDS
    with_noise: bool = True  #: not where drivers explore by themselves

    def trial(self, index: int) -> TrialConfig:
        """Settings of the trial with number ``index``, counted over all rounds."""
        return TrialConfig(
            self.speeds[index % len(self.speeds)],
            collection_seed(self.seed, index),
            self.seconds,
            self.plan_every,
            self.delay_steps,
        )

    def noisy(self, index: int) -> bool:
        """Whether noise is added: not to every second trial, because a split that holds out
        every fourth trial would then hold out one kind only."""
        return self.with_noise and index // len(self.speeds) % 2 == 1

    def recorded(self, index: int, outcome: TrialOutcome) -> RecordedTrial:
        """The outcome of trial ``index`` as robot data."""
        result = outcome.result
        return RecordedTrial(
            seed=result.seed,
            speed=result.speed,
            noisy=self.noisy(index),
            seconds=result.seconds,
            fallen=result.fallen,
            reached=result.reached,
            segments=outcome.segments,
        )


def collect(
    data: RobotData,
    minutes: float,
    plan: CollectionPlan,
    source: DriverSource,
    pool: TrialPool,
    progress: Callable[[float], None] = lambda seconds: None,
) -> None:
    """Drive robots until ``data`` holds ``minutes``; ``progress`` is told the new seconds."""
    if not data.room(minutes):
        return
    first = len(data.trials)

    def jobs() -> Iterator[TrialJob]:
        for index in itertools.count(first):
            yield TrialJob(
                source, plan.trial(index), exploring=True, noisy=plan.noisy(index), record=True
            )

    outcomes = pool.run(jobs())
    for index, outcome in zip(itertools.count(first), outcomes, strict=False):
        data.add(plan.recorded(index, outcome), minutes)
        progress(data.trials[-1].cost)
        if not data.room(minutes):
            break
    outcomes.close()  # type: ignore[attr-defined]
