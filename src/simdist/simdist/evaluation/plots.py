"""The figures of the report, drawn with matplotlib's Agg canvas (no window, no global state).

Every figure names its axes with units and labels its lines directly. A figure is drawn once for
light and once for dark pages; the data are the same.
"""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from PIL import Image

from simdist.evaluation.figures_data import LABELS, FootTracks, LatentSlip, SweepResult
from simdist.evaluation.method_styles import order, style
from simdist.evaluation.paper import PaperSeries
from simdist.evaluation.statistics import Estimate, bootstrap_mean
from simdist.types import Array

DPI = 120
FONT = "DejaVu Sans"  # comes with matplotlib: the same text everywhere
FOOT_NAMES = {"FR": "front right", "FL": "front left", "RR": "rear right", "RL": "rear left"}
PARAMETER_NAMES = {  # of sweeps, with units
    "friction": "friction of the hard part (-)",
    "time_constant": "time constant of the soft ground (s)",
    "damping_ratio": "damping ratio of the soft ground (-)",
    "depth": "depth of the soft ground (m)",
    "trunk_mass": "mass added to the trunk (kg)",
    "motor_strength": "torque of the weak motor (share of full torque)",
    "action_delay": "action delay (s)",
}
LABEL_GAP = 0.052  # of the height of the axes, between direct labels


@dataclass(frozen=True)
class Theme:
    """Colours of a page; ``index`` picks from (light, dark) pairs."""

    index: int
    paper: str
    ink: str
    grid: str

    def colour(self, pair: tuple[str, str] | None) -> str:
        return self.ink if pair is None else pair[self.index]


LIGHT = Theme(0, "#ffffff", "#1c1c1c", "#dcdcdc")
DARK = Theme(1, "#17191c", "#e6e6e6", "#3a3d42")

_BEFORE = ("#C24E00", "#FF8A4C")
_AFTER = ("#0072B2", "#5AB4F0")


@dataclass(frozen=True)
class Curve:
    """Progress of one method: ``minutes (n,)`` of robot data and an estimate for each."""

    method: str
    minutes: tuple[float, ...]
    progress: tuple[Estimate, ...]


@dataclass(frozen=True)
class Overview:
    """One world of the overview: mean progress by method, and the success line (m)."""

    world: str
    line_m: float
    progress: dict[str, Estimate]


@dataclass(frozen=True)
class _Label:
    x: float
    y: float
    text: str
    colour: str


def png(figure: Figure) -> bytes:
    """The figure as PNG; equal figures give equal bytes.

    A palette of 255 colours makes files a third as large as full colour, and looks the same.
    """
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    image = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    palette = image.quantize(255, Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE)
    buffer = io.BytesIO()
    palette.save(buffer, "PNG", optimize=True, dpi=(DPI, DPI))
    return buffer.getvalue()


def _figure(theme: Theme, width: float, height: float) -> Figure:
    return Figure(figsize=(width, height), dpi=DPI, facecolor=theme.paper)


def _dress(axes: Axes, theme: Theme, x: str, y: str, title: str = "") -> None:
    axes.set_facecolor(theme.paper)
    axes.set_xlabel(x, color=theme.ink, family=FONT, fontsize=10)
    axes.set_ylabel(y, color=theme.ink, family=FONT, fontsize=10)
    if title:
        axes.set_title(title, color=theme.ink, family=FONT, fontsize=10, loc="left")
    axes.tick_params(colors=theme.ink, labelsize=9, labelfontfamily=FONT)
    axes.grid(True, color=theme.grid, linewidth=0.7)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(theme.ink)


