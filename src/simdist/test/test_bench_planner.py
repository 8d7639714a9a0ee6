"""The planner's benchmark: what is counted is what is computed, and the report says what it was."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from simdist import cli, robots
from simdist.bench import planner as bench
from simdist.bench.flops import needed_flops, plan_flops, returns_flops
from simdist.observation.spec import legged_observation
from simdist.planning import PlannerConfig
from simdist.planning.backends import threads
from simdist.planning.backends.made_up import random_actions, random_inputs
from simdist.planning.backends.torch_backend import TorchBackend
from simdist.world_model import Contract, WorldModel, WorldModelConfig, save_artefact

GO1 = robots.get("go1")
SMALL = WorldModelConfig(
    latent_dim=8, history=2, horizon=4, dynamics_heads=2, head_heads=2, reactive_hidden=(6,)
)


@st.composite
def configs(draw: st.DrawFn) -> WorldModelConfig:
    return WorldModelConfig(
        proprio_dim=3,
        scan_shape=(4, 3),
        action_dim=draw(st.integers(1, 9)),
        command_dim=draw(st.integers(1, 4)),
        latent_dim=2 * draw(st.integers(1, 9)),
        history=draw(st.integers(1, 6)),
        horizon=draw(st.integers(1, 9)),
        dynamics_layers=draw(st.integers(1, 3)),
        dynamics_heads=2,
        head_layers=draw(st.integers(1, 3)),
        head_heads=2,
        policy_layers=1,
        policy_heads=1,
        ff_factor=draw(st.integers(1, 4)),
        residual_dynamics=draw(st.booleans()),
    )


# --- operations ---------------------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(config=configs(), samples=st.integers(1, 5))
def test_operations_are_those_that_torch_counts(config: WorldModelConfig, samples: int) -> None:
    model = WorldModel(config).eval()
    problem = TorchBackend(model, 0.99).prepare(*random_inputs(model, 1, seed=0))
    actions = random_actions(model, 1, samples, seed=0)
    with FlopCounterMode(display=False) as counter:
        problem.returns(actions)
    assert returns_flops(config, samples) == counter.get_total_flops()


@given(config=configs(), samples=st.integers(1, 5))
def test_what_can_be_avoided_is_less_than_all(config: WorldModelConfig, samples: int) -> None:
    # Folding an embedding pays where it has fewer inputs than outputs.
    if config.action_dim <= config.latent_dim:
        assert 0 < needed_flops(config, samples) <= returns_flops(config, samples)


def test_most_of_the_authors_network_cannot_be_avoided() -> None:
    needed, written = needed_flops(bench.AUTHORS_SIZES, 1), returns_flops(bench.AUTHORS_SIZES, 1)
    assert 0.8 < needed / written < 0.95


def test_samples_around_the_prior_are_counted_once() -> None:
    config = PlannerConfig(samples=100, iterations=3)
    counted = plan_flops(SMALL, 100, 3, config.prior_samples)
    assert counted == needed_flops(SMALL, 100 + 2 * (100 - config.prior_samples))


def test_the_reactive_policy_is_counted_in_closed_loop_only() -> None:
    policy = 2 * (20 * 6 + 6 * 12)  # latent and action to hidden, hidden to action
    difference = needed_flops(SMALL, 5, closed_loop=True) - needed_flops(SMALL, 5)
    assert difference == 5 * (SMALL.horizon - 1) * policy


# --- the report ---------------------------------------------------------------------------------


@pytest.fixture
def model(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    contract = Contract.of(GO1, legged_observation(12, SMALL.history), SMALL)
    path = tmp_path / "small.safetensors"
    return save_artefact(path, WorldModel(SMALL), contract, 0, None, {})


def run(model: Path, *options: str) -> int:
    small = "--plans", "3", "--no-authors", "--samples", "16", "32", "--iterations", "1"
    return cli.main(["bench", "planner", "--model", str(model), *small, *options])


def test_the_command_writes_one_row_for_each_budget_and_backend(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "bench.json"
    assert run(model, "--json", str(file)) == 0
    report = json.loads(file.read_text())
    assert report["format"] == bench.FORMAT
    assert report["versions"]["torch"] == torch.__version__
    assert report["peak_gflops"] > 0
    rows = report["rows"]
    expected = {(n, b) for n in (16, 32) for b in ("native", "torch") if b not in _missing(report)}
    assert {(row["samples"], row["backend"]) for row in rows} == expected
    for row in rows:
        assert (row["latent"], row["horizon"], row["iterations"], row["plans"]) == (8, 4, 1, 3)
        assert 0 < row["ms_p50"] <= row["ms_p99"]
        assert row["cpu_ms_p50"] > 0
        counted = plan_flops(SMALL, row["samples"], 1, row["samples"] // 4)
        assert row["gflops"] == pytest.approx(1e-6 * counted / row["ms_p50"], rel=0.02, abs=0.01)
        share = row["gflops"] / report["peak_gflops"]
        assert row["peak_share"] == pytest.approx(share, abs=0.002)
    printed = capsys.readouterr().out
    assert len(re.findall(r"16 x 1 +torch", printed)) == 1


def _missing(report: dict[str, dict[str, str]]) -> dict[str, str]:
    return report["unavailable"]


def test_a_backend_that_is_missing_is_left_out_and_the_report_says_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "available", lambda: ("abacus", "torch"))
    subject = bench.Subject("small", WorldModel(SMALL), ((16, 1),))
    report = bench.measure([subject], GO1, plans=1)
    assert [row.backend for row in report.rows] == ["torch"]
    assert "unknown planner backend 'abacus'" in report.unavailable["abacus"]
    assert "abacus: not measured" in report.table()


def test_a_busy_machine_is_told_from_a_slow_one() -> None:
    row = bench.Row("m", "torch", "float32", 1, 8, 16, 1, 4, 3, 9.0, 9.0, 8.9, 1.0, 0.1)
    idle = bench.Report(10.0, (row,), 1, False, {})
    assert "busy" not in idle.table()
    waiting = replace(idle, rows=(replace(row, cpu_ms_p50=3.25),))
    assert "The machine was busy: by processor time alone, plans take 3.25 ms" in waiting.table()


def test_too_many_threads_are_cut_and_pytorch_gets_its_own_back(
    caplog: pytest.LogCaptureFixture,
) -> None:
    threads._say_once.cache_clear()
    before = torch.get_num_threads()
    subject = bench.Subject("small", WorldModel(SMALL), ((16, 1),))
    with caplog.at_level(logging.WARNING):
        report = bench.measure([subject], GO1, plans=1, threads=10_000)
    assert report.threads == report.rows[0].threads == threads.processors()
    assert "planner threads = 10000" in caplog.text
    assert torch.get_num_threads() == before


def test_the_authors_size_is_made_without_touching_the_seed_of_others() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    subject = bench.authors_size()
    assert torch.equal(torch.rand(1), expected)
    assert subject.budgets == ((450, 8),)
    assert sum(p.numel() for p in subject.model.parameters()) == 667_758


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--samples", "1"), "samples = 1: must be"),
        (("--iterations", "0"), "iterations = 0: must be"),
        (("--plans", "0"), "--plans must be at least 1"),
        (("--seconds", "0"), "--seconds must lie in"),
        (("--threads", "0"), "threads = 0: must be at least 1"),
    ],
)
def test_a_bad_option_is_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], words: str
) -> None:
    assert run(model, *options) == 2
    assert words in capsys.readouterr().err
