"""``rlpd``: reinforcement learning with prior data (Ball et al., 2023) on the robot.

SAC of stable-baselines3 with what makes RLPD of it: half of every batch comes from simulation, the
critics have layer normalisation, and many updates follow each action. It starts from the expert
with critics that have first learned from the simulation data what the expert's actions are worth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import DiagGaussianDistribution
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ContinuousCritic
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor, create_mlp
from stable_baselines3.common.type_aliases import ReplayBufferSamples
from stable_baselines3.common.vec_env import VecEnv
from stable_baselines3.sac.policies import Actor, SACPolicy
from torch import Tensor, nn

from simdist.distillation.collect import COMMANDS
from simdist.distillation.environment import LocomotionEnvironment
from simdist.distillation.policy import ExpertPolicy, NormalisedMlp
from simdist.evaluation.baselines.policies import PolicyMethod
from simdist.evaluation.collection import RobotData
from simdist.evaluation.methods import LearnReport, MethodContext
from simdist.evaluation.robot_environment import DISCOUNT, RobotFleet
from simdist.evaluation.trial_pool import torch_threads
from simdist.robots import RobotSpec
from simdist.simulation.robot_model import BATCH_SOLVER


@dataclass(frozen=True)
class RlpdConfig:
    """Settings of :class:`Rlpd`."""

    updates_per_action: int = 4
    batch: int = 128
    preparing_rate: float = 3e-4  #: learning rate of the critics before the robot walks
    learning_rate: float = 1e-4
    critic_sizes: tuple[int, ...] = (256, 256)
    critics: int = 2
    exploration: float = 0.1  #: standard deviation of the first actions, and of those aimed at
    temperature: float = 1e-4  #: of the entropy at first; rewards are about 0.05 per step
    simulated_robots: int = 64
    simulated_actions: int = 1500  #: of each of them
    simulated_noise: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4)  #: standard deviations, by turns
    critic_updates: int = 4000  #: on simulation data alone, before the robot walks
    capacity: int = 150_000  #: transitions of the robot


@dataclass(frozen=True)
class Transitions:
    """Simulation data: M transitions; ``observation`` is what the critic sees."""

    observation: np.ndarray  #: (M, K) float32
    action: np.ndarray  #: (M, n) float32
    reward: np.ndarray  #: (M,)
    following: np.ndarray  #: (M, K)
    fell: np.ndarray  #: (M,) 1 where nothing follows


def simulate(
    expert: ExpertPolicy, robot: RobotSpec, config: RlpdConfig, *, hold: int, seed: int
) -> Transitions:
    """Let the expert walk in training's worlds, with more or less noise on its actions, each of
    which is held for ``hold`` control steps."""
    count = config.simulated_robots
    environment = LocomotionEnvironment(
        robot, count, seed=seed, threads=1, solver=BATCH_SOLVER, noise=False, commands=COMMANDS
    )
    rng = np.random.default_rng(seed)
    std = np.resize(config.simulated_noise, count)[:, None]
    steps: dict[str, list[np.ndarray]] = {name: [] for name in Transitions.__annotations__}
    kept = []
    seen = environment.get_observations()
    for _ in range(config.simulated_actions):
        before = seen["critic"].numpy()
        mean = expert.act(seen["critic"][:, : seen["policy"].shape[1]]).numpy()
        action = (mean + std * rng.standard_normal(mean.shape)).astype(np.float32)
        reward, fell, timed_out = np.zeros(count), np.zeros(count, bool), np.zeros(count, bool)
        for step in range(hold):
            seen, gained, done, _ = environment.step(torch.from_numpy(action))
            under_way = ~(fell | timed_out)
            reward += DISCOUNT**step * gained.numpy() * under_way
            ended = done.numpy() & under_way
            fell |= ended & environment.fell
            timed_out |= ended & ~environment.fell
        values = (before, action, reward, seen["critic"].numpy(), fell)
        for name, value in zip(steps, values, strict=True):
            steps[name].append(value.astype(np.float32))
        # After a time-out the next observation is that of another episode.
        kept.append(~timed_out)
    rows = np.concatenate(kept)
    return Transitions(**{name: np.concatenate(value)[rows] for name, value in steps.items()})


class Inputs(BaseFeaturesExtractor):
    """The first inputs, as many as a network of the expert has, shifted and scaled as it does."""

    mean: Tensor
    std: Tensor

    def __init__(self, space: spaces.Space, network: NormalisedMlp) -> None:
        super().__init__(space, len(network.mean))
        self.register_buffer("mean", network.mean.clone())
        self.register_buffer("std", network.std.clone())

    def forward(self, observations: Tensor) -> Tensor:
        return (observations[:, : len(self.mean)] - self.mean) / self.std


class NormalisedCritic(ContinuousCritic):
    """Critics with layer normalisation, which keeps them from extrapolating to high values."""

    def __init__(self, *args: Any, net_arch: list[int], features_dim: int, **kwargs: Any) -> None:
        super().__init__(*args, net_arch=net_arch, features_dim=features_dim, **kwargs)
        inputs = features_dim + int(np.prod(cast(spaces.Box, self.action_space).shape))
        self.q_networks = []
        for index in range(self.n_critics):
            layers = create_mlp(inputs, 1, net_arch, nn.ELU, post_linear_modules=[nn.LayerNorm])
            network = nn.Sequential(*layers)
            setattr(self, f"qf{index}", network)
            self.q_networks.append(network)


class ExpertSacPolicy(SACPolicy):
    """The expert as a Gaussian actor, and critics that see what the expert's critic does."""

    def __init__(self, *args: Any, expert: ExpertPolicy, exploration: float, **kwargs: Any) -> None:
        # The constructor of the base class makes the networks. In a list: no part of this module.
        self._expert = [expert]
        super().__init__(*args, **kwargs)
        with torch.no_grad():
            layers = [layer for layer in self.actor.latent_pi if isinstance(layer, nn.Linear)]
            layers.append(cast(nn.Linear, self.actor.mu))
            for layer, source in zip(layers, expert.actor.layers, strict=True):
                layer.weight.copy_(cast(nn.Linear, source).weight)
                layer.bias.copy_(cast(nn.Linear, source).bias)
            log_std = cast(nn.Linear, self.actor.log_std)
            log_std.weight.zero_()
            log_std.bias.fill_(float(np.log(exploration)))

    def make_actor(self, features_extractor: BaseFeaturesExtractor | None = None) -> Actor:
        actor = super().make_actor(Inputs(self.observation_space, self._expert[0].actor))
        # Not squashed, unlike SAC's: then the mean can be the expert's and remain a policy of its
        # kind. The environment limits actions far beyond where the robot would walk.
        actor.action_dist = cast(Any, DiagGaussianDistribution(len(actor.action_space.low)))
        return actor

    def make_critic(self, features_extractor: BaseFeaturesExtractor | None = None) -> Any:
        inputs = Inputs(self.observation_space, self._expert[0].critic)
        kwargs = self._update_features_extractor(self.critic_kwargs, inputs)
        return NormalisedCritic(**kwargs).to(self.device)


