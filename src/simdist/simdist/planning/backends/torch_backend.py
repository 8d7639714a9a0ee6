"""Returns in plain PyTorch: the reference every other backend is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from simdist.planning.backends.base import PlanningProblem
from simdist.planning.plan import PlanningError

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
        # Sequences of one robot stay together: sequence n belongs to context n // samples.
        sequences = actions.flatten(0, 1)
        latents = self._model.dynamics(self._keys, sequences)
        return self._score(sequences, latents).view(actions.shape[:2])

    @torch.inference_mode()
    def follow(
        self,
        deviations: torch.Tensor,
        first: torch.Tensor,
        limits: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        policy = self._model.reactive
        if policy is None:
            raise no_reactive_policy()
        robots, samples, horizon = deviations.shape[:3]
        deviations, given = deviations.flatten(0, 1), first.flatten(0, 1)
        command = self._commands[:, 0].repeat_interleave(samples, 0)
        rollout = self._model.dynamics.begin(self._keys)
        actions, latents = [], []
        for step in range(horizon):
            if step < given.shape[1]:
                action = given[:, step]
            else:
                action = policy(latents[-1], actions[-1], command) + deviations[:, step]
                action = action.clamp(*limits)
            actions.append(action)
            latents.append(rollout.step(action))
        sequences = torch.stack(actions, 1)
        returns = self._score(sequences, torch.stack(latents, 1))
        return sequences.view(robots, samples, horizon, -1), returns.view(robots, samples)

    def _score(self, sequences: torch.Tensor, latents: torch.Tensor) -> torch.Tensor:
        # With one robot its commands are broadcast instead of copied.
        commands, robots = self._commands, self._latent.shape[0]
        if robots > 1:
            commands = commands.repeat_interleave(sequences.shape[0] // robots, 0)
        return score(self._model, self._discounts, self._latent, latents, sequences, commands)


def score(
    model: WorldModel,
    discounts: torch.Tensor,
    latent: torch.Tensor,
    latents: torch.Tensor,
    actions: torch.Tensor,
    commands: torch.Tensor,
) -> torch.Tensor:
    """Returns ``(N,)`` that the heads of ``model`` read out of ``latents (N, T, D)``, reached from
    ``latent (B, D)`` by ``actions (N, T, A)`` under ``commands (N or 1, T, C)``, with
    ``discounts (T + 1,)``: those of the rewards, and that of the final value."""
    rewards = model.reward(latent, latents, actions, commands)
    return rewards @ discounts[:-1] + discounts[-1] * model.value.last(latents, commands)


def no_reactive_policy() -> PlanningError:
    """What is raised where a plan in closed loop is asked of a model that cannot make one."""
    return PlanningError(
        "the model has no reactive policy to plan around; make one with "
        "'simdist refine-policy', or set the planner's closed_loop to false"
    )
