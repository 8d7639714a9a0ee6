"""Branches: several futures of one and the same state, which only a simulator offers.

A planner compares futures that begin in the present state, so what it needs from a world model are
the *differences* between them. In ordinary trajectories those drown in everything else that a
latent cannot know (ground, masses, the next kick); between branches all of that is equal, and
what is left is the effect of the actions.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch

from simdist.distillation.environment import LocomotionEnvironment
from simdist.distillation.policy import ExpertPolicy
from simdist.distillation.signals import ACTION_LIMIT, fallen, privileged_inputs, reward_terms
from simdist.simulation.batch import BatchSimulation
from simdist.simulation.rollout_batch import RolloutBatch
from simdist.types import Array, Flags


class BranchSimulation(RolloutBatch):
    """``size`` copies of every robot of ``trunk``, branch ``b`` of robot ``r`` in row
    ``r * size + b``. They share the robots' models, but no pushes and no change of ground."""

    def __init__(self, trunk: BatchSimulation, size: int, threads: int) -> None:
        models = [model for model in trunk.models for _ in range(size)]
        super().__init__(trunk.robot, models, threads=threads)
        self._trunk, self._rows = trunk, np.repeat(np.arange(trunk.count), size)

    def begin(self) -> None:
        """Put every branch into the present state of its robot."""
        self._take_state(self._trunk, self._rows)
        for name in ("friction", "trunk_mass_added", "kp_factor", "kd_factor", "slope"):
            getattr(self, name)[:] = getattr(self._trunk, name)[self._rows]
        self._derive()

    def step(self, targets: Array) -> None:
        """One control step towards joint ``targets (N, n)`` rad."""
        self._advance(targets)

    def _ground_height(self, x: Array, y: Array) -> Array:
        return self._trunk.terrain.height(self._rows, x, y)


@dataclass(frozen=True)
class Deviations:
    """How the actions of branches differ from the policy's, in action units."""

    smallest_std: float = 0.05
    largest_std: float = 0.8  #: standard deviations are drawn between, uniformly in the logarithm
    correlation: float = 0.8  #: from one step to the next, in half of the groups
    reacting: float = 0.5  #: of the groups: each branch asks the policy anew at every step

    def sample(
        self, groups: int, size: int, horizon: int, joints: int, rng: np.random.Generator
    ) -> Array:
        """Deviations ``(groups, size, horizon, joints)``; the first branch of a group has none."""
        low, high = np.log(self.smallest_std), np.log(self.largest_std)
        std = np.exp(rng.uniform(low, high, (groups, 1, 1, 1)))
        rho = np.where(rng.random((groups, 1, 1)) < 0.5, self.correlation, 0.0)
        noise = rng.standard_normal((groups, size, horizon, joints))
        for step in range(1, horizon):
            noise[:, :, step] = (
                rho * noise[:, :, step - 1] + np.sqrt(1 - rho**2) * noise[:, :, step]
            )
        noise[:, 0] = 0.0
        return std * noise


class BranchRecorder:
    """Cuts groups of windows out of an environment that walks on undisturbed.

    A row is one branch: ``history`` steps of the common past, the present, and ``horizon`` steps
    of its own. Arrays are those of a shard, see :mod:`simdist.distillation.collect`.
    """

    def __init__(
        self,
        environment: LocomotionEnvironment,
        expert: ExpertPolicy,
        *,
        size: int,
        horizon: int,
        deviations: Deviations,
        threads: int,
    ) -> None:
        self._environment, self._expert, self._deviations = environment, expert, deviations
        self.size, self.horizon = size, horizon
        self.branches = BranchSimulation(environment.simulation, size, threads)
        self._past: deque[dict[str, Array]] = deque(maxlen=environment.spec.history)

    @property
    def length(self) -> int:
        """Steps of a row."""
        return self._environment.spec.history + 1 + self.horizon

    def note(self, step: dict[str, Array]) -> None:
        """Remember a step of the environment: what a shard holds of it, each ``(N, ...)``."""
        self._past.append(step)

    def branch(self, policies: list[tuple[ExpertPolicy, Flags]]) -> dict[str, Array]:
        """Continue all robots from the present, each by that of ``policies`` whose flags ``(N,)``
        name it, and return the rows ``(N * size, length, ...)``; needs a whole past."""
        environment, world, size = self._environment, self.branches, self.size
        count, joints = environment.num_envs, environment.num_actions
        deviations = self._deviations.sample(count, size, self.horizon, joints, environment.rng)
        reacting = environment.rng.random(count) < self._deviations.reacting
        world.begin()
        command = np.repeat(environment.command, size, axis=0)
        action = np.repeat(environment.action, size, axis=0)
        clock = np.repeat(environment.clock, size)
        own = np.ones(len(command), bool)  # still what the expert itself would have done
        fell = np.zeros(len(command), bool)
        steps: list[dict[str, Array]] = []
        for index in range(self.horizon + 1):
            seen = self._see(command, action, clock)
            observation = torch.from_numpy(seen["policy"])
            best = self._expert.act(observation).numpy().astype(np.float64)
            answer = best.copy()
            for policy, driven in policies:
                rows = np.flatnonzero(np.repeat(driven, size))
                if len(rows) and policy is not self._expert:
                    answer[rows] = policy.act(observation[rows]).numpy()
                    own[rows] = False
            step = {
                "proprio": seen["proprio"],
                "scan": seen["scan"],
                "command": command,
                "friction": world.friction.copy(),
                "value": self._expert.value(torch.from_numpy(seen["critic"])).numpy(),
                "expert_action": best,
            }
            steps.append(step)
            first = answer.reshape(count, size, joints)[:, :1]
            grouped = np.where(reacting[:, None, None], answer.reshape(count, size, joints), first)
            if index < self.horizon:
                grouped = grouped + deviations[:, :, index]
            previous, velocity = action, world.joint_velocity.copy()
            action = np.clip(grouped.reshape(-1, joints), -ACTION_LIMIT, ACTION_LIMIT)
            own &= np.abs(action - best).max(1) < 1e-9
            world.step(environment.robot.target(action))
            clock = clock + environment.robot.control_dt
            terms = reward_terms(
                environment.task,
                world,
                command=command,
                action=action,
                previous_action=previous,
                previous_velocity=velocity,
                phase=2 * np.pi * clock / environment.spec.gait_period,
            )
            reward = np.where(world.diverged, 0.0, environment.task.reward(terms))
            falls = fallen(environment.task, world) & ~fell
            fell |= falls
            step |= {
                "action": action,
                "reward": reward,
                "fall": falls,
                "end": falls,
                "is_expert": own.copy(),
            }
        past = [{k: np.repeat(v, size, axis=0) for k, v in step.items()} for step in self._past]
        return {k: np.stack([step[k] for step in past + steps], axis=1) for k in steps[0]}

    def _see(self, command: Array, action: Array, clock: Array) -> dict[str, np.ndarray]:
        world, environment = self.branches, self._environment
        proprioception = environment.builder.proprioception(
            linear_velocity=world.linear_velocity,
            angular_velocity=world.angular_velocity,
            orientation=world.orientation,
            joint_position=world.joint_position,
            joint_velocity=world.joint_velocity,
            seconds=clock,
        )
        scan = environment.spec.scan
        inputs = [proprioception, command, action]
        return {
            "proprio": proprioception,
            "scan": world.height_scan(scan.points(), scan.offset),
            "policy": np.concatenate(inputs, 1).astype(np.float32),
            "critic": np.concatenate([*inputs, privileged_inputs(world)], 1).astype(np.float32),
        }
