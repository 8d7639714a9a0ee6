"""``simdist finetune``: learn from recordings and write a new model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from simdist import robots
from simdist.adaptation.finetune import Candidate, DynamicsFinetuner, FinetuneConfig
from simdist.adaptation.gate import AcceptanceGate, Decision
from simdist.adaptation.update import RunningModel
from simdist.errors import ArtefactError, BagError, ConfigError
from simdist.paths import model_file
from simdist.planning import self_test
from simdist.replay import Episode, ReplayBuffer, data_hash
from simdist.replay.bag import BagReport, read_episodes
from simdist.replay.episode import unseen
from simdist.replay.foreign import read_foreign_episodes
from simdist.replay.mapping import BagMapping, load_mapping
from simdist.replay.storage import find_recordings
from simdist.world_model.artefact import Artefact, load_artefact, save_artefact
from simdist.world_model.simulation_replay import SimulationReplay, find_simulation_replay

REJECTED = 3  #: exit status when the gate turns the candidate down


@dataclass
class RobotData:
    """What several recordings hold for one model."""

    episodes: list[Episode] = field(default_factory=list)  #: numbered through
    reports: list[BagReport] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)  #: recordings of no use, and why

    @property
    def hash(self) -> str:
        return data_hash(self.episodes)


@dataclass(frozen=True)
class OfflineResult:
    """What became of a finetuning; ``path`` is None when nothing was written."""

    data: RobotData
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
            "seconds_lost": sum(report.seconds_lost for report in self.data.reports),
            "data_sha256": self.data.hash,
            "bags": [report.to_dict() for report in self.data.reports],
            "skipped": self.data.skipped,
        }


def finetune_bags(
    bags: Sequence[Path],
    model: Path,
    out: Path,
    *,
    config: FinetuneConfig | None = None,
    gate: AcceptanceGate | None = None,
    simulation: Path | None = None,
    mapping: Path | None = None,
    force: bool = False,
    report: Callable[[str], None] = lambda line: None,
    progress: Callable[[int, int], None] | None = None,
) -> OfflineResult:
    """Relearn the dynamics of ``model`` from recordings and write the result to ``out``.

    Each of ``bags`` is a recording or a directory of recordings; ``mapping`` names the file that
    explains recordings from elsewhere. Recordings that are of no use are reported and skipped;
    what several of them hold counts once.

    Nothing is written when the gate rejects the candidate, unless ``force``. The simulation data
    that is mixed in is ``simulation``, or what lies beside the model or is shipped for its robot.
    The same call gives the same model. ``out`` appears when it is complete, or not at all.

    Raises:
        BagError: no recording is usable, or nothing in them fits the model.
        ConfigError: the mapping file is wrong.
        ArtefactError, ContractError: the model or the simulation data is, or ``out`` cannot be
            written to.
        AdaptationError: too little data, or learning failed.
    """
    parent = load_artefact(model)
    robot = robots.get(parent.contract.robot)
    parent.contract.check_robot(robot)
    _require_writable(out, parent.path)
    replay = SimulationReplay.load(simulation or find_simulation_replay(parent), parent.contract)
    explained = None if mapping is None else load_mapping(mapping)
    data = read_robot_data(bags, parent, explained, report)
    episodes, count = data.episodes, len(data.episodes)
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
        return OfflineResult(data, parent, candidate, decision, None)

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
            "bags": [report.path.name for report in data.reports],
            "data_sha256": data.hash,
            "episodes": count,
            "seconds_of_data": candidate.seconds_of_data,
            "config": asdict(config),
            "losses": asdict(candidate.losses),
            "accepted": decision.accepted,
        },
    )
    return OfflineResult(data, parent, candidate, decision, path)


def read_robot_data(
    bags: Sequence[Path],
    parent: Artefact,
    mapping: BagMapping | None = None,
    report: Callable[[str], None] = lambda line: None,
) -> RobotData:
    """Everything that ``parent`` can learn from ``bags``; see :func:`finetune_bags`."""
    contract = parent.contract
    robot = robots.get(contract.robot)
    shortest = contract.history + contract.horizon + 1
    data = RobotData()
    seen: set[bytes] = set()
    paths = list(dict.fromkeys(path for bag in bags for path in find_recordings(bag)))
    for number, path in enumerate(paths, 1):
        report(f"reading {number} of {len(paths)}: {path}")
        try:
            if mapping is not None:
                episodes, summary = read_foreign_episodes(
                    path, mapping, robot, contract.observation, contract.hash(), shortest
                )
            else:
                layout = contract.observation.size, contract.observation.scan.size
                episodes, summary = read_episodes(
                    path, robot, contract.hash(), layout=layout, min_steps=shortest
                )
        except BagError as error:
            if len(paths) == 1:
                raise
            data.skipped[str(path)] = str(error)
            report(f"skipped: {error}")
            continue
        before = sum(map(len, episodes))
        episodes = unseen(episodes, seen)
        again = before - sum(map(len, episodes))
        if again:
            summary.lost["also in a recording before it"] = again * contract.control_dt
            summary.kept(episodes, contract.control_dt)
        data.reports.append(summary)
        for line in summary.lines()[1:]:
            report(f"  {line}")
        data.episodes += [
            dataclasses.replace(episode, episode=len(data.episodes) + i)
            for i, episode in enumerate(episodes, 1)
        ]
    if not data.episodes:
        raise BagError(
            f"no step of an acting robot in {', '.join(map(str, paths))}: record while the robot "
            "is in mode ACTIVE" + "".join(f"; {why}" for why in list(data.skipped.values())[:3])
        )
    if len(paths) > 1:
        seconds = sum(summary.seconds for summary in data.reports)
        report(
            f"{len(data.reports)} recordings, {len(data.episodes)} episodes, {seconds:.1f} s; "
            f"{len(data.skipped)} skipped"
        )
    return data


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
        help="recordings to learn from, or directories of recordings; may be given several times",
    )
    parser.add_argument(
        "--mapping",
        type=Path,
        metavar="F",
        help="YAML file that explains recordings made elsewhere (docs/bags.md)",
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
    if args.json not in (None, "-") and not Path(args.json).absolute().parent.is_dir():
        raise ConfigError(f"--json {args.json}: there is no directory to write it to")

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
        mapping=args.mapping,
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
