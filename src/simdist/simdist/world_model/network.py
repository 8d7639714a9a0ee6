"""The world model: encoder, latent dynamics, reward and value heads, and a policy prior.

Architecture of SimDist (github.com/CLeARoboticsLab/simdist): the public Go2 checkpoint fits into
it with configuration values alone.

Shapes: B histories, N action sequences (a multiple of B, sequence n belongs to history
``n // (N // B)``), T <= horizon steps, P proprioception, S scan, A action, C command, D latent.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simdist.errors import ContractError
from simdist.world_model.attention import (
    CausalDecoder,
    ContextKeys,
    EncoderLayer,
    Mlp,
    SequenceEmbedding,
)
from simdist.world_model.config import WorldModelConfig
from simdist.world_model.encoder import Encoder
from simdist.world_model.scaler import Scaler

DYNAMICS_PREFIX = "dynamics."

# The parts below share the model's scaler through its bound methods: a submodule reference would
# store its statistics once per part. Calling a part takes and gives physical units; ``scaled``
# takes and gives the network's units, as in training.


class LatentDynamics(nn.Module):
    """Predicts the latents after each of T actions in one causal pass."""

    def __init__(self, config: WorldModelConfig, scaler: Scaler) -> None:
        super().__init__()
        self.embedding = SequenceEmbedding(config.horizon, config.action_dim, config.latent_dim)
        self.decoder = CausalDecoder(
            config.latent_dim, config.dynamics_heads, config.ff_factor, config.dynamics_layers
        )
        self.output = (
            nn.Linear(config.latent_dim, config.latent_dim) if config.residual_dynamics else None
        )
        if self.output is not None:  # begin by predicting that nothing changes
            nn.init.zeros_(self.output.weight)
            nn.init.zeros_(self.output.bias)
        self._scale = scaler.scale

    def scaled(self, context: Tensor | ContextKeys, actions: Tensor) -> Tensor:
        keys = context if isinstance(context, ContextKeys) else self.decoder.prepare(context)
        return self._read_out(self.decoder(self.embedding(actions), keys), keys)

    def forward(self, context: Tensor | ContextKeys, actions: Tensor) -> Tensor:
        """Latents ``(N, T, D)`` after each action ``(N, T, A)``."""
        return self.scaled(context, self._scale("action", actions))

    def _read_out(self, decoded: Tensor, keys: ContextKeys) -> Tensor:
        """Latents ``(N, ..., D)`` from what was decoded. The encodings in the context's last token
        are the same for every context, so the layer's bias takes care of them. No gradient takes
        the short way from a prediction to the present latent: along it an encoder learns to make
        latents that hardly change."""
        if self.output is None:
            return decoded
        change = self.output(decoded).unflatten(0, (keys.contexts, -1))
        present = keys.last.detach().view(keys.contexts, *[1] * (change.dim() - 2), -1)
        return (change + present).flatten(0, 1)

    def begin(self, context: ContextKeys) -> LatentRollout:
        """Predict step by step, where later actions depend on earlier latents."""
        return LatentRollout(self, context)


class LatentRollout:
    """Sequences under way: :meth:`step` by step the same latents as all actions at once give."""

    def __init__(self, dynamics: LatentDynamics, context: ContextKeys) -> None:
        self._dynamics, self._context = dynamics, context
        self._past: list[list[Tensor]] = []
        self._steps = 0

    def step(self, action: Tensor) -> Tensor:
        """Latents ``(N, D)`` after the next actions ``(N, A)``."""
        dynamics = self._dynamics
        x = dynamics.embedding.at(dynamics._scale("action", action), self._steps)
        self._steps += 1
        decoded = dynamics.decoder.extend(x, self._context, self._past)[:, 0]
        return dynamics._read_out(decoded, self._context)


class PolicyPrior(nn.Module):
    """Predicts the expert's next T actions from the context and the commands."""

    def __init__(self, config: WorldModelConfig, scaler: Scaler) -> None:
        super().__init__()
        self.embedding = SequenceEmbedding(config.horizon, config.command_dim, config.latent_dim)
        self.decoder = CausalDecoder(
            config.latent_dim, config.policy_heads, config.ff_factor, config.policy_layers
        )
        self.output = nn.Linear(config.latent_dim, config.action_dim)
        self._scale, self._unscale = scaler.scale, scaler.unscale

    def scaled(self, context: Tensor | ContextKeys, commands: Tensor) -> Tensor:
        return self.output(self.decoder(self.embedding(commands), context))

    def prepare_context(self, context: Tensor) -> ContextKeys:
        """Keys and values to pass in place of a context that many calls share."""
        return self.decoder.prepare(context)

    def forward(self, context: Tensor | ContextKeys, commands: Tensor) -> Tensor:
        """Actions ``(N, T, A)`` for the commands ``(N, T, C)`` at the times of those actions."""
        scaled = self.scaled(context, self._scale("command", commands))
        return self._unscale("action", scaled)


