"""The locomotion task on a batch of simulated robots, as rsl-rl wants to see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from simdist.distillation.signals import ACTION_LIMIT, fallen, privileged_inputs, reward_terms
from simdist.observation import ObservationBuilder, ObservationSpec
from simdist.observation.spec import legged_observation
from simdist.robots import RobotSpec
from simdist.simulation.batch import BatchSimulation, Randomisation
from simdist.simulation.robot_model import FAST_SOLVER, Solver
from simdist.tasks import CommandRanges, LocomotionTask
from simdist.types import Array, Flags, Rows

COMMAND_INTERVAL = 10.0  #: s between new commands within an episode
LEFT_RIGHT = np.array([1, 0, 3, 2])  #: foot order after mirroring (FR, FL, RR, RL)


class LocomotionEnvironment:
    """``count`` robots walking; implements the VecEnv interface of rsl-rl.

    Observations: ``policy`` is proprioception (noisy when ``noise``), command and previous action,
    ``critic`` is the same without noise plus contact forces, foot heights, contacts, friction,
    added mass, gain factors and slope, which only simulation knows.
    """

    def __init__(
        self,
        robot: RobotSpec,
        count: int,
        *,
        seed: int,
        threads: int = 2,
        solver: Solver = FAST_SOLVER,
        rough_fraction: float = 0.25,
        noise: bool = True,
        commands: CommandRanges | None = None,
        randomisation: Randomisation | None = None,
        episode_seconds: float = 20.0,
    ) -> None:
        self.robot, self.rng, self.noise = robot, np.random.default_rng(seed), noise
        self.spec: ObservationSpec = legged_observation(robot.joint_count)
        self.builder = ObservationBuilder(self.spec, robot)
        self.task = LocomotionTask(robot)
        self.commands = commands or CommandRanges()
        self.simulation = BatchSimulation(
            robot,
            count,
            solver,
            threads=threads,
            rough_fraction=rough_fraction,
            randomisation=randomisation or Randomisation(),
            rng=self.rng,
        )
        self.num_envs, self.num_actions, self.device = count, robot.joint_count, "cpu"
        self.cfg: dict[str, Any] = {}
        self.max_episode_length = round(episode_seconds / robot.control_dt)
        self.episode_length_buf = torch.zeros(count, dtype=torch.long)
        self.command = np.zeros((count, 3))
        self.action = np.zeros((count, robot.joint_count))
        self.clock = np.zeros(count)  #: s, gait clock
        self.fell = np.zeros(count, bool)
        self._noise_std = self.spec.noise_std()
        self._statistics: dict[str, list[float]] = {}
        self._scan_points = self.spec.scan.points()
        self._begin(np.arange(count))

    def _begin(self, rows: Rows) -> None:
        self.command[rows] = self.commands.sample(len(rows), self.rng)
        self.action[rows] = 0.0
        self.clock[rows] = self.rng.uniform(0.0, self.spec.gait_period, len(rows))
        self.episode_length_buf[torch.from_numpy(rows)] = 0

    def proprioception(self) -> Array:
        """Noiseless proprioception ``(N, P)``."""
        simulation = self.simulation
        return self.builder.proprioception(
            linear_velocity=simulation.linear_velocity,
            angular_velocity=simulation.angular_velocity,
            orientation=simulation.orientation,
            joint_position=simulation.joint_position,
            joint_velocity=simulation.joint_velocity,
            seconds=self.clock,
        )

    def scan(self) -> Array:
        """Noiseless height scans ``(N, nx * ny)``."""
        return self.simulation.height_scan(self._scan_points, self.spec.scan.offset)

    def get_observations(self) -> TensorDict:
        clean = self.proprioception()
        seen = clean
        if self.noise:
            seen = clean + self._noise_std * self.rng.standard_normal(clean.shape)
        task_inputs = [self.command, self.action]
        tensors = {
            "policy": np.concatenate([seen, *task_inputs], 1),
            "critic": np.concatenate([clean, *task_inputs, privileged_inputs(self.simulation)], 1),
        }
        return TensorDict(
            {k: torch.from_numpy(v.astype(np.float32)) for k, v in tensors.items()},
            batch_size=[self.num_envs],
        )

    def step(
        self, actions: torch.Tensor
    ) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """One control step with ``actions (N, n)``; robots that end start a new episode."""
        simulation, dt = self.simulation, self.robot.control_dt
        previous, velocity = self.action, simulation.joint_velocity.copy()
        self.action = np.clip(
            actions.detach().numpy().astype(np.float64), -ACTION_LIMIT, ACTION_LIMIT
        )
        simulation.step(self.robot.target(self.action))
        self.clock += dt
        self.episode_length_buf += 1
        terms = reward_terms(
            self.task,
            simulation,
            command=self.command,
            action=self.action,
            previous_action=previous,
            previous_velocity=velocity,
            phase=2 * np.pi * self.clock / self.spec.gait_period,
        )
        reward = np.where(simulation.diverged, 0.0, self.task.reward(terms))
        self.fell = fallen(self.task, simulation)
        timed_out = (self.episode_length_buf.numpy() >= self.max_episode_length) & ~self.fell
        done = self.fell | timed_out
        error = np.linalg.norm(self.command[:, :2] - simulation.linear_velocity[:, :2], axis=1)
        self._note(terms, error, done)
        rows = np.flatnonzero(done)
        if len(rows):
            simulation.reset(rows)
            self._begin(rows)
        steps = self.episode_length_buf.numpy()
        renew = np.flatnonzero((steps % round(COMMAND_INTERVAL / dt) == 0) & ~done)
        self.command[renew] = self.commands.sample(len(renew), self.rng)
        extras = {"time_outs": torch.from_numpy(timed_out.astype(np.float32)), "log": {}}
        return (
            self.get_observations(),
            torch.from_numpy(reward.astype(np.float32)),
            torch.from_numpy(done),
            extras,
        )

    def _note(self, terms: dict[str, Array], velocity_error: Array, done: Flags) -> None:
        for name, value in terms.items():
            weight = getattr(self.task.weights, name)
            self._statistics.setdefault(name, []).append(float(weight * np.mean(value)))
        self._statistics.setdefault("velocity_error", []).append(float(velocity_error.mean()))
        self._statistics.setdefault("falls_per_second", []).append(
            float((self.fell & done).mean() / self.robot.control_dt)
        )

    def take_statistics(self) -> dict[str, float]:
        """Means of reward terms, velocity error and falls since the last call."""
        result = {name: float(np.mean(values)) for name, values in self._statistics.items()}
        self._statistics.clear()
        return result


def _mirror_joints(values: torch.Tensor) -> torch.Tensor:
    """Swap left and right legs of ``(..., 12)`` joint values; hips change sign."""
    legs = values.reshape(*values.shape[:-1], 4, 3)[..., LEFT_RIGHT, :]
    return (legs * legs.new_tensor([-1.0, 1.0, 1.0])).reshape(values.shape)


def _mirror_policy(observation: torch.Tensor) -> torch.Tensor:
    flip = observation.new_tensor
    parts = torch.split(observation, [3, 3, 3, 12, 12, 2, 3, 12], dim=-1)
    velocity, rate, gravity, position, joint_velocity, phase, command, action = parts
    return torch.cat(
        [
            velocity * flip([1.0, -1.0, 1.0]),
            rate * flip([-1.0, 1.0, -1.0]),
            gravity * flip([1.0, -1.0, 1.0]),
            _mirror_joints(position),
            _mirror_joints(joint_velocity),
            -phase,  # half a gait period later, left and right have swapped roles
            command * flip([1.0, -1.0, -1.0]),
            _mirror_joints(action),
        ],
        dim=-1,
    )


def mirror(
    env: Any, obs: TensorDict | None, actions: torch.Tensor | None
) -> tuple[TensorDict | None, torch.Tensor | None]:
    """Left-right symmetry augmentation in the form rsl-rl asks for."""
    both = None
    if obs is not None:
        critic = obs["critic"]
        size = obs["policy"].shape[-1]
        feet = [critic[..., size + 4 * i : size + 4 * (i + 1)][..., LEFT_RIGHT] for i in range(3)]
        mirrored = [_mirror_policy(critic[..., :size]), *feet, critic[..., size + 12 :]]
        both = TensorDict(
            {
                "policy": torch.cat([obs["policy"], _mirror_policy(obs["policy"])]),
                "critic": torch.cat([critic, torch.cat(mirrored, -1)]),
            },
            batch_size=[2 * obs.batch_size[0]],
        )
    if actions is not None:
        actions = torch.cat([actions, _mirror_joints(actions)])
    return both, actions
