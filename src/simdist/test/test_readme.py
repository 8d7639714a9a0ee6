"""The commands of the README are run, shortened where they would take minutes or never end."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = (ROOT / "README.md").read_text(encoding="utf-8")

#: Command of the README -> what to add so that it ends soon, or None where the reason is told.
SHORTENED: dict[str, list[str] | None] = {
    "./run ros2 launch simdist go1_slope.launch.py": ["duration:=3", "lockstep:=true"],
    "./run test": None,  # this very run; .ci/run calls it
    "./run simdist evaluate --world slope --trials 15 --seed 0 --lockstep --json -": [
        "--trials", "1", "--seconds", "1", "--workers", "2",
    ],
    "./run ros2 launch simdist go1_slope.launch.py record:=true bag_dir:=bags duration:=60": [
        "duration:=14", "bag_dir:={tmp}/bags", "lockstep:=true", "adapt:=false",
    ],
    "./run simdist finetune --bag bags/* --model go1 --out relearned.safetensors": [
        "--bag", "{bag}", "--out", "{tmp}/relearned.safetensors", "--steps", "2", "--force",
    ],
    "./run ros2 launch simdist go1_slope.launch.py model:=relearned.safetensors": [
        "model:={tmp}/relearned.safetensors", "duration:=1", "lockstep:=true", "adapt:=false",
    ],
    "./run ros2 launch simdist go1_slope.launch.py --show-args": [],
    "./run simdist experiment --world slope_sheet --method simdist --minutes 0,5,10,15": [
        "--minutes", "0,0.4", "--trials", "1", "--seconds", "3", "--samples", "32",
        "--out", "{tmp}/runs/experiments/slope_sheet_simdist", "--workers", "2",
    ],
    "./run simdist report runs/experiments --out report": [],
    "./run simdist train-expert --out runs/expert": [
        "--out", "{tmp}/expert", "--iterations", "1", "--environments", "8",
    ],
    "./run simdist collect --expert runs/expert --out data/go1": [
        "--expert", "{tmp}/expert", "--out", "{tmp}/data", "--environments", "8", "--steps", "60",
        "--mixed", "1", "--near-expert", "1",
    ],
    "./run simdist collect --expert runs/expert --out data/go1_branched --mixed 0 "
    "--near-expert 0 --branched 1": [
        "--expert", "{tmp}/expert", "--out", "{tmp}/branched", "--environments", "4",
        "--steps", "40",
    ],
    "./run simdist pretrain --data data/go1 data/go1_branched --out runs/world_model": [
        "--data", "{tmp}/data", "{tmp}/branched", "--out", "{tmp}/world_model", "--steps", "3",
    ],
    # A recording is named when it is made; test_bag_recovery asks about ones of its own.
    "./run simdist bag info bags/*": None,
    "./run simdist diagnose --world slope_sheet --model go1": [
        "--trials", "1", "--seconds", "4", "--states-every", "60", "--samples", "8",
        "--driver", "planner",
    ],
    "./run simdist bench planner": [
        "--samples", "16", "--iterations", "1", "--plans", "3", "--seconds", "1", "--no-authors",
    ],
}  # fmt: skip


def commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", README, flags=re.DOTALL)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line]


def test_every_command_of_the_readme_is_covered_and_no_other():
    assert set(commands()) == set(SHORTENED)


def test_continuous_integration_runs_the_command_of_the_readme():
    assert '/run" test' in (ROOT / ".ci/run").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme")


@pytest.mark.launch
@pytest.mark.parametrize("command", [c for c in commands() if SHORTENED.get(c) is not None])
def test_readme_command_works(command: str, workplace: Path):
    words = shlex.split(command)
    bags = sorted((workplace / "bags").glob("*"))
    replaced = {"tmp": str(workplace), "bag": str(bags[0]) if bags else "no bag was recorded"}
    extra = [word.format(**replaced) for word in SHORTENED[command] or []]
    # An option or argument given again replaces the one in the README.
    given_again = {word.split(":=")[0] + ":=" for word in extra if ":=" in word}
    given_again |= {word for word in extra if word.startswith("--")}
    kept: list[str] = []
    skip = False
    for word in words[1:]:
        if skip and not word.startswith("--"):
            continue
        skip = False
        if word in given_again:
            skip = True
        elif not any(word.startswith(name) for name in given_again if name.endswith(":=")):
            kept.append(word)
    environment = {**os.environ, "ROS_DOMAIN_ID": str(os.getpid() % 90 + 10)}
    result = subprocess.run(
        [str(ROOT / "run"), *kept, *extra],
        cwd=workplace,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-3000:]
    assert "Traceback" not in result.stderr
    if "--json -" in command:
        rows = json.loads(result.stdout)["rows"]
        assert [row["method"] for row in rows] == ["expert", "prior", "planner"]
