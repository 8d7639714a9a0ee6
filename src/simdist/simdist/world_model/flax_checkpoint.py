"""World models of the SimDist authors (github.com/CLeARoboticsLab/simdist) as models of ours.

Their checkpoints hold flax parameters, here a flat mapping from dotted path (such as
``dynamics.layers.0.attention_1.query.kernel``) to array, and the configuration they were trained
with. Kernels are stored ``(inputs, outputs)``, those of attention with the heads apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from simdist.errors import ArtefactError, ContractError
from simdist.observation import ObservationField, ObservationSpec, ScanGrid
from simdist.world_model.config import WorldModelConfig

Parameters = Mapping[str, Tensor]

#: their names of proprioception -> ours; the other names are the same
_FIELDS = {"cos_sin_phase": "gait_phase"}
_QUANTITIES = {
    "proprio": "proprio_obs",
    "scan": "extero_obs",
    "action": "actions",
    "command": "commands",
    "reward": "rewards",
    "value": "values",
}
_SCALER_EPSILON = 1e-8  #: their scaler divides by the standard deviation plus this

#: Of their training environment (simdist/rl/go2.py): a scan of 2.0 m x 1.4 m at 0.1 m, shifted
#: ahead by 0.5 m. Their network makes an image of it whose first row is the farthest ahead and
#: whose first column is the leftmost, so both axes descend.
_SCAN = ScanGrid(x_min=1.5, x_max=-0.5, nx=21, y_min=0.7, y_max=-0.7, ny=15, offset=0.3)
_GAIT_PERIOD = 0.5  #: s


def image_order(scan: Tensor, shape: tuple[int, int]) -> Tensor:
    """Scans ``(..., nx * ny)`` in the order that an imported model takes, from the authors' own:
    y is the slow index, x the fast one, both ascending."""
    rows, columns = shape
    image = scan.reshape(*scan.shape[:-1], columns, rows).flip(-1, -2).transpose(-1, -2)
    return image.flatten(-2)


def network_config(config: Mapping[str, Any]) -> WorldModelConfig:
    """Sizes of a network, from the authors' configuration.

    Raises ContractError for what our network has no counterpart of, ArtefactError for a
    configuration without the values that are needed.
    """
    try:
        return _network_config(config["model"], config["system"])
    except (KeyError, TypeError) as error:
        raise ArtefactError(
            f"not a configuration of a world model of the SimDist authors: {error!r}"
        ) from error


def _network_config(model: Mapping[str, Any], system: Mapping[str, Any]) -> WorldModelConfig:
    encoder, heads = model["encoder"], [model["reward"], model["value"]]
    cnn = encoder["extero_obs"]["height_cnn"]
    attention = {name: model[name]["attention"] for name in ("dynamics", "policy")}
    scans = system["extero_obs"]["types"]
    factors = {
        *(part["mlp_hidden_size_factor"] for part in attention.values()),
        *(head["attention"]["mlp_hidden_size_factor"] for head in heads),
    }
    embedding = model["embedding"]
    for what, value, wanted in (
        ("model.type", model["type"], "quadruped_world_model"),
        ("kinds of exteroception", len(scans), 1),
        ("convolutions' kernel_size", cnn["kernel_size"], 3),
        ("convolutions' strides", list(cnn["strides"]), [2] * len(cnn["features"])),
        ("encoder.proprio_obs_layers", encoder["proprio_obs_layers"], 2),
        ("encoder.latent_layers", encoder["latent_layers"], 2),
        ("encoder.action_layers", encoder["action_layers"], 0),
        *(
            (f"embedding.{name}", embedding[name], 0)
            for name in (
                *("future_acts_layers", "future_cmds_layers"),
                *("reward_layers", "value_layers"),
            )
        ),
        *(
            (f"{name}.decoder.layers", model[name]["decoder"]["layers"], 0)
            for name in ("policy", "reward", "value")
        ),
        *((f"{name}.attention.mask", part["mask"], "causal") for name, part in attention.items()),
        *(
            ("attention.mask of reward and value", head["attention"]["mask"], None)
            for head in heads
        ),
        ("value.attention", heads[1]["attention"], heads[0]["attention"]),
        ("different mlp_hidden_size_factor of attention", len(factors), 1),
    ):
        if value != wanted:
            raise ContractError(
                f"{what} is {value!r}, only {wanted!r} can be imported: the network here has no "
                "counterpart of it"
            )
    return WorldModelConfig(
        proprio_dim=sum(field["dim"] for field in system["proprio_obs"]["types"]),
        scan_shape=tuple(scans[0]["dim"]),
        action_dim=len(system["actions"]),
        command_dim=system["cmd"]["dim"],
        latent_dim=model["latent_dim"],
        history=model["dataset"]["history_length"],
        horizon=model["dataset"]["prediction_length"],
        dynamics_layers=attention["dynamics"]["layers"],
        dynamics_heads=attention["dynamics"]["heads"],
        head_layers=heads[0]["attention"]["layers"],
        head_heads=heads[0]["attention"]["heads"],
        policy_layers=attention["policy"]["layers"],
        policy_heads=attention["policy"]["heads"],
        ff_factor=factors.pop(),
        encoder_ff_factor=encoder["mlp_hidden_size_factor"],
        cnn_channels=tuple(cnn["features"]),
        scan_hidden=tuple(cnn["projection_hidden_dims"]),
    )


def joint_names(config: Mapping[str, Any]) -> tuple[str, ...]:
    """The joints that actions move, in order; what the configuration lacks is an ArtefactError."""
    try:
        return tuple(str(action["name"]) for action in config["system"]["actions"])
    except (KeyError, TypeError) as error:
        raise ArtefactError(f"the configuration names no actions: {error!r}") from error


def observation_layout(config: Mapping[str, Any], network: WorldModelConfig) -> ObservationSpec:
    """What the numbers of an observation mean to an imported model.

    Grid and gait clock are no part of the configuration; they are those of the authors' Go2
    environment. Raises ContractError for a scan of another shape.
    """
    if network.scan_shape != (_SCAN.nx, _SCAN.ny):
        raise ContractError(
            f"a height scan of {network.scan_shape} points: only the authors' grid of "
            f"({_SCAN.nx}, {_SCAN.ny}) points is known"
        )
    fields = tuple(
        ObservationField(
            str(_FIELDS.get(field["name"], field["name"])),
            int(field["dim"]),
            float(field["noise"]),
        )
        for field in config["system"]["proprio_obs"]["types"]
    )
    return ObservationSpec(fields, _SCAN, network.history, _GAIT_PERIOD)


def network_state(parameters: Parameters, config: WorldModelConfig) -> dict[str, Tensor]:
    """The state of a :class:`WorldModel` of sizes ``config`` that computes what theirs does.

    Raises ArtefactError naming a parameter that is missing. Shapes are not checked here: loading
    the state into a model does that.
    """
    return _State(parameters, config).tensors()


class _State:
    """Collects our tensors, by name, from theirs."""

    def __init__(self, parameters: Parameters, config: WorldModelConfig) -> None:
        self._parameters, self._config = parameters, config
        self._state: dict[str, Tensor] = {}

    def tensors(self) -> dict[str, Tensor]:
        config = self._config
        self._scaler()
        self._encoder()
        self._embedding("dynamics.embedding", "fut_acts_embed")
        self._embedding("policy.embedding", "fut_cmds_embed")
        for part, layers in (
            ("dynamics", config.dynamics_layers),
            ("policy", config.policy_layers),
        ):
            for index in range(layers):
                self._layer(f"{part}.decoder.layers.{index}", f"{part}.layers.{index}", cross=True)
        self._linear("policy.output", "policy_dec.output_layer")
        for head in ("reward", "value"):
            self._embedding(f"{head}.embedding", f"{head}_emb")
            for index in range(config.head_layers):
                self._layer(f"{head}.layers.{index}", f"{head}.layers.{index}", cross=False)
            self._linear(f"{head}.output", f"{head}_dec.output_layer")
        self._fold_encodings_of_the_present()
        return {name: tensor.contiguous() for name, tensor in self._state.items()}

    def _get(self, name: str) -> Tensor:
        try:
            return self._parameters[name]
        except KeyError:
            raise ArtefactError(
                f"parameter {name!r} is missing: not a checkpoint of this configuration"
            ) from None

    def _scaler(self) -> None:
        for quantity, source in _QUANTITIES.items():
            for statistic, offset in (("mean", 0.0), ("std", _SCALER_EPSILON)):
                tensor = self._get(f"scaler.scaler_params.{source}.{statistic}") + offset
                if quantity == "scan":
                    tensor = image_order(tensor, self._config.scan_shape)
                self._state[f"scaler.{quantity}_{statistic}"] = tensor

    def _encoder(self) -> None:
        self._mlp("encoder.proprio", "encoder.proprio_obs_proj", 2)
        self._mlp("encoder.joint", "encoder.latent_mlp", 2)
        self._linear("encoder.action", "encoder.act_proj.output_layer")
        self._state["encoder.time_encoding"] = self._get("encoder.temporal_enc")
        self._state["encoder.type_encoding"] = self._get("encoder.type_enc")
        scan, last = "encoder.hm_enc", len(self._config.cnn_channels) - 1
        for index in range(last + 1):
            layer = "output_layer" if index == last else f"layers.{index}"
            source, name = f"{scan}.hm_cnn.cnn.{layer}", f"encoder.scan.convolutions.{index}"
            # Theirs: (rows, columns, inputs, outputs).
            self._state[f"{name}.weight"] = self._get(f"{source}.kernel").permute(3, 2, 0, 1)
            self._state[f"{name}.bias"] = self._get(f"{source}.bias")
        self._state["encoder.scan.row_encoding"] = self._get(f"{scan}.h_l_conv_enc")
        self._state["encoder.scan.column_encoding"] = self._get(f"{scan}.h_w_conv_enc")
        self._mlp("encoder.scan.projection", f"{scan}.hm_proj", len(self._config.scan_hidden))

    def _linear(self, name: str, *sources: str, inputs: int | None = None) -> None:
        """One layer from one of theirs or from several side by side; ``inputs`` is how many a
        kernel ``(heads, width, outputs)`` has."""
        kernels = [self._get(f"{source}.kernel") for source in sources]
        rows = inputs or kernels[0].shape[0]
        self._state[f"{name}.weight"] = torch.cat([k.reshape(rows, -1).T for k in kernels])
        biases = [self._get(f"{source}.bias").flatten() for source in sources]
        self._state[f"{name}.bias"] = torch.cat(biases)

    def _mlp(self, name: str, source: str, hidden: int) -> None:
        for index in range(hidden):
            self._linear(f"{name}.layers.{index}", f"{source}.layers.{index}")
        self._linear(f"{name}.layers.{hidden}", f"{source}.output_layer")

    def _norm(self, name: str, source: str) -> None:
        self._state[f"{name}.weight"] = self._get(f"{source}.scale")
        self._state[f"{name}.bias"] = self._get(f"{source}.bias")

    def _embedding(self, name: str, source: str) -> None:
        self._linear(f"{name}.projection", f"{source}.enc.output_layer")
        self._state[f"{name}.position"] = self._get(f"{source}.pos_emb")

    def _layer(self, name: str, source: str, *, cross: bool) -> None:
        width = self._config.latent_dim
        attention = f"{source}.attention_1" if cross else f"{source}.attention"
        parts = [f"{attention}.{part}" for part in ("query", "key", "value")]
        self._linear(f"{name}.attention.query_key_value", *parts)
        self._linear(f"{name}.attention.output", f"{attention}.out", inputs=width)
        norms = ["attention_norm", "output_norm"]
        if cross:
            attention = f"{source}.attention_2"
            self._linear(f"{name}.cross_attention.query", f"{attention}.query")
            pair = f"{attention}.key", f"{attention}.value"
            self._linear(f"{name}.cross_attention.key_value", *pair)
            self._linear(f"{name}.cross_attention.output", f"{attention}.out", inputs=width)
            norms.insert(1, "cross_norm")
        for index, norm in enumerate(norms, start=1):
            self._norm(f"{name}.{norm}", f"{source}.layernorm_{index}")
        self._mlp(f"{name}.feed_forward", f"{source}.dense_proj", 1)

    def _fold_encodings_of_the_present(self) -> None:
        """Their reward head is given the present latent with the encodings of its context token,
        ours without: what the difference makes moves into the first position of the embedding."""
        state, latent = self._state, self._config.latent_dim
        encodings = state["encoder.time_encoding"][-1] + state["encoder.type_encoding"][2]
        position = state["reward.embedding.position"].clone()
        position[0] += state["reward.embedding.projection.weight"][:, :latent] @ encodings
        state["reward.embedding.position"] = position
