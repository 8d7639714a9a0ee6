"""``simdist diagnose``: can a world model rank plans?

Robots walk in a world. At states in its hard part, deviations around the expert are continued in
the simulator and, along the same actions, by each model; the returns of both are compared, and so
are the latents. Every model is shown the same states and the same actions.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from tqdm import tqdm

from simdist import paths, robots
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ConfigError, ContractError
from simdist.evaluation.command_line import repeating
from simdist.evaluation.diagnosis import BEST, Diagnosis, ModelDiagnosis, table
from simdist.evaluation.drivers import (
    METHODS,
    Driver,
    PrivilegedDriver,
    driver_factory,
    expert_path,
)
from simdist.evaluation.evaluate import SPEEDS
from simdist.evaluation.oracle import OracleConfig, OraclePlanner, Sight
from simdist.evaluation.ranking import Futures, Judgement, judge
from simdist.evaluation.results import write_json
from simdist.evaluation.trial_pool import torch_threads
from simdist.evaluation.trials import Trial, TrialConfig
from simdist.observation import Observation
from simdist.planning import PlannerConfig
from simdist.ranges import Checked, add_options, bounded, from_options
from simdist.robots import RobotSpec
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import WorldSpec, load_world
from simdist.types import ActionChunk, Array
from simdist.world_model.artefact import Artefact, load_artefact

APPROACH = 0.2  #: m before the hard part from which on states are taken


@dataclass(frozen=True)
class DiagnosisConfig(Checked):
    """How many states are taken from where, and what is tried from each."""

    trials: int = bounded(3, 1, 1000, "walks, over three speeds")
    seconds: float = bounded(5.0, 1.0, 600.0, "walked per trial")
    states_every: int = bounded(7, 1, 1000, "control steps from one state to the next")
    samples: int = bounded(64, BEST, 4096, "deviations tried from each state")
    std: float = bounded(0.2, 0.01, 2.0, "of the deviations at their knots, action units")
    seed: int = bounded(0, 0, 2**31 - 1001, "of the first trial")

    def trial_configs(self) -> list[TrialConfig]:
        """Speeds take turns; every trial has a seed of its own."""
        return [
            TrialConfig(SPEEDS[index % len(SPEEDS)], self.seed + index, self.seconds)
            for index in range(self.trials)
        ]


class Scout:
    """Drives as another driver does, and shows ``on_futures`` what could come of every k-th state
    in the hard part of the world."""

    def __init__(
        self,
        driver: Driver,
        oracle: OraclePlanner,
        config: DiagnosisConfig,
        seed: int,
        line: float,
        on_futures: Callable[[Futures], None],
    ) -> None:
        self._driver, self._oracle, self._config = driver, oracle, config
        self._line, self._on_futures = line, on_futures
        self._rng = np.random.default_rng(seed)
        self._simulation: RobotSimulation | None = None
        self._steps = 0  # in the hard part
        self.farthest = -math.inf  #: m of progress

    def begin(self, simulation: RobotSimulation) -> None:
        """Continue the true state of ``simulation`` from now on."""
        self._simulation = simulation
        if isinstance(self._driver, PrivilegedDriver):
            self._driver.begin(simulation)

    def act(self, observation: Observation) -> ActionChunk:
        simulation = self._simulation
        if simulation is None:
            raise RuntimeError("the scout has not been shown the simulation: call begin() first")
        progress = simulation.progress()
        self.farthest = max(self.farthest, progress)
        if -APPROACH <= progress < self._line:
            if self._steps % self._config.states_every == 0:
                futures = self._imagine(simulation, observation)
                if futures.differ:
                    self._on_futures(futures)
            self._steps += 1
        return self._driver.act(observation)

    def _imagine(self, simulation: RobotSimulation, observation: Observation) -> Futures:
        deviations = self._oracle.deviations(self._rng, self._config.samples)
        deviations[0] = 0.0
        sights = list[Sight]()
        returns, actions = self._oracle.imagine(
            simulation, observation, self._config.std * deviations, sights.append
        )
        return Futures(
            observation=observation,
            actions=actions,
            returns=returns,
            proprioception=np.stack([sight.proprioception for sight in sights], 1),
            scan=np.stack([sight.scan for sight in sights], 1),
            standing=np.stack([sight.standing for sight in sights], 1),
        )


class DiagnosisStudy:
    """A world to walk in, the model whose policy may drive there, and others beside it."""

    def __init__(
        self, world: WorldSpec, driver: str, models: dict[str, Artefact], config: DiagnosisConfig
    ) -> None:
        """Raises ConfigError for an unknown driver, and ContractError unless all models are for
        the same robot, observations and horizon."""
        self.world, self.driver, self.models, self.config = world, driver, models, config
        self._first = first = next(iter(models.values()))
        for artefact in models.values():
            _check_same_task(first, artefact)
        self.robot: RobotSpec = robots.get(first.contract.robot)
        self._driver = driver_factory(driver, first, self.robot, PlannerConfig(), world=world)
        contract = first.contract
        self._discount = contract.discount
        self._oracle = OraclePlanner(
            ExpertPolicy.load(expert_path(first.path)),
            self.robot,
            world,
            contract.observation,
            OracleConfig(
                samples=config.samples, horizon=contract.horizon, discount=contract.discount
            ),
            config.seed,
        )

    def run(self, command: str) -> Diagnosis:
        """Walk and judge; raises ConfigError where nobody came to the hard part."""
        start = time.monotonic()
        judgements: dict[str, list[Judgement]] = {name: [] for name in self.models}
        returns = list[Array]()

        def on_futures(futures: Futures) -> None:
            returns.append(futures.returns)
            for name, artefact in self.models.items():
                judgements[name].append(judge(artefact.model, futures, self._discount))

        configs = self.config.trial_configs()
        farthest = -math.inf
        with torch_threads(1):
            for trial in tqdm(configs, unit="trial", desc="diagnose", file=sys.stderr):
                farthest = max(farthest, self._walk(trial, on_futures))
        if not returns:
            raise ConfigError(self._nothing_to_judge(farthest))
        return Diagnosis(
            world=self.world.name,
            driver=self.driver,
            settings=asdict(self.config),
            models=tuple(
                ModelDiagnosis(name, artefact, tuple(judgements[name]), np.stack(returns))
                for name, artefact in self.models.items()
            ),
            command=command,
            wall_s=round(time.monotonic() - start, 1),
        )

    def _walk(self, config: TrialConfig, on_futures: Callable[[Futures], None]) -> float:
        """One trial; the metres of progress it made at most."""
        line = self.world.success_line
        scout = Scout(
            self._driver(config.seed), self._oracle, self.config, config.seed, line, on_futures
        )
        layout = self._first.contract.observation
        Trial(self.robot, self.world, layout, config, line=line).run(scout)
        return scout.farthest

    def _nothing_to_judge(self, farthest: float) -> str:
        return (
            f"no state to judge in {self.config.trials} trials of {self.config.seconds:g} s in "
            f"world {self.world.name!r}: the {self.driver} came as far as {farthest:.2f} m of "
            f"progress, states are taken from {-APPROACH:g} to {self.world.success_line:g} m; "
            "take more --seconds, another --driver or another --world"
        )


def _check_same_task(first: Artefact, other: Artefact) -> None:
    for what in ("robot", "observation", "horizon", "discount"):
        mine, theirs = getattr(first.contract, what), getattr(other.contract, what)
        if mine != theirs:
            values = "" if what == "observation" else f" ({theirs} instead of {mine})"
            raise ContractError(
                f"{other.path} has another {what} than {first.path}{values}, so that they cannot "
                "be shown the same states and plans; diagnose it by itself with --model"
            )


def portable(text: str) -> str:
    """A file name without the part of its path that only means something on this machine."""
    path = Path(text).expanduser()
    if not path.is_absolute():
        return text
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return str(Path(path.parent.name, path.name))


def command_of(arguments: argparse.Namespace) -> str:
    """The command line that repeats a run: what is not its default."""
    return repeating("diagnose", add_arguments, arguments, leave_out=("json",), word=portable)


def load_models(names: list[str]) -> dict[str, Artefact]:
    """Models by the names under which they are reported; raises ConfigError for one given twice."""
    models = dict[str, Artefact]()
    for given in names:
        name = portable(given)
        if name in models:
            raise ConfigError(f"model {name!r} is given twice; name each model once")
        models[name] = load_artefact(paths.model_file(given))
    return models


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist diagnose``."""
    parser.add_argument(
        "--world",
        default="slope_sheet",
        help=f"one of {', '.join(paths.world_names())}, or a YAML file (default slope_sheet)",
    )
    parser.add_argument("--model", default="go1", help="name in models/, or an artefact")
    parser.add_argument(
        "--compare", nargs="+", default=[], metavar="MODEL", help="other models, on the same states"
    )
    parser.add_argument(
        "--driver", default="prior", help=f"who walks, of {', '.join(METHODS)} (default prior)"
    )
    add_options(parser, DiagnosisConfig)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures here")


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist diagnose`` and print the table."""
    config = from_options(DiagnosisConfig, arguments)
    world = load_world(arguments.world)
    models = load_models([arguments.model, *arguments.compare])
    study = DiagnosisStudy(world, arguments.driver, models, config)
    result = study.run(command_of(arguments)).to_dict()
    print(table(result))
    if arguments.json is not None:
        write_json(arguments.json, result)
        print(f"wrote {arguments.json}", file=sys.stderr)
    return 0
