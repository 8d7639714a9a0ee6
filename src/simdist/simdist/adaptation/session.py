"""Learning beside the running robot: when to begin an update, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from simdist.adaptation.finetune import AdaptationError, DynamicsFinetuner, FinetuneJob, Losses
from simdist.adaptation.gate import AcceptanceGate
from simdist.adaptation.update import ModelUpdate, RunningModel, pack_update
from simdist.errors import BagError, ConfigError
from simdist.ranges import Checked, bounded
from simdist.replay import Episode, GroupStore, ReplayBuffer


@dataclass(frozen=True)
class SessionConfig(Checked):
    """When to learn."""

    min_new_seconds: float = bounded(15.0, 1.0, 3600.0, "s of new robot data before an update")
    capacity_seconds: float = bounded(1800.0, 30.0, 36000.0, "s of robot data kept in memory")
    group_seconds: float = bounded(
        6.0, 0.5, 3600.0, "s of one run that are learned from, held out or forgotten as a whole"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.group_seconds > self.capacity_seconds:
            raise ConfigError(
                f"SessionConfig.group_seconds = {self.group_seconds}: must not exceed "
                f"capacity_seconds = {self.capacity_seconds}"
            )


class State(StrEnum):
    WAITING = "waiting"
    LEARNING = "learning"
    ACCEPTED = "accepted"
    REFUSED = "refused"


@dataclass(frozen=True)
class Attempt:
    """The end of one update: the verdict, and the update itself if it was accepted."""

    version: int
    accepted: bool
    reason: str
    losses: Losses
    seconds_of_data: float
    update: ModelUpdate | None


class AdaptationSession:
    """Collects robot data and turns it into updates, a few gradient steps at a time.

    Each update continues the model that the planner says it runs, so a rollback there is followed
    here, and an update that the planner refused is not built upon.
    """

    def __init__(
        self,
        base: RunningModel,
        finetuner: DynamicsFinetuner,
        gate: AcceptanceGate,
        config: SessionConfig,
        control_dt: float,
        store: GroupStore | None = None,
    ) -> None:
        self.config = config
        self.state = State.WAITING
        self.message = ""
        self.tried = self.accepted = 0
        self.refused_segments = 0
        self.last: Attempt | None = None
        self._finetuner, self._gate = finetuner, gate
        self._models = {base.version: base}
        self._running = self._newest = base.version
        self._buffer = ReplayBuffer(
            round(control_dt * 1e9),
            capacity_steps=round(config.capacity_seconds / control_dt),
            group_steps=round(config.group_seconds / control_dt),
            contract=base.contract,
            store=store,
        )
        self._dt = control_dt
        self._new_seconds = 0.0
        self._job: FinetuneJob | None = None

    @property
    def version(self) -> int:
        """Of the model that the next update continues."""
        return self._running

    @property
    def seconds_of_data(self) -> float:
        return len(self._buffer) * self._dt

    @property
    def restored_seconds(self) -> float:
        """Robot data that an earlier process had stored."""
        return self._buffer.statistics().restored_steps * self._dt

    def save(self) -> None:
        """Store robot data that is not on disk yet, if there is a store."""
        self._buffer.save()

    def add(self, segment: Episode) -> str | None:
        """Take in robot data; what is wrong with it, or None."""
        try:
            self._buffer.add(segment)
        except BagError as error:
            self.refused_segments += 1
            return str(error)
        self._new_seconds += len(segment) * self._dt
        return None

    def running(self, version: int) -> str | None:
        """The planner runs this version; a complaint if it cannot be learned from here, or None."""
        if version not in self._models:
            self.message = f"the planner runs version {version}, whose weights are not known here"
            return self.message
        if version != self._running:
            self._running = version
            # What is being learned continues another model than the one that runs.
            self._job = None
        return None

    def begin(self) -> bool:
        """Begin an update if there is enough new data; whether one is under way now."""
        if self._job is not None:
            return True
        if self._new_seconds < self.config.min_new_seconds:
            return False
        training, held_out = self._buffer.episodes(False), self._buffer.episodes(True)
        try:
            self._job = self._finetuner.start(training, held_out, self._models[self._running].model)
        except AdaptationError as error:
            self.message = str(error)
            self._new_seconds = 0.0
            return False
        self._new_seconds = 0.0
        self.tried += 1
        self.state = State.LEARNING
        self.message = f"continues version {self._running} with {self.seconds_of_data:.0f} s"
        return True

    def step(self, count: int = 1) -> Attempt | None:
        """A few gradient steps of the update under way; the attempt when it has ended."""
        if self._job is None:
            return None
        version = self._newest + 1
        parent = self._models[self._running]
        nothing = Losses(*(float("nan"),) * 4)
        try:
            if self._job.step(count):
                return None
            candidate = self._job.candidate()
        except AdaptationError as error:
            return self._end(Attempt(version, False, str(error), nothing, 0.0, None))
        decision = self._gate.judge(candidate)
        update = None
        if decision.accepted:
            update = pack_update(candidate, parent, version)
            self._models[version] = parent.with_dynamics(candidate.state, version)
            self._forget_old_models()
            self._newest = version
        return self._end(
            Attempt(
                version,
                decision.accepted,
                decision.reason,
                decision.losses,
                candidate.seconds_of_data,
                update,
            )
        )

    def _end(self, attempt: Attempt) -> Attempt:
        self._job = None
        self.last = attempt
        self.accepted += attempt.accepted
        self.state = State.ACCEPTED if attempt.accepted else State.REFUSED
        self.message = attempt.reason
        return attempt

    def _forget_old_models(self, keep: int = 8) -> None:
        # The first one is what a rollback ends at.
        for version in sorted(self._models)[1:-keep]:
            if version != self._running:
                del self._models[version]
