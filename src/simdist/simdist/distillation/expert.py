"""Training the expert by PPO, with checkpoints along the way from standing to walking."""

from __future__ import annotations

import argparse
import copy
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import torch
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm

from simdist import robots
from simdist.distillation.environment import LocomotionEnvironment, mirror
from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ConfigError

#: Iterations whose policies are kept: a series from standing still to walking well.
CHECKPOINTS = (0, 50, 80, 100, 125, 150, 200, 300, 400, 600)


@dataclass(frozen=True)
class ExpertConfig:
    """Settings of one expert training; everything is written beside the result."""

    robot: str = "go1"
    seed: int = 1
    environments: int = 256
    iterations: int = 950
    minutes: float = 20.0  #: stop earlier when this much time is used up
    steps_per_iteration: int = 24
    rough_fraction: float = 0.25
    threads: int = 2


def ppo_config(config: ExpertConfig) -> dict[str, Any]:
    """Settings of rsl-rl's runner."""
    network = {
        "class_name": "rsl_rl.models.MLPModel",
        "hidden_dims": [256, 128, 64],
        "activation": "elu",
        "obs_normalization": True,
    }
    distribution = {
        "class_name": "rsl_rl.modules.distribution.GaussianDistribution",
        "init_std": 0.8,
        "std_type": "log",
        "std_range": (0.05, 2.0),
    }
    return {
        "num_steps_per_env": config.steps_per_iteration,
        "save_interval": 50,
        "obs_groups": {"actor": ["policy"], "critic": ["critic"]},
        "actor": {**network, "distribution_cfg": distribution},
        "critic": dict(network),
        "algorithm": {
            "class_name": "rsl_rl.algorithms.PPO",
            "num_learning_epochs": 3,
            "num_mini_batches": 4,
            "clip_param": 0.2,
            "gamma": 0.99,
            "lam": 0.95,
            "value_loss_coef": 1.0,
            "entropy_coef": 0.005,
            "learning_rate": 1e-3,
            "max_grad_norm": 1.0,
            "schedule": "adaptive",
            "desired_kl": 0.01,
            "use_clipped_value_loss": True,
            "symmetry_cfg": {
                "data_augmentation_func": mirror,
                "use_data_augmentation": True,
                "use_mirror_loss": False,
            },
        },
    }


class ExpertTrainer:
    """One PPO training in ``directory``; a second run there continues the first."""

    def __init__(self, config: ExpertConfig, directory: Path) -> None:
        self.config, self.directory = config, directory
        directory.mkdir(parents=True, exist_ok=True)
        self._claim_directory()
        torch.manual_seed(config.seed)
        torch.set_num_threads(config.threads)
        self.environment = LocomotionEnvironment(
            robots.get(config.robot),
            config.environments,
            seed=config.seed,
            threads=config.threads,
            rough_fraction=config.rough_fraction,
        )
        runner = OnPolicyRunner(
            cast(VecEnv, self.environment),
            copy.deepcopy(ppo_config(config)),
            log_dir=None,
            device="cpu",
        )
        self.algorithm = runner.alg
        self.algorithm.train_mode()
        self.iteration, self.seconds = 0, 0.0
        self._resume()

    @property
    def _checkpoint(self) -> Path:
        return self.directory / "training.pt"

    def _claim_directory(self) -> None:
        path, mine = self.directory / "config.json", asdict(self.config)
        if path.exists():
            theirs = json.loads(path.read_text())
            # How long to train may change between runs; what is trained may not.
            changed = [k for k in mine if mine[k] != theirs.get(k) and k not in _MAY_CHANGE]
            if changed:
                raise ConfigError(
                    f"{self.directory} holds a training with another {changed[0]} "
                    f"({theirs.get(changed[0])!r}, now {mine[changed[0]]!r}); choose another "
                    "--out or the same settings"
                )
        path.write_text(json.dumps(mine, indent=2) + "\n")

    def _resume(self) -> None:
        if not self._checkpoint.exists():
            return
        saved = torch.load(self._checkpoint, weights_only=True)
        self.algorithm.load(saved["algorithm"], None, True)
        self.iteration, self.seconds = saved["iteration"], saved["seconds"]

    def _save(self) -> None:
        temporary = self._checkpoint.with_suffix(".tmp")
        torch.save(
            {
                "algorithm": self.algorithm.save(),
                "iteration": self.iteration,
                "seconds": self.seconds,
            },
            temporary,
        )
        temporary.replace(self._checkpoint)

    def export(self, path: Path) -> None:
        """Write the present actor and critic to ``path``."""
        policy = ExpertPolicy.from_rsl_rl(self.algorithm.actor, self.algorithm.critic)
        training = {**asdict(self.config), "iteration": self.iteration, "seconds": self.seconds}
        policy.save(path, training)

    def run(self) -> Path:
        """Train until the budget is used up; returns the path of the expert."""
        config, environment = self.config, self.environment
        # Robots start at different points of their episodes, so that ends do not come in waves.
        environment.episode_length_buf = torch.randint(
            0, environment.max_episode_length, (config.environments,)
        )
        observations = environment.get_observations()
        with (
            SummaryWriter(str(self.directory)) as writer,
            tqdm(total=config.iterations, initial=self.iteration, unit="it") as bar,
        ):
            while self.iteration < config.iterations and self.seconds < config.minutes * 60:
                if self.iteration in CHECKPOINTS:
                    self.export(self.directory / f"policy_{self.iteration:04d}.safetensors")
                started = time.monotonic()
                observations = self._iterate(observations)
                self.seconds += time.monotonic() - started
                self.iteration += 1
                bar.update()
                if self.iteration % 10 == 0:
                    statistics = environment.take_statistics()
                    for name, value in statistics.items():
                        writer.add_scalar(name, value, self.iteration)
                    bar.set_postfix(
                        error=f"{statistics['velocity_error']:.3f} m/s",
                        falls=f"{statistics['falls_per_second']:.3f}/s",
                    )
                if self.iteration % 50 == 0:
                    self._save()
        self._save()
        path = self.directory / "expert.safetensors"
        self.export(path)
        return path

    def _iterate(self, observations: Any) -> Any:
        with torch.inference_mode():
            for _ in range(self.config.steps_per_iteration):
                actions = self.algorithm.act(observations)
                observations, reward, done, extras = self.environment.step(actions)
                self.algorithm.process_env_step(observations, reward, done, extras)
            self.algorithm.compute_returns(observations)
        self.algorithm.update()
        return observations


_MAY_CHANGE = ("iterations", "minutes", "threads")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist train-expert``."""
    default = ExpertConfig()
    parser.add_argument("--out", type=Path, default=Path("runs/expert"), help="directory to fill")
    parser.add_argument("--robot", default=default.robot, choices=robots.available())
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument("--environments", type=int, default=default.environments)
    parser.add_argument("--iterations", type=int, default=default.iterations)
    parser.add_argument("--minutes", type=float, default=default.minutes, help="time limit")
    parser.add_argument("--threads", type=int, default=default.threads)


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist train-expert``."""
    config = ExpertConfig(
        robot=arguments.robot,
        seed=arguments.seed,
        environments=arguments.environments,
        iterations=arguments.iterations,
        minutes=arguments.minutes,
        threads=arguments.threads,
    )
    torch.set_flush_denormal(True)  # denormal numbers slow training down; for this process only
    path = ExpertTrainer(config, arguments.out).run()
    print(f"expert written to {path}")
    return 0
