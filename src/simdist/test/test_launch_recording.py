"""A recorder that is killed while the robot walks: the walk goes on and the recording is kept."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("rclpy")

from graph_rig import TRACEBACK, WALKING_MODEL, Launched
from rosbags.rosbag2 import Reader

from simdist import robots
from simdist.replay.bag import read_episodes
from simdist.replay.recovery import recover, summarise

pytestmark = pytest.mark.launch
GO1 = robots.get("go1")


def process_of(launched: Launched, node: str) -> int:
    """The process of a node of this launch, told by its domain and its name."""
    mark = f"ROS_DOMAIN_ID={launched.domain}".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if f"__node:={node}".encode() in words and not words[0].endswith(b"env"):
                    return int(entry.name)
    raise AssertionError(f"no process of {node} in {launched.processes()}")


def test_sigkill_of_the_recorder_costs_half_a_second_and_no_step_of_the_walk(tmp_path) -> None:
    bags = tmp_path / "bags"
    launched = Launched(
        "lockstep:=true",
        "headless:=true",
        "adapt:=false",
        "duration:=8",
        f"model:={WALKING_MODEL}",
        "record:=true",
        f"bag_dir:={bags}",
        f"summary:={tmp_path / 'summary.json'}",
        log=tmp_path / "log.txt",
    )
    try:
        launched.wait_for(r"ACTIVE [\s\S]*ACTIVE ")
        os.kill(process_of(launched, "replay"), signal.SIGKILL)
        assert launched.wait() == 0, launched.output
    finally:
        launched.kill()
    assert TRACEBACK not in launched.output
    torn, finished = sorted(bags.iterdir(), key=lambda path: path.stat().st_ctime_ns)[:2]
    if not summarise(finished).finished:
        torn, finished = finished, torn
    recovery = recover(torn)
    assert not recovery.source.finished
    assert recovery.messages > 0
    assert summarise(recovery.out).whole
    for path in (recovery.out, finished):
        episodes, report = read_episodes(path, GO1)
        assert report.rejected == {}
        assert report.steps > 0
        for episode in episodes:
            assert (np.diff(episode.stamp_ns) == 20_000_000).all()
        # Log times are those of the robot, however fast the simulation was.
        with Reader(path) as bag:
            observations = [c for c in bag.connections if c.topic.endswith("/observation")]
            logged = [stamp for _, stamp, _ in bag.messages(observations)]
        assert set(int(s) for e in episodes for s in e.stamp_ns) <= set(logged)
