"""``simdist finetune``: learn from recordings and write a new model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from simdist import robots
from simdist.adaptation.finetune import Candidate, DynamicsFinetuner, FinetuneConfig
from simdist.adaptation.gate import AcceptanceGate, Decision
from simdist.adaptation.update import RunningModel
from simdist.errors import ArtefactError, BagError
from simdist.paths import model_file
from simdist.planning import self_test
from simdist.replay import Episode, ReplayBuffer, data_hash
from simdist.replay.bag import read_episodes
from simdist.world_model.artefact import Artefact, load_artefact, save_artefact
from simdist.world_model.simulation_replay import SimulationReplay, find_simulation_replay

REJECTED = 3  #: exit status when the gate turns the candidate down


@dataclass(frozen=True)
class OfflineResult:
    """What became of a finetuning; ``path`` is None when nothing was written."""

    parent: Artefact
    candidate: Candidate
    decision: Decision
    path: Path | None

    def to_dict(self) -> dict[str, Any]:
        losses = self.candidate.losses
        return {
            "model": str(self.parent.path),
            "out": None if self.path is None else str(self.path),
            "accepted": self.decision.accepted,
            "reason": self.decision.reason,
            "version": self.parent.version + 1,
            "robot_loss": {"before": losses.robot_before, "after": losses.robot_after},
            "simulation_loss": {
                "before": losses.simulation_before,
                "after": losses.simulation_after,
            },
            "steps": self.candidate.steps,
            "episodes": self.candidate.episodes,
            "seconds_of_data": self.candidate.seconds_of_data,
        }


def finetune_bags(
    bags: Sequence[Path],
    model: Path,
    out: Path,
    *,
    config: FinetuneConfig | None = None,
    gate: AcceptanceGate | None = None,
    simulation: Path | None = None,
    force: bool = False,
    report: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] | None = None,
) -> OfflineResult:
    """Relearn the dynamics of ``model`` from recordings and write the result to ``out``.

    Nothing is written when the gate rejects the candidate, unless ``force``. The simulation data
    that is mixed in is ``simulation``, or what lies beside the model or is shipped for its robot.

    Raises:
        BagError: a recording is unusable, or nothing in them fits the model.
        ArtefactError, ContractError: the model or the simulation data is, or ``out`` cannot be
            written to.
        AdaptationError: too little data, or learning failed.
    """
    parent = load_artefact(model)
    robot = robots.get(parent.contract.robot)
    parent.contract.check_robot(robot)
    _require_writable(out, parent.path)
    replay = SimulationReplay.load(simulation or find_simulation_replay(parent), parent.contract)
    episodes, count = _read(bags, parent, report)
    buffer = ReplayBuffer(
        round(parent.contract.control_dt * 1e9),
        capacity_steps=max(sum(len(episode) for episode in episodes), 300),
    )
    for episode in episodes:
        buffer.add(episode)

    config = config or FinetuneConfig()
    finetuner = DynamicsFinetuner(parent.model, replay, config, parent.contract.control_dt)
    candidate = finetuner.update(
        buffer.episodes(held_out=False), buffer.episodes(held_out=True), parent.model, progress
    )
    candidate = dataclasses.replace(candidate, episodes=count)
    decision = (gate or AcceptanceGate()).judge(candidate)
    if not decision.accepted and not force:
        return OfflineResult(parent, candidate, decision, None)

    successor = RunningModel.of(parent).with_dynamics(candidate.state, parent.version + 1)
    problem = self_test(successor.model, robot)
    if problem is not None:
        raise ArtefactError(f"the finetuned model cannot plan and was not written: {problem}")
    path = save_artefact(
        out,
        successor.model,
        parent.contract,
        successor.version,
        parent.weights_hash,
        {
            "kind": "finetuning",
            "bags": [bag.name for bag in bags],
            "data_sha256": data_hash(episodes),
            "episodes": count,
            "seconds_of_data": candidate.seconds_of_data,
            "config": asdict(config),
            "losses": asdict(candidate.losses),
            "accepted": decision.accepted,
        },
    )
    return OfflineResult(parent, candidate, decision, path)


def _read(
    bags: Sequence[Path], parent: Artefact, report: Callable[[str], None]
) -> tuple[list[Episode], int]:
    """All episodes and how many runs they come from; runs of different bags stay apart."""
    robot = robots.get(parent.contract.robot)
    episodes: list[Episode] = []
    for bag in bags:
        found, summary = read_episodes(bag, robot, parent.contract.hash())
        for line in summary.lines():
            report(line)
        episodes += found
    if not episodes:
        raise BagError(
            f"no step of an acting robot in {', '.join(map(str, bags))}: record while the robot "
            "is in mode ACTIVE"
        )
    return episodes, len(episodes)


def _require_writable(out: Path, model: Path) -> None:
    """Fail before the learning, not after it."""
    if out.is_dir():
        raise ArtefactError(f"cannot write {out}: it is a directory; name a .safetensors file")
    if out.exists() and out.samefile(model):
        raise ArtefactError(f"cannot write {out}: it is the model to learn from; name another file")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out.parent):
            pass
    except OSError as error:
        raise ArtefactError(f"cannot write {out}: {error.strerror}") from error


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Command line of ``simdist finetune``."""
    default = FinetuneConfig()
    parser.add_argument(
        "--bag",
        type=Path,
        action="extend",
        nargs="+",
        required=True,
        metavar="DIR",
        dest="bags",
        help="recordings to learn from; may be given several times",
    )
    parser.add_argument("--model", required=True, metavar="M", help="model to start from")
    parser.add_argument("--out", type=Path, required=True, metavar="F", help="model to write")
    parser.add_argument("--steps", type=int, default=default.steps, help="gradient steps")
    parser.add_argument("--seed", type=int, default=default.seed)
    parser.add_argument(
        "--simulation", type=Path, metavar="F", help="simulation data to mix in, if not the model's"
    )
    parser.add_argument("--force", action="store_true", help="write a rejected model, too")
    parser.add_argument(
        "--json",
        nargs="?",
        const="-",
        metavar="FILE",
        help="write the result as JSON to FILE, or to standard output",
    )


def main(args: argparse.Namespace) -> int:
    """Run ``simdist finetune``: 0 when the model was written, 3 when the gate rejected it."""
    terminal = sys.stderr.isatty()

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    def progress(done: int, steps: int) -> None:
        if terminal:
            print(f"\rstep {done} of {steps}", end="", file=sys.stderr, flush=True)
        elif done % max(steps // 5 // 10 * 10, 10) == 0:
            say(f"step {done} of {steps}")

    result = finetune_bags(
        args.bags,
        model_file(args.model),
        args.out,
        config=FinetuneConfig(steps=args.steps, seed=args.seed),
        simulation=args.simulation,
        force=args.force,
        report=say,
        progress=progress,
    )
    losses = result.candidate.losses
    say(f"{chr(10) if terminal else ''}held-out latent loss, before -> after:")
    say(f"  robot       {losses.robot_before:.4f} -> {losses.robot_after:.4f}")
    say(f"  simulation  {losses.simulation_before:.4f} -> {losses.simulation_after:.4f}")
    if not result.decision.accepted:
        say(f"rejected: {result.decision.reason}")
    if result.path is None:
        say("nothing was written; --force keeps a rejected model")
    else:
        say(f"wrote {result.path}, version {result.parent.version + 1}")
    if args.json is not None:
        text = json.dumps(result.to_dict(), indent=1)
        if args.json == "-":
            print(text)
        else:
            Path(args.json).write_text(text + "\n")
    return REJECTED if result.path is None else 0
