"""Mixed-quality data: the expert and its weaker ancestors, with contiguous action perturbations.

Following the paper, half of the episodes are driven by the expert and half by checkpoints from
its training; bursts of noise are added to the actions for a while and then left out for a while,
so that the data holds both the consequences of odd actions and the recoveries from them. For every
state the expert's own action is stored as well: it is the label of the policy head.

Slippery shards are for the policy heads alone (role ``policy_only``): there the expert and the
policy head of a world model take turns on ground, and patches of ground, below the friction that
the world model is trained on. Dynamics, reward and value never learn from them, so what has to be
relearned on a robot stays unknown; but a policy that imitates the expert there as well is a sound
start for planning.

Branched shards hold groups of futures that begin in the same state (see
:mod:`simdist.distillation.branches`): row ``r * branches + b`` is branch ``b`` of group ``r``.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import h5py
import numpy as np
import torch
from tqdm import tqdm

from simdist import robots
from simdist.distillation.branches import BranchRecorder, Deviations
from simdist.distillation.environment import ACTION_LIMIT, LocomotionEnvironment
from simdist.distillation.policy import ExpertPolicy
from simdist.distillation.prior import BatchPrior
from simdist.distillation.windows import read_header
from simdist.errors import ConfigError
from simdist.paths import model_file
from simdist.simulation.batch import Randomisation
from simdist.simulation.robot_model import BATCH_SOLVER
from simdist.tasks import CommandRanges
from simdist.types import Array, Flags, Rows
from simdist.world_model.artefact import load_artefact


@dataclass(frozen=True)
class Mixture:
    """Who drives, and how strongly actions are perturbed."""

    expert_fraction: float
    noise_levels: tuple[float, ...]  #: largest standard deviation per burst, action units
    noised_fraction: float  #: of the robots that start within a burst
    prior_fraction: float = 0.0  #: of the episodes, driven by a world model's policy head
    role: str = "all"  #: what may learn from it, see distillation.windows.ROLES
    randomisation: Randomisation = field(default_factory=Randomisation)
    burst_steps: tuple[int, int] = (1, 50)
    calm_steps: tuple[int, int] = (25, 300)
    branches: int = 1  #: futures of one state; 1 for ordinary trajectories
    deviations: Deviations = field(default_factory=Deviations)  #: between branches


MIXTURES = {
    "mixed": Mixture(expert_fraction=0.5, noise_levels=(0.3, 0.6, 1.2, 2.5), noised_fraction=0.5),
    "near_expert": Mixture(expert_fraction=0.8, noise_levels=(0.1, 0.2, 0.4), noised_fraction=0.5),
    "branched": Mixture(
        expert_fraction=0.7, noise_levels=(0.1, 0.2, 0.4), noised_fraction=0.5, branches=8
    ),
    "slippery": Mixture(
        expert_fraction=0.5,
        prior_fraction=0.5,
        noise_levels=(0.1, 0.2, 0.4),
        noised_fraction=0.3,
        role="policy_only",
        randomisation=Randomisation(friction=(0.05, 0.35), patch_interval=1.0),
    ),
}
#: Velocities the world model is asked for later; narrower than what the expert was trained on.
COMMANDS = CommandRanges(forward=(-0.2, 1.0), sideways=(-0.3, 0.3), turning=(-0.6, 0.6))
CORRELATION = 0.85  #: of noise from one step to the next, in half of the bursts
STANDING_FRACTION = 0.3  #: of the episodes that begin by standing still with action 0
STANDING_STEPS = (5, 60)


@dataclass(frozen=True)
class CollectConfig:
    """Settings of one data set; written beside it and into every shard."""

    robot: str = "go1"
    seed: int = 3
    shards: tuple[str, ...] = ("mixed",) * 5 + ("near_expert",) * 3
    environments: int = 512
    steps: int = 800
    horizon: int = 15  #: steps of a branch
    branch_interval: int = 16  #: steps between the states that branch
    rough_fraction: float = 0.25
    model: str | None = None  #: whose policy head drives where the mixture asks for one

    def __post_init__(self) -> None:
        for shard in self.shards:
            if shard not in MIXTURES:
                raise ConfigError(f"unknown mixture {shard!r}; known: {', '.join(MIXTURES)}")
            if MIXTURES[shard].prior_fraction and self.model is None:
                raise ConfigError(
                    f"{shard} shards are partly driven by a world model's policy head: name the "
                    "model with --model"
                )


class ActionNoise:
    """Bursts of white or correlated noise, drawn anew for every burst."""

    def __init__(self, mixture: Mixture, count: int, actions: int, rng: np.random.Generator):
        self._mixture, self._rng = mixture, rng
        self._never = rng.random(count) < 0.05
        self.active = (rng.random(count) < mixture.noised_fraction) & ~self._never
        self._timer = np.where(
            self.active,
            rng.integers(*mixture.burst_steps, count),
            rng.integers(*mixture.calm_steps, count),
        )
        self._std = np.zeros((count, actions))
        self._correlation = np.zeros((count, 1))
        self._value = np.zeros((count, actions))
        self._draw(np.arange(count))

    def _draw(self, rows: Rows) -> None:
        rng, count, actions = self._rng, len(rows), self._std.shape[1]
        largest = rng.choice(self._mixture.noise_levels, count)[:, None]
        self._std[rows] = largest * rng.uniform(0.05, 1.0, (count, actions))
        self._correlation[rows, 0] = np.where(rng.random(count) < 0.5, CORRELATION, 0.0)
        self._value[rows] = rng.standard_normal((count, actions))

    def sample(self) -> Array:
        """Noise ``(N, n)`` of this step; zero where no burst is under way."""
        white = self._rng.standard_normal(self._value.shape)
        rho = self._correlation
        self._value = rho * self._value + np.sqrt(1 - rho**2) * white
        return np.where(self.active[:, None], self._value * self._std, 0.0)

    def advance(self) -> None:
        """Count down, and begin or end bursts."""
        self._timer -= 1
        due = (self._timer <= 0) & ~self._never
        self.active[due] ^= True
        count, mixture = int(due.sum()), self._mixture
        self._timer[due] = np.where(
            self.active[due],
            self._rng.integers(*mixture.burst_steps, count),
            self._rng.integers(*mixture.calm_steps, count),
        )
        self._draw(np.flatnonzero(due & self.active))


EXPERT, PRIOR = -1, -2  #: drivers that are no ancestors


class Drivers:
    """Which policy drives which robot: the expert, a world model's policy head, an ancestor of the
    expert, or nobody while standing."""

    def __init__(
        self,
        expert: ExpertPolicy,
        ancestors: list[ExpertPolicy],
        mixture: Mixture,
        count: int,
        rng: np.random.Generator,
        prior: BatchPrior | None = None,
    ) -> None:
        self.expert, self.ancestors, self.prior = expert, ancestors, prior
        self._mixture, self._rng = mixture, rng
        self._who = np.zeros(count, int)
        self._standing = np.zeros(count, int)
        self.assign(np.arange(count))

    def assign(self, rows: Rows) -> None:
        """Choose drivers for new episodes."""
        rng, count = self._rng, len(rows)
        ancestor = rng.integers(0, len(self.ancestors), count)
        lot, mixture = rng.random(count), self._mixture
        self._who[rows] = np.where(
            lot < mixture.expert_fraction,
            EXPERT,
            np.where(lot < mixture.expert_fraction + mixture.prior_fraction, PRIOR, ancestor),
        )
        standing = rng.random(count) < STANDING_FRACTION
        self._standing[rows] = np.where(standing, rng.integers(*STANDING_STEPS, count), 0)

    def policies(self) -> list[tuple[ExpertPolicy, Flags]]:
        """The expert and its ancestors, and which robots ``(N,)`` each of them drives now; for
        those that stand it is the expert."""
        who = np.where(self._standing > 0, EXPERT, self._who)
        everyone = [(EXPERT, self.expert), *enumerate(self.ancestors)]
        return [(policy, who == index) for index, policy in everyone]

    def act(self, observation: torch.Tensor) -> tuple[Array, Array, Flags]:
        """Actions and the expert's actions ``(N, n)``, and where the two are one ``(N,)``."""
        best = self.expert.act(observation).numpy().astype(np.float64)
        actions = best.copy()
        for index, policy in enumerate(self.ancestors):
            rows = np.flatnonzero(self._who == index)
            if len(rows):
                actions[rows] = policy.act(observation[rows]).numpy()
        rows = np.flatnonzero(self._who == PRIOR)
        if len(rows) and self.prior is not None:
            actions[rows] = self.prior.act(rows)
        standing = self._standing > 0
        actions[standing] = 0.0
        self._standing[standing] -= 1
        return actions, best, (self._who == EXPERT) & ~standing


