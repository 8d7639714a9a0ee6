"""Running the command line stand-in from tests, and looking at processes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[4]
SHIM = REPOSITORY / "src" / "simdist" / "simdist" / "local_ros" / "shim"
ROS2 = [sys.executable, "-m", "simdist.local_ros.ros2"]
# No test decides by time; this only keeps a broken one from hanging for ever.
PATIENCE = 60.0


def real_launch_is_installed() -> bool:
    spec = importlib.util.find_spec("launch_ros")
    return spec is not None and SHIM not in Path(spec.origin or "").parents


def environment(log_directory: Path, domain: int = 0) -> dict[str, str]:
    result = {
        **os.environ,
        "AMENT_PREFIX_PATH": sys.prefix,
        "PYTHONPATH": str(REPOSITORY / "src" / "simdist"),
        "ROS_LOG_DIR": str(log_directory),
        "ROS_DOMAIN_ID": str(domain),
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "FASTRTPS_DEFAULT_PROFILES_FILE": str(REPOSITORY / "config" / "fastdds.xml"),
    }
    result.pop("OVERRIDE_LAUNCH_PROCESS_OUTPUT", None)
    return result


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.02)


def is_running(pid: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


class Launched:
    """A running `ros2 launch` of a file, its output collected in a file."""

    def __init__(self, file: Path, directory: Path, *arguments: str) -> None:
        self._output = directory / "output.txt"
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                [*ROS2, "launch", str(file), *arguments],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment(directory / "log"),
                cwd=directory,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._output.read_text(errors="replace")

    def wait_for_output(self, text: str) -> None:
        wait_for(
            lambda: text in self.output or self.process.poll() is not None, f"{text!r} in output"
        )
        assert text in self.output, self.output

    def press_ctrl_c(self) -> None:
        """Signal the whole foreground group, as a terminal does."""
        os.killpg(self.process.pid, signal.SIGINT)

    def finish(self) -> int:
        return self.process.wait(PATIENCE)


@contextlib.contextmanager
def launched(file: Path, directory: Path, *arguments: str) -> Iterator[Launched]:
    run = Launched(file, directory, *arguments)
    try:
        yield run
    finally:
        if run.process.poll() is None:
            run.process.kill()
            run.process.wait()
