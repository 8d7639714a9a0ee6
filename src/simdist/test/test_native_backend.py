"""The compiled kernel gives the returns that PyTorch gives, or none at all."""

from __future__ import annotations

import logging
import platform
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from simdist.errors import ConfigError
from simdist.planning import PlanningError
from simdist.planning.backends import choose, registry, threads
from simdist.planning.backends.native import (
    KernelUnavailable,
    NativeBackend,
    check,
    library,
    weights,
)
from simdist.planning.backends.torch_backend import TorchBackend
from simdist.world_model import WorldModel, WorldModelConfig
from simdist.world_model.network import ReactivePolicy

TOLERANCE = 1e-5
DISCOUNT = 0.95

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


@st.composite
def configs(draw: st.DrawFn) -> WorldModelConfig:
    latent = draw(st.sampled_from([4, 6, 12, 20, 24, 48]))
    heads = st.sampled_from([h for h in (1, 2, 3, 4, 6) if latent % h == 0])
    return WorldModelConfig(
        proprio_dim=5,
        scan_shape=(5, 4),
        action_dim=draw(st.integers(1, 13)),
        command_dim=draw(st.integers(1, 4)),
        latent_dim=latent,
        history=draw(st.integers(1, 6)),
        horizon=draw(st.integers(1, 11)),
        dynamics_layers=draw(st.integers(1, 3)),
        dynamics_heads=draw(heads),
        head_layers=draw(st.integers(1, 2)),
        head_heads=draw(heads),
        policy_layers=1,
        policy_heads=1,
        ff_factor=draw(st.integers(1, 4)),
        scan_hidden=(4,),
        cnn_channels=(2,),
        reactive_hidden=draw(st.sampled_from([(), (5,), (30, 9)])),
        residual_dynamics=draw(st.booleans()),
    )


def random_model(config: WorldModelConfig, seed: int, attention: float = 1.0) -> WorldModel:
    """Random weights, biases and scalers; queries are ``attention`` times as large as usual."""
    torch.manual_seed(seed)
    model = WorldModel(config).eval()
    width = config.latent_dim
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias") or "norm" in name:
                parameter.add_(0.2 * torch.randn_like(parameter))
            if name == "dynamics.output.weight":  # zero in an untrained model
                parameter.add_(0.3 * torch.randn_like(parameter))
            if name.endswith("query_key_value.weight"):
                parameter[:width].mul_(attention)
            if name.endswith("cross_attention.query.weight"):
                parameter.mul_(attention)
    for quantity in ("action", "command", "reward", "value"):
        mean = model.scaler.mean(quantity)
        model.scaler.set(quantity, torch.randn_like(mean), torch.rand_like(mean) + 0.3)
    return model


def random_inputs(config: WorldModelConfig, robots: int, seed: int) -> Inputs:
    draw = torch.Generator().manual_seed(seed)
    return (
        torch.randn(robots, config.context_length, config.latent_dim, generator=draw),
        torch.randn(robots, config.latent_dim, generator=draw),
        torch.randn(robots, config.command_dim, generator=draw),
    )


