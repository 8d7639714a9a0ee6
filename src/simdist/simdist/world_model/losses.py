"""What the world model is trained on; all losses are in scaled units."""

from __future__ import annotations

import torch
from torch import Tensor

from simdist.world_model.network import WorldModel
from simdist.world_model.windows import WindowBatch

#: weights of the paper, and ours for the reactive policy
LOSS_WEIGHTS = {"latent": 1.0, "reward": 1.0, "value": 1.0, "action": 4.0, "reactive": 4.0}


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
    losses = {
        "latent": masked_mean(latent_error, batch.alive * world),
        "reward": masked_mean((prediction.rewards - scaled_rewards).square(), world),
        "value": masked_mean((prediction.values - scaled_values).square(), world),
        "action": _action_loss(model, prediction.actions, batch),
    }
    if model.reactive is not None:
        losses["reactive"] = reactive_loss(model, batch, prediction.latent)
    return losses


def reactive_loss(model: WorldModel, batch: WindowBatch, latent: Tensor) -> Tensor:
    """Action loss of the reactive policy in the present, whose ``latent (B, D)`` is given, and in
    the last state of each window.

    Its gradient reaches the encoder. Without it a latent forgets what is hard to predict, joint
    velocities above all, and nothing that acts on latents can balance a robot that slips.
    """
    assert model.reactive is not None
    scale, last = model.scaler.scale, batch.actions.shape[1] - 1
    later = model.latent(batch.target_proprio[:, last - 1], batch.target_scan[:, last - 1])
    answers = [
        model.reactive.scaled(state, scale("action", previous), scale("command", command))
        for state, previous, command in (
            (latent, batch.action_history[:, -1], batch.commands[:, 0]),
            (later, batch.actions[:, last - 1], batch.commands[:, last]),
        )
    ]
    labels = scale("action", batch.expert_actions[:, [0, last]])
    error = (torch.stack(answers, 1) - labels).square().mean(-1)
    exists = torch.stack([torch.ones_like(batch.alive[:, 0]), batch.alive[:, last - 1]], 1)
    return masked_mean(error, exists)


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
