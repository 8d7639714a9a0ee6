"""Small made-up data with the format of the real thing, for tests."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np

from simdist.observation import ObservationSpec
from simdist.observation.spec import ObservationField, ScanGrid


def tiny_observation(joint_count: int = 12, history: int = 3) -> ObservationSpec:
    """A layout with few numbers: joint positions, a phase, and a scan of 4 x 3 points."""
    return ObservationSpec(
        fields=(
            ObservationField("joint_pos", joint_count, 0.01),
            ObservationField("phase", 2, 0.0),
        ),
        scan=ScanGrid(nx=4, ny=3),
        history=history,
        gait_period=0.5,
    )


def write_shard(
    path: Path,
    *,
    environments: int = 4,
    steps: int = 80,
    seed: int = 0,
    observation: ObservationSpec | None = None,
    joint_count: int = 12,
    robot: str = "go1",
    role: str = "all",
    falls: dict[int, list[int]] | None = None,
    time_outs: dict[int, list[int]] | None = None,
    expert_share: float = 0.7,
) -> Path:
    """A shard of a linear system that a small model can learn.

    ``falls`` and ``time_outs`` map an environment to the steps after which its episode ends. The
    first number of proprioception is the flat index of the step, divided by 1000, so that a test
    can tell where a window came from.
    """
    rng = np.random.default_rng(seed)
    observation = observation or tiny_observation(joint_count)
    shape = (environments, steps)
    fall, end = np.zeros(shape, bool), np.zeros(shape, bool)
    for environment, ends in (falls or {}).items():
        fall[environment, ends] = end[environment, ends] = True
    for environment, ends in (time_outs or {}).items():
        end[environment, ends] = True

    expert = rng.normal(size=(*shape, joint_count)) * 0.3
    is_expert = rng.random(shape) < expert_share
    noise = rng.normal(size=expert.shape) * 0.2
    action = np.where(is_expert[..., None], expert, expert + noise)
    state = np.zeros((*shape, observation.size))
    for step in range(1, steps):
        state[:, step] = 0.8 * state[:, step - 1]
        state[:, step, :joint_count] += 0.5 * action[:, step - 1]
        state[end[:, step - 1], step] = 0.0
    state[..., 0] = np.arange(environments * steps).reshape(shape) / 1000
    reward = -np.square(state[..., 1:]).mean(-1)

    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        file["proprio"] = state.astype(np.float32)
        file["scan"] = (rng.normal(size=(*shape, observation.scan.size)) * 0.05).astype(np.float16)
        file["action"] = action.astype(np.float32)
        file["expert_action"] = expert.astype(np.float32)
        file["command"] = rng.uniform(-1, 1, (*shape, 3)).astype(np.float32)
        file["reward"] = reward.astype(np.float32)
        file["value"] = (10 * reward).astype(np.float32)
        file["fall"], file["end"], file["is_expert"] = fall, end, is_expert
        file.attrs["robot"] = robot
        file.attrs["role"] = role
        file.attrs["observation"] = json.dumps(observation.to_dict())
        file.attrs["config"] = "{}"
        file.attrs["seed"] = seed
    return path
