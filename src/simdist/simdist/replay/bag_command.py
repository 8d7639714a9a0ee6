"""``simdist bag``: look at recordings and repair them."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from simdist import robots
from simdist.errors import BagError
from simdist.replay.bag import read_episodes
from simdist.replay.recovery import recover, summarise

PARTIAL = 3  #: exit status when something was lost


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist bag``."""
    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    info = commands.add_parser(
        "info",
        help="what a recording holds, lacks, and teaches",
        description="What a recording holds, lacks, and teaches. Exit status: 0 if it is whole, "
        "3 if something is or may be lost, 2 if nothing can be read.",
    )
    info.add_argument(
        "--robot",
        default="go1",
        choices=robots.available(),
        help="whose data is looked for (default go1)",
    )
    info.add_argument("--namespace", metavar="NS", help="of a robot, if there are several")
    repair = commands.add_parser(
        "recover",
        help="write what is left of a torn recording as a new one",
        description="Write what can be read of a recording as a new one. The original is not "
        "changed. Exit status: 0 if nothing is lost, 3 if something is or may be, 2 if nothing "
        "can be recovered or the new recording cannot be written.",
    )
    repair.add_argument(
        "--out", type=Path, metavar="DIR", help="new recording (default: BAG_recovered)"
    )
    for command in (info, repair):
        command.add_argument(
            "bag", type=Path, metavar="BAG", help="directory of a recording, .mcap or .db3 file"
        )
        command.add_argument("--json", action="store_true", help="print the report as JSON")


def main(args: argparse.Namespace) -> int:
    """Run ``simdist bag``; the exit status."""
    return _info(args) if args.action == "info" else _recover(args)


def _info(args: argparse.Namespace) -> int:
    summary = summarise(args.bag)
    result: dict[str, Any] = summary.to_dict()
    try:
        _, learnable = read_episodes(args.bag, robots.get(args.robot), namespace=args.namespace)
        result["learning"] = learnable.to_dict()
        teaches = ["to learn from:", *(f"  {line}" for line in learnable.lines()[1:])]
    except BagError as error:
        result["learning"], teaches = None, [f"nothing to learn from: {error}"]
    _show(args.json, result, summary.lines() + teaches)
    return 0 if summary.whole else PARTIAL


def _recover(args: argparse.Namespace) -> int:
    recovery = recover(args.bag, args.out)
    _show(args.json, recovery.to_dict(), recovery.lines())
    return 0 if recovery.lossless else PARTIAL


def _show(as_json: bool, result: dict[str, Any], lines: list[str]) -> None:
    text = json.dumps(result, indent=1, default=str) if as_json else "\n".join(lines)
    print(text, file=sys.stdout)
