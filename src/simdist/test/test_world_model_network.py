"""The network: shapes, and who may see what."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest
import torch
from torch import Tensor

from simdist.errors import ContractError
from simdist.world_model import DYNAMICS_PREFIX, WorldModel, WorldModelConfig
from simdist.world_model.attention import gelu
from simdist.world_model.losses import dynamics_loss, policy_loss, world_model_losses
from simdist.world_model.windows import WindowBatch

TINY = WorldModelConfig(
    proprio_dim=14,
    scan_shape=(4, 3),
    action_dim=5,
    latent_dim=8,
    history=3,
    horizon=6,
    dynamics_heads=2,
    head_heads=2,
    policy_heads=2,
    cnn_channels=(2, 3),
    scan_hidden=(7,),
)


@pytest.fixture
def model() -> WorldModel:
    torch.manual_seed(0)
    model = WorldModel(TINY).eval()
    for quantity in ("proprio", "scan", "action", "command", "reward", "value"):
        mean = model.scaler.mean(quantity)
        model.scaler.set(quantity, torch.randn_like(mean), 0.5 + torch.rand_like(mean))
    return model


def inputs(batch: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(batch)
    return (
        torch.randn(batch, 4, 14, generator=generator),
        torch.randn(batch, 12, generator=generator),
        torch.randn(batch, 3, 5, generator=generator),
    )


def window_batch(batch: int) -> WindowBatch:
    proprio_history, scan, action_history = inputs(batch)
    return WindowBatch(
        proprio_history=proprio_history,
        scan=scan,
        action_history=action_history,
        actions=torch.randn(batch, 6, 5),
        commands=torch.randn(batch, 7, 3),
        target_proprio=torch.randn(batch, 6, 14),
        target_scan=torch.randn(batch, 6, 12),
        rewards=torch.randn(batch, 6),
        values=torch.randn(batch, 6),
        alive=torch.ones(batch, 6),
        expert_actions=torch.randn(batch, 6, 5),
        expert_mask=torch.ones(batch, 6),
        world=torch.ones(batch),
    )


@pytest.mark.parametrize("batch", [1, 2])
def test_shapes_survive_any_batch_and_shorter_horizons(model: WorldModel, batch: int) -> None:
    context, latent = model.encode(*inputs(batch))
    assert context.shape == (batch, TINY.context_length, 8)
    assert latent.shape == (batch, 8)
    for horizon in (1, 6):
        actions, commands = torch.randn(4, horizon, 5), torch.randn(1, horizon, 3)
        latents = model.dynamics(context, actions)
        assert latents.shape == (4, horizon, 8)
        assert model.reward(latent, latents, actions, commands).shape == (4, horizon)
        assert model.value(latents, commands).shape == (4, horizon)
        per_history = commands.expand(batch, -1, -1)
        assert model.policy(context, per_history).shape == (batch, horizon, 5)
    with pytest.raises(ValueError, match="horizon of 6"):
        model.dynamics(context, torch.randn(batch, 7, 5))


def test_an_action_changes_only_the_latents_after_it(model: WorldModel) -> None:
    context, _ = model.encode(*inputs(1))
    actions = torch.randn(1, 6, 5)
    before = model.dynamics(context, actions)
    for changed in range(6):
        other = actions.clone()
        other[:, changed] += 1.0
        moved = (model.dynamics(context, other) - before).abs().amax((0, 2)) > 1e-7
        assert moved.tolist() == [step >= changed for step in range(6)]


def test_samples_that_share_a_context_equal_samples_with_their_own(model: WorldModel) -> None:
    context, _ = model.encode(*inputs(2))
    actions = torch.randn(6, 6, 5)
    shared = model.dynamics(model.prepare_context(context), actions)
    own = model.dynamics(context.repeat_interleave(3, dim=0), actions)
    torch.testing.assert_close(shared, own)
    assert (shared[:3] - model.dynamics(context[1:], actions)[:3]).abs().max() > 1e-4
    with pytest.raises(ValueError, match="5 sequences cannot share 2 contexts"):
        model.dynamics(context, actions[:5])


def test_methods_take_physical_units_and_forward_returns_scaled_ones(model: WorldModel) -> None:
    batch = window_batch(2)
    prediction = model(
        batch.proprio_history, batch.scan, batch.action_history, batch.actions, batch.commands
    )
    context, latent = model.encode(batch.proprio_history, batch.scan, batch.action_history)
    torch.testing.assert_close(latent, model.latent(batch.proprio_history[:, -1], batch.scan))
    latents = model.dynamics(context, batch.actions)
    commands = batch.commands
    rewards = model.reward(latent, latents, batch.actions, commands[:, :-1])
    unscale = model.scaler.unscale
    torch.testing.assert_close(latents, prediction.latents)
    torch.testing.assert_close(rewards, unscale("reward", prediction.rewards))
    values = model.value(latents, commands[:, 1:])
    torch.testing.assert_close(values, unscale("value", prediction.values))
    actions = model.policy(context, commands[:, :-1])
    torch.testing.assert_close(actions, unscale("action", prediction.actions))


def test_past_tokens_do_not_see_the_scan(model: WorldModel) -> None:
    proprio, scan, actions = inputs(1)
    first, _ = model.encode(proprio, scan, actions)
    second, _ = model.encode(proprio, scan + 1.0, actions)
    torch.testing.assert_close(first[:, :-1], second[:, :-1])
    assert (first[:, -1] - second[:, -1]).abs().max() > 1e-4


def trained_names(model: WorldModel) -> set[str]:
    return {
        name
        for name, parameter in model.named_parameters()
        if parameter.grad is not None and parameter.grad.abs().max() > 0
    }


def test_dynamics_loss_reaches_the_dynamics_and_nothing_else(model: WorldModel) -> None:
    dynamics_loss(model, window_batch(2)).backward()
    expected = {name for name, _ in model.named_parameters() if name.startswith(DYNAMICS_PREFIX)}
    assert {"dynamics.embedding.position", "dynamics.embedding.projection.weight"} <= expected
    # The bias of attention keys shifts all weights alike, so its gradient is zero up to rounding.
    assert trained_names(model) <= expected
    assert len(trained_names(model)) >= len(expected) - 2
    assert {id(p) for p in model.dynamics_parameters()} == {
        id(p) for name, p in model.named_parameters() if name in expected
    }


def test_policy_loss_reaches_the_policy_and_nothing_else(model: WorldModel) -> None:
    policy_loss(model, window_batch(2)).backward()
    assert {name.split(".")[0] for name in trained_names(model)} == {"policy"}


def test_frozen_hash_changes_exactly_with_frozen_tensors(model: WorldModel) -> None:
    frozen, weights = model.frozen_hash(), model.weights_hash()
    for name, tensor in model.state_dict().items():
        first = tensor.view(-1)[0].clone()
        tensor.view(-1)[0] += 1.0
        assert (model.frozen_hash() != frozen) == (not name.startswith(DYNAMICS_PREFIX)), name
        assert model.weights_hash() != weights, name
        tensor.view(-1)[0] = first
    assert model.weights_hash() == weights


def test_a_copy_of_the_model_uses_its_own_scaler(model: WorldModel) -> None:
    context, _ = model.encode(*inputs(1))
    actions = torch.randn(1, 6, 5)
    before = model.dynamics(context, actions)
    changed = copy.deepcopy(model)
    changed.scaler.mean("action").add_(1.0)
    torch.testing.assert_close(model.dynamics(context, actions), before)
    assert (changed.dynamics(context, actions) - before).abs().max() > 1e-4


def test_dynamics_state_moves_between_models_and_refuses_others(model: WorldModel) -> None:
    torch.manual_seed(1)
    other = WorldModel(TINY)
    frozen = other.frozen_hash()
    other.load_dynamics_state(model.dynamics_state())
    assert other.frozen_hash() == frozen
    for name, tensor in model.dynamics_state().items():
        torch.testing.assert_close(other.state_dict()[name], tensor)
    state = model.dynamics_state()
    name = next(iter(state))
    with pytest.raises(ContractError, match="missing"):
        other.load_dynamics_state({key: value for key, value in state.items() if key != name})
    with pytest.raises(ContractError, match="shape"):
        other.load_dynamics_state({**state, name: torch.zeros(1)})


@pytest.mark.parametrize(
    ("field", "value"), [("latent_dim", 0), ("latent_dim", 9), ("horizon", 10**9), ("history", 2.5)]
)
def test_impossible_sizes_are_refused_by_name(field: str, value: object) -> None:
    with pytest.raises(ContractError, match=field):
        WorldModelConfig(**{field: value})  # type: ignore[arg-type]


def test_config_survives_json() -> None:
    assert WorldModelConfig.from_dict(json.loads(json.dumps(TINY.to_dict()))) == TINY
    with pytest.raises(ContractError, match="surprise"):
        WorldModelConfig.from_dict({**TINY.to_dict(), "surprise": 1})


def test_the_value_of_the_last_state_alone_is_the_last_value():
    torch.manual_seed(0)
    model = WorldModel(WorldModelConfig(proprio_dim=7, scan_shape=(4, 3), action_dim=2)).eval()
    latents, commands = torch.randn(5, 15, 48), torch.randn(1, 15, 3)
    with torch.inference_mode():
        every = model.value(latents, commands)
        torch.testing.assert_close(model.value.last(latents, commands), every[:, -1])


def test_gelu_is_the_same_function_with_and_without_gradients():
    x = torch.linspace(-12, 12, 4001)
    with torch.no_grad():
        fast = gelu(x)
    torch.testing.assert_close(fast, gelu(x), atol=1e-6, rtol=1e-5)
    assert torch.equal(x, torch.linspace(-12, 12, 4001))


# --- step by step, and the reactive policy -------------------------------------------------------


def reactive_model() -> WorldModel:
    torch.manual_seed(0)
    return WorldModel(dataclasses.replace(TINY, reactive_hidden=(16, 8))).eval()


@pytest.mark.parametrize("samples", [1, 3])
def test_latents_step_by_step_are_those_of_the_whole_sequence(
    model: WorldModel, samples: int
) -> None:
    context, _ = model.encode(*inputs(2))
    actions = torch.randn(2 * samples, 6, 5)
    keys = model.prepare_context(context)
    rollout = model.dynamics.begin(keys)
    stepped = torch.stack([rollout.step(actions[:, t]) for t in range(6)], 1)
    torch.testing.assert_close(stepped, model.dynamics(keys, actions), atol=1e-5, rtol=1e-5)


def test_two_rollouts_from_one_context_do_not_disturb_each_other(model: WorldModel) -> None:
    keys = model.prepare_context(model.encode(*inputs(1))[0])
    actions = torch.randn(2, 6, 5)
    first, second = model.dynamics.begin(keys), model.dynamics.begin(keys)
    for t in range(6):
        latents = [r.step(actions[i : i + 1, t]) for i, r in enumerate((first, second))]
    whole = model.dynamics(keys, actions)[:, -1]
    torch.testing.assert_close(torch.cat(latents), whole, atol=1e-5, rtol=1e-5)


def test_a_model_without_reactive_policy_has_the_contract_it_always_had() -> None:
    assert "reactive_hidden" not in TINY.to_dict()
    assert WorldModelConfig.from_dict(TINY.to_dict()) == TINY
    with_policy = dataclasses.replace(TINY, reactive_hidden=(16, 8))
    assert WorldModelConfig.from_dict(with_policy.to_dict()) == with_policy


def test_the_reactive_loss_teaches_the_encoder_what_a_policy_needs() -> None:
    model = reactive_model()
    losses = world_model_losses(model, window_batch(4))
    losses["reactive"].backward()
    assert all(p.grad is not None and p.grad.any() for p in model.encoder.proprio.parameters())
    assert all(p.grad is None for p in model.dynamics.parameters())


def test_a_model_without_reactive_policy_has_no_reactive_loss(model: WorldModel) -> None:
    assert "reactive" not in world_model_losses(model, window_batch(4))
