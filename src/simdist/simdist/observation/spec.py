"""The layout of an observation, stored in every artefact and every data set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from simdist.errors import ContractError
from simdist.types import Array


@dataclass(frozen=True)
class ObservationField:
    """One named part of proprioception: its size and the standard deviation of sensor noise."""

    name: str
    size: int
    noise_std: float


@dataclass(frozen=True)
class ScanGrid:
    """A height scan: points on a grid that turns with the robot's heading and stays level.

    Values are ``base height - terrain height - offset`` in metres, flattened from ``(nx, ny)``
    in C order: x (forward) is the slow index, y (left) the fast one. Both ascend, unless the
    minimum of an axis lies above its maximum: then it is gone through downwards.
    """

    x_min: float = -0.4
    x_max: float = 0.8
    nx: int = 13
    y_min: float = -0.4
    y_max: float = 0.4
    ny: int = 9
    offset: float = 0.3

    @property
    def size(self) -> int:
        return self.nx * self.ny

    def points(self) -> Array:
        """Grid points ``(nx * ny, 2)`` in metres, in the level heading frame of the base."""
        x, y = np.meshgrid(
            np.linspace(self.x_min, self.x_max, self.nx),
            np.linspace(self.y_min, self.y_max, self.ny),
            indexing="ij",
        )
        return np.stack([x.ravel(), y.ravel()], axis=1)


@dataclass(frozen=True)
class ObservationSpec:
    """Everything that gives the numbers of an observation their meaning.

    ``history`` is the number of past observations and actions the encoder sees beside the present
    observation; ``gait_period`` (s) is the period of the phase clock in ``gait_phase``.
    """

    fields: tuple[ObservationField, ...]
    scan: ScanGrid
    history: int
    gait_period: float

    @property
    def size(self) -> int:
        """Length of the proprioception vector."""
        return sum(field.size for field in self.fields)

    def slices(self) -> dict[str, slice]:
        """Where each named field lies in the proprioception vector."""
        result, start = {}, 0
        for field in self.fields:
            result[field.name] = slice(start, start + field.size)
            start += field.size
        return result

    def noise_std(self) -> Array:
        """Standard deviation of sensor noise per element of proprioception."""
        return np.concatenate([np.full(field.size, field.noise_std) for field in self.fields])

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_dict(data: dict[str, Any]) -> ObservationSpec:
        """Inverse of :meth:`to_dict`; raises ContractError when a part is missing or foreign."""
        try:
            return ObservationSpec(
                fields=tuple(ObservationField(**field) for field in data["fields"]),
                scan=ScanGrid(**data["scan"]),
                history=int(data["history"]),
                gait_period=float(data["gait_period"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ContractError(f"not an observation layout: {error!r}") from error


def legged_observation(joint_count: int, history: int = 10) -> ObservationSpec:
    """The proprioception of the paper's quadruped (noise levels as in its public configuration)."""
    return ObservationSpec(
        fields=(
            ObservationField("base_lin_vel", 3, 0.05),
            ObservationField("base_ang_vel", 3, 0.1),
            ObservationField("projected_gravity", 3, 0.025),
            ObservationField("joint_pos", joint_count, 0.01),
            ObservationField("joint_vel", joint_count, 0.75),
            ObservationField("gait_phase", 2, 0.001),
        ),
        scan=ScanGrid(),
        history=history,
        gait_period=0.5,
    )
