"""``ppo``: the expert's own training, continued on the robot."""

from __future__ import annotations

import contextlib
import copy
import io
from typing import Any, cast

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.env import VecEnv
from rsl_rl.runners import OnPolicyRunner

from simdist.distillation.expert import ExpertConfig, ppo_config
from simdist.distillation.policy import RSL_RL_EPSILON, ExpertPolicy, NormalisedMlp
from simdist.evaluation.baselines.policies import PolicyMethod
from simdist.evaluation.collection import RobotData
from simdist.evaluation.methods import LearnReport, MethodContext
from simdist.evaluation.robot_environment import DISCOUNT, RobotFleet
from simdist.evaluation.trial_pool import torch_threads

ROBOTS = 4  #: that take turns, so that a batch does not come from a single walk
ACTIONS = 128  #: of each robot between two updates
LEARNING_RATE, DESIRED_KL = 1e-4, 0.01  #: the rate is adapted to this change of the policy
EXPLORATION = 0.1  #: standard deviation of the first actions, as at the end of the training


def _load(model: torch.nn.Module, network: NormalisedMlp) -> None:
    """Put the weights of an exported network into rsl-rl's model of it."""
    state = model.state_dict()
    names = [name for name in state if name.startswith("mlp.")]
    for name, value in zip(names, network.layers.parameters(), strict=True):
        state[name] = value.detach().clone()
    std = network.std - RSL_RL_EPSILON
    state["obs_normalizer._mean"] = network.mean[None].clone()
    state["obs_normalizer._std"], state["obs_normalizer._var"] = std[None], std[None] ** 2
    model.load_state_dict(state)
    # The inputs keep their meaning: few minutes on one ground say nothing better about them.
    cast(Any, model).obs_normalizer.until = 0


class ContinuedPpo(PolicyMethod):
    """PPO with the settings of the expert's training, a small learning rate and little noise.

    Without the mirror images that training adds: a real robot's left and right may differ.
    """

    name, state_file = "ppo", "ppo.pt"

    def __init__(self, context: MethodContext) -> None:
        super().__init__(context)
        plan = context.plan
        self.fleet = RobotFleet(context.robot, context.pool.setting.world, ROBOTS, plan)
        config = copy.deepcopy(ppo_config(ExpertConfig(steps_per_iteration=ACTIONS)))
        config["actor"]["distribution_cfg"]["init_std"] = EXPLORATION
        config["algorithm"] |= {
            "gamma": DISCOUNT**plan.plan_every,
            "learning_rate": LEARNING_RATE,
            "desired_kl": DESIRED_KL,
            "entropy_coef": 0.0,
            "use_clipped_value_loss": False,
            "symmetry_cfg": None,
        }
        torch.manual_seed(context.seed)
        with contextlib.redirect_stdout(io.StringIO()):  # it describes its networks at length
            runner = OnPolicyRunner(cast(VecEnv, self.fleet), config, log_dir=None, device="cpu")
        self.algorithm = cast(PPO, runner.alg)
        self.algorithm.train_mode()
        _load(self.algorithm.actor, self.expert.actor)
        _load(self.algorithm.critic, self.expert.critic)

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        """Walk until the minutes are used up; an update follows each full batch. Robots that stop
        within a batch leave it unused."""
        fleet, algorithm = self.fleet, self.algorithm
        fleet.grant(data, minutes)
        updates, returns = 0, list[float]()
        with torch_threads(1), contextlib.suppress(_TimeIsUp):
            while True:
                returns.append(self._batch())
                algorithm.update()
                updates += 1
                self.context.progress(ACTIONS)
        algorithm.storage.clear()
        fleet.rest()
        if not updates:
            return LearnReport(False, "the minutes do not suffice for one batch")
        reward = f"reward per second {returns[0]:.3f} at first, {returns[-1]:.3f} at last"
        return LearnReport(True, f"{updates} updates, {reward}", updates)

    def _batch(self) -> float:
        """Fill the storage; the mean reward per second."""
        algorithm, total = self.algorithm, 0.0
        observations = self.fleet.get_observations()
        with torch.inference_mode():
            for _ in range(ACTIONS):
                if not self.fleet.affords():
                    raise _TimeIsUp
                actions = algorithm.act(observations)
                observations, reward, done, extras = self.fleet.step(actions)
                total += float(reward.mean())
                algorithm.process_env_step(observations, reward, done, extras)
            algorithm.compute_returns(observations)
        plan, robot = self.context.plan, self.context.robot
        return total / (ACTIONS * plan.plan_every * robot.control_dt)

    def policy(self) -> ExpertPolicy:
        return ExpertPolicy.from_rsl_rl(self.algorithm.actor, self.algorithm.critic)

    def state(self) -> dict[str, Any]:
        return {"algorithm": self.algorithm.save(), "rng": torch.get_rng_state()}

    def load_state(self, state: dict[str, Any]) -> None:
        self.algorithm.load(state["algorithm"], None, True)
        torch.set_rng_state(state["rng"])


class _TimeIsUp(Exception):
    """The robot time does not allow another action."""
