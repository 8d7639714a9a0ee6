"""``simdist finetune``: from recordings to a new model file. Reading bags is tested elsewhere."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import tiny_observation

from simdist import robots
from simdist.adaptation import offline
from simdist.adaptation.windows import robot_windows
from simdist.errors import ArtefactError, BagError, ConfigError, SimdistError
from simdist.observation import ObservationSpec
from simdist.replay import Episode
from simdist.replay.bag import BagReport
from simdist.world_model import WorldModel, WorldModelConfig
from simdist.world_model.artefact import load_artefact, save_artefact
from simdist.world_model.contract import Contract
from simdist.world_model.simulation_replay import FILE_NAME, export_simulation_replay

GO1 = robots.get("go1")
OBSERVATION: ObservationSpec = tiny_observation(12, history=3)
NETWORK = WorldModelConfig(
    proprio_dim=OBSERVATION.size,
    scan_shape=(4, 3),
    latent_dim=16,
    history=3,
    horizon=4,
    dynamics_layers=1,
    dynamics_heads=2,
    head_heads=2,
    policy_layers=1,
    policy_heads=2,
    cnn_channels=(2, 2),
    scan_hidden=(8,),
)


def drive(seed: int, steps: int, episode: int = 0) -> Episode:
    rng = np.random.default_rng(seed)
    action = rng.normal(size=(steps, 12)).astype(np.float32)
    proprio = np.zeros((steps, OBSERVATION.size), np.float32)
    for step in range(1, steps):
        proprio[step] = 0.8 * proprio[step - 1]
        proprio[step, :12] += 0.5 * action[step - 1]
    return Episode(
        stamp_ns=np.arange(steps, dtype=np.int64) * 20_000_000,
        proprio=proprio,
        scan=np.zeros((steps, 12), np.float32),
        action=action,
        command=np.zeros((steps, 3), np.float32),
        episode=episode,
    )


@dataclass
class Workshop:
    """A model with its simulation data, and a place to write to."""

    model: Path
    out: Path

    def run(self, *extra: str) -> int:
        parser = argparse.ArgumentParser()
        offline.add_arguments(parser)
        arguments = [
            "--bag",
            "first",
            "--bag",
            "second",
            "--model",
            str(self.model),
            "--out",
            str(self.out),
            "--steps",
            "20",
            *extra,
        ]
        return offline.main(parser.parse_args(arguments))


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    torch.manual_seed(0)
    contract = Contract.of(GO1, OBSERVATION, NETWORK)
    model = save_artefact(
        tmp_path / "models" / "world_model.safetensors", WorldModel(NETWORK), contract, 6, None, {}
    )
    train, validation = (
        robot_windows([drive(seed, 100) for seed in seeds], 3, 4) for seeds in ((1, 2), (3, 4))
    )
    export_simulation_replay(model.parent / FILE_NAME, train, validation, contract, count=100)

    def read(path: Path, *_: object, **__: object) -> tuple[list[Episode], BagReport]:
        return [drive(5 if path.name == "first" else 6, 700)], BagReport(path, episodes=1)

    monkeypatch.setattr(offline, "read_episodes", read)
    return Workshop(model, tmp_path / "new" / "model.safetensors")


def test_an_accepted_model_is_written_with_its_lineage(
    workshop: Workshop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert workshop.run("--json", "--steps", "150") == 0
    output = capsys.readouterr()
    result = json.loads(output.out)
    assert result["accepted"] is True
    assert result["robot_loss"]["after"] < result["robot_loss"]["before"]
    assert result["episodes"] == 2
    assert result["seconds_of_data"] == pytest.approx(28.0)
    assert f"{result['robot_loss']['after']:.4f}" in output.err
    parent, child = load_artefact(workshop.model, GO1), load_artefact(workshop.out, GO1)
    assert child.version == 7
    assert child.parent == parent.weights_hash != child.weights_hash
    assert child.frozen_hash == parent.frozen_hash
    assert child.training["bags"] == ["first", "second"]
    assert child.training["accepted"] is True


def test_a_rejected_model_is_not_written_unless_forced(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(offline.AcceptanceGate, "_refusal", lambda *_: "it walks backwards")
    assert workshop.run() == offline.REJECTED
    assert not workshop.out.exists()
    assert "it walks backwards" in capsys.readouterr().err
    assert workshop.run("--force", "--json", str(workshop.out.parent / "result.json")) == 0
    assert load_artefact(workshop.out).training["accepted"] is False
    result = json.loads((workshop.out.parent / "result.json").read_text())
    assert result["accepted"] is False
    assert result["out"] == str(workshop.out)


def test_the_model_to_learn_from_is_never_overwritten(workshop: Workshop) -> None:
    before = workshop.model.read_bytes()
    workshop.out = workshop.model
    with pytest.raises(ArtefactError, match="name another file"):
        workshop.run()
    workshop.out = workshop.model.parent
    with pytest.raises(ArtefactError, match="directory"):
        workshop.run()
    workshop.out = workshop.model / "below_a_file.safetensors"
    with pytest.raises(ArtefactError, match="cannot write"):
        workshop.run()
    assert workshop.model.read_bytes() == before


def test_bags_without_acting_or_with_too_little_of_it_are_refused(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offline, "read_episodes", lambda path, *_, **__: ([], BagReport(path)))
    with pytest.raises(BagError, match="ACTIVE"):
        workshop.run()
    monkeypatch.setattr(
        offline, "read_episodes", lambda path, *_, **__: ([drive(1, 7)], BagReport(path))
    )
    with pytest.raises(SimdistError, match="consecutive control steps"):
        workshop.run()
    assert not workshop.out.exists()


@pytest.mark.parametrize("words", [["--bag", "a", "b"], ["--bag", "a", "--bag", "b"]])
def test_several_bags_can_be_named_as_a_shell_pattern_expands_or_one_by_one(words):
    parser = argparse.ArgumentParser()
    offline.add_arguments(parser)
    arguments = parser.parse_args([*words, "--model", "go1", "--out", "x.safetensors"])
    assert arguments.bags == [Path("a"), Path("b")]


# --- several recordings ---------------------------------------------------------------------------


@dataclass
class Shelf:
    """Recordings that are read, by name; ``BagError`` for those that cannot be."""

    root: Path
    held: dict[str, list[Episode] | BagError]

    def read(self, path: Path, *_: object, **__: object) -> tuple[list[Episode], BagReport]:
        held = self.held[path.name]
        if isinstance(held, BagError):
            raise held
        report = BagReport(path)
        report.kept(held, 0.02)
        return held, report

    def gather(self, workshop: Workshop, *bags: Path) -> tuple[offline.RobotData, list[str]]:
        lines: list[str] = []
        data = offline.read_robot_data(bags, load_artefact(workshop.model), report=lines.append)
        return data, lines


@pytest.fixture
def shelf(tmp_path: Path, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    shelf = Shelf(tmp_path / "bags", {})
    for number in (1, 2, 9, 10):
        directory = shelf.root / f"walk_{number}"
        directory.mkdir(parents=True)
        (directory / "metadata.yaml").write_text("")
        shelf.held[directory.name] = [drive(number, 60)]
    (shelf.root / "notes").mkdir()
    monkeypatch.setattr(offline, "read_episodes", shelf.read)
    return shelf


def test_a_directory_of_recordings_is_read_in_the_order_of_its_numbers(shelf, workshop) -> None:
    data, lines = shelf.gather(workshop, shelf.root)
    assert [r.path.name for r in data.reports] == ["walk_1", "walk_2", "walk_9", "walk_10"]
    assert [e.episode for e in data.episodes] == [1, 2, 3, 4], "runs of different bags stay apart"
    assert any("reading 3 of 4" in line for line in lines)
    again, _ = shelf.gather(workshop, shelf.root)
    assert again.hash == data.hash


def test_a_recording_that_is_of_no_use_is_skipped_and_said_so(shelf, workshop) -> None:
    shelf.held["walk_2"] = BagError("made with another robot")
    data, lines = shelf.gather(workshop, shelf.root)
    assert len(data.episodes) == 3
    assert list(data.skipped.values()) == ["made with another robot"]
    assert "skipped: made with another robot" in lines
    with pytest.raises(BagError, match="another robot"):
        shelf.gather(workshop, shelf.root / "walk_2")
    shelf.held = {name: BagError("torn") for name in shelf.held}
    with pytest.raises(BagError, match="torn"):
        shelf.gather(workshop, shelf.root)


def test_the_same_data_named_twice_counts_once(shelf, workshop) -> None:
    whole = drive(1, 60)
    shelf.held["walk_9"] = [whole[0:40]]  # as recovered from a torn copy of walk_1
    data, _ = shelf.gather(workshop, shelf.root / "walk_9", shelf.root, shelf.root / "walk_9")
    assert sum(map(len, data.episodes)) == 40 + 20 + 60 + 60
    report = next(r for r in data.reports if r.path.name == "walk_1")
    assert report.lost == {"also in a recording before it": pytest.approx(0.8)}
    assert report.steps == 20


def test_a_directory_without_recordings_is_refused(tmp_path: Path, workshop: Workshop) -> None:
    (tmp_path / "nothing").mkdir()
    with pytest.raises(BagError, match="neither is a rosbag2 recording nor holds any"):
        offline.read_robot_data([tmp_path / "nothing"], load_artefact(workshop.model))


def test_an_interrupted_learning_leaves_nothing_and_the_same_call_gives_the_same_model(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(done: int, steps: int) -> None:
        raise KeyboardInterrupt

    bags = [Path("first"), Path("second")]
    config = offline.FinetuneConfig(steps=30)
    with pytest.raises(KeyboardInterrupt):
        offline.finetune_bags(bags, workshop.model, workshop.out, config=config, progress=interrupt)
    assert list(workshop.out.parent.iterdir()) == []
    hashes = []
    for name in "ab":
        out = workshop.out.with_name(f"{name}.safetensors")
        offline.finetune_bags(bags, workshop.model, out, config=config, force=True)
        hashes.append(load_artefact(out).weights_hash)
    assert hashes[0] == hashes[1]


def test_the_result_tells_of_every_recording(workshop: Workshop) -> None:
    file = workshop.out.parent / "result.json"
    file.parent.mkdir(parents=True)
    workshop.run("--force", "--json", str(file))
    result = json.loads(file.read_text())
    assert [Path(bag["path"]).name for bag in result["bags"]] == ["first", "second"]
    assert result["skipped"] == {}
    assert len(result["data_sha256"]) == 64
    assert load_artefact(workshop.out).training["data_sha256"] == result["data_sha256"]


def test_a_report_that_could_not_be_written_is_refused_before_the_learning(workshop) -> None:
    with pytest.raises(ConfigError, match="--json"):
        workshop.run("--json", str(workshop.out.parent / "nowhere" / "result.json"))
    assert not workshop.out.exists()
