"""What the world model is trained on; all losses are in scaled units."""

from __future__ import annotations

import torch
from torch import Tensor

from simdist.world_model.network import WorldModel
from simdist.world_model.windows import WindowBatch

#: weights of the paper
LOSS_WEIGHTS = {"latent": 1.0, "reward": 1.0, "value": 1.0, "action": 4.0}


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the unmasked entries only; 0 when there are none."""
    return (values * mask).sum() / mask.sum().clamp(min=1.0)


def latent_targets(model: WorldModel, batch: WindowBatch) -> Tensor:
    """Latents ``(B, T, D)`` of what was observed; no gradient flows into them."""
    with torch.no_grad():
        return model.latent(batch.target_proprio, batch.target_scan)


def world_model_losses(model: WorldModel, batch: WindowBatch) -> dict[str, Tensor]:
    """Latent, reward, value and action loss of a batch, each a scalar."""
    prediction = model(
        batch.proprio_history, batch.scan, batch.action_history, batch.actions, batch.commands
    )
    world = batch.world[:, None].expand_as(batch.alive)
    scaled_rewards = model.scaler.scale("reward", batch.rewards)
    scaled_values = model.scaler.scale("value", batch.values)
    latent_error = (prediction.latents - latent_targets(model, batch)).square().mean(-1)
    return {
        "latent": masked_mean(latent_error, batch.alive * world),
        "reward": masked_mean((prediction.rewards - scaled_rewards).square(), world),
        "value": masked_mean((prediction.values - scaled_values).square(), world),
        "action": _action_loss(model, prediction.actions, batch),
    }


def total_loss(losses: dict[str, Tensor]) -> Tensor:
    """The weighted sum that pretraining minimises."""
    return torch.stack([LOSS_WEIGHTS[name] * loss for name, loss in losses.items()]).sum()


def policy_loss(model: WorldModel, batch: WindowBatch) -> Tensor:
    """Action loss with gradients for the policy head alone."""
    with torch.no_grad():
        context, _ = model.encode(batch.proprio_history, batch.scan, batch.action_history)
    commands = model.scaler.scale("command", batch.commands[:, :-1])
    return _action_loss(model, model.policy.scaled(context, commands), batch)


def dynamics_loss(model: WorldModel, batch: WindowBatch) -> Tensor:
    """Latent loss with gradients for the dynamics alone, as in finetuning."""
    with torch.no_grad():
        context, _ = model.encode(batch.proprio_history, batch.scan, batch.action_history)
    latents = model.dynamics(context, batch.actions)
    error = (latents - latent_targets(model, batch)).square().mean(-1)
    return masked_mean(error, batch.alive * batch.world[:, None])


def _action_loss(model: WorldModel, scaled_actions: Tensor, batch: WindowBatch) -> Tensor:
    labels = model.scaler.scale("action", batch.expert_actions)
    return masked_mean((scaled_actions - labels).square().mean(-1), batch.expert_mask)
