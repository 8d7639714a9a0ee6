"""The table of results in a Markdown page, kept by ``simdist report --markdown``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from simdist.errors import ConfigError
from simdist.evaluation.report_data import TableRow, WorldReport
from simdist.world_model.artefact import write_atomically

BEGIN, END = "<!-- results: simdist report --markdown -->", "<!-- end of results -->"

_HEAD = (
    "| world | driven by | minutes of robot data | mean progress | success | falls |",
    "|---|---|---|---|---|---|",
)


def table(worlds: Sequence[WorldReport]) -> str:
    """One row for each method in each world after each amount of robot data."""
    return "\n".join([*_HEAD, *(_row(row) for world in worlds for row in world.rows)])


def _row(row: TableRow) -> str:
    minutes = f"{row.minutes:g}" if row.learns else "–"
    return (
        f"| `{row.world}` | `{row.method}` | {minutes} | {row.progress.mean:.2f} m | "
        f"{row.success} of {row.trials} | {row.falls} |"
    )


def with_table(page: str, worlds: Sequence[WorldReport], source: str = "the page") -> str:
    """``page`` with its table of results replaced.

    Raises ConfigError naming ``source`` unless the page marks the table's place exactly once.
    """
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise ConfigError(
            f"{source} must hold one line {BEGIN!r} and below it one line {END!r}; the table goes "
            "between them"
        )
    before, rest = page.split(BEGIN)
    return f"{before}{BEGIN}\n{table(worlds)}\n{END}{rest.split(END)[1]}"


def update_page(path: Path, worlds: Sequence[WorldReport]) -> None:
    """Replace the table in the file ``path``; raises ConfigError when that is not possible."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    write_atomically(path, with_table(text, worlds, str(path)).encode())
