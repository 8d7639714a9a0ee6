"""Small helpers for argparse."""

from __future__ import annotations

import argparse
from typing import Any


def add_group(commands: Any, name: str, summary: str) -> Any:
    """Add a command that has verbs of its own, and return where to add them."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=lambda options: parser.print_help())
    return parser.add_subparsers(title="Verbs", metavar="verb")


def add_verb(verbs: Any, name: str, summary: str, run: Any) -> argparse.ArgumentParser:
    """Add a verb; `run(options)` returns an exit status or None."""
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=summary, description=summary)
    parser.set_defaults(run=run)
    return parser


def positive_float(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return value


def positive_int(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive integer")
    return value