class ReactivePolicy(nn.Module):
    """The expert's next action from a single latent, which may be a predicted one.

    The prior answers an observed history with a whole sequence and cannot know what the planner
    makes of it. The reactive policy can be asked again at every imagined step: a plan around it is
    a correction of a policy that keeps reacting, not of a fixed sequence of actions.
    """

    def __init__(self, config: WorldModelConfig, scaler: Scaler) -> None:
        super().__init__()
        inputs = config.latent_dim + config.action_dim + config.command_dim
        self.network = Mlp((inputs, *config.reactive_hidden, config.action_dim))
        self._scale, self._unscale = scaler.scale, scaler.unscale

    def scaled(self, latent: Tensor, previous_action: Tensor, command: Tensor) -> Tensor:
        return self.network(torch.cat([latent, previous_action, command], dim=-1))

    def forward(self, latent: Tensor, previous_action: Tensor, command: Tensor) -> Tensor:
        """Actions ``(..., A)`` for latents ``(..., D)``, the actions played before them
        ``(..., A)`` and commands ``(..., C)``."""
        scaled = self.scaled(
            latent, self._scale("action", previous_action), self._scale("command", command)
        )
        return self._unscale("action", scaled)


class SequenceHead(nn.Module):
    """One number per step of a sequence, every step seeing all others."""

    def __init__(self, config: WorldModelConfig, inputs: int) -> None:
        super().__init__()
        self.embedding = SequenceEmbedding(config.horizon, inputs, config.latent_dim)
        self.layers = nn.ModuleList(
            EncoderLayer(config.latent_dim, config.head_heads, config.ff_factor)
            for _ in range(config.head_layers)
        )
        self.output = nn.Linear(config.latent_dim, 1)

    def predict(self, parts: list[Tensor]) -> Tensor:
        x = self.embedding(torch.cat(parts, dim=-1))
        for layer in self.layers:
            x = layer(x)
        return self.output(x).squeeze(-1)

    def predict_last(self, parts: list[Tensor]) -> Tensor:
        """The number ``(B,)`` of the last step only."""
        x = self.embedding(torch.cat(parts, dim=-1))
        *before, final = self.layers
        for layer in before:
            x = layer(x)
        assert isinstance(final, EncoderLayer)
        return self.output(final.last(x)).flatten()


class RewardHead(SequenceHead):
    """Rewards of T actions from the latents before them."""

    def __init__(self, config: WorldModelConfig, scaler: Scaler) -> None:
        super().__init__(config, config.latent_dim + config.action_dim + config.command_dim)
        self._scale, self._unscale = scaler.scale, scaler.unscale

    def scaled(self, latent0: Tensor, latents: Tensor, actions: Tensor, commands: Tensor) -> Tensor:
        samples = latents.shape[0] // latent0.shape[0]
        first = latent0.repeat_interleave(samples, dim=0)[:, None]
        return self.predict([torch.cat([first, latents[:, :-1]], dim=1), actions, commands])

    def forward(
        self, latent0: Tensor, latents: Tensor, actions: Tensor, commands: Tensor
    ) -> Tensor:
        """Rewards ``(N, T)``.

        ``latent0 (B, D)`` is the present latent, ``latents (N, T, D)`` the predicted ones,
        ``actions (N, T, A)``, and ``commands (N or 1, T, C)`` those at the times of the actions.
        """
        commands = self._scale("command", commands).expand(latents.shape[0], -1, -1)
        scaled = self.scaled(latent0, latents, self._scale("action", actions), commands)
        return self._unscale("reward", scaled)


class ValueHead(SequenceHead):
    """Values of T predicted states."""

    def __init__(self, config: WorldModelConfig, scaler: Scaler) -> None:
        super().__init__(config, config.latent_dim + config.command_dim)
        self._scale, self._unscale = scaler.scale, scaler.unscale

    def scaled(self, latents: Tensor, commands: Tensor) -> Tensor:
        return self.predict([latents, commands])

    def forward(self, latents: Tensor, commands: Tensor) -> Tensor:
        """Values ``(N, T)`` of ``latents (N, T, D)``; ``commands (N or 1, T, C)`` are those that
        hold in the predicted states, one step later than the ones the rewards see."""
        commands = self._scale("command", commands).expand(latents.shape[0], -1, -1)
        return self._unscale("value", self.scaled(latents, commands))

    def last(self, latents: Tensor, commands: Tensor) -> Tensor:
        """Value ``(N,)`` of the last of the states that :meth:`forward` takes."""
        commands = self._scale("command", commands).expand(latents.shape[0], -1, -1)
        return self._unscale("value", self.predict_last([latents, commands]))


