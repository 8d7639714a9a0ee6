"""From the shards of a data set to windows in memory, split by environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import torch

from simdist.errors import ContractError, DatasetError
from simdist.observation import ObservationSpec
from simdist.world_model.windows import Trajectories, WindowIndex, WindowSet, find_windows

#: per step: name in the shard and type kept in memory; scans stay half precision until a batch
_FLOATS = {
    "proprio": np.float32,
    "scan": np.float16,
    "action": np.float32,
    "expert_action": np.float32,
    "command": np.float32,
    "reward": np.float32,
    "value": np.float32,
}
_FLAGS = ("fall", "end", "is_expert")
ROLES = ("all", "policy_only")


@dataclass(frozen=True)
class Shard:
    """One file of a data set: ``environments`` trajectories of ``steps`` steps each.

    With ``branches`` above 1 that many trajectories in a row are futures of the same state: each
    is the common past, the present and one future, just long enough for one window.
    """

    path: Path
    environments: int
    steps: int
    robot: str
    observation: ObservationSpec
    role: str
    branches: int = 1


@dataclass(frozen=True)
class WindowData:
    """Training and validation windows of a data set; no environment contributes to both."""

    train: WindowSet
    validation: WindowSet
    robot: str
    observation: ObservationSpec
    steps: int
    sha256: str


def find_shards(paths: Sequence[Path]) -> list[Path]:
    """The ``*.h5`` files named or contained in ``paths``, sorted within each directory."""
    shards: list[Path] = []
    for path in map(Path, paths):
        found = sorted(path.glob("*.h5")) if path.is_dir() else [path] if path.is_file() else []
        if not found:
            raise DatasetError(f"no data at {path}; 'simdist collect' writes shards (*.h5)")
        shards.extend(found)
    return shards


def load_windows(
    paths: Sequence[Path],
    horizon: int,
    *,
    validation_fraction: float = 0.05,
    seed: int = 0,
    pad_starts: bool = True,
) -> WindowData:
    """Read all shards into memory and index their windows.

    ``validation_fraction`` of the environments of each shard, at least one where there are two,
    is held out; ``seed`` chooses which. Needs about 0.5 kB of memory per step. Raises DatasetError
    for missing, damaged or disagreeing shards.
    """
    shards = [read_header(path) for path in find_shards(paths)]
    first = shards[0]
    for shard in shards[1:]:
        for name in ("robot", "observation"):
            if getattr(shard, name) != getattr(first, name):
                raise DatasetError(
                    f"{shard.path} and {first.path} disagree about the {name}: "
                    f"{getattr(shard, name)} and {getattr(first, name)}"
                )
    trajectories = _read(shards)
    history = first.observation.history
    index = find_windows(trajectories, history, horizon, pad_starts=pad_starts)

    held_out, world, branched = [], [], []
    rng = np.random.default_rng(seed)
    for shard in shards:
        groups = shard.environments // shard.branches
        count = round(validation_fraction * groups)
        count = max(count, 1) if groups > 1 and validation_fraction > 0 else 0
        chosen = np.zeros(groups, bool)
        chosen[rng.permutation(groups)[:count]] = True
        held_out.append(np.repeat(chosen, shard.branches))
        world.append(np.full(shard.environments, shard.role == "all"))
        branched.append(np.full(shard.environments, shard.branches))
    row_starts = np.cumsum(trajectories.row_lengths) - trajectories.row_lengths
    row = np.searchsorted(row_starts, index.present.numpy(), side="right") - 1
    window_branches = torch.from_numpy(np.concatenate(branched)[row])
    # Only the last window of a branch is one of a group; those before lie in the common past.
    common = (window_branches > 1).numpy() & (index.present.numpy() - row_starts[row] != history)
    window_held_out = torch.from_numpy(np.concatenate(held_out)[row])
    window_world = torch.from_numpy(np.concatenate(world)[row])
    usable = torch.from_numpy(~common)
    noise_std = torch.from_numpy(first.observation.noise_std())

    def subset(chosen: torch.Tensor, purpose: str) -> WindowSet:
        chosen = chosen & usable
        windows = WindowSet(
            trajectories,
            WindowIndex(index.present[chosen], index.episode_start[chosen]),
            window_world[chosen],
            branches=window_branches[chosen],
            history=history,
            horizon=horizon,
            noise_std=noise_std,
        )
        if not len(windows.world_indices):
            raise DatasetError(
                f"no {purpose} windows in {', '.join(str(path) for path in paths)}: episodes "
                f"must be longer than {horizon} steps, and shards of role 'all' need two or more "
                "environments"
            )
        return windows

    return WindowData(
        train=subset(~window_held_out, "training"),
        validation=subset(window_held_out, "validation"),
        robot=first.robot,
        observation=first.observation,
        steps=len(trajectories),
        sha256=hash_files([shard.path for shard in shards]),
    )


def read_header(path: Path) -> Shard:
    """What a shard says about itself; raises DatasetError when it does not say it."""
    try:
        with h5py.File(path, "r") as file:
            environments, steps = _array(file, "end").shape
            for name in (*_FLOATS, *_FLAGS):
                if _array(file, name).shape[:2] != (environments, steps):
                    raise DatasetError(
                        f"{path}: {name} has shape {_array(file, name).shape}, expected "
                        f"({environments}, {steps}, ...)"
                    )
            observation = ObservationSpec.from_dict(json.loads(str(file.attrs["observation"])))
            shard = Shard(
                path=path,
                environments=environments,
                steps=steps,
                robot=str(file.attrs["robot"]),
                observation=observation,
                role=str(file.attrs["role"]),
                branches=int(file.attrs.get("branches", 1)),
            )
            widths = {"proprio": observation.size, "scan": observation.scan.size}
            for name, width in widths.items():
                if _array(file, name).shape[2:] != (width,):
                    raise DatasetError(
                        f"{path}: {name} has shape {_array(file, name).shape}, the observation "
                        f"layout needs {width} numbers a step"
                    )
    except (OSError, KeyError, ValueError, TypeError, ContractError) as error:
        raise DatasetError(f"{path} is not a readable shard of a data set: {error}") from error
    if shard.role not in ROLES:
        raise DatasetError(f"{path}: role {shard.role!r} is unknown; allowed: {', '.join(ROLES)}")
    if shard.branches < 1 or shard.environments % shard.branches:
        raise DatasetError(
            f"{path}: {shard.environments} trajectories are no groups of {shard.branches} branches"
        )
    return shard


def hash_files(paths: Sequence[Path]) -> str:
    """SHA-256 over the contents of files, in order."""
    digest = hashlib.sha256()
    for path in paths:
        with open(path, "rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
    return digest.hexdigest()


def _array(file: h5py.File, name: str) -> h5py.Dataset:
    array = file[name]
    if not isinstance(array, h5py.Dataset):
        raise TypeError(f"{name} is not an array")
    return array


def _read(shards: list[Shard]) -> Trajectories:
    """All shards one after another, each read straight into its place: memory is needed once."""
    total = sum(shard.environments * shard.steps for shard in shards)
    arrays: dict[str, np.ndarray] = {}
    begin = 0
    for shard in shards:
        stop = begin + shard.environments * shard.steps
        with h5py.File(shard.path, "r") as file:
            for name in (*_FLOATS, *_FLAGS):
                source = _array(file, name)
                if name not in arrays:
                    kind = _FLOATS.get(name, np.bool_)
                    arrays[name] = np.empty((total, *source.shape[2:]), kind)
                target = arrays[name][begin:stop].reshape(source.shape)
                try:
                    source.read_direct(target)
                except (OSError, TypeError, ValueError) as error:
                    raise DatasetError(f"cannot read {name} of {shard.path}: {error}") from error
                if name in _FLOATS and not _finite(target):
                    raise DatasetError(
                        f"{shard.path}: {name} holds values that are not finite; collect the "
                        "shard again"
                    )
        begin = stop
    return Trajectories(
        **{name: torch.from_numpy(array) for name, array in arrays.items()},
        row_lengths=np.concatenate([np.full(shard.environments, shard.steps) for shard in shards]),
    )


def _finite(array: np.ndarray) -> bool:
    # Row by row of environments, so that the check needs no copy of the whole array.
    return all(bool(np.isfinite(rows).all()) for rows in array)
