"""Sizes of the world model's network."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from simdist.errors import ContractError

#: far above any sensible size; keeps a damaged header from asking for absurd amounts of memory
MAX_SIZE = 8192
_LATER_FIELDS = frozenset({"reactive_hidden", "residual_dynamics"})


@dataclass(frozen=True)
class WorldModelConfig:
    """Sizes that determine every tensor of a :class:`WorldModel`.

    ``scan_shape`` is the ``(nx, ny)`` grid of the height scan; ``history`` counts past steps and
    ``horizon`` predicted ones; ``*_factor`` are widths of hidden layers in units of the latent.
    ``reactive_hidden`` are hidden layers of the reactive policy; without any the model has none.
    With ``residual_dynamics`` the dynamics predict how latents differ from the present one, by a
    linear layer behind the decoder; without, the decoder's normalised output is the prediction.
    """

    proprio_dim: int = 35
    scan_shape: tuple[int, int] = (13, 9)
    action_dim: int = 12
    command_dim: int = 3
    latent_dim: int = 48
    history: int = 10
    horizon: int = 15
    dynamics_layers: int = 2
    dynamics_heads: int = 4
    head_layers: int = 1
    head_heads: int = 4
    policy_layers: int = 2
    policy_heads: int = 4
    ff_factor: int = 4
    encoder_ff_factor: int = 2
    cnn_channels: tuple[int, ...] = (8, 16)
    scan_hidden: tuple[int, ...] = (64,)
    reactive_hidden: tuple[int, ...] = ()
    residual_dynamics: bool = False

    def __post_init__(self) -> None:
        if type(self.residual_dynamics) is not bool:
            raise ContractError(
                f"residual_dynamics must be true or false, got {self.residual_dynamics!r}"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "residual_dynamics":
                continue
            values = value if isinstance(value, tuple) else (value,)
            if (not values and field.name != "reactive_hidden") or any(
                type(item) is not int or not 1 <= item <= MAX_SIZE for item in values
            ):
                raise ContractError(
                    f"network size {field.name} must be whole numbers from 1 to {MAX_SIZE}, "
                    f"got {value!r}"
                )
        if len(self.scan_shape) != 2:
            raise ContractError(f"scan_shape must be (nx, ny), got {self.scan_shape!r}")
        for name in ("dynamics_heads", "head_heads", "policy_heads"):
            if self.latent_dim % getattr(self, name):
                raise ContractError(
                    f"latent_dim {self.latent_dim} is not a multiple of {name} "
                    f"{getattr(self, name)}"
                )

    @property
    def scan_dim(self) -> int:
        return self.scan_shape[0] * self.scan_shape[1]

    @property
    def context_length(self) -> int:
        """Tokens the encoder produces: past observations and actions, and the present latent."""
        return 2 * self.history + 1

    def to_dict(self) -> dict[str, Any]:
        data = asdict(self)
        # Contracts of models that do without these are older than the fields.
        for name in _LATER_FIELDS:
            if not data[name]:
                del data[name]
        return data

    @staticmethod
    def from_dict(data: dict[str, Any]) -> WorldModelConfig:
        """Inverse of :meth:`to_dict` (lists from JSON become tuples); raises ContractError."""
        known = {field.name for field in fields(WorldModelConfig)}
        missing = known - set(data) - _LATER_FIELDS
        if missing or set(data) - known:
            raise ContractError(
                f"network sizes do not match this version: missing {sorted(missing)}, "
                f"unknown {sorted(set(data) - known)}"
            )
        values: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in data.items()
        }
        return WorldModelConfig(**values)
