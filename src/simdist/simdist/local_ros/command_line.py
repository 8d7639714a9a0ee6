"""Commands and options, and how errors are shown."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from simdist.local_ros.errors import CommandError

COMMANDS = {
    "bag": "Various rosbag related sub-commands",
    "daemon": "Various daemon related sub-commands",
    "doctor": "Check ROS setup and other potential issues",
    "interface": "Show information about ROS interfaces",
    "launch": "Run a launch file",
    "node": "Various node related sub-commands",
    "param": "Various param related sub-commands",
    "pkg": "Various package related sub-commands",
    "run": "Run a package specific executable",
    "service": "Various service related sub-commands",
    "topic": "Various topic related sub-commands",
}


def run(arguments: list[str]) -> int:
    """Run one command; an error for the user becomes one line on standard error and status 1."""
    put_environment_on_path()
    parser = build_parser(arguments[0] if arguments else "")
    options = parser.parse_args(arguments)
    try:
        return options.run(options) or 0
    except CommandError as error:
        print(error, file=sys.stderr)
        return 1


def build_parser(chosen: str) -> argparse.ArgumentParser:
    """Return the parser; only the chosen command is imported, the others are named in the help."""
    parser = argparse.ArgumentParser(
        prog="ros2", description="ros2 is an extensible command-line tool for ROS 2."
    )
    parser.set_defaults(run=lambda options: parser.print_help())
    commands = parser.add_subparsers(title="Commands", metavar="command")
    for name, summary in COMMANDS.items():
        if name == chosen:
            module = importlib.import_module(f"simdist.local_ros.verbs.{name}")
            module.add_command(commands, summary)
        else:
            commands.add_parser(name, help=summary)
    return parser


def put_environment_on_path() -> None:
    """Make packages and executables of this Python environment visible, also to children."""
    prefixes = [path for path in os.environ.get("AMENT_PREFIX_PATH", "").split(":") if path]
    if sys.prefix not in prefixes:
        os.environ["AMENT_PREFIX_PATH"] = ":".join([*prefixes, sys.prefix])
    binaries = os.path.join(sys.prefix, "bin")
    if binaries not in os.environ.get("PATH", "").split(":"):
        os.environ["PATH"] = f"{binaries}:{os.environ.get('PATH', os.defpath)}"
