"""Figures in the README are those of the results files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def results(name: str) -> dict:
    return json.loads((ROOT / "docs" / "results" / f"{name}.json").read_text(encoding="utf-8"))


def line(start: str) -> str:
    (found,) = [row for row in README.splitlines() if row.startswith(f"| {start}")]
    return found


@pytest.mark.parametrize(
    ("start", "file", "method"),
    [
        ("expert", "evaluate_slope", "expert"),
        ("policy prior", "evaluate_slope", "prior"),
        ("planner, 128", "evaluate_slope", "planner"),
        ("planner as it runs", "evaluate_slope_running", "planner"),
    ],
)
def test_trials_in_the_readme_are_those_of_the_results(start, file, method):
    (row,) = [r for r in results(file)["rows"] if r["method"] == method]
    progress = row["progress_m"]
    text = line(start)
    assert f"{row['success']} of {row['trials']} | {row['falls']} |" in text
    assert f"{progress['mean']:.2f} ± {progress['std']:.2f} m" in text
    assert f"{row['velocity_error_mps']:.2f} m/s" in text


def test_the_running_graph_in_the_readme_is_that_of_its_summary():
    summary = results("launch_slope_90s")
    assert f"{summary['progress_m']:.1f} m, {summary['falls']}" in line("progress up the slope")
    assert f"{summary['late_ticks']} of {summary['ticks']}" in line("control steps late")
    plan = summary["plan_ms"]
    assert f"{plan['p50']:.1f} ms median, {plan['p99']:.1f} ms p99" in line("planning at 25 Hz")
    assert f"{summary['late_plans']} of {summary['plans']}" in line("plans over their period")
    for update in summary["updates"]:
        losses = f"{update['loss_before']:.3f} → {update['loss_after']:.3f}"
        assert losses in line("held-out latent loss by update")


def test_learning_from_a_recording_in_the_readme_is_that_of_its_results():
    result = results("finetune_60s")
    for start, key in (("robot data", "robot_loss"), ("simulation data", "simulation_loss")):
        losses = result[key]
        text = line(f"held-out latent loss, {start}")
        assert f"{losses['before']:.4f} | {losses['after']:.4f}" in text