def _ancestors(directory: Path) -> list[ExpertPolicy]:
    paths = sorted(directory.glob("policy_*.safetensors"))
    if not paths:
        raise ConfigError(
            f"{directory} holds no policy_*.safetensors; run 'simdist train-expert --out "
            f"{directory}' first"
        )
    return [ExpertPolicy.load(path) for path in paths]


def record_shard(
    path: Path, config: CollectConfig, number: int, expert_directory: Path, threads: int
) -> None:
    """Simulate and write shard ``number`` of the data set."""
    seed = config.seed * 1000 + number
    rng = np.random.default_rng(seed)
    robot, mixture = robots.get(config.robot), MIXTURES[config.shards[number]]
    environment = LocomotionEnvironment(
        robot,
        config.environments,
        seed=seed,
        threads=threads,
        solver=BATCH_SOLVER,
        rough_fraction=config.rough_fraction,
        noise=False,
        commands=COMMANDS,
        randomisation=mixture.randomisation,
    )
    count, steps, joints = config.environments, config.steps, robot.joint_count
    expert = ExpertPolicy.load(expert_directory / "expert.safetensors")
    prior = None
    if config.model is not None:
        prior = BatchPrior(load_artefact(model_file(config.model), robot).model, count)
    drivers = Drivers(expert, _ancestors(expert_directory), mixture, count, rng, prior)
    noise = ActionNoise(mixture, count, joints, rng)
    recorder = None
    if mixture.branches > 1:
        recorder = BranchRecorder(
            environment,
            expert,
            size=mixture.branches,
            horizon=config.horizon,
            deviations=mixture.deviations,
            threads=threads,
        )
    branching = _branching_steps(config, environment.spec.history) if recorder else range(0)
    if recorder and not branching:
        raise ConfigError(
            f"steps = {steps}: no state of a branched shard has its whole past before step "
            f"{environment.spec.history}; record more"
        )
    if recorder:
        data = _allocate(environment, len(branching) * recorder.branches.count, recorder.length)
    else:
        data = _allocate(environment, count, steps)
    environment.episode_length_buf = torch.from_numpy(
        rng.integers(0, environment.max_episode_length, count)
    )
    observation = environment.get_observations()
    for step in tqdm(range(steps), desc=path.name, unit="step", leave=False):
        if recorder and step in branching:
            begin = branching.index(step) * recorder.branches.count
            for name, values in recorder.branch(drivers.policies()).items():
                data[name][begin : begin + len(values)] = values
        if prior is not None:
            prior.observe(environment.proprioception(), environment.scan(), environment.command)
        action, best, by_expert = drivers.act(observation["policy"])
        action = np.clip(action + noise.sample(), -ACTION_LIMIT, ACTION_LIMIT)
        made = {
            "proprio": environment.proprioception(),
            "scan": environment.scan(),
            "command": environment.command.copy(),
            "friction": environment.simulation.friction.copy(),
            "value": expert.value(observation["critic"]).numpy(),
            "action": action,
            "expert_action": best,
            "is_expert": by_expert & ~noise.active,
        }
        observation, reward, done, _ = environment.step(torch.from_numpy(action))
        made["reward"], made["end"] = reward.numpy(), done.numpy()
        made["fall"] = done.numpy() & environment.fell
        if recorder:
            recorder.note(made)
        else:
            for name, values in made.items():
                data[name][:, step] = values
        noise.advance()
        ended = np.flatnonzero(done.numpy())
        drivers.assign(ended)
        if prior is not None:
            prior.applied(action)
            prior.reset(ended)
    temporary = path.with_suffix(".tmp")
    with h5py.File(temporary, "w") as file:
        for name, value in data.items():
            file.create_dataset(name, data=value)
        file.attrs["config"] = json.dumps(asdict(config))
        file.attrs["observation"] = json.dumps(environment.spec.to_dict())
        file.attrs["robot"], file.attrs["seed"] = robot.name, seed
        file.attrs["role"] = mixture.role
        file.attrs["mixture"] = config.shards[number]
        file.attrs["branches"] = mixture.branches
    temporary.replace(path)


