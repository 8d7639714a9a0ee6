"""Drivers of policies that are learned further, and what those methods have in common."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from simdist.distillation.policy import ExpertPolicy
from simdist.errors import ArtefactError
from simdist.evaluation.drivers import ExpertDriver, expert_path
from simdist.evaluation.methods import MethodContext
from simdist.evaluation.trial_pool import DriverFactory
from simdist.robots import RobotSpec
from simdist.simulation.world import WorldSpec

POLICY_FILE = "policy.safetensors"


def file_hash(path: Path) -> str:
    """SHA-256 of a file; raises ArtefactError when it cannot be read."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise ArtefactError(f"cannot read {path}: {error.strerror}") from error


@dataclass(frozen=True)
class PolicySource:
    """Drivers of a policy in a file, which act on its mean."""

    policy: Path
    sha256: str
    contract: str

    def load(self, robot: RobotSpec, world: WorldSpec) -> DriverFactory:
        if file_hash(self.policy) != self.sha256:
            raise ArtefactError(f"{self.policy} changed during the experiment; begin it anew")
        policy = ExpertPolicy.load(self.policy)
        return lambda seed, exploring: ExpertDriver(policy, robot, self.contract)


class PolicyMethod:
    """What learning methods that start from the expert have in common."""

    learns, wants_data, explores = True, False, True
    name: str
    state_file: str  #: of the learner, beside the policy

    def __init__(self, context: MethodContext) -> None:
        self.context = context
        self._file = expert_path(context.artefact.path)
        self.expert = ExpertPolicy.load(self._file)

    def source(self) -> PolicySource:
        contract = self.context.artefact.contract.hash()
        return PolicySource(self._file, file_hash(self._file), contract)

    def policy(self) -> ExpertPolicy:
        """The present policy, with the expert's critic."""
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        """Tensors and plain data that :meth:`load_state` needs."""
        raise NotImplementedError

    def load_state(self, state: dict[str, Any]) -> None:
        """Inverse of :meth:`state`."""
        raise NotImplementedError

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        temporary = directory / f"{self.state_file}.tmp"
        torch.save(self.state(), temporary)
        temporary.replace(directory / self.state_file)
        self._file = directory / POLICY_FILE
        self.policy().save(self._file, {"kind": "experiment", "method": self.name})

    def restore(self, directory: Path) -> None:
        path = directory / self.state_file
        try:
            self.load_state(torch.load(path, weights_only=True))
        except Exception as error:  # torch.load documents no exceptions
            raise ArtefactError(f"cannot continue from {path}: {error}; begin anew") from error
        self._file = directory / POLICY_FILE
        ExpertPolicy.load(self._file)
