"""Faults, each injected in lockstep, and whether the promise about it is held.

Run: python benchmarks/faults.py [--seed N] [--only PATTERN] [--json FILE]
Ends with 1 if any promise is not held.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import torch

from simdist.faults import Row, faults, run

FORMAT = "simdist-faults-1"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="of everything random")
    parser.add_argument("--only", default="", metavar="PATTERN", help="part of the faults' names")
    parser.add_argument("--json", metavar="FILE", help="write the rows here; - for stdout")
    parser.add_argument("--list", action="store_true", help="name the faults and stop")
    options = parser.parse_args(arguments)
    if options.seed < 0:
        parser.error(f"--seed must not be negative, got {options.seed}")
    chosen = faults(options.only)
    if not chosen:
        parser.error(f"--only {options.only!r} matches no fault; --list names them all")
    if options.list:
        print("\n".join(fault.name for fault in chosen))
        return 0

    torch.set_num_threads(1)
    table = sys.stderr if options.json == "-" else sys.stdout
    width = max(len(fault.name) for fault in chosen)
    rows = []
    for row in run(chosen, options.seed):
        rows.append(row)
        print(_line(row, width), file=table, flush=True)
    broken = [row.fault for row in rows if not row.held]
    print(
        f"{len(rows) - len(broken)} of {len(rows)} promises held, seed {options.seed}", file=table
    )
    if options.json:
        document = {
            "format": FORMAT,
            "seed": options.seed,
            "rows": [row.to_dict() for row in rows],
        }
        text = json.dumps(document, indent=1)
        if options.json == "-":
            print(text)
        else:
            Path(options.json).write_text(text + "\n")
    return 1 if broken else 0


def _line(row: Row, width: int) -> str:
    cells = row.to_dict()
    held = "held" if row.held else "NOT HELD"
    return f"{held:8} | {row.fault:{width}} | {cells['measured']} | {row.promise}"


if __name__ == "__main__":
    sys.exit(main())
