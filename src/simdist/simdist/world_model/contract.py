"""What a world model was trained for, and therefore what it may drive."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields
from typing import Any

from simdist.errors import ContractError
from simdist.observation import ObservationSpec
from simdist.robots import RobotSpec
from simdist.world_model.config import WorldModelConfig


@dataclass(frozen=True)
class Contract:
    """Everything that gives a model's numbers their meaning; travels inside the artefact.

    An action ``a`` means the joint target ``default_pose + action_scale * a`` (rad), held for
    ``control_dt`` seconds under gains ``kp`` (Nm/rad) and ``kd`` (Nm s/rad). Values are returns
    discounted by ``discount`` per control step.
    """

    robot: str
    joint_names: tuple[str, ...]
    default_pose: tuple[float, ...]
    action_scale: float
    kp: tuple[float, ...]
    kd: tuple[float, ...]
    control_dt: float
    observation: ObservationSpec
    network: WorldModelConfig
    action_kind: str = "joint_position"
    command_names: tuple[str, ...] = ("vx", "vy", "yaw_rate")
    discount: float = 0.99

    def __post_init__(self) -> None:
        network, observation = self.network, self.observation
        expected = {
            "proprio_dim": observation.size,
            "scan_shape": (observation.scan.nx, observation.scan.ny),
            "history": observation.history,
            "command_dim": len(self.command_names),
        }
        if self.action_kind == "joint_position":
            expected["action_dim"] = len(self.joint_names)
        for name, value in expected.items():
            if getattr(network, name) != value:
                raise ContractError(
                    f"network {name} is {getattr(network, name)}, but robot and observation "
                    f"layout need {value}"
                )
        for name in ("default_pose", "kp", "kd"):
            if len(getattr(self, name)) != len(self.joint_names):
                raise ContractError(
                    f"contract {name} has {len(getattr(self, name))} values for "
                    f"{len(self.joint_names)} joints"
                )

    @staticmethod
    def of(
        robot: RobotSpec,
        observation: ObservationSpec,
        network: WorldModelConfig,
        *,
        discount: float = 0.99,
    ) -> Contract:
        """The contract of a model trained for ``robot`` with this layout and network."""
        return Contract(
            **_robot_terms(robot),
            observation=observation,
            network=network,
            discount=discount,
        )

    @property
    def history(self) -> int:
        return self.network.history

    @property
    def horizon(self) -> int:
        return self.network.horizon

    def check_robot(self, robot: RobotSpec) -> None:
        """Raise ContractError, naming the first disagreement, unless the model fits ``robot``."""
        for name, value in _robot_terms(robot).items():
            mine = getattr(self, name)
            if mine != value:
                raise ContractError(
                    f"the model is for robot {self.robot!r} with {name} {mine}, but it is to "
                    f"drive {robot.name!r} with {name} {value}; use a model trained for "
                    f"{robot.name!r}"
                )

    def hash(self) -> str:
        """SHA-256 of the contract in canonical JSON; equal contracts have equal hashes."""
        text = json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        terms = {field.name: getattr(self, field.name) for field in fields(self)}
        terms["observation"] = self.observation.to_dict()
        terms["network"] = self.network.to_dict()
        return terms

    @staticmethod
    def from_dict(data: dict[str, Any]) -> Contract:
        """Inverse of :meth:`to_dict`; raises ContractError for anything else."""
        try:
            known = {field.name for field in fields(Contract)}
            if set(data) != known:
                raise ContractError(
                    f"contract terms do not match this version: missing "
                    f"{sorted(known - set(data))}, unknown {sorted(set(data) - known)}"
                )
            return Contract(
                robot=str(data["robot"]),
                joint_names=tuple(str(name) for name in data["joint_names"]),
                default_pose=_floats(data["default_pose"]),
                action_scale=float(data["action_scale"]),
                kp=_floats(data["kp"]),
                kd=_floats(data["kd"]),
                control_dt=float(data["control_dt"]),
                observation=ObservationSpec.from_dict(data["observation"]),
                network=WorldModelConfig.from_dict(data["network"]),
                action_kind=str(data["action_kind"]),
                command_names=tuple(str(name) for name in data["command_names"]),
                discount=float(data["discount"]),
            )
        except (TypeError, ValueError, AttributeError) as error:
            raise ContractError(f"not a contract: {error}") from error


def _floats(values: Any) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _robot_terms(robot: RobotSpec) -> dict[str, Any]:
    return {
        "robot": robot.name,
        "joint_names": robot.joint_names,
        "default_pose": _floats(robot.default_pose),
        "action_scale": float(robot.action_scale),
        "kp": _floats(robot.kp),
        "kd": _floats(robot.kd),
        "control_dt": float(robot.control_dt),
    }