def random_actions(config: WorldModelConfig, robots: int, samples: int, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    shape = robots, samples, config.horizon, config.action_dim
    return 2.0 * torch.randn(*shape, generator=draw)


def kinds() -> list[str]:
    """Kernels that this processor can run: all of them are tested, not only the fastest."""
    return list(library.supported())


def backend(model: WorldModel, kind: str, threads: int = 1) -> NativeBackend:
    return NativeBackend(model, DISCOUNT, threads, library.load(kind))


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Largest difference, relative to the returns or to their spread, whichever is larger."""
    spread = expected.max() - expected.min()
    return float(((found - expected).abs() / torch.maximum(expected.abs(), spread)).max())


SMALL = WorldModelConfig(
    latent_dim=24, horizon=7, history=3, scan_shape=(5, 4), dynamics_heads=2, head_heads=3
)


# --- the library --------------------------------------------------------------------------------


def test_the_set_up_built_a_kernel_for_every_kind_of_processor() -> None:
    if sys.platform != "linux":
        pytest.skip("the kernel is built on Linux only")
    expected = {"avx512", "avx2", "generic"} if platform.machine() == "x86_64" else {"generic"}
    built = {kind for kind in expected if library.library_path(kind).is_file()}
    assert built == expected, "run ./run true, which builds the plan kernel"


def test_auto_takes_the_kernel_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    chosen = choose("auto")(random_model(SMALL, 0), DISCOUNT)
    assert isinstance(chosen, NativeBackend)
    assert chosen.kind == kinds()[0]
    assert not caplog.records


# --- the same returns ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=25, deadline=None)
@given(
    config=configs(),
    seed=st.integers(0, 2**16),
    robots=st.integers(1, 3),
    samples=st.integers(1, 41),
    threads=st.integers(1, 2),
)
def test_returns_equal_those_of_torch(
    kind: str, config: WorldModelConfig, seed: int, robots: int, samples: int, threads: int
) -> None:
    model = random_model(config, seed)
    inputs = random_inputs(config, robots, seed)
    actions = random_actions(config, robots, samples, seed)
    expected = TorchBackend(model, DISCOUNT).prepare(*inputs).returns(actions)
    found = backend(model, kind, threads).prepare(*inputs).returns(actions)
    assert found.shape == expected.shape
    assert error(found, expected) <= TOLERANCE


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize("attention", [30.0, 1000.0])
def test_attention_logits_far_outside_the_usual_range_keep_their_precision(
    kind: str, attention: float
) -> None:
    """Such logits make attention a choice; which keys are chosen must not change. Rounding of the
    logits themselves grows with them, in PyTorch too: both are compared with double precision."""
    model = random_model(SMALL, 3, attention)
    inputs, actions = random_inputs(SMALL, 2, 3), random_actions(SMALL, 2, 33, 3)
    expected = TorchBackend(model, DISCOUNT).prepare(*inputs).returns(actions)
    found = backend(model, kind).prepare(*inputs).returns(actions)
    reference = TorchBackend(model.double(), DISCOUNT)
    reference._discounts = reference._discounts.double()
    exact = reference.prepare(*(part.double() for part in inputs)).returns(actions.double())
    assert found.isfinite().all()
    assert error(found, exact) <= max(TOLERANCE, 4.0 * error(expected, exact))


def test_returns_do_not_depend_on_the_other_samples_or_on_threads() -> None:
    model, inputs = random_model(SMALL, 1), random_inputs(SMALL, 2, 1)
    actions = random_actions(SMALL, 2, 50, 1)
    alone = NativeBackend(model, DISCOUNT, 1).prepare(*inputs)
    together = NativeBackend(model, DISCOUNT, 2).prepare(*inputs)
    all_returns = alone.returns(actions)
    assert torch.equal(together.returns(actions), all_returns)
    assert torch.equal(alone.returns(actions[:, 7:20]), all_returns[:, 7:20])


def test_the_first_problem_keeps_its_weights_and_its_observation() -> None:
    first, second = random_model(SMALL, 1), random_model(SMALL, 2)
    inputs, actions = random_inputs(SMALL, 1, 1), random_actions(SMALL, 1, 9, 1)
    problem = NativeBackend(first, DISCOUNT).prepare(*inputs)
    before = problem.returns(actions)
    other = NativeBackend(second, DISCOUNT).prepare(*random_inputs(SMALL, 1, 2))
    assert not torch.allclose(other.returns(actions), before)
    assert torch.equal(problem.returns(actions), before)


# --- in closed loop -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds())
@settings(max_examples=25, deadline=None)
@given(
    config=configs().filter(lambda config: config.reactive_hidden != ()),
    seed=st.integers(0, 2**16),
    robots=st.integers(1, 3),
    samples=st.integers(1, 70),
    threads=st.integers(1, 2),
    data=st.data(),
)
def test_followed_actions_and_their_returns_equal_those_of_torch(
    kind: str,
    config: WorldModelConfig,
    seed: int,
    robots: int,
    samples: int,
    threads: int,
    data: st.DataObject,
) -> None:
    model, inputs = random_model(config, seed), random_inputs(config, robots, seed)
    given_steps = data.draw(st.integers(1, config.horizon))
    deviations = random_actions(config, robots, samples, seed)
    first = random_actions(config, robots, samples, seed + 1)[:, :, :given_steps]
    limits = torch.linspace(-2, -1, config.action_dim), torch.linspace(1, 3, config.action_dim)
    arguments = deviations, first, limits
    expected, returns = TorchBackend(model, DISCOUNT).prepare(*inputs).follow(*arguments)
    problem = backend(model, kind, threads).prepare(*inputs)
    actions, found = problem.follow(*arguments)
    torch.testing.assert_close(actions, expected, rtol=2e-5, atol=2e-5)
    assert error(found, returns) <= 4 * TOLERANCE  # actions differ by rounding already
    # The actions that were answered have the returns that were answered.
    assert error(found, problem.returns(actions)) <= TOLERANCE


def test_a_model_without_a_reactive_policy_cannot_be_followed() -> None:
    problem = NativeBackend(random_model(SMALL, 1), DISCOUNT).prepare(*random_inputs(SMALL, 1, 1))
    actions = random_actions(SMALL, 1, 4, 1)
    with pytest.raises(PlanningError, match="no reactive policy"):
        problem.follow(actions, actions[:, :, :1], (torch.zeros(12), torch.ones(12)))


def test_nan_in_the_reactive_policy_spoils_all_that_follow_it() -> None:
    config = replace(SMALL, reactive_hidden=(16,))
    for name, _ in ReactivePolicy(config, WorldModel(config).scaler).named_parameters():
        model = random_model(config, 1)
        assert model.reactive is not None
        with torch.no_grad():
            model.reactive.get_parameter(name).view(-1)[0] = torch.nan
        problem = NativeBackend(model, DISCOUNT).prepare(*random_inputs(config, 1, 1))
        deviations = random_actions(config, 1, 9, 1)
        limits = torch.full((12,), -1.0), torch.full((12,), 1.0)
        _, returns = problem.follow(deviations, deviations[:, :, :1], limits)
        assert not returns.isfinite().any()


# --- what is not finite -------------------------------------------------------------------------


def test_a_sample_that_is_not_finite_spoils_itself_only() -> None:
    model, inputs = random_model(SMALL, 1), random_inputs(SMALL, 1, 1)
    actions = random_actions(SMALL, 1, 20, 1)
    good = NativeBackend(model, DISCOUNT).prepare(*inputs).returns(actions)
    for bad, value in ((3, torch.nan), (0, torch.inf), (19, -torch.inf)):
        spoiled = actions.clone()
        spoiled[0, bad, 2, 5] = value
        returns = NativeBackend(model, DISCOUNT).prepare(*inputs).returns(spoiled)
        others = torch.arange(20) != bad
        assert not returns[0, bad].isfinite()
        assert torch.equal(returns[0, others], good[0, others])


@pytest.mark.parametrize("kind", kinds())
@pytest.mark.parametrize(
    "name",
    [
        name
        for name, _ in WorldModel(SMALL).named_parameters()
        if name.startswith(("dynamics.", "reward.", "value."))
    ],
)
def test_nan_in_any_weight_gives_no_finite_return(kind: str, name: str) -> None:
    model, inputs = random_model(SMALL, 1), random_inputs(SMALL, 1, 1)
    with torch.no_grad():
        # The last row: keys' and values' part of a layer that has several.
        model.get_parameter(name).view(-1)[-1] = torch.nan
    actions = random_actions(SMALL, 1, 9, 1)
    assert not backend(model, kind).prepare(*inputs).returns(actions).isfinite().any()


@pytest.mark.parametrize("index", range(3))
def test_nan_in_an_observation_gives_no_finite_return_for_its_robot(index: int) -> None:
    model, inputs = random_model(SMALL, 1), random_inputs(SMALL, 2, 1)
    inputs[index][1].view(-1)[0] = torch.nan
    returns = (
        NativeBackend(model, DISCOUNT).prepare(*inputs).returns(random_actions(SMALL, 2, 9, 1))
    )
    assert returns[0].isfinite().all()
    assert not returns[1].isfinite().any()


def test_huge_weights_overflow_to_what_is_not_finite_as_in_torch() -> None:
    model, inputs = random_model(SMALL, 1), random_inputs(SMALL, 1, 1)
    with torch.no_grad():
        model.reward.output.weight.fill_(3e38)
    actions = random_actions(SMALL, 1, 9, 1)
    assert not NativeBackend(model, DISCOUNT).prepare(*inputs).returns(actions).isfinite().any()


# --- what cannot be had -------------------------------------------------------------------------


@pytest.fixture
def no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(kind: str | None = None) -> library.Library:
        return library.load.__wrapped__(kind, tmp_path)  # type: ignore[attr-defined]

    monkeypatch.setattr("simdist.planning.backends.native.backend.load", missing)
    registry._say_once.cache_clear()


@pytest.mark.usefixtures("no_library")
def test_without_a_kernel_auto_plans_in_torch_and_says_why_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = random_model(SMALL, 0)
    with caplog.at_level(logging.WARNING):
        assert isinstance(choose("auto")(model, DISCOUNT), TorchBackend)
        assert isinstance(choose()(model, DISCOUNT), TorchBackend)
    assert [record.message.count("./run builds it") for record in caplog.records] == [1]


@pytest.mark.usefixtures("no_library")
def test_without_a_kernel_asking_for_it_is_an_error_that_says_why() -> None:
    with pytest.raises(ConfigError, match=r"'native' is not available: no kernel for .*built"):
        choose("native")(random_model(SMALL, 0), DISCOUNT)


def test_a_model_the_kernel_does_not_take_is_planned_with_in_torch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = random_model(SMALL, 0).double()
    registry._say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert isinstance(choose("auto")(model, DISCOUNT), TorchBackend)
    assert "needs float32" in caplog.text
    huge = WorldModelConfig(
        latent_dim=2, dynamics_heads=1, head_heads=1, policy_heads=1, ff_factor=40
    )
    with pytest.raises(ConfigError, match="ff_factor = 40 of the world model exceeds"):
        choose("native")(WorldModel(huge), DISCOUNT)


def test_a_file_that_is_no_kernel_and_one_of_another_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.so").write_bytes(b"\x7fELF nothing")
    with pytest.raises(KernelUnavailable, match=r"broken\.so cannot be loaded"):
        library.Library("avx2", tmp_path / "broken.so")


def test_a_kernel_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "VERSION", 999)
    kind = kinds()[0]
    with pytest.raises(KernelUnavailable, match="version 2, not 999: build it again"):
        library.Library(kind, library.library_path(kind))


def test_more_threads_than_processors_are_cut_to_them_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads._say_once.cache_clear()
    model, inputs = random_model(SMALL, 0), random_inputs(SMALL, 1, 0)
    actions = random_actions(SMALL, 1, 9, 0)
    with caplog.at_level(logging.WARNING):
        many = [NativeBackend(model, DISCOUNT, 100_000).prepare(*inputs) for _ in range(2)]
    count = threads.processors()
    said = f"may use {count} processors, planning with {count} threads"
    assert [said in record.message for record in caplog.records] == [True]
    one = NativeBackend(model, DISCOUNT, 1).prepare(*inputs)
    assert torch.equal(many[0].returns(actions), one.returns(actions))


def test_less_than_one_thread_is_refused() -> None:
    with pytest.raises(ConfigError, match="planner threads = 0: must be at least 1"):
        NativeBackend(random_model(SMALL, 0), DISCOUNT, 0)


# --- the check before it is used ----------------------------------------------------------------


def spoil(monkeypatch: pytest.MonkeyPatch, index: int, factor: float = 1.1) -> None:
    """Have the kernel read one weight wrong."""

    def wrong(model: WorldModel, discounts: torch.Tensor) -> weights.Floats:
        array = weights.weights(model, discounts).copy()
        array[index] *= factor
        return array

    monkeypatch.setattr("simdist.planning.backends.native.backend.weights", wrong)
    registry._say_once.cache_clear()


def test_a_kernel_that_computes_something_else_is_not_planned_with(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = random_model(SMALL, 0)
    spoil(monkeypatch, index=SMALL.action_dim)  # standard deviation of the first action
    with caplog.at_level(logging.WARNING):
        assert isinstance(choose("auto")(model, DISCOUNT), TorchBackend)
    assert [record.message.count("returns differ from PyTorch's") for record in caplog.records] == [
        1
    ]
    with pytest.raises(ConfigError, match=r"returns differ from PyTorch's by .* of their size"):
        choose("native")(model, DISCOUNT)


def test_a_kernel_that_is_wrong_in_closed_loop_only_is_not_planned_with(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(monkeypatch, index=-1, factor=-1.0)  # bias of the reactive policy's last layer
    model = random_model(replace(SMALL, reactive_hidden=(16,)), 0)
    with caplog.at_level(logging.WARNING):
        assert isinstance(choose("auto")(model, DISCOUNT), TorchBackend)
    assert "following the reactive policy" in caplog.text


def test_a_model_with_weights_that_are_not_numbers_is_left_to_torch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = random_model(SMALL, 0)
    with torch.no_grad():
        model.reward.output.bias.fill_(torch.nan)
    registry._say_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert isinstance(choose("auto")(model, DISCOUNT), TorchBackend)
    assert "not finite" in caplog.text


@settings(max_examples=25, deadline=None)
@given(config=configs(), seed=st.integers(0, 2**16))
def test_the_check_finds_nothing_wrong_with_the_kernel(config: WorldModelConfig, seed: int) -> None:
    model = random_model(config, seed)
    native = NativeBackend(model, DISCOUNT, 1)
    assert check.difference(native, TorchBackend(model, DISCOUNT), model) is None


@pytest.mark.parametrize("shape", [(1, 5, 6, 12), (1, 5, 7, 11), (2, 5, 7, 12), (5, 7, 12)])
def test_actions_of_a_wrong_shape_are_refused(shape: tuple[int, ...]) -> None:
    problem = NativeBackend(random_model(SMALL, 0), DISCOUNT).prepare(*random_inputs(SMALL, 1, 0))
    with pytest.raises(ValueError, match=r"must be \(1, N, 7, 12\)"):
        problem.returns(torch.zeros(shape))


def test_actions_in_double_precision_are_refused() -> None:
    problem = NativeBackend(random_model(SMALL, 0), DISCOUNT).prepare(*random_inputs(SMALL, 1, 0))
    with pytest.raises(ValueError, match="must be float32"):
        problem.returns(torch.zeros(1, 2, 7, 12, dtype=torch.float64))


def test_actions_that_are_not_contiguous_are_read_right() -> None:
    model, inputs = random_model(SMALL, 1), random_inputs(SMALL, 2, 1)
    actions = random_actions(SMALL, 2, 12, 1)
    problem = NativeBackend(model, DISCOUNT).prepare(*inputs)
    expected = problem.returns(actions[:, ::2].clone())
    assert torch.equal(problem.returns(actions[:, ::2]), expected)
