"""A trained expert (or one of its weaker ancestors) and its critic, as plain networks."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from simdist.errors import ArtefactError

FORMAT = "simdist-expert-1"
RSL_RL_EPSILON = 1e-2  #: of its EmpiricalNormalization


class NormalisedMlp(nn.Module):
    """ELU network on inputs that are first shifted and scaled."""

    mean: Tensor
    std: Tensor

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(sizes[0]))
        self.register_buffer("std", torch.ones(sizes[0]))
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(sizes))

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        for layer in list(self.layers)[:-1]:
            x = nn.functional.elu(layer(x))
        return self.layers[-1](x)


class ExpertPolicy(nn.Module):
    """Actor ``(B, policy) -> (B, n)`` actions and critic ``(B, critic) -> (B,)`` values.

    The inputs are those of :class:`~simdist.distillation.environment.LocomotionEnvironment`.
    """

    def __init__(self, actor_sizes: list[int], critic_sizes: list[int]) -> None:
        super().__init__()
        self.actor, self.critic = NormalisedMlp(actor_sizes), NormalisedMlp(critic_sizes)
        self.sizes = (list(actor_sizes), list(critic_sizes))

    @staticmethod
    def from_rsl_rl(actor: nn.Module, critic: nn.Module) -> ExpertPolicy:
        """Copy the weights of rsl-rl's MLP models."""
        states = [actor.state_dict(), critic.state_dict()]
        sizes = []
        for state in states:
            weights = [v for k, v in state.items() if k.startswith("mlp.") and v.ndim == 2]
            sizes.append([weights[0].shape[1], *(w.shape[0] for w in weights)])
        policy = ExpertPolicy(sizes[0], sizes[1])
        for network, state in zip((policy.actor, policy.critic), states, strict=True):
            values = [v for k, v in state.items() if k.startswith("mlp.")]
            for target, value in zip(network.layers.parameters(), values, strict=True):
                target.data.copy_(value)
            network.mean.copy_(state["obs_normalizer._mean"][0])
            # rsl-rl divides by the standard deviation plus this.
            network.std.copy_(state["obs_normalizer._std"][0] + RSL_RL_EPSILON)
        return policy.eval()

    @torch.inference_mode()
    def act(self, observation: Tensor) -> Tensor:
        """Deterministic actions ``(B, n)``."""
        return self.actor(observation)

    @torch.inference_mode()
    def value(self, observation: Tensor) -> Tensor:
        """Values ``(B,)`` in units of reward."""
        return self.critic(observation)[:, 0]

    def save(self, path: Path, training: dict[str, object]) -> None:
        """Write a safetensors file; ``training`` says how the policy came about."""
        metadata = {
            "format": FORMAT,
            "sizes": json.dumps(self.sizes),
            "training": json.dumps(training),
        }
        temporary = path.with_suffix(".tmp")
        tensors = {name: value.contiguous() for name, value in self.state_dict().items()}
        save_file(tensors, temporary, metadata=metadata)
        temporary.replace(path)

    @staticmethod
    def load(path: Path) -> ExpertPolicy:
        """Read what :meth:`save` wrote; raises ArtefactError naming the file and the fault."""
        try:
            with safe_open(path, framework="pt") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != FORMAT:
                    raise ArtefactError(
                        f"{path} is not an expert (format {metadata.get('format')!r}, wanted "
                        f"{FORMAT!r}); make one with 'simdist train-expert'"
                    )
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            policy = ExpertPolicy(*json.loads(metadata["sizes"]))
            policy.load_state_dict(tensors)
        except (OSError, SafetensorError, RuntimeError, ValueError, KeyError) as error:
            raise ArtefactError(f"cannot read the expert {path}: {error}") from error
        return policy.eval()