def spread(positions: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Positions moved as little as needed to lie ``gap`` apart within ``[low, high]``.

    The order is kept. Where they do not fit, they are spaced evenly.
    """
    if len(positions) < 2:
        return [min(max(p, low), high) for p in positions]
    gap = min(gap, (high - low) / (len(positions) - 1))
    ranked = sorted(range(len(positions)), key=lambda i: positions[i])
    # Blocks of touching labels, each centred on the mean of where its labels want to be.
    blocks: list[tuple[float, int]] = []  # sum of wanted positions of the block's start, length

    def start(block: tuple[float, int]) -> float:
        total, length = block
        return min(max(total / length, low), high - (length - 1) * gap)

    for index in ranked:
        block = (positions[index], 1)
        while blocks and start(blocks[-1]) + blocks[-1][1] * gap > start(block):
            total, length = blocks.pop()
            block = (total + block[0] - length * gap * block[1], length + block[1])
        blocks.append(block)
    moved = [0.0] * len(positions)
    ranks = iter(ranked)
    for block in blocks:
        for step in range(block[1]):
            moved[next(ranks)] = start(block) + step * gap
    return moved


def _write_labels(axes: Axes, labels: Sequence[_Label], gap: float = LABEL_GAP) -> None:
    """Names beside the right edge of the axes, each joined to the end of its line."""
    low, high = axes.get_ylim()
    heights = [(label.y - low) / (high - low) for label in labels]
    placed = zip(labels, spread(heights, gap, 0.0, 1.0), strict=True)
    for label, height in placed:
        axes.annotate(
            label.text,
            xy=(label.x, label.y),
            xytext=(1.03, height),
            textcoords="axes fraction",
            color=label.colour,
            family=FONT,
            fontsize=9,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": label.colour,
                "linewidth": 0.6,
                "alpha": 0.7,
                "shrinkA": 1,
                "shrinkB": 1,
                "relpos": (0.0, 0.5),
            },
        )


def _success_line(axes: Axes, theme: Theme, line_m: float) -> None:
    axes.axhline(line_m, color=theme.ink, linewidth=1.6, linestyle=(0, (1, 1.2)))
    axes.annotate(
        f"success line {line_m:g} m",
        xy=(0.0, line_m),
        xycoords=("axes fraction", "data"),
        xytext=(4, 4),
        textcoords="offset points",
        color=theme.ink,
        family=FONT,
        fontsize=9,
        va="bottom",
    )


def progress_figure(
    theme: Theme, line_m: float, curves: Sequence[Curve], paper: PaperSeries | None
) -> Figure:
    """Forward progress against minutes of robot data.

    A method that learns is a curve with its confidence band; one that does not is a horizontal
    line, with its confidence interval as a bar at the right.
    """
    learning = [curve for curve in curves if style(curve.method).learns]
    fixed = [curve for curve in curves if not style(curve.method).learns]
    ends = [minutes for curve in learning for minutes in curve.minutes]
    end = max([1.0, *ends, *(paper.minutes if paper else ())])
    figure = _figure(theme, 9.2, 5.2)
    axes = figure.add_axes((0.075, 0.11, 0.71, 0.84))
    _dress(axes, theme, "minutes of robot data", "forward progress (m), mean of the trials")
    tops = [estimate.high for curve in curves for estimate in curve.progress]
    lows = [estimate.low for curve in curves for estimate in curve.progress]
    top = max([line_m, *tops, *(paper.progress_m if paper else ())])
    bottom = min([0.0, *lows])
    strip = 0.018 * end  # between the interval bars of the horizontal lines
    right = end + strip * (len(fixed) + 1)
    axes.set_xlim(-0.015 * end, right)
    ticks = MaxNLocator(8).tick_values(0.0, end)
    axes.set_xticks([tick for tick in ticks if 0.0 <= tick <= end])
    axes.set_ylim(bottom - 0.03 * (top - bottom), top + 0.07 * (top - bottom))
    _success_line(axes, theme, line_m)
    labels = []
    for index, curve in enumerate(fixed):
        look, estimate = style(curve.method), curve.progress[-1]
        colour = theme.colour(look.colours)
        x = end + strip * (index + 1)
        axes.plot([0.0, x], [estimate.mean] * 2, color=colour, linestyle=look.dash, linewidth=1.3)
        axes.plot([x, x], [estimate.low, estimate.high], color=colour, linewidth=2.4, alpha=0.55)
        labels.append(_Label(x, estimate.mean, f"{look.label} {estimate.mean:.2f}", colour))
    # The method itself is drawn last, on top.
    for curve in sorted(learning, key=lambda c: order(c.method), reverse=True):
        look = style(curve.method)
        colour = theme.colour(look.colours)
        mean = [estimate.mean for estimate in curve.progress]
        axes.fill_between(
            curve.minutes,
            [estimate.low for estimate in curve.progress],
            [estimate.high for estimate in curve.progress],
            color=colour,
            alpha=0.16,
            linewidth=0,
        )
        axes.plot(
            curve.minutes,
            mean,
            color=colour,
            linestyle=look.dash,
            linewidth=2.2,
            marker=look.marker,
            markersize=6,
        )
        labels.append(_Label(curve.minutes[-1], mean[-1], f"{look.label} {mean[-1]:.2f}", colour))
    if paper:
        axes.plot(
            paper.minutes,
            paper.progress_m,
            color=theme.ink,
            linestyle=(0, (4, 3)),
            linewidth=0.9,
            marker="D",
            markersize=8,
            markerfacecolor=theme.paper,
            markeredgewidth=1.4,
            zorder=4,
        )
        last = paper.progress_m[-1]
        labels.append(_Label(paper.minutes[-1], last, f"paper, real robot {last:.2f}", theme.ink))
    _write_labels(axes, labels)
    return figure


def sweep_figure(theme: Theme, sweep: SweepResult, chosen: float | None) -> Figure:
    """Progress against the swept parameter, one line a method; ``chosen`` is the world's value."""
    figure = _figure(theme, 9.2, 4.4)
    axes = figure.add_axes((0.075, 0.13, 0.74, 0.82))
    name = PARAMETER_NAMES.get(sweep.parameter, sweep.parameter)
    _dress(axes, theme, name, "forward progress (m), mean of the trials")
    methods = sorted({row.method for row in sweep.rows}, key=order)
    estimates = [(row, bootstrap_mean(row.progress_m)) for row in sweep.rows]
    top = max([sweep.line_m, *(estimate.high for _, estimate in estimates)])
    bottom = min([0.0, *(estimate.low for _, estimate in estimates)])
    axes.set_ylim(bottom - 0.03 * (top - bottom), top + 0.09 * (top - bottom))
    values = [*sweep.values, *([] if chosen is None else [chosen])]
    margin = 0.03 * (max(values) - min(values) or 1.0)
    axes.set_xlim(min(values) - margin, max(values) + margin)
    _success_line(axes, theme, sweep.line_m)
    if chosen is not None:
        axes.axvline(chosen, color=theme.ink, linewidth=5, alpha=0.18)
        axes.annotate(
            f"this world: {chosen:g}",
            xy=(chosen, 0.0),
            xycoords=("data", "axes fraction"),
            xytext=(5, 5),
            textcoords="offset points",
            color=theme.ink,
            family=FONT,
            fontsize=9,
        )
    labels = []
    for method in reversed(methods):
        look = style(method)
        colour = theme.colour(look.colours)
        mine = sorted(
            ((row.value, estimate) for row, estimate in estimates if row.method == method),
            key=lambda pair: pair[0],
        )
        x = [value for value, _ in mine]
        mean = [estimate.mean for _, estimate in mine]
        low, high = [e.low for _, e in mine], [e.high for _, e in mine]
        axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
        axes.plot(
            x,
            mean,
            color=colour,
            linestyle=look.dash,
            linewidth=1.8,
            marker=look.marker or "o",
            markersize=4,
        )
        labels.append(_Label(x[-1], mean[-1], look.label, colour))
    _write_labels(axes, labels, gap=0.065)
    return figure


def overview_figure(theme: Theme, worlds: Sequence[Overview]) -> Figure:
    """Every world in one picture: mean progress as a share of the distance to the success line."""
    height = 1.1 + 0.5 * len(worlds)
    figure = _figure(theme, 9.2, height)
    axes = figure.add_axes((0.17, 0.55 / height, 0.63, 1.0 - 0.9 / height))
    _dress(axes, theme, "mean forward progress, % of the distance to the success line", "")
    axes.set_yticks(range(len(worlds)), [world.world for world in worlds])
    axes.set_ylim(len(worlds) - 0.5, -0.5)
    axes.axvline(100.0, color=theme.ink, linewidth=1.6, linestyle=(0, (1, 1.2)))
    markers = {
        "expert": ("|", 15),
        "oracle_nominal": ("1", 11),
        "frozen": ("o", 9),
        "oracle": ("_", 15),
        "simdist": ("o", 9),
    }
    shown = []
    for row, world in enumerate(worlds):
        share = {m: 100.0 * e.mean / world.line_m for m, e in world.progress.items()}
        if "frozen" in share and "simdist" in share:
            axes.annotate(
                "",
                xy=(share["simdist"], row),
                xytext=(share["frozen"], row),
                arrowprops={
                    "arrowstyle": "-",
                    "color": theme.colour(style("simdist").colours),
                    "linewidth": 3,
                    "alpha": 0.45,
                },
            )
        for method, (marker, size) in markers.items():
            if method not in share:
                continue
            colour = theme.colour(style(method).colours)
            hollow = method == "frozen"
            (line,) = axes.plot(
                share[method],
                row,
                marker="|" if method == "oracle" else marker,
                markersize=size,
                markeredgewidth=3.2 if method == "oracle" else 1.8,
                color=colour,
                linestyle="none",
                markerfacecolor=theme.paper if hollow else colour,
                zorder=3 if method in ("frozen", "simdist") else 2,
            )
            if method not in [name for name, _ in shown]:
                shown.append((method, line))
    low, high = axes.get_xlim()
    axes.set_xlim(min(low, 0.0), max(high, 104.0))
    shown.sort(key=lambda pair: order(pair[0]))
    if shown:
        legend = axes.legend(
            [line for _, line in shown],
            [style(method).label for method, _ in shown],
            loc="center left",
            bbox_to_anchor=(1.02, 0.5),
            frameon=False,
            labelcolor=theme.ink,
            prop={"family": FONT, "size": 9},
        )
        legend.set_in_layout(False)
    return figure


def _foot_axes(theme: Theme, tracks: FootTracks, x: str, y: str) -> tuple[Figure, list[list[Axes]]]:
    """Axes by [label][foot], one row before and one after finetuning; a foot shares its axes."""
    figure = _figure(theme, 9.2, 4.8)
    grid = figure.subplots(len(LABELS), len(tracks.feet), squeeze=False, sharex="col", sharey="col")
    figure.subplots_adjust(0.085, 0.105, 0.985, 0.86, wspace=0.36, hspace=0.3)
    for row, label in enumerate(LABELS):
        for column, foot in enumerate(tracks.feet):
            last, first = row == len(LABELS) - 1, column == 0
            name = FOOT_NAMES.get(foot, foot)
            title = f"{label}: {name}" if first else name
            axes = grid[row][column]
            _dress(axes, theme, x if last else "", y if first else "", title)
            axes.xaxis.set_major_locator(MaxNLocator(3))
            axes.yaxis.set_major_locator(MaxNLocator(5))
    lines = [
        Line2D([], [], color=theme.ink, linewidth=2.2, alpha=0.75, label="true"),
        *(
            Line2D(
                [],
                [],
                color=theme.colour(colours),
                linestyle="--",
                label=f"predicted, {label} finetuning",
            )
            for label, colours in (("before", _BEFORE), ("after", _AFTER))
        ),
    ]
    figure.legend(
        handles=lines,
        loc="upper left",
        bbox_to_anchor=(0.075, 1.0),
        ncols=3,
        frameon=False,
        labelcolor=theme.ink,
        prop={"family": FONT, "size": 9},
    )
    return figure, [list(row) for row in grid]


def foot_time_figure(theme: Theme, tracks: FootTracks) -> Figure:
    """Forward position of each foot against time, predicted over true."""
    figure, grid = _foot_axes(theme, tracks, "time (s)", "forward of base (m)")
    for axes_row, label in zip(grid, LABELS, strict=True):
        episode = tracks.first(label)
        for foot, axes in enumerate(axes_row):
            x = episode.true[:, foot, 0], episode.predicted[:, foot, 0]
            _true_and_predicted(axes, theme, label, (episode.time, x[0]), (episode.time, x[1]))
    return figure


def foot_side_figure(theme: Theme, tracks: FootTracks) -> Figure:
    """Path of each foot seen from the side, in the frame of the robot's body."""
    figure, grid = _foot_axes(theme, tracks, "forward of base (m)", "above base (m)")
    for axes_row, label in zip(grid, LABELS, strict=True):
        episode = tracks.first(label)
        for foot, axes in enumerate(axes_row):
            true, predicted = episode.true[:, foot], episode.predicted[:, foot]
            _true_and_predicted(
                axes,
                theme,
                label,
                (true[:, 0], true[:, 2]),
                (predicted[:, 0], predicted[:, 2]),
            )
    return figure


def _true_and_predicted(
    axes: Axes,
    theme: Theme,
    label: str,
    true: tuple[Array, Array],
    predicted: tuple[Array, Array],
) -> None:
    colour = theme.colour(_BEFORE if label == "before" else _AFTER)
    axes.plot(*true, color=theme.ink, linewidth=2.2, alpha=0.75)
    axes.plot(*predicted, color=colour, linewidth=1.6, linestyle="--")


def latent_figure(theme: Theme, slip: LatentSlip) -> Figure:
    """Latent prediction loss along a held-out slip, and by step of the horizon."""
    figure = _figure(theme, 9.2, 3.9)
    left = figure.add_axes((0.075, 0.15, 0.50, 0.74))
    right = figure.add_axes((0.66, 0.15, 0.245, 0.74))
    _dress(left, theme, "time (s)", "latent prediction loss (-)", "along a held-out slip")
    _dress(right, theme, "steps predicted ahead", "", "by step of the horizon")
    steps = np.arange(1, len(slip.by_step_before) + 1)
    labels = []
    for label, along, by_step, dash, pair in (
        ("before", slip.loss_before, slip.by_step_before, "--", _BEFORE),
        ("after", slip.loss_after, slip.by_step_after, "-", _AFTER),
    ):
        colour = theme.colour(pair)
        left.plot(slip.time, along, color=colour, linestyle=dash, linewidth=1.6)
        mark = "o" if label == "after" else "^"
        right.plot(steps, by_step, color=colour, linestyle=dash, marker=mark, markersize=4)
        labels.append(_Label(float(steps[-1]), float(by_step[-1]), label, colour))
    for axes in (left, right):
        low, high = axes.get_ylim()
        axes.set_ylim(min(0.0, low), high if math.isfinite(high) else 1.0)
    _write_labels(right, labels, gap=0.08)
    return figure
