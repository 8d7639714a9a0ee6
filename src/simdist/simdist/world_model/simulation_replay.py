"""An excerpt of the simulation data, small enough to travel with the model.

Finetuning mixes it with robot data so that the dynamics do not forget, and the acceptance gate
measures on its held-out part whether they did.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from simdist.errors import ArtefactError, ContractError
from simdist.paths import model_file
from simdist.world_model.artefact import (
    Artefact,
    check_finite,
    pack_tensors,
    read_limited,
    unpack_tensors,
    write_atomically,
)
from simdist.world_model.contract import Contract
from simdist.world_model.windows import Trajectories, WindowSet, find_windows

FORMAT = "simdist-simulation-replay-1"
FILE_NAME = "simulation_replay.safetensors"
#: windows that overlap in one stored segment; more save space and add less variety
WINDOWS_PER_SEGMENT = 10
VALIDATION_SHARE = 0.2
#: metres per unit of a stored scan value: 8 bits then reach 0.635 m above and below
SCAN_RESOLUTION = 0.005
_FLOATS = ("proprio", "action", "command", "reward", "value")


def find_simulation_replay(artefact: Artefact) -> Path:
    """The simulation data that goes with a model: beside it, or what is shipped for its robot.

    Raises ArtefactError when there is neither.
    """
    beside = artefact.path.parent / FILE_NAME
    if beside.is_file():
        return beside
    return model_file(f"{artefact.contract.robot}/{Path(FILE_NAME).stem}")


@dataclass(frozen=True)
class SimulationReplay:
    """Windows of simulation data; training and validation come from different environments.

    Actions are what was applied; there are no expert labels, so the policy cannot learn from it.
    """

    train: WindowSet
    validation: WindowSet

    @staticmethod
    def load(path: Path, contract: Contract) -> SimulationReplay:
        """Read an excerpt for the model with ``contract``.

        Raises ArtefactError when the file is missing or damaged, ContractError when it was made
        for another robot, observation layout or horizon.
        """
        tensors, metadata = unpack_tensors(read_limited(Path(path)), str(path))
        if metadata.get("format") != FORMAT:
            raise ArtefactError(
                f"{path} is not an excerpt of simulation data: format "
                f"{metadata.get('format')!r}, expected {FORMAT!r}"
            )
        try:
            recorded = dict(json.loads(metadata["terms"]))
        except (KeyError, ValueError, TypeError, RecursionError) as error:
            raise ArtefactError(f"{path}: damaged metadata: {error}") from error
        # By way of JSON, so that tuples and lists compare equal.
        for name, value in json.loads(json.dumps(_terms(contract))).items():
            if recorded.get(name) != value:
                raise ContractError(
                    f"{path} was recorded with {name} {recorded.get(name)}, the model needs "
                    f"{value}; export it again from the model's own data"
                )
        return SimulationReplay(
            train=_windows(tensors, "train", contract, str(path)),
            validation=_windows(tensors, "validation", contract, str(path)),
        )


def export_simulation_replay(
    path: Path,
    train: WindowSet,
    validation: WindowSet,
    contract: Contract,
    count: int = 5000,
    seed: int = 0,
) -> Path:
    """Write about ``count`` windows, a fifth of them from ``validation``, atomically.

    Each segment of ``H + T + WINDOWS_PER_SEGMENT`` steps holds that many overlapping windows.
    Raises ArtefactError when the data holds too few segments.
    """
    rng = np.random.default_rng(seed)
    tensors: dict[str, Tensor] = {}
    for part, windows, share in (
        ("train", train, 1 - VALIDATION_SHARE),
        ("validation", validation, VALIDATION_SHARE),
    ):
        segments = max(1, round(count * share / WINDOWS_PER_SEGMENT))
        begins = _segment_begins(windows, contract)
        if not len(begins):
            raise ArtefactError(
                f"cannot write {path}: no {part} episode is long enough for "
                f"{WINDOWS_PER_SEGMENT} windows"
            )
        chosen = np.sort(rng.choice(begins, min(segments, len(begins)), replace=False))
        tensors.update(_segments(windows.trajectories, chosen, part, contract))
    metadata = {"format": FORMAT, "terms": json.dumps(_terms(contract))}
    write_atomically(Path(path), pack_tensors(tensors, metadata))
    return Path(path)


def _segment_length(contract: Contract) -> int:
    return contract.history + contract.horizon + WINDOWS_PER_SEGMENT


def _segment_begins(windows: WindowSet, contract: Contract) -> np.ndarray:
    """First steps of stretches in which every window is valid and has its whole past."""
    present = windows.present.numpy()
    whole = present - windows.episode_start.numpy() >= contract.history
    usable = np.zeros(len(windows.trajectories) + 1, np.int64)
    chosen = whole & windows.world.numpy()
    usable[present[chosen] + 1] = 1
    counted = np.cumsum(usable)
    first = present[chosen]
    first = first[first + WINDOWS_PER_SEGMENT < len(counted)]
    full = counted[first + WINDOWS_PER_SEGMENT] - counted[first] == WINDOWS_PER_SEGMENT
    return first[full] - contract.history


def _segments(
    data: Trajectories, begins: np.ndarray, part: str, contract: Contract
) -> dict[str, Tensor]:
    steps = torch.from_numpy(begins)[:, None] + torch.arange(_segment_length(contract))
    tensors = {f"{part}.{name}": getattr(data, name)[steps].half() for name in _FLOATS}
    scan = (data.scan[steps].float() / SCAN_RESOLUTION).round().clamp(-127, 127)
    tensors[f"{part}.scan"] = scan.to(torch.int8)
    for name in ("fall", "end"):
        tensors[f"{part}.{name}"] = getattr(data, name)[steps]
    return tensors


def _windows(tensors: dict[str, Tensor], part: str, contract: Contract, source: str) -> WindowSet:
    network = contract.network
    widths = {
        "proprio": (network.proprio_dim,),
        "scan": (network.scan_dim,),
        "action": (network.action_dim,),
        "command": (network.command_dim,),
        "reward": (),
        "value": (),
        "fall": (),
        "end": (),
    }
    length = _segment_length(contract)
    arrays: dict[str, Tensor] = {}
    for name, width in widths.items():
        tensor = tensors.get(f"{part}.{name}")
        if tensor is None or tensor.ndim < 2 or tensor.shape[1:] != (length, *width):
            raise ArtefactError(
                f"{source}: {part}.{name} is missing or has another shape than "
                f"(segments, {', '.join(map(str, (length, *width)))})"
            )
        arrays[name] = tensor.flatten(0, 1)
    check_finite({name: arrays[name] for name in _FLOATS}, source)
    steps = arrays["end"].shape[0]
    trajectories = Trajectories(
        proprio=arrays["proprio"].float(),
        scan=(arrays["scan"].float() * SCAN_RESOLUTION).half(),
        action=arrays["action"].float(),
        expert_action=arrays["action"].float(),
        command=arrays["command"].float(),
        reward=arrays["reward"].float(),
        value=arrays["value"].float(),
        fall=arrays["fall"].bool(),
        end=arrays["end"].bool(),
        is_expert=torch.zeros(steps, dtype=torch.bool),
        row_lengths=np.full(steps // length, length),
    )
    index = find_windows(trajectories, contract.history, contract.horizon, pad_starts=False)
    if not len(index.present):
        raise ArtefactError(f"{source}: {part} holds no window")
    return WindowSet(
        trajectories,
        index,
        torch.ones(len(index.present), dtype=torch.bool),
        history=contract.history,
        horizon=contract.horizon,
        noise_std=torch.from_numpy(contract.observation.noise_std()),
    )


def _terms(contract: Contract) -> dict[str, object]:
    """What must agree between an excerpt and a model."""
    terms = contract.to_dict()
    names = ("robot", "joint_names", "default_pose", "action_scale", "control_dt", "observation")
    return {**{name: terms[name] for name in names}, "horizon": contract.horizon}
