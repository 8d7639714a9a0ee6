"""``full``: our world model with every part learned further, not only its dynamics.

Reward and value need labels, which come from the simulator behind the robot; a real robot has none.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from simdist.adaptation import FinetuneConfig
from simdist.adaptation.windows import robot_windows
from simdist.distillation.policy import ExpertPolicy
from simdist.distillation.signals import privileged_inputs, reward_terms
from simdist.errors import ArtefactError
from simdist.evaluation.collection import RecordedTrial, RobotData
from simdist.evaluation.drivers import Driver, expert_path
from simdist.evaluation.methods import (
    LEAST_STEPS,
    MODEL_FILE,
    LearnReport,
    MethodContext,
    ModelSource,
)
from simdist.evaluation.robot_environment import DISCOUNT, SimulatorView
from simdist.evaluation.trial_pool import NoisyDriver, torch_threads
from simdist.observation import Observation
from simdist.planning import self_test
from simdist.replay import Episode
from simdist.replay.episode import join
from simdist.robots import RobotSpec
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.tasks import LocomotionTask
from simdist.types import ActionChunk
from simdist.world_model import WorldModel
from simdist.world_model.artefact import (
    load_artefact,
    pack_tensors,
    read_limited,
    save_artefact,
    unpack_tensors,
    write_atomically,
)
from simdist.world_model.losses import masked_mean, total_loss, world_model_losses
from simdist.world_model.simulation_replay import SimulationReplay, find_simulation_replay
from simdist.world_model.windows import Trajectories, WindowBatch, WindowSet, find_windows

LABEL_FILE = "labels.safetensors"
#: action units; how near to the expert's an action counts as its own (stored in 16 bits)
_SAME_ACTION = 0.03
_STATES = (
    *("rotation", "linear_velocity", "angular_velocity", "joint_position", "joint_velocity"),
    *("joint_torque", "foot_height", "foot_force", "contact", "friction", "slope"),
    *("trunk_mass_added", "kp_factor", "kd_factor"),
)


@dataclass(frozen=True)
class Labels:
    """Of the S steps of a recorded trial: reward, and value of the state before ``(S,)``."""

    reward: np.ndarray
    value: np.ndarray

    def first(self, count: int) -> Labels:
        return Labels(self.reward[:count], self.value[:count])


class WatchedDriver:
    """Another driver, while the simulator's states are written down for labels.

    Forces are those at the end of each control step, not the largest within it.
    """

    def __init__(self, driver: Driver, robot: RobotSpec) -> None:
        self._driver, self._robot = driver, robot
        self._states: dict[int, dict[str, np.ndarray]] = {}

    def begin(self, simulation: RobotSimulation) -> None:
        self._simulation, self._view = simulation, SimulatorView(simulation)
        self.note()

    def act(self, observation: Observation) -> ActionChunk:
        return self._driver.act(observation)

    def note(self) -> None:
        """A control step is over."""
        view = self._view
        view.begin()
        view.watch()
        view.update()
        self._states[self._simulation.time_ns] = {name: getattr(view, name) for name in _STATES}

    def labels(
        self, segments: Sequence[Episode], fallen: bool, expert: ExpertPolicy, gait_period: float
    ) -> Labels:
        """Of a run recorded in ``segments``. Values are discounted sums of what followed; where the
        run ends without a fall, the expert's critic judges the last state."""
        stamps, proprio, command, action = (
            np.concatenate([getattr(segment, name) for segment in segments])
            for name in ("stamp_ns", "proprio", "command", "action")
        )
        robot, task = self._robot, LocomotionTask(self._robot)
        dt_ns = round(robot.control_dt * 1e9)
        before, after = self._at(stamps), self._at(stamps + dt_ns)
        previous = previous_actions(action)
        terms = reward_terms(
            task,
            after,  # type: ignore[arg-type]
            command=command,
            action=action,
            previous_action=previous,
            previous_velocity=before.joint_velocity,
            phase=2 * np.pi * (stamps + dt_ns) * 1e-9 / gait_period,
        )
        reward = task.reward(terms)
        inputs = np.concatenate([proprio, command, previous, privileged_inputs(before)], axis=1)
        critic = expert.value(torch.from_numpy(inputs.astype(np.float32))).numpy()
        value = critic.astype(np.float64)
        following = 0.0 if fallen else None
        for step in reversed(range(len(value))):
            if following is not None:
                value[step] = reward[step] + DISCOUNT * following
            following = value[step]
        return Labels(reward.astype(np.float32), value.astype(np.float32))

    def _at(self, stamps: np.ndarray) -> Any:
        states = [self._states[int(stamp)] for stamp in stamps]
        stacked = {name: np.concatenate([state[name] for state in states]) for name in _STATES}
        return SimpleNamespace(robot=self._robot, **stacked)


