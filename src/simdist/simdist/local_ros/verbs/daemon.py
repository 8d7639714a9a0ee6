"""`ros2 daemon`: there is none; the verbs exist so that scripts work."""

from __future__ import annotations

import argparse
from typing import Any

from simdist.local_ros.options import add_group, add_verb


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "daemon", summary)
    for name, summary in (
        ("start", "Start the daemon if it isn't running"),
        ("status", "Output the status of the daemon"),
        ("stop", "Stop the daemon if it is running"),
    ):
        add_verb(verbs, name, summary, report)


def report(options: argparse.Namespace) -> None:
    print("The daemon is not running")
