"""The report shows what the results files say, and refuses files that it cannot trust."""

from __future__ import annotations

import base64
import io
import itertools
import json
import math
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from simdist import cli
from simdist.errors import ConfigError
from simdist.evaluation import methods, paper, plots
from simdist.evaluation.figures_data import (
    FOOT_TRACKS_FORMAT,
    LATENT_SLIP_FORMAT,
    SWEEP_FORMAT,
    load_foot_tracks,
    load_latent_slip,
    load_sweep,
)
from simdist.evaluation.method_styles import STYLES, style
from simdist.evaluation.report import write
from simdist.evaluation.report_data import WorldReport, assemble, find_files, own_value
from simdist.evaluation.report_page import Pictures, page
from simdist.evaluation.report_table import BEGIN, END
from simdist.evaluation.results import BeforeAfter, ExperimentResult, Point, Round
from simdist.evaluation.statistics import bootstrap_difference, bootstrap_mean
from simdist.simulation.world import load_world

LINE = 1.82
SPEEDS = (0.4, 0.6, 0.8)


def point(minutes: float, progress: tuple[float, ...], first_seed: int = 1000) -> Point:
    seeds = tuple(first_seed + i for i in range(len(progress)))
    success = sum(value >= LINE for value in progress)
    return Point(minutes, progress, SPEEDS[: len(progress)], seeds, 1, success, 2.5)


def result(method: str, *points: Point, world: str = "slope_sheet", **fields: Any):
    given = ExperimentResult(
        world=world,
        method=method,
        line_m=LINE,
        points=points or (point(0.0, (0.5, 0.75, 1.0)),),
        latent_loss=None,
        simulation_loss=None,
        command=f"simdist experiment --world {world} --method {method}",
        seed=0,
        wall_s=3725.0,
        model={"weights_hash": "00"},
        settings={"trials": 3},
    )
    return replace(given, **fields)


def all_methods() -> list[ExperimentResult]:
    """A result for every method; each has numbers of its own."""
    made = []
    for index, (name, look) in enumerate(STYLES.items()):
        low = 0.2 + 0.05 * index
        points = [point(0.0, (low, low + 0.1, low + 0.3))]
        if look.learns:
            points.append(point(7.5, (low + 0.4, 1.2, LINE)))
        made.append(result(name, *points))
    made[0] = replace(
        made[0],
        latent_loss=BeforeAfter(0.08, 0.02),
        rounds=(Round(7.5, False, "simulation loss rose", {"robot_after": 0.0312, "x": None}),),
    )
    return made


def sweep_data() -> dict[str, Any]:
    rows = [
        {
            "method": method,
            "value": value,
            "progress_m": [value, 2 * value, 3 * value],
            "falls": 1,
            "success": 0,
            "trials": 3,
        }
        for method in ("expert", "oracle")
        for value in (0.2, 0.3)
    ]
    return {
        "format": SWEEP_FORMAT,
        "world": "slope_sheet",
        "parameter": "friction",
        "values": [0.2, 0.3],
        "rows": rows,
        "line_m": LINE,
        "command": "simdist evaluate --sweep",
        "seed": 3,
        "wall_s": 12.0,
    }


def feet_data() -> dict[str, Any]:
    track = [[[0.2, 0.1, -0.3], [0.2, -0.1, -0.3]], [[0.1, 0.1, -0.2], [0.3, -0.1, -0.3]]]
    episode = {"time": [0.0, 0.02], "true": track, "predicted": track}
    return {
        "format": FOOT_TRACKS_FORMAT,
        "world": "slope_sheet",
        "dt": 0.02,
        "feet": ["FL", "FR"],
        "episodes": [{"label": label, **episode} for label in ("before", "after")],
        "error_m": {"before": 0.05, "after": 0.012},
        "command": "simdist feet",
    }


def slip_data() -> dict[str, Any]:
    return {
        "format": LATENT_SLIP_FORMAT,
        "world": "slope_sheet",
        "time": [0.0, 0.02, 0.04],
        "loss_before": [0.1, 0.2, 0.3],
        "loss_after": [0.05, 0.05, 0.05],
        "by_step_before": [0.1, 0.2],
        "by_step_after": [0.05, 0.06],
        "command": "simdist slip",
    }