def _branching_steps(config: CollectConfig, history: int) -> range:
    """The steps whose states branch: evenly spaced, and with their whole past on record."""
    return range(history, config.steps, config.branch_interval)


def _allocate(environment: LocomotionEnvironment, rows: int, steps: int) -> dict[str, np.ndarray]:
    """The arrays of a shard, ``(rows, steps, ...)``."""
    floats: dict[str, tuple[int, ...]] = {
        "proprio": (environment.spec.size,),
        "action": (environment.num_actions,),
        "expert_action": (environment.num_actions,),
        "command": (3,),
        "reward": (),
        "value": (),
        "friction": (),
    }
    data: dict[str, np.ndarray] = {
        name: np.zeros((rows, steps, *shape), np.float32) for name, shape in floats.items()
    }
    data["scan"] = np.zeros((rows, steps, environment.spec.scan.size), np.float16)
    for name in ("fall", "end", "is_expert"):
        data[name] = np.zeros((rows, steps), np.bool_)
    return data


def collect(config: CollectConfig, expert_directory: Path, out: Path, threads: int) -> int:
    """Write every shard of the data set that is not there yet; returns the transitions held."""
    out.mkdir(parents=True, exist_ok=True)
    settings, text = out / "config.json", json.dumps(asdict(config), indent=2) + "\n"
    if settings.exists() and settings.read_text() != text:
        raise ConfigError(
            f"{out} holds data collected with other settings (see {settings}); choose another "
            "--out or the same settings"
        )
    settings.write_text(text)
    torch.set_num_threads(threads)
    for number in tqdm(range(len(config.shards)), unit="shard"):
        path = out / f"shard_{number:04d}.h5"
        if not path.exists():
            record_shard(path, config, number, expert_directory, threads)
    headers = [read_header(out / f"shard_{number:04d}.h5") for number in range(len(config.shards))]
    return sum(header.environments * header.steps for header in headers)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist collect``."""
    default = CollectConfig()
    parser.add_argument("--expert", type=Path, default=Path("runs/expert"), help="its directory")
    parser.add_argument("--out", type=Path, default=Path("data/go1"), help="directory to fill")
    parser.add_argument("--robot", default=default.robot, choices=robots.available())
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--mixed", type=int, default=5, help="shards of mixed quality")
    parser.add_argument("--near-expert", type=int, default=3, help="shards close to the expert")
    parser.add_argument(
        "--branched", type=int, default=default.shards.count("branched"), help="shards of branches"
    )
    parser.add_argument(
        "--slippery", type=int, default=0, help="shards on low friction, for policy heads only"
    )
    parser.add_argument(
        "--model", help="world model whose policy head drives half of the slippery episodes"
    )
    parser.add_argument("--environments", type=int, default=default.environments)
    parser.add_argument("--steps", type=int, default=default.steps, help="per robot and shard")
    parser.add_argument("--threads", type=int, default=2)


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist collect``."""
    config = CollectConfig(
        robot=arguments.robot,
        seed=arguments.seed,
        shards=("mixed",) * arguments.mixed
        + ("near_expert",) * arguments.near_expert
        + ("branched",) * arguments.branched
        + ("slippery",) * arguments.slippery,
        model=arguments.model,
        environments=arguments.environments,
        steps=arguments.steps,
    )
    transitions = collect(config, arguments.expert, arguments.out, arguments.threads)
    print(f"{transitions} transitions in {arguments.out}")
    return 0