class SymmetricBuffer(ReplayBuffer):
    """Half of every batch from simulation, half from the robot; all from simulation while the
    robot has not walked."""

    simulation: Transitions
    rng: np.random.Generator

    def sample(self, batch_size: int, env: Any = None) -> ReplayBufferSamples:
        from_robot = batch_size // 2 if self.size() else 0
        data = self.simulation
        rows = self.rng.integers(len(data.reward), size=batch_size - from_robot)
        simulated = ReplayBufferSamples(
            observations=torch.from_numpy(data.observation[rows]),
            actions=torch.from_numpy(data.action[rows]),
            next_observations=torch.from_numpy(data.following[rows]),
            dones=torch.from_numpy(data.fell[rows, None]),
            rewards=torch.from_numpy(data.reward[rows, None]),
        )
        if not from_robot:
            return simulated
        robot = super()._get_samples(self.rng.integers(self.size(), size=from_robot))
        pairs = zip(robot[:5], simulated[:5], strict=True)
        return ReplayBufferSamples(*(torch.cat([cast(Tensor, a), b]) for a, b in pairs))


class FleetForSac(VecEnv):
    """A fleet as stable-baselines3 wants to see it.

    Actions are those of the robot; the bounds of their space are nominal, so that scaling to them
    changes nothing.
    """

    def __init__(self, fleet: RobotFleet) -> None:
        self.fleet = fleet
        super().__init__(
            fleet.num_envs,
            spaces.Box(-np.inf, np.inf, (fleet.robots[0].size,), np.float32),
            spaces.Box(-1.0, 1.0, (fleet.num_actions,), np.float32),
        )
        self._actions = torch.zeros(fleet.num_envs, fleet.num_actions)

    def reset(self) -> np.ndarray:
        return self.fleet.get_observations()["critic"].numpy()

    def step_async(self, actions: np.ndarray) -> None:
        self._actions = torch.from_numpy(actions)

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict]]:
        observations, reward, done, extras = self.fleet.step(self._actions)
        infos = [
            {
                "terminal_observation": outcome.observation.astype(np.float32),
                "TimeLimit.truncated": outcome.timed_out,
            }
            for outcome in extras["outcomes"]
        ]
        return observations["critic"].numpy(), reward.numpy(), done.numpy(), infos

    def close(self) -> None:
        """Nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        return [None] * self.num_envs  # such as render_mode

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kw: Any) -> list[Any]:
        raise NotImplementedError

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        return [False] * self.num_envs


class _UntilTimeIsUp(BaseCallback):
    """Ends learning when the robot time is used up."""

    def __init__(self, fleet: RobotFleet, context: MethodContext) -> None:
        super().__init__()
        self._fleet, self._context = fleet, context
        self.rewards: list[float] = []

    def _on_step(self) -> bool:
        self.rewards.append(float(self.locals["rewards"].mean()))
        self._context.progress(1)
        return self._fleet.affords()


class Rlpd(PolicyMethod):
    """SAC on robot and simulation data, from the expert."""

    name, state_file = "rlpd", "rlpd.pt"

    def __init__(self, context: MethodContext, config: RlpdConfig | None = None) -> None:
        super().__init__(context)
        self.config = config = config or RlpdConfig()
        plan = context.plan
        self.fleet = RobotFleet(context.robot, context.pool.setting.world, 1, plan)
        aimed_at = np.log(config.exploration) + 0.5 * np.log(2 * np.pi * np.e)
        self.sac = SAC(
            ExpertSacPolicy,
            FleetForSac(self.fleet),
            learning_rate=config.learning_rate,
            buffer_size=config.capacity,
            learning_starts=0,
            batch_size=config.batch,
            gamma=DISCOUNT**plan.plan_every,
            train_freq=1,
            gradient_steps=config.updates_per_action,
            replay_buffer_class=SymmetricBuffer,
            ent_coef=f"auto_{config.temperature}",
            target_entropy=cast(Any, float(context.robot.joint_count * aimed_at)),
            policy_kwargs={
                "expert": self.expert,
                "exploration": config.exploration,
                "net_arch": {"pi": self.expert.sizes[0][1:-1], "qf": list(config.critic_sizes)},
                "activation_fn": nn.ELU,
                "n_critics": config.critics,
            },
            seed=context.seed,
            device="cpu",
        )
        self.sac.set_logger(Logger(folder=None, output_formats=[]))
        self._buffer.rng = np.random.default_rng(context.seed)
        self._prepared = False

    @property
    def _buffer(self) -> SymmetricBuffer:
        return cast(SymmetricBuffer, self.sac.replay_buffer)

    def _prepare(self) -> None:
        """Make the simulation data, and let critics that know nothing yet learn from it."""
        if not hasattr(self._buffer, "simulation"):
            plan = self.context.plan
            self._buffer.simulation = simulate(
                self.expert,
                self.context.robot,
                self.config,
                hold=plan.plan_every,
                seed=self.context.seed,
            )
        if not self._prepared:
            actor = self.sac.actor
            actor.requires_grad_(False)
            self.sac.lr_schedule = lambda _: self.config.preparing_rate
            self.sac.train(self.config.critic_updates, self.config.batch)
            self.sac.lr_schedule = lambda _: self.config.learning_rate
            actor.requires_grad_(True)
            self._prepared = True

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        """Walk and learn until the minutes are used up."""
        with torch_threads(1):
            self._prepare()
            self.fleet.grant(data, minutes)
            if not self.fleet.affords():
                return LearnReport(False, "the minutes do not suffice for one action")
            before = self.sac._n_updates
            self.sac._last_obs = None  # the robots have begun anew
            until = _UntilTimeIsUp(self.fleet, self.context)
            self.sac.learn(2**31, callback=until, reset_num_timesteps=False, log_interval=2**31)
        self.fleet.rest()
        updates = self.sac._n_updates - before
        rate = self.context.plan.plan_every * self.context.robot.control_dt
        first, last = _ends(until.rewards, round(20.0 / rate))
        reward = f"reward per second {first / rate:.3f} at first, {last / rate:.3f} at last"
        return LearnReport(True, f"{updates} updates, {reward}", updates)

    def policy(self) -> ExpertPolicy:
        policy = ExpertPolicy(*self.expert.sizes)
        policy.load_state_dict(self.expert.state_dict())
        actor = self.sac.actor
        layers = [layer for layer in actor.latent_pi if isinstance(layer, nn.Linear)]
        layers.append(cast(nn.Linear, actor.mu))
        for target, source in zip(policy.actor.layers, layers, strict=True):
            target.load_state_dict(source.state_dict())
        return policy.eval()

    def state(self) -> dict[str, Any]:
        buffer, size = self._buffer, self._buffer.size()
        return {
            "parameters": self.sac.get_parameters(),
            "temperature": cast(Tensor, self.sac.log_ent_coef).detach(),
            "updates": self.sac._n_updates,
            "prepared": self._prepared,
            "position": buffer.pos,
            "full": buffer.full,
            "rng": torch.get_rng_state(),
            "robot": {k: torch.from_numpy(getattr(buffer, k)[:size].copy()) for k in _COLUMNS},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.sac.set_parameters(state["parameters"], device="cpu")
        cast(Tensor, self.sac.log_ent_coef).data.copy_(state["temperature"])
        self.sac._n_updates, self._prepared = state["updates"], state["prepared"]
        buffer = self._buffer
        buffer.pos, buffer.full = state["position"], state["full"]
        for name, values in state["robot"].items():
            getattr(buffer, name)[: len(values)] = values.numpy()
        # Other draws than those before it was saved.
        buffer.rng = np.random.default_rng([self.context.seed, state["updates"]])
        torch.set_rng_state(state["rng"])


_COLUMNS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def _ends(values: Sequence[float], count: int) -> tuple[float, float]:
    """Means of the first and of the last ``count`` values."""
    return float(np.mean(values[:count])), float(np.mean(values[-count:]))
