"""Models and processes for tests of the running graph."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import torch

from simdist import robots
from simdist.observation.spec import legged_observation
from simdist.world_model import Contract, WorldModel, WorldModelConfig, save_artefact
from simdist.world_model.simulation_replay import FILE_NAME, export_simulation_replay
from simdist.world_model.windows import Trajectories, WindowSet, find_windows

ROOT = Path(__file__).resolve().parents[3]
#: The model that is expected to walk.
WALKING_MODEL = Path(
    os.environ.get("SIMDIST_TEST_MODEL", ROOT / "models" / "go1" / "world_model.safetensors")
)
#: s. No test decides by time; this only keeps a broken one from hanging for ever.
PATIENCE = 400.0
TRACEBACK = "Traceback (most recent call last)"


def random_model(directory: Path) -> Path:
    """A Go1 model that has learned nothing, with simulation data of nothing beside it."""
    torch.manual_seed(0)
    robot, config = robots.get("go1"), WorldModelConfig()
    contract = Contract.of(robot, legged_observation(robot.joint_count), config)
    path = directory / "random.safetensors"
    save_artefact(path, WorldModel(config), contract, 0, None, {})
    windows = _random_windows(contract)
    export_simulation_replay(directory / FILE_NAME, windows, windows, contract, count=200)
    return path


def _random_windows(contract: Contract, steps: int = 600) -> WindowSet:
    network = contract.network
    flags = torch.zeros(steps, dtype=torch.bool)
    action = torch.randn(steps, network.action_dim)
    trajectories = Trajectories(
        proprio=torch.randn(steps, network.proprio_dim),
        scan=torch.zeros(steps, network.scan_dim).half(),
        action=action,
        expert_action=action,
        command=torch.zeros(steps, network.command_dim),
        reward=torch.zeros(steps),
        value=torch.zeros(steps),
        fall=flags,
        end=flags,
        is_expert=flags,
        row_lengths=np.array([steps]),
    )
    index = find_windows(trajectories, contract.history, contract.horizon, pad_starts=False)
    return WindowSet(
        trajectories,
        index,
        torch.ones(len(index.present), dtype=torch.bool),
        history=contract.history,
        horizon=contract.horizon,
        noise_std=torch.from_numpy(contract.observation.noise_std()),
    )


_domains = iter(range(100))


def free_domain() -> int:
    """A ROS domain of its own for every graph, also when test runs overlap."""
    return 101 + (os.getpid() * 7 + next(_domains)) % 120


class Launched:
    """A launch under test, with what it printed; ends with everything it started."""

    def __init__(self, *arguments: str, log: Path, domain: int | None = None) -> None:
        self.domain = free_domain() if domain is None else domain
        self._log = log
        environment = {**os.environ, "ROS_DOMAIN_ID": str(self.domain)}
        ros2 = Path(sys.prefix) / "bin" / "ros2"
        command = [str(ros2) if ros2.exists() else "ros2", "launch", "simdist"]
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                [*command, "go1_slope.launch.py", *arguments],
                stdout=file,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text(errors="replace")

    def wait_for(self, pattern: str, timeout: float = PATIENCE) -> re.Match[str]:
        """The first match in the output; fails with the output when it does not come."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            found = re.search(pattern, self.output)
            if found:
                return found
            assert not ended, f"the launch ended before {pattern!r}:\n{self.output}"
            time.sleep(0.05)
        raise AssertionError(f"{pattern!r} did not come within {timeout} s:\n{self.output}")

    def interrupt(self, number: int = signal.SIGINT) -> None:
        os.kill(self.process.pid, number)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {timeout} s:\n{self.output}") from None

    def processes(self) -> list[str]:
        """Command lines of living processes of this graph, told by its domain."""
        found = []
        mark = f"ROS_DOMAIN_ID={self.domain}".encode()
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not entry.name.isdigit() or mark not in (entry / "environ").read_bytes():
                    continue
                if int(entry.name) != os.getpid():
                    command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    # A zombie has no command line any more.
                    if command:
                        found.append(command)
        return found

    def kill(self) -> None:
        """End whatever is left, after a failed test."""
        if self.process.poll() is None:
            self.interrupt(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(15)
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
