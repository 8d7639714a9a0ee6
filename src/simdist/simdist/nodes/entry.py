"""Entry points of the nodes.

Signals are taken over before anything slow is imported, so that a node that is told to end while
it is still starting ends at once, without a traceback.
"""

from __future__ import annotations

import importlib
import os
import signal
from types import FrameType


def _end_now(signal_number: int, frame: FrameType | None) -> None:
    # Nothing has been opened yet that would have to be closed.
    os._exit(0)


def _run(name: str) -> int:
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        signal.signal(number, _end_now)
    # A launch holds them back until now, see START_UNDISTURBED in the launch files.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
    node = importlib.import_module(f"simdist.nodes.{name}")
    common = importlib.import_module("simdist.nodes.common")
    return common.run(name, node.NODE)


def encoder() -> int:
    return _run("encoder")


def finetune() -> int:
    return _run("finetune")


def mujoco_bridge() -> int:
    return _run("mujoco_bridge")


def operator() -> int:
    return _run("operator")


def planner() -> int:
    return _run("planner")


def replay() -> int:
    return _run("replay")
