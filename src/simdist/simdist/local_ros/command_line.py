"""Commands and options, and how errors are shown."""

from __future__ import annotations

import argparse
import os
import sys

from simdist.local_ros.errors import CommandError
from simdist.local_ros.verbs import (
    bag,
    daemon,
    doctor,
    interface,
    launch,
    node,
    param,
    pkg,
    service,
    topic,
)
from simdist.local_ros.verbs import (
    run as run_verb,
)

COMMANDS = (bag, daemon, doctor, interface, launch, node, param, pkg, run_verb, service, topic)


def run(arguments: list[str]) -> int:
    """Run one command; an error for the user becomes one line on standard error and status 1."""
    put_environment_on_path()
    parser = build_parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ros2", description="ros2 is an extensible command-line tool for ROS 2."
    )
    parser.set_defaults(run=lambda options: parser.print_help())
    commands = parser.add_subparsers(title="Commands", metavar="command")
    for command in COMMANDS:
        command.add_command(commands)
    return parser


def put_environment_on_path() -> None:
    """Make packages and executables of this Python environment visible, also to children."""
    prefixes = [path for path in os.environ.get("AMENT_PREFIX_PATH", "").split(":") if path]
    if sys.prefix not in prefixes:
        os.environ["AMENT_PREFIX_PATH"] = ":".join([*prefixes, sys.prefix])
    binaries = os.path.join(sys.prefix, "bin")
    if binaries not in os.environ.get("PATH", "").split(":"):
        os.environ["PATH"] = f"{binaries}:{os.environ.get('PATH', os.defpath)}"