DRAWN = {
    "sweep": (sweep_data, load_sweep),
    "feet": (feet_data, load_foot_tracks),
    "slip": (slip_data, load_latent_slip),
}


def save(directory: Path, *results: ExperimentResult) -> Path:
    for one in results:
        one.save(directory / f"{one.method}.json")
    return directory


def worlds_of(directory: Path, *results: ExperimentResult) -> list[WorldReport]:
    return assemble(find_files([save(directory, *results)])[0])


class Page(HTMLParser):
    """Tables by id as rows of texts, images, tags and the text of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.images: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.text = ""
        self._rows: list[list[str]] = []
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.add(tag)
        if tag == "table":
            self._rows = self.tables[values["id"] or ""] = []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
            self._in_cell = True
        for name in ("src", "srcset"):
            if values.get(name):
                self.images.append(values[name] or "")
        if values.get("href"):
            self.links.append(values["href"] or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_cell:
            self._rows[-1][-1] += data


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report with everything in it, made by the command line."""
    directory = tmp_path_factory.mktemp("results")
    save(directory, *all_methods())
    for name, (make, _) in DRAWN.items():
        (directory / f"{name}.json").write_text(json.dumps(make()))
    out = directory / "out"
    assert cli.main(["report", str(directory), "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def content(report: Path) -> Page:
    return Page((report / "index.html").read_text(encoding="utf-8"))


def test_the_table_holds_every_method_with_the_numbers_of_its_file(content: Page):
    rows = content.tables["results-world-slope_sheet"][1:]
    expected = [(one, p) for one in all_methods() for p in one.points]
    assert len(rows) == len(expected)
    for row, (one, at) in zip(rows, expected, strict=True):
        assert row[0] == style(one.method).label
        assert row[1] == (f"{at.minutes:g}" if style(one.method).learns else "–")
        assert row[2].startswith(f"{np.mean(at.progress_m):.2f} (")
        assert row[3:5] == [f"{at.success}/3", str(at.falls)]


def test_the_summary_holds_the_rows_of_the_table(report: Path, content: Page):
    summary = json.loads((report / "summary.json").read_text())
    table = content.tables["results-world-slope_sheet"][1:]
    assert len(summary["rows"]) == len(table)
    for row, shown in zip(summary["rows"], table, strict=True):
        interval = f"{row['mean_m']:.2f} ({row['low_m']:.2f} to {row['high_m']:.2f})"
        assert interval == shown[2]
        assert f"{row['success']}/{row['trials']}" == shown[3]
        assert f"{100 * row['way']:.0f} %" == shown[5]


def test_what_relearning_can_buy_stands_beside_every_result(report: Path, content: Page):
    by_method = {one.method: one.points[0].progress_m for one in all_methods()}
    bought = np.mean(by_method["oracle"]) - np.mean(by_method["oracle_nominal"])
    rows = content.tables["results-world-slope_sheet"][1:]
    assert {row[6] for row in rows} == {f"{bought:+.2f}"}
    (world,) = json.loads((report / "summary.json").read_text())["worlds"]
    assert world["relearning_can_buy_m"]["mean"] == pytest.approx(bought)


def test_the_page_describes_the_world_and_lists_gate_losses_and_commands(content: Page):
    assert load_world("slope_sheet").description in content.text
    (gate,) = content.tables["gate-world-slope_sheet"][1:]
    assert gate == ["simdist", "7.5", "refused", "simulation loss rose", "robot after 0.0312"]
    (losses,) = content.tables["losses-world-slope_sheet"][1:]
    assert losses == ["simdist", "robot data", "0.0800", "0.0200", "4.0"]
    commands = content.tables["commands"][1:]
    assert len(commands) == len(STYLES) + len(DRAWN)
    assert all(one.command in [row[3] for row in commands] for one in all_methods())
    assert commands[0][2] == "1 h 02 min"


def test_the_page_needs_no_script_and_no_network(report: Path, content: Page):
    assert "script" not in content.tags
    assert all(image.startswith("data:image/png;base64,") for image in content.images)
    assert all(link.startswith("#") for link in content.links)
    text = (report / "index.html").read_text(encoding="utf-8")
    assert "http" not in text.replace("http-equiv", "")
    assert "prefers-color-scheme: dark" in text


def test_every_image_can_be_decoded_in_light_and_in_dark(report: Path, content: Page):
    files = {path.name: path.read_bytes() for path in report.glob("*.png")}
    inside = [base64.b64decode(image.split(",")[1]) for image in content.images]
    # overview, progress, sweep, two of the feet, latent; each for light and for dark pages
    assert (len(files), len(inside)) == (6, 12)
    assert set(files.values()) < set(inside)
    for data in inside:
        pixels = np.asarray(Image.open(io.BytesIO(data)).convert("L"))
        is_light = data in files.values()
        assert (pixels[0, 0] > 200) == is_light
        assert pixels.std() > 5.0  # something is drawn


def test_the_same_results_make_the_same_bytes(tmp_path: Path):
    worlds = worlds_of(tmp_path / "in", result("expert"), result("simdist"))
    written = [write(worlds, tmp_path / name, "simdist report in") for name in ("one", "two")]
    for first, second in zip(*written, strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_drawing_leaves_the_settings_of_matplotlib_alone():
    before = dict(matplotlib.rcParams)
    estimate = bootstrap_mean([0.1, 0.4])
    plots.png(plots.progress_figure(plots.DARK, 1.0, [plots.Curve("ppo", (0,), (estimate,))], None))
    assert dict(matplotlib.rcParams) == before


def test_special_characters_stay_text(tmp_path: Path):
    world, note = 'a<b>&"c', "<script>alert('x')</script> & more"
    one = result("a<i>method", world=world, notes=note, command="a && b <c>")
    one = replace(one, rounds=(Round(0.0, True, "<img src=x>", {"<u>": 1.0}),))
    one.save(tmp_path / "in" / "result.json")
    out = tmp_path / "out"
    assert cli.main(["report", str(tmp_path / "in"), "--out", str(out)]) == 0
    page = Page((out / "index.html").read_text(encoding="utf-8"))
    assert not {"script", "i", "u", "b", "c"} & page.tags
    for text in (world, note, one.method, one.command, "<img src=x>", "<u> 1"):
        assert text in page.text
    assert all(image.startswith("data:") for image in page.images)
    assert all(path.parent == out for path in out.rglob("*"))


def test_figures_draw_the_means_of_the_results_and_the_points_of_the_paper():
    estimates = tuple(bootstrap_mean(values) for values in ([0.2, 0.4], [1.0, 1.2]))
    curves = [
        plots.Curve("simdist", (0.0, 15.0), estimates),
        plots.Curve("oracle", (0.0,), estimates[:1]),
    ]
    series = paper.SERIES["slope_sheet"]
    (axes,) = plots.progress_figure(plots.LIGHT, LINE, curves, series).axes
    drawn = [(list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines]
    assert ([0.0, 15.0], pytest.approx([0.3, 1.1])) in drawn
    assert (list(series.minutes), list(series.progress_m)) in drawn
    horizontal = [y for x, y in drawn if len(set(y)) == 1 and y[0] == pytest.approx(0.3)]
    assert horizontal
    texts = " ".join(text.get_text() for text in axes.texts)
    for wanted in ("simdist 1.10", "oracle 0.30", "paper, real robot", "success line 1.82 m"):
        assert wanted in texts
    assert "minutes" in axes.get_xlabel()
    assert "(m)" in axes.get_ylabel()
    (alone,) = plots.progress_figure(plots.LIGHT, LINE, curves, None).axes
    assert "paper" not in " ".join(text.get_text() for text in alone.texts)


def test_the_sweep_marks_the_friction_of_the_world(tmp_path: Path):
    (tmp_path / "sweep.json").write_text(json.dumps(sweep_data()))
    (world,) = assemble([tmp_path / "sweep.json"])
    chosen = world.chosen(world.sweeps[0])
    assert chosen == min(strip.friction for strip in load_world("slope_sheet").course)
    (axes,) = plots.sweep_figure(plots.LIGHT, world.sweeps[0], chosen).axes
    assert f"this world: {chosen:g}" in [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    ("world", "parameter", "gap"),
    [
        ("weak_motor", "motor_strength", "motor_strength"),
        ("payload", "trunk_mass", "trunk_mass"),
        ("latency", "action_delay", "action_delay"),
        ("nominal", "time_constant", None),
        ("nominal", "motor_strength", None),
    ],
)
def test_every_swept_parameter_has_a_name_and_its_value_in_the_world(world, parameter, gap):
    spec = load_world(world)
    found = own_value(spec, parameter)
    assert parameter in plots.PARAMETER_NAMES
    if gap is None:
        assert found is None
    else:
        given = getattr(spec.gaps, gap)
        assert found == (min(given.values()) if gap == "motor_strength" else given)
        assert found


def test_the_time_constant_of_foam_is_that_of_its_pad():
    (softness,) = [s.softness for s in load_world("foam").course if s.softness is not None]
    assert own_value(load_world("foam"), "time_constant") == softness.time_constant


def test_the_way_is_zero_at_the_expert_and_one_at_the_oracle(tmp_path: Path):
    made = [result(m, point(0.0, v)) for m, v in (("expert", (0.2, 0.4)), ("oracle", (1.2, 1.4)))]
    (world,) = worlds_of(tmp_path, *made, result("simdist", point(0.0, (0.8, 0.8))))
    assert {row.method: row.way for row in world.rows} == pytest.approx(
        {"expert": 0.0, "oracle": 1.0, "simdist": 0.5}
    )


def test_methods_that_start_from_different_models_are_pointed_out(tmp_path: Path):
    other = {"weights_hash": "11"}
    (world,) = worlds_of(tmp_path, result("simdist"), result("ppo"), result("through", model=other))
    assert list(world.models()) == ["00"]
    said = "Not all methods start from the same model"
    assert said not in page([world], Pictures(None, {}), "")
    (world,) = worlds_of(tmp_path, result("ppo", model=other))
    assert said in page([world], Pictures(None, {}), "")


def test_results_from_an_older_description_of_their_world_are_pointed_out(tmp_path: Path):
    for name, description in (("simdist", "a" * 64), ("oracle", "b" * 64)):
        save(tmp_path, result(name, settings={"world_file": description}))
    worlds = assemble(find_files([tmp_path])[0])
    text = page(worlds, Pictures(None, {}), "simdist report")
    assert "Not all methods met the same description" in text
    assert f"{'a' * 12}: simdist; {'b' * 12}: oracle" in text


def test_worlds_keep_their_order_whatever_the_files_are_called(tmp_path: Path):
    for world in ("payload", "ice", "another", "slope_sheet", "nominal"):
        result("simdist", world=world).save(tmp_path / f"{world}.json")
    names = [world.name for world in assemble(find_files([tmp_path])[0])]
    assert names == ["slope_sheet", "ice", "payload", "nominal", "another"]


MARKED = f"# Page\n\n{BEGIN}\nold\n{END}\n\nafter\n"


def test_the_table_of_a_page_is_replaced_and_nothing_else(tmp_path: Path):
    save(tmp_path, *all_methods())
    target = tmp_path / "page.md"
    target.write_text(MARKED)
    for _ in range(2):
        assert cli.main(["report", str(tmp_path), "--markdown", str(target)]) == 0
        before, rest = target.read_text().split(BEGIN)
        rows, after = rest.split(END)
        assert (before, after) == ("# Page\n\n", "\n\nafter\n")
        assert "old" not in rows
        lines = rows.strip().splitlines()[2:]
        expected = [(one, p) for one in all_methods() for p in one.points]
        for line, (one, at) in zip(lines, expected, strict=True):
            assert f"| `{one.method}` |" in line
            assert f"{np.mean(at.progress_m):.2f} m | {at.success} of 3 | {at.falls} |" in line


@pytest.mark.parametrize("text", ["", BEGIN, f"{END}\n{BEGIN}", MARKED + MARKED])
def test_a_page_without_one_place_for_the_table_is_left_alone(tmp_path: Path, capsys, text: str):
    save(tmp_path, result("simdist"))
    target = tmp_path / "page.md"
    target.write_text(text)
    assert cli.main(["report", str(tmp_path), "--markdown", str(target)]) != 0
    assert "must hold one line" in capsys.readouterr().err
    assert target.read_text() == text


def test_there_is_no_way_without_headroom(tmp_path: Path):
    (world,) = worlds_of(tmp_path, result("expert"), result("oracle"), result("simdist"))
    assert [row.way for row in world.rows] == [None, None, None]


def test_the_method_is_judged_after_no_more_than_the_goal_minutes(tmp_path: Path):
    points = [point(minutes, (0.1, 0.2, 0.3)) for minutes in (0.0, 10.0, 15.0, 20.0)]
    (world,) = worlds_of(tmp_path, result("simdist", *points))
    row = world.judged("simdist")
    assert row is not None
    assert row.minutes == 15.0


def test_oracles_are_compared_trial_by_trial_where_they_ran_the_same_trials(tmp_path: Path):
    spread, gain = np.array([0.1, 0.8, 1.5]), 0.2
    oracle = result("oracle", point(0.0, tuple((spread + gain).tolist())))
    paired = worlds_of(
        tmp_path / "a", oracle, result("oracle_nominal", point(0.0, tuple(spread.tolist())))
    )
    other = result("oracle_nominal", point(0.0, tuple(spread.tolist()), first_seed=2000))
    apart = worlds_of(tmp_path / "b", oracle, other)
    for worlds, width in ((paired, 0.0), (apart, 0.5)):
        relearning = worlds[0].relearning
        assert relearning is not None
        assert relearning.mean == pytest.approx(gain)
        assert relearning.high - relearning.low >= width - 1e-12
    exact = paired[0].relearning
    assert exact is not None
    assert exact.high - exact.low < 1e-9


def test_every_method_of_the_experiments_is_explained():
    assert set(methods.METHODS) <= set(STYLES)
    assert style("planner") is STYLES["frozen"]  # as 'simdist evaluate' calls it
    assert all(look.explanation for look in STYLES.values())


def test_methods_differ_in_more_than_colour():
    drawn = [(look.dash, look.marker, look.colours) for look in STYLES.values()]
    assert len(set(drawn)) == len(drawn)
    learners = [look.marker for look in STYLES.values() if look.learns]
    assert len(set(learners)) == len(learners)


# --- statistics and labels ---------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=20))
def test_the_mean_lies_in_its_interval_and_the_interval_in_the_data(values: list[float]):
    estimate = bootstrap_mean(values)
    assert min(values) - 1e-9 <= estimate.low <= estimate.high <= max(values) + 1e-9
    assert estimate == bootstrap_mean(values)
    assert estimate.mean == pytest.approx(float(np.mean(values)))


def test_the_interval_is_that_of_theory_for_a_normal_sample():
    values = np.random.default_rng(1).normal(2.0, 0.5, 200)
    estimate = bootstrap_mean(values.tolist())
    half = 1.96 * values.std() / math.sqrt(len(values))
    assert estimate.high - estimate.mean == pytest.approx(half, rel=0.1)
    assert estimate.mean - estimate.low == pytest.approx(half, rel=0.1)
    difference = bootstrap_difference(values.tolist(), (values + 1.0).tolist())
    assert difference.mean == pytest.approx(-1.0)
    assert difference.high - difference.mean == pytest.approx(half * math.sqrt(2), rel=0.1)


@settings(deadline=None)
@given(st.lists(st.floats(-0.5, 1.5), min_size=1, max_size=15), st.floats(0.01, 0.3))
def test_labels_keep_their_order_and_distance_inside_the_axes(wanted: list[float], gap: float):
    placed = plots.spread(wanted, gap, 0.0, 1.0)
    kept = min(gap, 1.0 / max(len(wanted) - 1, 1))
    assert all(-1e-9 <= position <= 1 + 1e-9 for position in placed)
    ranked = sorted(range(len(wanted)), key=lambda i: wanted[i])
    for low, high in itertools.pairwise(ranked):
        assert placed[high] - placed[low] >= kept - 1e-9


def test_labels_with_room_stay_where_their_lines_end():
    assert plots.spread([0.9, 0.1, 0.5], 0.1, 0.0, 1.0) == pytest.approx([0.9, 0.1, 0.5])


def test_labels_at_one_height_are_spread_evenly_around_it():
    placed = plots.spread([0.5, 0.9, 0.5, 0.5], 0.1, 0.0, 1.0)
    assert sorted(placed) == pytest.approx([0.4, 0.5, 0.6, 0.9])


# --- what is refused ---------------------------------------------------------------------------


def refusal(capsys: pytest.CaptureFixture[str], *paths: Path) -> str:
    """The one line with which ``simdist report`` refuses ``paths``."""
    out = paths[0].parent / "refused"
    assert cli.main(["report", *map(str, paths), "--out", str(out)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert not out.exists()
    return line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ("\x00\x01", "is not JSON"),
        ('{"format": NaN}', "NaN"),
        ("[1]", "must hold a JSON object"),
        ("{}", "format must be one of simdist-experiment-1"),
        ('{"format": "simdist-experiment-2"}', "'simdist-experiment-2'"),
        ('{"format": ["simdist-experiment-1"]}', "format must be one of"),
        ('{"format": "simdist-sweep-1"}', "values must be a list of n finite numbers, got"),
    ],
)
def test_a_file_that_is_no_results_file_is_refused(tmp_path: Path, capsys, text: str, said: str):
    file = tmp_path / "some.json"
    file.write_text(text)
    line = refusal(capsys, file)
    assert said in line
    assert str(file) in line


def test_another_version_is_refused_in_a_directory_too(tmp_path: Path, capsys):
    save(tmp_path / "in", result("expert"))
    (tmp_path / "in" / "old.json").write_text('{"format": "simdist-experiment-0"}')
    assert "old.json" in refusal(capsys, tmp_path / "in")


def test_a_directory_without_results_and_a_missing_path_are_refused(tmp_path: Path, capsys):
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "holds no results file" in refusal(capsys, empty)
    assert "no such file or directory" in refusal(capsys, tmp_path / "missing.json")


def test_other_json_beside_results_is_passed_over(tmp_path: Path):
    save(tmp_path, result("expert"))
    (tmp_path / "state").mkdir()
    state = tmp_path / "state" / "progress.json"
    state.write_text('{"format": "simdist-experiment-state-1"}')
    (tmp_path / "summary.json").write_text('{"format": "simdist-report-1"}')
    (tmp_path / "other.json").write_text("{}")
    (tmp_path / "diagnosis.json").write_text('{"format": "simdist-diagnosis-1"}')
    files, passed = find_files([tmp_path, tmp_path / "expert.json"])
    assert [file.name for file in files] == ["expert.json"]
    assert sorted(file.name for file in passed) == [
        *("diagnosis.json", "other.json", "progress.json", "summary.json")
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"settings": {"trials": 15}}, "settings.trials (3 and 15)"),
        ({"seed": 7}, "seed (0 and 7)"),
        ({"points": (point(0.0, (0.1, 0.1, 0.1)),)}, "points"),
    ],
)
def test_two_results_of_one_method_that_differ_are_refused(
    tmp_path: Path, capsys, change: dict[str, Any], said: str
):
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    result("simdist").save(first)
    result("simdist", **change).save(second)
    line = refusal(capsys, first, second)
    assert str(first) in line
    assert str(second) in line
    assert said in line


def test_a_copy_of_a_result_counts_once(tmp_path: Path):
    for name in ("first", "copy"):
        result("simdist").save(tmp_path / f"{name}.json")
    (world,) = assemble(find_files([tmp_path])[0])
    assert len(world.rows) == 1


def test_results_of_one_world_with_different_lines_are_refused(tmp_path: Path, capsys):
    save(tmp_path / "in", result("expert"), result("oracle", line_m=3.0))
    line = refusal(capsys, tmp_path / "in")
    assert "expert.json" in line
    assert "oracle.json" in line
    assert "1.82 and 3" in line or "3 and 1.82" in line


@pytest.mark.parametrize(
    ("points", "said"),
    [
        ((), "at least one point"),
        ((point(5.0, (0.1,)), point(5.0, (0.1,))), "points[1].minutes"),
        ((point(-1.0, (0.1,)),), "points[0].minutes"),
        ((replace(point(0.0, (0.1,)), success=2),), "points[0].success must lie in 0..1"),
        ((replace(point(0.0, (0.1,)), falls=-1),), "points[0].falls must lie in 0..1"),
    ],
)
def test_points_that_cannot_be_drawn_are_refused(tmp_path: Path, points, said: str):
    replace(result("simdist"), points=tuple(points)).save(tmp_path / "result.json")
    with pytest.raises(ConfigError, match=r"result\.json") as refused:
        assemble([tmp_path / "result.json"])
    assert said in str(refused.value)


BROKEN = [
    ("sweep", ("rows", 0, "progress_m"), [0.1], "rows[0].progress_m must be a list of 3 finite"),
    ("sweep", ("rows", 1, "value"), 0.7, "one of the swept values 0.2, 0.3, got 0.7"),
    ("sweep", ("rows", 0, "success"), 4, "rows[0].success must be a whole number from 0 to 3"),
    ("sweep", ("rows",), [], "rows must be a list of at least one object, got []"),
    ("sweep", ("line_m",), "high", "line_m must be a finite number from 0 to inf, got 'high'"),
    ("sweep", ("values",), [0.2, True], "values must be a list of n finite numbers, got True"),
    ("sweep", ("world",), 3, "world must be text, got 3"),
    ("feet", ("feet",), ["FL"], "episodes[0].true must be a list of 2 × 1 × 3 finite numbers"),
    ("feet", ("episodes", 1, "label"), "later", "before or after, got 'later'"),
    (
        "feet",
        ("episodes", 1, "label"),
        "before",
        "episodes must have one labelled 'after', got none",
    ),
    ("feet", ("episodes", 0, "true"), [[[1]], [[1, 2]]], "episodes[0].true must be"),
    ("feet", ("error_m", "after"), -1.0, "error_m.after must be a finite number from 0"),
    ("feet", ("dt",), 0, "dt must be"),
    ("slip", ("loss_after",), [0.1, 0.2], "loss_after must be a list of 3 finite numbers, got 2"),
    ("slip", ("by_step_after",), [0.1, None], "by_step_after must be a list of 2 finite"),
    ("slip", ("time",), [], "time must be a list of n finite numbers, got 0"),
    ("slip", ("format",), "simdist-latent-slip-2", "format must be 'simdist-latent-slip-1'"),
]


@pytest.mark.parametrize(("kind", "place", "value", "said"), BROKEN)
def test_figures_data_that_cannot_be_drawn_are_refused(
    tmp_path: Path, kind: str, place: tuple[Any, ...], value: Any, said: str
):
    make, load = DRAWN[kind]
    data: Any = make()
    inner = data
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    file = tmp_path / f"{kind}.json"
    file.write_text(json.dumps(data))
    with pytest.raises(ConfigError, match=f"{kind}.json") as refused:
        load(file)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("kind", DRAWN)
def test_a_missing_field_is_named(tmp_path: Path, kind: str):
    make, load = DRAWN[kind]
    file = tmp_path / "one.json"
    for name in make():
        data = make()
        del data[name]
        file.write_text(json.dumps(data))
        with pytest.raises(ConfigError, match=name):
            load(file)
