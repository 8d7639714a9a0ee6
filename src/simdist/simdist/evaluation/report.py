"""``simdist report``: one page about experiments, for readers who do not know the paper."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from simdist.evaluation import paper, plots
from simdist.evaluation.figures_data import FootTracks, LatentSlip, SweepResult
from simdist.evaluation.method_styles import style
from simdist.evaluation.plots import DARK, LIGHT, Theme
from simdist.evaluation.report_data import (
    REPORT_FORMAT,
    WorldReport,
    assemble,
    find_files,
    slug,
)
from simdist.evaluation.report_page import Picture, Pictures, page, report_command
from simdist.evaluation.report_table import update_page
from simdist.evaluation.results import write_json
from simdist.world_model.artefact import write_atomically

OVERVIEW_METHODS = ("expert", "frozen", "simdist", "oracle", "oracle_nominal")


def _picture(name: str, alternative: str, caption: str, draw: Callable[[Theme], Figure]) -> Picture:
    light, dark = (plots.png(draw(theme)) for theme in (LIGHT, DARK))
    return Picture(name, alternative, caption, light, dark)


def _progress(world: WorldReport) -> Picture:
    curves = []
    for method in world.sources:
        rows = [row for row in world.rows if row.method == method]
        curves.append(
            plots.Curve(
                method, tuple(row.minutes for row in rows), tuple(row.progress for row in rows)
            )
        )
    series = paper.SERIES.get(world.name)
    last = "; ".join(
        f"{style(curve.method).label} {curve.progress[-1].mean:.2f} m after "
        f"{curve.minutes[-1]:g} minutes"
        for curve in curves
        if style(curve.method).learns
    )
    caption = (
        "Curves: methods that learn from the robot's data, with the 95 % interval of the mean as a "
        "band. Horizontal lines: methods that do not learn, with their interval as a bar at the "
        "right. Numbers are the last means in m."
    )
    if series is not None:
        caption += " Diamonds: the paper's own points, from a real robot."
    return _picture(
        f"progress_{slug(world.name)}",
        f"Forward progress against minutes of robot data in {world.name}. {last or 'No learner'}.",
        caption,
        lambda theme: plots.progress_figure(theme, world.line_m, curves, series),
    )


def _sweep(world: WorldReport, sweep: SweepResult, name: str) -> Picture:
    chosen = world.chosen(sweep)
    parameter = sweep.parameter.replace("_", " ")
    caption = (
        f"Mean forward progress as the {parameter} of this world varies, 95 % interval as a "
        f"band, {min(row.trials for row in sweep.rows)} trials a point or more."
    )
    if chosen is not None:
        caption += f" The grey line marks this world's {parameter}, {chosen:g}."
    return _picture(
        name,
        f"Forward progress against {parameter} in {world.name}, one line a method.",
        caption,
        lambda theme: plots.sweep_figure(theme, sweep, chosen),
    )


def _feet(tracks: FootTracks, name: str) -> list[Picture]:
    before, after = (tracks.error_m[label] for label in ("before", "after"))
    error = (
        f"Mean distance between predicted and true foot over all held-out slips: "
        f"{100 * before:.1f} cm before and {100 * after:.1f} cm after finetuning."
    )
    return [
        _picture(
            f"{name}_time",
            f"Forward position of each foot against time, predicted and true. {error}",
            "Forward position of each foot relative to the body, as decoded from the predicted "
            f"latents (dashed) and as it was (solid). {error}",
            lambda theme: plots.foot_time_figure(theme, tracks),
        ),
        _picture(
            f"{name}_side",
            f"Path of each foot seen from the side, predicted and true. {error}",
            "The same episode seen from the robot's side: the path of each foot in the frame of "
            "the body.",
            lambda theme: plots.foot_side_figure(theme, tracks),
        ),
    ]


def _latent(slip: LatentSlip, name: str) -> Picture:
    before, after = float(slip.loss_before.mean()), float(slip.loss_after.mean())
    fold = f"{before / after:.1f} times smaller" if after > 0 else "zero after"
    text = f"Mean loss {before:.4f} before and {after:.4f} after finetuning, {fold}."
    was, became = paper.SLIP_LATENT_LOSS
    return _picture(
        name,
        f"Latent prediction loss along a slip and by step of the horizon. {text}",
        f"How wrong the model's prediction of its own next states is in a slip that it did not "
        f"learn from. {text} The paper's: {was} and {became}, {was / became:.1f} times.",
        lambda theme: plots.latent_figure(theme, slip),
    )


def draw(worlds: Sequence[WorldReport]) -> Pictures:
    """All figures of the report."""
    drawn: dict[str, dict[str, list[Picture]]] = {}
    for world in worlds:
        kinds = drawn.setdefault(world.name, {})
        if world.sources:
            kinds["progress"] = [_progress(world)]
        kinds["sweep"] = [
            _sweep(world, sweep, _numbered(f"sweep_{slug(world.name)}", index))
            for index, sweep in enumerate(world.sweeps)
        ]
        kinds["feet"] = [
            picture
            for index, tracks in enumerate(world.tracks)
            for picture in _feet(tracks, _numbered(f"feet_{slug(world.name)}", index))
        ]
        kinds["latent"] = [
            _latent(slip, _numbered(f"latent_{slug(world.name)}", index))
            for index, slip in enumerate(world.slips)
        ]
    return Pictures(_overview(worlds), drawn)


def _overview(worlds: Sequence[WorldReport]) -> Picture | None:
    shown = []
    for world in worlds:
        rows = {method: world.judged(method) for method in OVERVIEW_METHODS}
        progress = {method: row.progress for method, row in rows.items() if row is not None}
        if progress:
            shown.append(plots.Overview(world.name, world.line_m, progress))
    if not shown:
        return None
    return _picture(
        "overview",
        "Mean progress of each method in every world, as a share of the success line.",
        "From hollow to full dot: what relearning the dynamics changed. The dotted line is the "
        "success line.",
        lambda theme: plots.overview_figure(theme, shown),
    )


def _numbered(name: str, index: int) -> str:
    return name if index == 0 else f"{name}.{index + 1}"


def summary(worlds: Sequence[WorldReport]) -> dict[str, object]:
    """All rows of the tables, for programs."""
    return {
        "format": REPORT_FORMAT,
        "worlds": [world.to_dict() for world in worlds],
        "rows": [row.to_dict() for world in worlds for row in world.rows],
    }


def write(worlds: Sequence[WorldReport], out: Path, command: str) -> list[Path]:
    """Write page, figures and summary into ``out``; returns the files, the page first."""
    pictures = draw(worlds)
    text = page(worlds, pictures, command)
    index, summary_file = out / "index.html", out / "summary.json"
    images = [out / f"{picture.name}.png" for picture in pictures.all()]
    for path, picture in zip(images, pictures.all(), strict=True):
        write_atomically(path, picture.light)
    write_json(summary_file, summary(worlds))
    write_atomically(index, text.encode())
    return [index, summary_file, *images]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist report``."""
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="results files of experiments, sweeps, foot tracks, latent losses; or directories",
    )
    parser.add_argument("--out", default="report", help="directory of the page (default: report)")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="bring the table of results in this Markdown file up to date, and write no page",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run ``simdist report``."""
    files, passed = find_files([Path(path) for path in arguments.paths])
    if passed:
        print(f"passed over {len(passed)} JSON files that are no results", file=sys.stderr)
    worlds = assemble(files)
    if arguments.markdown is not None:
        update_page(arguments.markdown, worlds)
        print(f"{arguments.markdown}: table of {len(files)} results files", file=sys.stderr)
        return 0
    written = write(worlds, Path(arguments.out), report_command(arguments.paths, arguments.out))
    names = ", ".join(world.name for world in worlds)
    print(f"{written[0]}: {len(files)} results files, {names}", file=sys.stderr)
    return 0
