"""Figures in the README are those of the results files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from simdist.evaluation.report_data import assemble
from simdist.evaluation.report_table import with_table
from simdist.evaluation.results import ExperimentResult

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
        ("planner, 512", "evaluate_slope", "planner"),
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


def test_promises_under_faults_in_the_readme_are_those_of_their_table():
    held = [row["held"] for row in results("faults")["rows"]]
    assert f"| {sum(held)} of {len(held)} |" in line("promises held")


EXPERIMENTS = sorted((ROOT / "docs" / "results" / "experiments").glob("*.json"))


def rows_of(page: str) -> set[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return {row.strip() for row in text.splitlines() if re.match(r"\| `\w+` \| `\w+` \|", row)}


def test_the_table_of_experiments_is_that_of_their_results():
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert EXPERIMENTS
    remedy = "run simdist report docs/results/experiments --markdown docs/experiments.md"
    assert page == with_table(page, assemble(EXPERIMENTS)), remedy
    assert len(rows_of("docs/experiments.md")) == sum(
        len(ExperimentResult.load(file).points) for file in EXPERIMENTS
    )


def test_the_headline_in_the_readme_is_that_of_its_results():
    rows = rows_of("docs/experiments.md")
    quoted = rows_of("README.md")
    assert quoted, "the README shows no experiment"
    assert quoted <= rows


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("latent_information", ("expert_action_from_latent", "expert_action_from_proprioception")),
        ("return_ranking", ("rank_correlation", "spread_ratio")),
    ],
)
def test_diagnoses_in_the_page_of_experiments_are_those_of_their_files(name, keys):
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    found = [value for key in keys for value in _values(results(name), key)]
    assert found
    for value in found:
        assert re.search(rf"\| {value:.2f}|\| {value:.3f} |\| {value:.4f} ", page), value


def _values(data, key):
    if isinstance(data, dict):
        for name, value in data.items():
            yield from [value] if name == key else _values(value, key)


def test_planner_settings_in_the_page_of_experiments_are_those_of_their_file():
    page = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    table = page[page.index("| planner on the relearned model") :]
    for row in results("planner_settings_sheet")["rows"]:
        if row["model"] != "relearned":
            continue
        start = f"{row['samples']} × {row['iterations']}"
        outcome = f"| {row['crossed']} | {row['falls']} |"
        lines = [line.replace("*", "") for line in table.splitlines() if start in line]
        assert any(outcome in line for line in lines), row
