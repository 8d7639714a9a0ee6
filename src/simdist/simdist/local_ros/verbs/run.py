"""`ros2 run`: run an executable of a package."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import Any

from simdist.local_ros import packages
from simdist.local_ros.errors import CommandError


def add_command(commands: Any, summary: str) -> None:
    parser = commands.add_parser("run", help=summary, description=summary)
    parser.set_defaults(run=run)
    parser.add_argument("--prefix", help="command that runs the executable, such as 'gdb --args'")
    parser.add_argument("package_name", help="Name of the ROS package")
    parser.add_argument("executable_name", help="Name of the executable")
    parser.add_argument("argv", nargs=argparse.REMAINDER, help="arguments to the executable")


def run(options: argparse.Namespace) -> int:
    found = [
        path
        for path in packages.executables(options.package_name)
        if path.name == options.executable_name
    ]
    if not found:
        raise CommandError("No executable found")
    if len(found) > 1:
        paths = "\n".join(f"- {path}" for path in found)
        raise CommandError(f"Multiple executables found:\n{paths}")
    command = [*shlex.split(options.prefix or ""), str(found[0]), *options.argv]
    sys.stdout.flush()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        raise CommandError(f"cannot run '{command[0]}': {error.strerror}") from None
