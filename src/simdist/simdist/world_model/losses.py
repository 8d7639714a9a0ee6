"""What the world model is trained on; all losses are in scaled units."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from simdist.world_model.network import Prediction, WorldModel
from simdist.world_model.windows import WindowBatch

#: weights of the paper, and ours for the reactive policy and for differences between branches
LOSS_WEIGHTS = {
    "latent": 1.0,
    "reward": 1.0,
    "value": 1.0,
    "action": 4.0,
    "reactive": 4.0,
    "latent_differences": 8.0,
    "return_differences": 0.5,
    "judged_differences": 0.5,
}


#: returns of one state's branches that differ by less need not be told apart
RETURN_FLOOR = 0.02


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the unmasked entries only; 0 when there are none."""
    return (values * mask).sum() / mask.sum().clamp(min=1.0)


def latent_targets(model: WorldModel, batch: WindowBatch) -> Tensor:
    """Latents ``(B, T, D)`` of what was observed; no gradient flows into them."""
    with torch.no_grad():
        return model.latent(batch.target_proprio, batch.target_scan)


def world_model_losses(
    model: WorldModel, batch: WindowBatch, branches: Branches | None = None
) -> dict[str, Tensor]:
    """Latent, reward, value and action loss of a batch, each a scalar; and the losses of the
    differences between ``branches``, if the batch ends with such."""
    prediction = model(
        batch.proprio_history, batch.scan, batch.action_history, batch.actions, batch.commands
    )
    world = batch.world[:, None].expand_as(batch.alive)
    scaled_rewards = model.scaler.scale("reward", batch.rewards)
    scaled_values = model.scaler.scale("value", batch.values)
    targets = latent_targets(model, batch)
    latent_error = (prediction.latents - targets).square().mean(-1)
    losses = {
        "latent": masked_mean(latent_error, batch.alive * world),
        "reward": masked_mean((prediction.rewards - scaled_rewards).square(), world),
        "value": masked_mean((prediction.values - scaled_values).square(), world),
        "action": _action_loss(model, prediction.actions, batch),
    }
    if model.reactive is not None:
        losses["reactive"] = reactive_loss(model, batch, prediction.latent)
    if branches is not None:
        losses |= difference_losses(model, batch, prediction, targets, branches)
    return losses


@dataclass(frozen=True)
class Branches:
    """The last ``groups * size`` windows of a batch: ``size`` futures of each of ``groups`` states.

    ``discount`` is that of the returns by which a planner compares them.
    """

    groups: int
    size: int
    discount: float

    def split(self, values: Tensor) -> Tensor:
        """The branches of ``values (B, ...)`` as ``(groups, size, ...)``."""
        return values[-self.groups * self.size :].unflatten(0, (self.groups, self.size))

    def with_one_past(self, batch: WindowBatch) -> WindowBatch:
        """The batch with the same sensor noise on the past of all branches of a state: noise of
        their own would be taken for a difference between them."""
        past = self.split(batch.proprio_history)
        common = past[:, :1].expand_as(past).flatten(0, 1)
        single = batch.proprio_history[: -len(common)]
        return replace(batch, proprio_history=torch.cat([single, common]))

    def returns(self, rewards: Tensor, values: Tensor) -> Tensor:
        """Discounted returns ``(groups, size)`` of ``rewards`` and ``values (B, T)``: the sum of
        the rewards, and the value of the last state."""
        rewards, values = self.split(rewards), self.split(values)
        steps = torch.arange(rewards.shape[-1] + 1)
        weights = self.discount ** steps.to(rewards)
        return rewards @ weights[:-1] + weights[-1] * values[..., -1]


def difference_losses(
    model: WorldModel,
    batch: WindowBatch,
    prediction: Prediction,
    targets: Tensor,
    branches: Branches,
) -> dict[str, Tensor]:
    """Errors of what distinguishes the branches of one state, which is all a planner acts on.

    ``latent_differences``: squared error of latents ``(B, T, D)`` less the mean of their group.
    ``return_differences``: the same of returns, as a share of the group's own variance: 1 is no
    better than taking all branches for equal. ``judged_differences``: as that one, but the heads
    judge the true latents; its gradient makes the encoder keep what tells good from bad.
    """
    alive = branches.split(batch.alive)[..., None]
    count = alive.sum(1, keepdim=True).clamp(min=1.0)

    def centred(values: Tensor) -> Tensor:
        return values - (values * alive).sum(1, keepdim=True) / count

    error = centred(branches.split(prediction.latents)) - centred(branches.split(targets))
    scaler, last = model.scaler, -branches.groups * branches.size
    true = branches.returns(batch.rewards, batch.values)

    def share(rewards: Tensor, values: Tensor) -> Tensor:
        judged = branches.returns(
            scaler.unscale("reward", rewards), scaler.unscale("value", values)
        )
        wrong = judged - judged.mean(1, keepdim=True) - (true - true.mean(1, keepdim=True))
        return (wrong.square().mean(1) / (true.var(1, correction=0) + RETURN_FLOOR**2)).mean()

    actions = scaler.scale("action", batch.actions[last:])
    commands = scaler.scale("command", batch.commands[last:])
    seen = model.latent(batch.target_proprio[last:], batch.target_scan[last:])
    return {
        "latent_differences": masked_mean(error.square().mean(-1), alive[..., 0]),
        "return_differences": share(prediction.rewards, prediction.values),
        "judged_differences": share(
            model.reward.scaled(prediction.latent[last:], seen, actions, commands[:, :-1]),
            model.value.scaled(seen, commands[:, 1:]),
        ),
    }


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