def previous_actions(action: np.ndarray) -> np.ndarray:
    """The action before each of the actions ``(S, n)``; the first one counts as repeated."""
    return np.concatenate([action[:1], action[:-1]])


def with_expert(data: Trajectories, expert: ExpertPolicy) -> Trajectories:
    """The trajectories with what the expert would have done as labels of the policy."""
    previous = torch.cat([data.action[:1], data.action[:-1]])
    inputs = torch.cat([data.proprio.float(), data.command, previous], dim=1)
    best = torch.cat([expert.act(part) for part in inputs.split(8192)])
    same = (best - data.action).abs().amax(1) < _SAME_ACTION
    return replace(data, expert_action=best, is_expert=same)


def labelled_windows(
    trials: Sequence[RecordedTrial],
    labels: Sequence[Labels],
    expert: ExpertPolicy,
    history: int,
    horizon: int,
    dt_ns: int,
) -> WindowSet:
    """Windows of robot data from which every part of a world model can learn."""
    pairs = [(trial, label) for trial, label in zip(trials, labels, strict=True) if trial.segments]
    runs = [run for trial, _ in pairs for run in join(trial.segments, dt_ns)]
    bare = robot_windows(runs, history, horizon)
    data, ends = bare.trajectories, torch.zeros(len(bare.trajectories), dtype=torch.bool)
    lengths = [sum(map(len, trial.segments)) for trial, _ in pairs]
    for (trial, _), last in zip(pairs, np.cumsum(lengths) - 1, strict=True):
        ends[last] = trial.fallen
    data = replace(
        data,
        reward=torch.from_numpy(np.concatenate([label.reward for _, label in pairs])),
        value=torch.from_numpy(np.concatenate([label.value for _, label in pairs])),
        fall=ends,
        end=ends,
    )
    index = find_windows(data, history, horizon, pad_starts=False)
    return WindowSet(
        with_expert(data, expert),
        index,
        torch.ones(len(index.present), dtype=torch.bool),
        history=history,
        horizon=horizon,
        noise_std=bare.noise_std,
    )


def reactive_loss(model: WorldModel, batch: WindowBatch) -> Tensor:
    """Of the reactive policy, in the states that followed while the episode lasted."""
    assert model.reactive is not None
    latents = model.latent(batch.target_proprio[:, :-1], batch.target_scan[:, :-1])
    scale = model.scaler.scale
    actions = model.reactive.scaled(
        latents, scale("action", batch.actions[:, :-1]), scale("command", batch.commands[:, 1:-1])
    )
    error = (actions - scale("action", batch.expert_actions[:, 1:])).square().mean(-1)
    return masked_mean(error, batch.alive[:, :-1])


