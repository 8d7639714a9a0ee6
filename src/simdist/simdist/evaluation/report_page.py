"""The page of ``simdist report``: HTML without scripts, with its figures inside."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from simdist.evaluation import paper
from simdist.evaluation.method_styles import STYLES, order, style
from simdist.evaluation.report_data import GOAL_MINUTES, TableRow, WorldReport, slug
from simdist.evaluation.statistics import Estimate

CSS = """
:root { color-scheme: light dark; --paper: #ffffff; --ink: #1c1c1c; --soft: #5c5c5c;
  --line: #dcdcdc; --card: #f5f6f8; --mark: #e3eff8; --link: #005a94; }
@media (prefers-color-scheme: dark) { :root { --paper: #17191c; --ink: #e6e6e6; --soft: #a9adb3;
  --line: #3a3d42; --card: #212428; --mark: #1d3244; --link: #7cc0f2; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 72rem; background: var(--paper);
  color: var(--ink); font: 16px/1.55 system-ui, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.35rem; margin: 3rem 0 .6rem; border-top: 2px solid var(--line);
  padding-top: 1.2rem; }
h3 { font-size: 1.05rem; margin: 1.8rem 0 .4rem; }
p, li, dd { max-width: 46rem; }
a { color: var(--link); }
nav a { margin-right: 1rem; }
figure { margin: 1rem 0; }
figure img { display: block; width: 100%; max-width: 1104px; height: auto; }
figcaption, .soft { color: var(--soft); font-size: .9rem; max-width: 52rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .28rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { font-weight: 600; vertical-align: bottom; }
td:first-child, th:first-child, td.text { text-align: left; }
td.wrap { white-space: normal; text-align: left; min-width: 14rem; }
tr.claim { background: var(--mark); }
.buy { background: var(--card); border-left: 4px solid var(--link); padding: .6rem .9rem;
  max-width: 52rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; }
code { font: .85rem/1.45 ui-monospace, monospace; }
td code { white-space: pre-wrap; overflow-wrap: anywhere; }
"""

CLAIMS = ("simdist", "simdist_online")  #: rows that are marked in the tables
NO_VALUE = "–"


@dataclass(frozen=True)
class Picture:
    """A figure for light and dark pages; ``name`` is the file name without suffix."""

    name: str
    alternative: str  #: text for readers who do not see it
    caption: str
    light: bytes
    dark: bytes


@dataclass(frozen=True)
class Pictures:
    """The figures by place: the overview, and those of each world by kind."""

    overview: Picture | None
    worlds: dict[str, dict[str, list[Picture]]]

    def all(self) -> list[Picture]:
        inside = [p for kinds in self.worlds.values() for group in kinds.values() for p in group]
        return [*([self.overview] if self.overview else []), *inside]


def page(worlds: Sequence[WorldReport], pictures: Pictures, command: str) -> str:
    """The whole page; equal results give equal text."""
    names = "".join(f'<a href="#{_anchor(w.name)}">{escape(w.name)}</a>' for w in worlds)
    parts = [
        "<h1>Does a robot get better by relearning only how its world moves?</h1>",
        _introduction(worlds),
        f'<nav aria-label="worlds">{names}<a href="#reproduce">reproduce</a></nav>',
        _overview(worlds, pictures),
        _methods(worlds),
        *(_world(world, pictures.worlds.get(world.name, {})) for world in worlds),
        _reproduce(worlds, command),
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>simdist: progress against minutes of robot data</title>\n<style>{CSS}</style>\n"
        "</head>\n<body>\n" + "\n".join(part for part in parts if part) + "\n</body>\n</html>\n"
    )


def _introduction(worlds: Sequence[WorldReport]) -> str:
    counts = {row.trials for world in worlds for row in world.rows}
    trials = (
        " to ".join(str(n) for n in sorted({min(counts), max(counts)})) if counts else "several"
    )
    return (
        "<p>A simulated four-legged robot learned to walk, and a neural world model learned from "
        "it to predict what the robot's movements lead to, so that the robot can choose its "
        "movements by trying them out in the model first. It is then put into worlds that the "
        "model has never seen, such as slippery slopes or a weak motor, where it collects a few "
        "minutes of its own data, relearns only the part of the model that predicts motion, and "
        f"is measured again: how far forward it gets in {trials} trials at three commanded "
        "speeds. Each curve below shows that progress against the minutes of data, beside methods "
        "that learn otherwise or not at all, and beside a planner that knows the true physics.</p>"
    )


def _overview(worlds: Sequence[WorldReport], pictures: Pictures) -> str:
    measured = [world for world in worlds if world.sources]
    if not measured:
        return ""
    rows = []
    for world in measured:
        row = world.judged("simdist")
        cells = [f'<td><a href="#{_anchor(world.name)}">{escape(world.name)}</a></td>']
        cells += _cells(f"{world.line_m:.2f}")
        for method in ("expert", "frozen"):
            other = world.judged(method)
            cells += _cells(f"{other.progress.mean:.2f}" if other else NO_VALUE)
        if row:
            minutes = f"{row.minutes:g}"
            cells += _cells(minutes, _interval(row.progress), f"{row.success}/{row.trials}")
        else:
            cells += _cells(NO_VALUE, NO_VALUE, NO_VALUE)
        oracle = world.judged("oracle")
        cells += _cells(
            f"{oracle.progress.mean:.2f}" if oracle else NO_VALUE,
            _signed(world.relearning),
            _percent(row.way if row else None),
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    head = _head(
        "world",
        "success line (m)",
        "expert (m)",
        "frozen model (m)",
        "minutes",
        "simdist (m)",
        "success",
        "oracle (m)",
        "relearning can buy (m)",
        "way from expert to oracle",
    )
    return (
        "<h2>In one table</h2>"
        "<p>Mean forward progress; simdist at its last measurement within "
        f"{GOAL_MINUTES:g} minutes of robot data.</p>"
        f"{_table(head, rows, 'overview')}"
        f"{_figure(pictures.overview) if pictures.overview else ''}"
    )


def _methods(worlds: Sequence[WorldReport]) -> str:
    used = sorted({method for world in worlds for method in world.sources}, key=order)
    used = [name for name in used if name in STYLES]
    if not used:
        return ""
    entries = "".join(
        f"<dt>{escape(style(name).label)}</dt><dd>{escape(style(name).explanation)}</dd>"
        for name in used
    )
    return (
        f"<h2>Who is compared</h2><dl>{entries}</dl>"
        "<h3>How to read the numbers</h3><p>Progress is the distance walked along the ground from "
        "where the hard part begins; a trial that reaches the success line ends there and counts "
        "as exactly the line, one that falls counts as far as it got. Robot data minutes are the "
        "time spent walking to collect data, with 5 seconds for each fall. Intervals are 95 % "
        "bootstrap intervals of the mean over the trials.</p>"
    )


def _world(world: WorldReport, pictures: dict[str, list[Picture]]) -> str:
    name = escape(world.name)
    parts = [f'<section id="{_anchor(world.name)}"><h2>{name}</h2>']
    if world.spec is None:
        parts.append('<p class="soft">No description: not one of config/worlds.</p>')
    else:
        parts.append(f"<p>{escape(world.spec.description)}</p>")
    if world.sources:
        parts += [_buys(world)]
        parts += [_figure(picture) for picture in pictures.get("progress", [])]
        parts += [_paper_note(world), _results_table(world), _notes(world), _losses(world)]
    for kind, title in (
        ("sweep", "Where the world lies"),
        ("feet", "Foot tracks in a held-out slip"),
        ("latent", "Prediction in a held-out slip"),
    ):
        if pictures.get(kind):
            parts += [f"<h3>{title}</h3>", *(_figure(picture) for picture in pictures[kind])]
    parts += [_nominal(world), _gate(world), "</section>"]
    return "\n".join(part for part in parts if part)


def _buys(world: WorldReport) -> str:
    bought = world.relearning
    if bought is None:
        text = "not known here: it needs results of both oracle and oracle_nominal."
    else:
        text = (
            f"{_signed(bought)} m (95 % from {bought.low:+.2f} to {bought.high:+.2f} m): the "
            "planner with the true physics (oracle) minus the same planner believing in the "
            "physics of pretraining (oracle, nominal)."
        )
        if bought.low <= 0.0:
            text += " The interval contains zero: no gain is to be expected from the dynamics here."
    return f'<p class="buy"><strong>What relearning dynamics can buy:</strong> {text}</p>'


def _paper_note(world: WorldReport) -> str:
    series = paper.SERIES.get(world.name)
    if series is None:
        return ""
    points = ", ".join(
        f"{progress:.2f} m after {minutes:g} min"
        for minutes, progress in zip(series.minutes, series.progress_m, strict=True)
    )
    others = "".join(
        f" {name} went from {before:.2f} to {after:.2f} m." for name, before, after in series.others
    )
    return (
        f'<p class="soft">The paper\'s points ({escape(series.surface)}, success line '
        f"{series.line_m:g} m): {points}.{others} A real robot on a real surface: compare the "
        f"course of the curves, not single values. Source: {escape(paper.SOURCE)}.</p>"
    )


def _results_table(world: WorldReport) -> str:
    bought = _signed(world.relearning)
    rows = []
    for row in world.rows:
        kind = ' class="claim"' if row.method in CLAIMS else ""
        cells = [f"<td>{escape(style(row.method).label)}</td>"]
        cells += _cells(
            _minutes(row),
            _interval(row.progress),
            f"{row.success}/{row.trials}",
            str(row.falls),
            _percent(row.way),
            bought,
        )
        rows.append(f"<tr{kind}>{''.join(cells)}</tr>")
    head = _head(
        "method",
        "minutes",
        "mean progress (m)",
        "success",
        "falls",
        "way from expert to oracle",
        "relearning can buy (m)",
    )
    return _table(head, rows, f"results-{_anchor(world.name)}")


def _notes(world: WorldReport) -> str:
    items = "".join(
        f"<li><strong>{escape(style(method).label)}:</strong> {escape(source.result.notes)}</li>"
        for method, source in world.sources.items()
        if source.result.notes
    )
    for groups, what in (
        (world.models(), "start from the same model"),
        (world.descriptions(), "met the same description of this world"),
    ):
        if len(groups) > 1:
            listed = "; ".join(
                f"{identity[:12]}: {', '.join(style(method).label for method in methods)}"
                for identity, methods in groups.items()
            )
            items += (
                f"<li><strong>Not all methods {what}</strong>, so they are not fully comparable. "
                f"{escape(listed)}</li>"
            )
    return f"<h3>Notes</h3><ul>{items}</ul>" if items else ""


def _losses(world: WorldReport) -> str:
    rows = []
    for method, source in world.sources.items():
        for name, loss in (
            ("robot data", source.result.latent_loss),
            ("simulation data", source.result.simulation_loss),
        ):
            if loss is None:
                continue
            fold = f"{loss.before / loss.after:.1f}" if loss.after > 0 else NO_VALUE
            cells = _cells(f"{loss.before:.4f}", f"{loss.after:.4f}", fold)
            rows.append(
                f'<tr><td>{escape(style(method).label)}</td><td class="text">{name}</td>'
                f"{''.join(cells)}</tr>"
            )
    if not rows:
        return ""
    before, after = paper.SLIP_LATENT_LOSS
    head = _head("method", "held-out", "before", "after", "times smaller")
    return (
        "<h3>Held-out latent prediction loss</h3>"
        f"{_table(head, rows, f'losses-{_anchor(world.name)}')}"
        f'<p class="soft">In the paper it fell from {before} to {after} on a held-out slip, '
        f"{before / after:.1f} times.</p>"
    )


def _nominal(world: WorldReport) -> str:
    rows = []
    for method, source in world.sources.items():
        nominal = source.result.nominal
        if nominal is not None:
            means = (sum(values) / len(values) for values in (nominal.before, nominal.after))
            cells = _cells(*(f"{mean:.2f}" for mean in means), _percent(nominal.kept))
            rows.append(
                f"<tr><td>{escape(style(method).label)}</td><td>{len(nominal.before)}</td>"
                f"{''.join(cells)}</tr>"
            )
    if not rows:
        return ""
    head = _head("method", "trials", "before (m)", "after (m)", "kept")
    return (
        "<h3>Is anything forgotten?</h3><p>The same trials in the world of the pretraining, before "
        "and after learning in this one: metres walked.</p>"
        f"{_table(head, rows, f'nominal-{_anchor(world.name)}')}"
    )


def _gate(world: WorldReport) -> str:
    rows = []
    for method, source in world.sources.items():
        if method == "placebo":  # has no gate
            continue
        for entry in source.result.rounds:
            losses = ", ".join(
                f"{key.replace('_', ' ')} {value:.4g}"
                for key, value in (entry.losses or {}).items()
                if value is not None
            )
            verdict = "accepted" if entry.accepted else "refused"
            rows.append(
                f"<tr><td>{escape(style(method).label)}</td><td>{entry.minutes:g}</td>"
                f'<td class="text">{verdict}</td><td class="wrap">{escape(entry.reason)}</td>'
                f'<td class="wrap">{escape(losses)}</td></tr>'
            )
    if not rows:
        return ""
    head = _head("method", "minutes", "decision", "reason", "losses")
    return (
        "<h3>Decisions of the acceptance gate</h3><p>A relearned model replaces the old one only "
        "if it predicts held-out robot data better and simulation data no worse than allowed.</p>"
        f"{_table(head, rows, f'gate-{_anchor(world.name)}')}"
    )


def _reproduce(worlds: Sequence[WorldReport], command: str) -> str:
    rows = []
    for world in worlds:
        entries = [
            (style(method).label, source.result.command, source.result.wall_s)
            for method, source in world.sources.items()
        ]
        entries += [("sweep", sweep.command, sweep.wall_s) for sweep in world.sweeps]
        entries += [("foot tracks", tracks.command, None) for tracks in world.tracks]
        entries += [("latent loss", slip.command, None) for slip in world.slips]
        for what, text, seconds in entries:
            rows.append(
                f'<tr><td>{escape(world.name)}</td><td class="text">{escape(what)}</td>'
                f"<td>{_duration(seconds)}</td>"
                f'<td class="wrap"><code>{escape(text)}</code></td></tr>'
            )
    head = _head("world", "what", "wall time", "command")
    return (
        '<section id="reproduce"><h2>To reproduce</h2><p>Each command names its seed; this page: '
        f"<code>{escape(command)}</code></p>{_table(head, rows, 'commands')}</section>"
    )


def report_command(paths: Iterable[str], out: str) -> str:
    """The command line that makes this page again."""
    return shlex.join(["simdist", "report", *paths, "--out", out])


def _figure(picture: Picture) -> str:
    light, dark = (base64.b64encode(data).decode() for data in (picture.light, picture.dark))
    return (
        '<figure><picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="data:image/png;base64,{dark}">'
        f'<img src="data:image/png;base64,{light}" alt="{escape(picture.alternative)}"></picture>'
        f"<figcaption>{escape(picture.caption)}</figcaption></figure>"
    )


def _table(head: str, rows: Sequence[str], identity: str) -> str:
    body = "\n".join(rows)
    return (
        f'<div class="scroll"><table id="{identity}"><thead>{head}</thead>\n'
        f"<tbody>{body}</tbody></table></div>"
    )


def _head(*names: str) -> str:
    return "<tr>" + "".join(f'<th scope="col">{escape(name)}</th>' for name in names) + "</tr>"


def _cells(*texts: str) -> list[str]:
    return [f"<td>{escape(text)}</td>" for text in texts]


def _minutes(row: TableRow) -> str:
    return f"{row.minutes:g}" if row.learns else NO_VALUE


def _interval(estimate: Estimate) -> str:
    return f"{estimate.mean:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def _signed(estimate: Estimate | None) -> str:
    return NO_VALUE if estimate is None else f"{estimate.mean:+.2f}"


def _percent(share: float | None) -> str:
    return NO_VALUE if share is None else f"{100.0 * share:.0f} %"


def _duration(seconds: float | None) -> str:
    if seconds is None:
        return NO_VALUE
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{seconds:.1f} s"


def _anchor(world: str) -> str:
    return f"world-{slug(world)}"
