"""`ros2 launch`: start processes described by a launch file."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from simdist.local_ros import packages
from simdist.local_ros.errors import CommandError

SHIM = Path(__file__).resolve().parent.parent / "shim"


def add_command(commands: Any, summary: str) -> None:
    parser = commands.add_parser("launch", help=summary, description=summary)
    parser.set_defaults(run=run)
    parser.add_argument("-n", "--noninteractive", action="store_true", help="no terminal is used")
    parser.add_argument("-d", "--debug", action="store_true", help="show tracebacks of errors")
    parser.add_argument(
        "-p",
        "--print",
        "--print-description",
        dest="print_description",
        action="store_true",
        help="Print the launch description to the console without launching it.",
    )
    parser.add_argument(
        "-s",
        "--show-args",
        "--show-arguments",
        dest="show_args",
        action="store_true",
        help="Show arguments that may be given to the launch file.",
    )
    parser.add_argument("package_name", help="name of the package, or path of the launch file")
    parser.add_argument("launch_file_name", nargs="?", help="name of the launch file")
    parser.add_argument(
        "launch_arguments", nargs="*", help="arguments to the launch file, '<name>:=<value>'"
    )


def put_shim_on_path() -> None:
    """Offer `launch` and `launch_ros`, and never where the real ones are installed."""
    if importlib.util.find_spec("launch_ros") is None:
        sys.path.insert(0, str(SHIM))


def run(options: argparse.Namespace) -> int:
    path, arguments = find_launch_file(options)
    given = parse_launch_arguments(arguments)
    put_shim_on_path()
    from launch import LaunchDescription, LaunchService
    from launch.actions import IncludeLaunchDescription
    from launch.launch_description_sources import AnyLaunchDescriptionSource

    source = AnyLaunchDescriptionSource(path)
    if options.show_args or options.print_description:
        from simdist.local_ros import launch_description_text as text

        description = text.load(source)
        print(text.arguments(description) if options.show_args else text.entities(description))
        return 0
    service = LaunchService(
        argv=arguments, noninteractive=options.noninteractive, debug=options.debug
    )
    include = IncludeLaunchDescription(source, launch_arguments=list(given.items()))
    service.include_launch_description(LaunchDescription([include]))
    return service.run()


def find_launch_file(options: argparse.Namespace) -> tuple[str, list[str]]:
    """Return the path of the launch file and the arguments for it."""
    arguments = list(options.launch_arguments)
    if os.path.isfile(options.package_name):
        if options.launch_file_name is not None:
            arguments.insert(0, options.launch_file_name)
        return options.package_name, arguments
    if options.launch_file_name is None:
        raise CommandError("launch_file_name is required when package_name is not a launch file")
    share = packages.share(options.package_name)
    found = sorted(
        os.path.join(root, name)
        for root, _, files in os.walk(share, followlinks=True)
        for name in files
        if name == options.launch_file_name
    )
    if not found:
        raise CommandError(
            f"file '{options.launch_file_name}' was not found in the share directory of package "
            f"'{options.package_name}' which is at '{share}'"
        )
    if len(found) > 1:
        raise CommandError(
            f"file '{options.launch_file_name}' was found more than once in the share directory "
            f"of package '{options.package_name}': {found}"
        )
    return found[0], arguments


def parse_launch_arguments(arguments: list[str]) -> dict[str, str]:
    """Return names and values; of a name given twice the last value counts."""
    result: dict[str, str] = {}
    for argument in arguments:
        name, separator, value = argument.partition(":=")
        if not (separator and name and value):
            raise CommandError(
                f"malformed launch argument '{argument}', expected format '<name>:=<value>'"
            )
        result[name] = value
    return result