class FullFinetuning:
    """The planner on a model all of whose parts are learned further from labelled robot data and
    simulation data, anew from the pretrained model in every round; no gate."""

    name = "full"
    learns, wants_data, explores = True, False, False

    def __init__(self, context: MethodContext) -> None:
        self.context, artefact = context, context.artefact
        self._expert = ExpertPolicy.load(expert_path(artefact.path))
        self._file, self._weights_hash = artefact.path, artefact.weights_hash
        self.model = artefact.model
        self._version = artefact.version
        self._labels: list[Labels] = []
        self._simulation: WindowSet | None = None

    def source(self) -> ModelSource:
        context = self.context
        return ModelSource(
            "planner", self._file, self._weights_hash, context.planner, context.plan.delay_steps
        )

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        """Collect with the present model, labels included, and learn from everything."""
        self._collect(data, minutes)
        context, sizes = self.context, self.model.config
        dt_ns = round(data.control_dt * 1e9)
        if not any(trial.segments for trial in data.trials):
            return LearnReport(False, "no robot data")
        robot = labelled_windows(
            data.trials, self._labels, self._expert, sizes.history, sizes.horizon, dt_ns
        )
        if not len(robot):
            return LearnReport(False, "the robot data holds no whole window")
        steps = max(LEAST_STEPS, round(context.learning.steps_per_minute * minutes))
        config = replace(context.finetune, steps=steps, seed=context.seed)
        model = copy.deepcopy(context.artefact.model)
        with torch_threads(context.learning.threads):
            first, last = self._train(model, robot, config)
        problem = self_test(model, context.robot)
        if problem is not None:
            return LearnReport(False, f"the model fails its self-test: {problem}", steps)
        self.model, self._version = model, self._version + 1
        return LearnReport(True, f"loss {first:.3f} at first, {last:.3f} at last; no gate", steps)

    def _collect(self, data: RobotData, minutes: float) -> None:
        context, runner = self.context, self.context.pool.local
        plan, robot = context.plan, context.robot
        factory = self.source().load(robot, runner.setting.world)
        while data.room(minutes):
            index = len(data.trials)
            config = plan.trial(index)
            driver = factory(config.seed, True)
            if plan.noisy(index):
                driver = NoisyDriver(driver, robot, config.seed)
            watched = WatchedDriver(driver, robot)
            with torch_threads(1):
                outcome = runner.drive(
                    watched, config, record=True, on_step=lambda segments, w=watched: w.note()
                )
            gait_period = runner.setting.layout.gait_period
            fallen = outcome.result.fallen
            label = Labels(np.zeros(0, np.float32), np.zeros(0, np.float32))
            if outcome.segments:
                label = watched.labels(outcome.segments, fallen, self._expert, gait_period)
            data.add(plan.recorded(index, outcome), minutes)
            self._labels.append(label.first(sum(map(len, data.trials[-1].segments))))

    def _train(
        self, model: WorldModel, robot: WindowSet, config: FinetuneConfig
    ) -> tuple[float, float]:
        """Mean losses of the first and of the last tenth of the steps."""
        simulation = self._simulated()
        draw = torch.Generator().manual_seed(config.seed)
        optimiser = torch.optim.Adam(model.parameters(), lr=config.learning_rate, fused=True)
        from_robot = round(config.batch * config.robot_fraction)
        losses = []
        model.requires_grad_(True).train()
        for step in range(config.steps):
            parts = [
                windows.get(windows.sample(count, draw))
                for windows, count in (
                    (robot, from_robot),
                    (simulation, config.batch - from_robot),
                )
                if count
            ]
            batch = WindowBatch.concatenate(parts)
            loss = total_loss(world_model_losses(model, batch))
            if model.reactive is not None:
                loss = loss + reactive_loss(model, batch)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), config.gradient_clip)
            for group in optimiser.param_groups:
                group["lr"] = config.learning_rate_at(step)
            optimiser.step()
            losses.append(loss.item())
            if (step + 1) % 10 == 0:
                self.context.progress(10)
        model.requires_grad_(False).eval()
        part = math.ceil(len(losses) / 10)
        return float(np.mean(losses[:part])), float(np.mean(losses[-part:]))

    def _simulated(self) -> WindowSet:
        if self._simulation is None:
            artefact = self.context.artefact
            file = find_simulation_replay(artefact)
            windows = SimulationReplay.load(file, artefact.contract).train
            windows.trajectories = with_expert(windows.trajectories, self._expert)
            self._simulation = windows
        return self._simulation

    def save(self, directory: Path) -> None:
        tensors = {
            f"{index:05d}.{name}": torch.from_numpy(values.copy())
            for index, label in enumerate(self._labels)
            for name, values in vars(label).items()
        }
        write_atomically(directory / LABEL_FILE, pack_tensors(tensors, {}))
        pretrained = self.context.artefact
        self._file = save_artefact(
            directory / MODEL_FILE,
            self.model,
            pretrained.contract,
            self._version,
            pretrained.weights_hash,
            {"kind": "experiment", "method": self.name},
        )
        self._weights_hash = self.model.weights_hash()

    def restore(self, directory: Path) -> None:
        path = directory / LABEL_FILE
        tensors, _ = unpack_tensors(read_limited(path), str(path))
        try:
            self._labels = [
                Labels(tensors[f"{i:05d}.reward"].numpy(), tensors[f"{i:05d}.value"].numpy())
                for i in range(len(tensors) // 2)
            ]
        except KeyError as error:
            raise ArtefactError(f"{path} holds no {error}; begin the experiment anew") from error
        artefact = load_artefact(directory / MODEL_FILE, self.context.robot)
        self.model, self._version = artefact.model, artefact.version
        self._file, self._weights_hash = artefact.path, artefact.weights_hash
