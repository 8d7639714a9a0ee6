"""Returns in plain PyTorch: the reference every other backend is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from simdist.planning.backends.base import PlanningProblem

if TYPE_CHECKING:
    from simdist.world_model.network import WorldModel


class TorchBackend:
    """Evaluates the world model as it is; keys of the context are computed once a plan."""

    def __init__(self, model: WorldModel, discount: float) -> None:
        self._model = model.eval()
        self._discounts = discount ** torch.arange(self.horizon + 1, dtype=torch.float32)

    @property
    def horizon(self) -> int:
        return self._model.config.horizon

    @torch.inference_mode()
    def prepare(
        self, context: torch.Tensor, latent: torch.Tensor, command: torch.Tensor
    ) -> PlanningProblem:
        return _TorchProblem(self._model, self._discounts, context, latent, command)


class _TorchProblem:
    def __init__(
        self,
        model: WorldModel,
        discounts: torch.Tensor,
        context: torch.Tensor,
        latent: torch.Tensor,
        command: torch.Tensor,
    ) -> None:
        self._model = model
        self._discounts = discounts
        self._context = context
        self._keys = model.prepare_context(context)
        self._latent = latent
        horizon = discounts.shape[0] - 1
        self._commands = command[:, None].expand(-1, horizon, -1)

    @torch.inference_mode()
    def prior(self) -> torch.Tensor:
        return self._model.policy(self._context, self._commands)

    @torch.inference_mode()
    def returns(self, actions: torch.Tensor) -> torch.Tensor:
        robots, samples = actions.shape[:2]
        # Sequences of one robot stay together: sequence n belongs to context n // samples.
        sequences = actions.flatten(0, 1)
        # With one robot its commands are broadcast instead of copied.
        commands = self._commands
        if robots > 1:
            commands = commands.repeat_interleave(samples, 0)
        latents = self._model.dynamics(self._keys, sequences)
        rewards = self._model.reward(self._latent, latents, sequences, commands)
        value = self._model.value.last(latents, commands)
        returns = rewards @ self._discounts[:-1] + self._discounts[-1] * value
        return returns.view(robots, samples)
