"""Set-up in stages: what is interrupted, repeated, waited for or missing."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def bootstrap() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bootstrap", ROOT / "tools" / "bootstrap.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


class Recorder:
    """Three stages that note when they run and fail when told to."""

    def __init__(self, bootstrap: ModuleType, prefix: Path) -> None:
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.inputs = {"one": "1", "two": "2", "three": "3"}
        self.ran: list[str] = []
        self.failure: tuple[str, BaseException] | None = None

    def setup(self):
        setup = self.bootstrap.Setup("wheels", self.prefix)
        setup.stages = [
            self.bootstrap.Stage(
                name,
                f"stage {name}",
                lambda name=name: [self.inputs[name]],
                lambda name=name: self.stage(name),
            )
            for name in self.inputs
        ]
        return setup

    def stage(self, name: str) -> None:
        if self.failure and self.failure[0] == name:
            raise self.failure[1]
        self.ran.append(name)


@pytest.fixture
def recorder(bootstrap: ModuleType, tmp_path: Path) -> Recorder:
    return Recorder(bootstrap, tmp_path / "environment")


def test_a_finished_stage_is_not_repeated(recorder: Recorder):
    recorder.setup().run()
    recorder.setup().run()
    assert recorder.ran == ["one", "two", "three"]
    assert (recorder.prefix / ".simdist" / "ready").read_text().strip() == str(recorder.prefix)


def test_a_changed_input_repeats_only_its_stage(recorder: Recorder):
    recorder.setup().run()
    recorder.inputs["two"] = "changed"
    recorder.setup().run()
    assert recorder.ran == ["one", "two", "three", "two"]


def test_an_interrupted_set_up_goes_on_from_the_stage_it_was_in(recorder: Recorder):
    recorder.failure = ("two", KeyboardInterrupt())
    with pytest.raises(recorder.bootstrap.Interrupted, match=r"interrupted at \[2/3\] stage two"):
        recorder.setup().run()
    assert not (recorder.prefix / ".simdist" / "ready").exists()
    recorder.failure = None
    recorder.setup().run()
    assert recorder.ran == ["one", "two", "three"]


def test_a_failed_stage_is_named_and_what_was_done_is_kept(recorder: Recorder):
    recorder.failure = ("three", recorder.bootstrap.SetupError("no compiler"))
    with pytest.raises(recorder.bootstrap.SetupError, match=r"\[3/3\] stage three: no compiler"):
        recorder.setup().run()
    recorder.failure = None
    recorder.setup().run()
    assert recorder.ran == ["one", "two", "three"]


def test_of_two_first_uses_at_once_one_waits_for_the_other(recorder: Recorder):
    inside = threading.Event()
    go_on = threading.Event()

    def slow() -> None:
        recorder.ran.append("one")
        inside.set()
        assert go_on.wait(30)

    first = recorder.setup()
    first.stages[0] = recorder.bootstrap.Stage("one", "slow", lambda: ["1"], slow)
    second = recorder.setup()
    threads = [threading.Thread(target=setup.run) for setup in (first, second)]
    threads[0].start()
    assert inside.wait(30)
    threads[1].start()
    threads[1].join(0.2)
    assert threads[1].is_alive()  # it waits
    go_on.set()
    for thread in threads:
        thread.join(30)
    assert recorder.ran == ["one", "two", "three"]


def test_missing_tools_are_named_with_a_way_to_get_them(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    setup = bootstrap.Setup("wheels", tmp_path)
    monkeypatch.setattr(bootstrap.shutil, "which", lambda command: None)
    with pytest.raises(bootstrap.SetupError) as caught:
        setup.tools()
    for name in ("gcc", "g++", "cmake", "apt install"):
        assert name in str(caught.value)


def test_an_unsupported_platform_is_told_what_to_do(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bootstrap.platform, "machine", lambda: "riscv64")
    with pytest.raises(bootstrap.SetupError, match=r"(?s)riscv64.*Install ROS 2 Jazzy"):
        bootstrap.Setup("wheels", tmp_path).check_platform()


def test_no_network_is_told_apart_from_other_failures(bootstrap: ModuleType, tmp_path: Path):
    setup = bootstrap.Setup("wheels", tmp_path)
    setup.state.mkdir()
    with (setup.state / "lock").open("w") as lock:
        setup.lock_fd = lock.fileno()
        with pytest.raises(bootstrap.SetupError, match="index could not be reached"):
            setup.command(["/bin/sh", "-c", "echo NewConnectionError: refused; exit 1"])
        with pytest.raises(bootstrap.SetupError, match=r"(?s)no such release.*exit status 3"):
            setup.command(["/bin/sh", "-c", "echo no such release; exit 3"])


def test_header_paths_of_the_wheels_are_rewritten(
    bootstrap: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    setup = bootstrap.Setup("wheels", tmp_path)
    exported = tmp_path / "share" / "std_msgs" / "cmake" / "export.cmake"
    exported.parent.mkdir(parents=True)
    exported.write_text(
        '"/opt/python/cp311-cp311/include/python3.11;'
        '/opt/python/cp311-cp311/lib/python3.11/site-packages/numpy/_core/include"'
    )
    monkeypatch.setattr(setup, "output", lambda program: "PYTHON\nNUMPY\n")
    setup.point_wheels_at_this_python()
    assert exported.read_text() == '"PYTHON;NUMPY"'
