"""What an experiment compares: ways to drive a robot, and ways to learn from its data.

A method is made by a factory in :data:`METHODS`; further ones are added by an entry there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from simdist.adaptation import (
    AcceptanceGate,
    AdaptationError,
    Candidate,
    DynamicsFinetuner,
    FinetuneConfig,
    GateConfig,
    Losses,
    RunningModel,
)
from simdist.errors import ArtefactError, ConfigError
from simdist.evaluation.collection import CollectionPlan, RobotData
from simdist.evaluation.drivers import driver_factory
from simdist.evaluation.trial_pool import DriverFactory, DriverSource, TrialPool, torch_threads
from simdist.planning import PlannerConfig, self_test
from simdist.ranges import Checked, bounded
from simdist.robots import RobotSpec
from simdist.simulation.world import WorldSpec
from simdist.world_model.artefact import Artefact, load_artefact, save_artefact
from simdist.world_model.simulation_replay import SimulationReplay, find_simulation_replay

MODEL_FILE = "world_model.safetensors"
LEAST_STEPS = 200  #: gradient steps of a round, however little data there is
#: For progress bars: seconds of robot time that a gradient step counts as.
STEP_WORK = 0.3


@dataclass(frozen=True)
class LearningConfig(Checked):
    """How much is learned."""

    steps_per_minute: int = bounded(240, 1, 100_000, "gradient steps per minute of robot data")
    online_steps_per_second: float = bounded(4.0, 0.1, 1000.0, "gradient steps per second walked")
    threads: int = bounded(1, 1, 64, "of torch, while nobody walks; sums depend on it")


@dataclass(frozen=True)
class LearnReport:
    """What became of a round of learning. ``losses`` compare with the pretrained model."""

    accepted: bool
    reason: str
    steps: int = 0
    losses: Losses | None = None


@dataclass(frozen=True)
class MethodContext:
    """What a method is made of. ``progress`` is told of work as it is done, in seconds of robot
    time."""

    artefact: Artefact  #: the pretrained model
    robot: RobotSpec
    pool: TrialPool
    plan: CollectionPlan
    planner: PlannerConfig = field(default_factory=PlannerConfig)
    learning: LearningConfig = field(default_factory=LearningConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)
    gate: GateConfig = field(default_factory=GateConfig)
    through_model: Path | None = None
    seed: int = 0
    progress: Callable[[float], None] = lambda seconds: None


class Method(Protocol):
    """Something that drives a robot, and may learn to do it better."""

    name: str
    learns: bool  #: whether more minutes make a difference
    wants_data: bool  #: whether robot data is to be collected for it before :meth:`learn`
    explores: bool  #: whether its exploring drivers explore by themselves: no noise is added

    def source(self) -> DriverSource:
        """Drivers of what has been learned so far. After :meth:`learn`, :meth:`save` comes first,
        as the source may point to the files written there."""
        ...

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        """Learn from all ``minutes`` of data so far. A method that does not want its data collected
        collects by itself, and adds the trials to ``data``."""
        ...

    def save(self, directory: Path) -> None:
        """Write everything that :meth:`restore` needs; files there from a run that was killed
        are overwritten."""
        ...

    def restore(self, directory: Path) -> None:
        """Continue from what :meth:`save` wrote; raises ArtefactError when it is unusable."""
        ...


MethodFactory = Callable[[MethodContext], Method]


@dataclass(frozen=True)
class ModelSource:
    """Drivers of :func:`~simdist.evaluation.drivers.driver_factory` on a model in a file."""

    kind: str
    model: Path
    weights_hash: str
    planner: PlannerConfig
    delay_steps: int

    def load(self, robot: RobotSpec, world: WorldSpec) -> DriverFactory:
        artefact = load_artefact(self.model, robot)
        if artefact.weights_hash != self.weights_hash:
            raise ArtefactError(
                f"{self.model} changed during the experiment: its weights hash to "
                f"{artefact.weights_hash[:12]}, they were {self.weights_hash[:12]}"
            )
        factory = driver_factory(
            self.kind, artefact, robot, self.planner, self.delay_steps, world=world
        )
        return lambda seed, exploring: factory(seed)


class FixedMethod:
    """A method that does not learn."""

    learns = wants_data = explores = False

    def __init__(self, name: str, kind: str, artefact: Artefact, context: MethodContext) -> None:
        self.name = name
        self._source = _source(kind, artefact, context)

    def source(self) -> DriverSource:
        return self._source

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        return LearnReport(False, f"{self.name} does not learn")

    def save(self, directory: Path) -> None:
        """Nothing to keep."""

    def restore(self, directory: Path) -> None:
        """Nothing was kept."""


class AdaptingMethod:
    """The planner on a model whose dynamics are relearned; what is common to all ways of it."""

    learns = True
    explores = False

    def __init__(self, name: str, context: MethodContext) -> None:
        self.name, self.context = name, context
        self.pretrained = RunningModel.of(context.artefact)
        self.current = self.pretrained
        self._file = context.artefact.path
        self._simulation: SimulationReplay | None = None

    def source(self) -> DriverSource:
        context = self.context
        return ModelSource(
            "planner",
            self._file,
            self.current.weights_hash,
            context.planner,
            context.plan.delay_steps,
        )

    def save(self, directory: Path) -> None:
        current, contract = self.current, self.context.artefact.contract
        self._file = save_artefact(
            directory / MODEL_FILE,
            current.model,
            contract,
            current.version,
            self.pretrained.weights_hash,
            {"kind": "experiment", "method": self.name},
        )

    def restore(self, directory: Path) -> None:
        artefact = load_artefact(directory / MODEL_FILE, self.context.robot)
        if artefact.frozen_hash != self.pretrained.frozen_hash:
            raise ArtefactError(
                f"{artefact.path} has other frozen parts than {self.context.artefact.path}; begin "
                "the experiment anew"
            )
        self.current = replace(RunningModel.of(artefact), root=self.pretrained.root)
        self._file = artefact.path

    def finetuner(self, config: FinetuneConfig) -> DynamicsFinetuner:
        """A finetuner of the pretrained model."""
        return DynamicsFinetuner(
            self.pretrained.model, self.simulation(), config, self.context.robot.control_dt
        )

    def simulation(self) -> SimulationReplay:
        """The simulation data that goes with the pretrained model."""
        artefact = self.context.artefact
        if self._simulation is None:
            file = find_simulation_replay(artefact)
            self._simulation = SimulationReplay.load(file, artefact.contract)
        return self._simulation

    def round_config(self, minutes: float) -> FinetuneConfig:
        """Settings of a round after ``minutes`` of data: steps grow with it."""
        learning = self.context.learning
        return replace(
            self.context.finetune,
            steps=max(LEAST_STEPS, round(learning.steps_per_minute * minutes)),
            seed=self.context.seed,
        )

    def relearn(self, config: FinetuneConfig, data: RobotData) -> Candidate:
        """New dynamics that continue the pretrained ones, on all data."""
        buffer = data.buffer()
        with torch_threads(self.context.learning.threads):
            return self.finetuner(config).update(
                buffer.episodes(held_out=False),
                buffer.episodes(held_out=True),
                self.pretrained.model,
                lambda done, steps: self.context.progress(10 * STEP_WORK),
            )

    def adopt(self, candidate: Candidate) -> None:
        """Plan with new dynamics from now on."""
        self.current = self.pretrained.with_dynamics(candidate.state, self.current.version + 1)


class RelearnedDynamics(AdaptingMethod):
    """Dynamics relearned from robot and simulation data, where the gate lets them through."""

    wants_data = True

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        config = self.round_config(minutes)
        try:
            candidate = self.relearn(config, data)
        except AdaptationError as error:
            return LearnReport(False, str(error))
        decision = AcceptanceGate(self.context.gate).judge(candidate)
        accepted, reason = decision.accepted, decision.reason
        if accepted:
            problem = self_test(
                self.pretrained.with_dynamics(candidate.state, 0).model, self.context.robot
            )
            if problem is not None:
                accepted, reason = False, f"the model fails its self-test: {problem}"
        if accepted:
            self.adopt(candidate)
        return LearnReport(accepted, reason, candidate.steps, candidate.losses)


class Placebo(AdaptingMethod):
    """As many steps of learning, but nothing new to learn: simulation data only, no gate."""

    wants_data = False

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        config = replace(self.round_config(minutes), robot_fraction=0.0)
        candidate = self.relearn(config, RobotData(self.context.robot.control_dt))
        self.adopt(candidate)
        return LearnReport(True, "simulation data only, no gate", candidate.steps, candidate.losses)


def _source(kind: str, artefact: Artefact, context: MethodContext) -> ModelSource:
    return ModelSource(
        kind, artefact.path, artefact.weights_hash, context.planner, context.plan.delay_steps
    )


def _fixed(name: str, kind: str) -> MethodFactory:
    return lambda context: FixedMethod(name, kind, context.artefact, context)


def _online(context: MethodContext) -> Method:
    from simdist.evaluation.online import OnlineDynamics

    return OnlineDynamics("simdist_online", context)


def _through(context: MethodContext) -> Method:
    if context.through_model is None:
        raise ConfigError("method 'through' needs --through-model, a model that knows the gap")
    artefact = load_artefact(context.through_model, context.robot)
    if artefact.contract.observation != context.artefact.contract.observation:
        raise ConfigError(
            f"{context.through_model} observes other things than {context.artefact.path}; give a "
            "model made with the same observation layout"
        )
    return FixedMethod("through", "planner", artefact, context)


def _ppo(context: MethodContext) -> Method:
    from simdist.evaluation.baselines.continued_ppo import ContinuedPpo

    return ContinuedPpo(context)


def _rlpd(context: MethodContext) -> Method:
    from simdist.evaluation.baselines.rlpd import Rlpd

    return Rlpd(context)


def _full(context: MethodContext) -> Method:
    from simdist.evaluation.baselines.full_finetuning import FullFinetuning

    return FullFinetuning(context)


#: How each method is made; a factory imports what only its own method needs.
METHODS: dict[str, MethodFactory] = {
    "expert": _fixed("expert", "expert"),
    "prior": _fixed("prior", "prior"),
    "smoothed_prior": _fixed("smoothed_prior", "smoothed_prior"),
    "frozen": _fixed("frozen", "planner"),
    "oracle": _fixed("oracle", "oracle"),
    "oracle_nominal": _fixed("oracle_nominal", "oracle_nominal"),
    "simdist": lambda context: RelearnedDynamics("simdist", context),
    "simdist_online": _online,
    "placebo": lambda context: Placebo("placebo", context),
    "through": _through,
    "ppo": _ppo,
    "rlpd": _rlpd,
    "full": _full,
}


def make_method(name: str, context: MethodContext) -> Method:
    """The method called ``name``; raises ConfigError for one that is not known."""
    check_method(name)
    return METHODS[name](context)


def check_method(name: str) -> None:
    """Raise ConfigError unless there is a method called ``name``."""
    if name not in METHODS:
        raise ConfigError(f"unknown method {name!r}; known methods: {', '.join(METHODS)}")
