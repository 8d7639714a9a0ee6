"""`ros2 pkg`: packages, where they are, and what they can run."""

from __future__ import annotations

import argparse
from typing import Any

from simdist.local_ros import packages
from simdist.local_ros.errors import CommandError
from simdist.local_ros.options import add_group, add_verb


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "pkg", summary)
    add_verb(verbs, "list", "Output a list of available packages", list_packages)
    prefix = add_verb(verbs, "prefix", "Output the prefix path of a package", show_prefix)
    prefix.add_argument("package_name", help="The package name")
    prefix.add_argument("--share", action="store_true", help="show the share directory")
    executables = add_verb(
        verbs, "executables", "Output a list of package specific executables", list_executables
    )
    executables.add_argument("package_name", nargs="?", help="Name of the package (default: all)")
    executables.add_argument("--full-path", action="store_true", help="show paths")


def list_packages(options: argparse.Namespace) -> None:
    for name in packages.names():
        print(name)


def show_prefix(options: argparse.Namespace) -> None:
    try:
        prefix = packages.prefix(options.package_name)
    except CommandError:
        raise CommandError("Package not found") from None
    print(packages.share(options.package_name) if options.share else prefix)


def list_executables(options: argparse.Namespace) -> None:
    names = packages.names() if options.package_name is None else [options.package_name]
    for name in names:
        for path in packages.executables(name):
            print(path if options.full_path else f"{name} {path.name}")
