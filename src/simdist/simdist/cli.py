"""The command line: ``simdist COMMAND …``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from simdist import __version__
from simdist.errors import SimdistError

#: command -> module with add_arguments(parser) and main(arguments), and what it is for
COMMANDS = {
    "train-expert": ("simdist.distillation.expert", "train a walking expert by PPO"),
    "collect": ("simdist.distillation.collect", "record mixed-quality data with the expert"),
    "pretrain": ("simdist.distillation.pretrain", "learn a world model from recorded data"),
    "refine-policy": ("simdist.distillation.refine", "teach a model's policies on low friction"),
    "train-probe": ("simdist.distillation.probe", "read foot positions out of a model's latents"),
    "evaluate": ("simdist.evaluation.evaluate", "closed-loop trials in a simulated world"),
    "report": ("simdist.evaluation.report", "one page about experiments, with figures"),
    "experiment": ("simdist.evaluation.experiment", "performance against minutes of robot data"),
    "foresight": (
        "simdist.evaluation.foresight",
        "predicted and true feet in a slip, of two models",
    ),
    "diagnose": ("simdist.evaluation.diagnose", "can a model rank plans? compared with MuJoCo"),
    "weaken": ("simdist.evaluation.baselines.weaken", "a worse model, to show that methods learn"),
    "bench": ("simdist.bench.command", "what planning costs on this machine"),
    "import-checkpoint": (
        "simdist.world_model.import_checkpoint",
        "make an artefact of a world model of the SimDist authors",
    ),
    "finetune": ("simdist.adaptation.offline", "relearn the dynamics from rosbags"),
    "bag": ("simdist.replay.bag_command", "look at recordings and repair them"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code (2 for a refused argument or setting)."""
    # Before torch is loaded: busy OpenMP threads of two processes slow each other eightfold.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="simdist", description="Planning over a world model learned in simulation."
    )
    parser.add_argument("--version", action="version", version=f"simdist {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        # Only the chosen command is imported: each of them loads torch and more.
        if name == chosen:
            importlib.import_module(module).add_arguments(command)
    arguments = parser.parse_args(argv)
    try:
        return importlib.import_module(COMMANDS[arguments.command][0]).main(arguments)
    except SimdistError as error:
        print(f"simdist {arguments.command}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"simdist {arguments.command}: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