@dataclass(frozen=True)
class Prediction:
    """What one training pass yields, in the network's units."""

    latent: Tensor  #: (B, D) of the present
    latents: Tensor  #: (B, T, D)
    rewards: Tensor  #: (B, T)
    values: Tensor  #: (B, T)
    actions: Tensor  #: (B, T, A)


class WorldModel(nn.Module):
    """A latent world model with a policy prior; methods take and give physical units."""

    def __init__(self, config: WorldModelConfig) -> None:
        super().__init__()
        self.config = config
        self.scaler = Scaler(
            {
                "proprio": config.proprio_dim,
                "scan": config.scan_dim,
                "action": config.action_dim,
                "command": config.command_dim,
                "reward": 1,
                "value": 1,
            }
        )
        self.encoder = Encoder(config)
        self.dynamics = LatentDynamics(config, self.scaler)
        self.reward = RewardHead(config, self.scaler)
        self.value = ValueHead(config, self.scaler)
        self.policy = PolicyPrior(config, self.scaler)
        self.reactive = ReactivePolicy(config, self.scaler) if config.reactive_hidden else None

    def encode(
        self, proprio_history: Tensor, scan: Tensor, action_history: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Context ``(B, 2H + 1, D)`` and latent ``(B, D)`` of the present.

        Takes ``proprio_history (B, H + 1, P)`` ending with the present observation, the present
        ``scan (B, S)`` and the ``action_history (B, H, A)`` applied between the observations.
        """
        return self.encoder(
            self.scaler.scale("proprio", proprio_history),
            self.scaler.scale("scan", scan),
            self.scaler.scale("action", action_history),
        )

    def latent(self, proprio: Tensor, scan: Tensor) -> Tensor:
        """Latents ``(..., D)`` of observations ``(..., P)`` and ``(..., S)``."""
        return self.encoder.latent(
            self.scaler.scale("proprio", proprio), self.scaler.scale("scan", scan)
        )

    def prepare_context(self, context: Tensor) -> ContextKeys:
        """What :attr:`dynamics` needs of a context ``(B, 2H + 1, D)``, to be computed once and
        passed in its place; valid until the dynamics change."""
        return self.dynamics.decoder.prepare(context)

    def forward(
        self,
        proprio_history: Tensor,
        scan: Tensor,
        action_history: Tensor,
        actions: Tensor,
        commands: Tensor,
    ) -> Prediction:
        """All predictions for one batch: ``actions (B, T, A)`` to come and ``commands
        (B, T + 1, C)`` from the present on, in physical units; results are scaled."""
        context, latent = self.encode(proprio_history, scan, action_history)
        actions = self.scaler.scale("action", actions)
        commands = self.scaler.scale("command", commands)
        latents = self.dynamics.scaled(context, actions)
        return Prediction(
            latent=latent,
            latents=latents,
            rewards=self.reward.scaled(latent, latents, actions, commands[:, :-1]),
            values=self.value.scaled(latents, commands[:, 1:]),
            actions=self.policy.scaled(context, commands[:, :-1]),
        )

    def dynamics_parameters(self) -> list[nn.Parameter]:
        """What finetuning may change; everything else stays as pretrained."""
        return list(self.dynamics.parameters())

    def dynamics_state(self) -> dict[str, Tensor]:
        """Copies of the tensors that finetuning may change, under their full names."""
        return {
            name: tensor.detach().clone()
            for name, tensor in self.state_dict().items()
            if name.startswith(DYNAMICS_PREFIX)
        }

    def load_dynamics_state(self, state: dict[str, Tensor]) -> None:
        """Replace the dynamics; raises ContractError unless names and shapes match exactly."""
        own = {
            name: tensor
            for name, tensor in self.state_dict().items()
            if name.startswith(DYNAMICS_PREFIX)
        }
        if set(state) != set(own):
            raise ContractError(
                f"dynamics tensors do not match this model: missing {sorted(set(own) - set(state))}"
                f", unknown {sorted(set(state) - set(own))}"
            )
        for name, tensor in own.items():
            if state[name].shape != tensor.shape:
                raise ContractError(
                    f"{name} has shape {tuple(state[name].shape)}, this model needs "
                    f"{tuple(tensor.shape)}"
                )
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(state[name])

    def frozen_hash(self) -> str:
        """SHA-256 over everything but the dynamics, scalers included."""
        return hash_tensors(
            {
                name: tensor
                for name, tensor in self.state_dict().items()
                if not name.startswith(DYNAMICS_PREFIX)
            }
        )

    def weights_hash(self) -> str:
        """SHA-256 over every tensor."""
        return hash_tensors(self.state_dict())


def hash_tensors(tensors: dict[str, Tensor]) -> str:
    """SHA-256 over names, types, shapes and contents, in the order of the names."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        array = tensors[name].detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
