"""`ros2 interface`: message and service definitions."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from simdist.local_ros import packages
from simdist.local_ros.errors import CommandError
from simdist.local_ros.options import add_group, add_verb

KINDS = {"msg": "Messages", "srv": "Services", "action": "Actions"}
FIELD = re.compile(r"^([A-Za-z][\w/]*)(\[[^\]]*\]|<=\d+)*\s+\w+(?!\s*=)\b")
BUILT_IN = re.compile(r"(bool|byte|char|w?string|u?int(8|16|32|64)|float(32|64))$")


def add_command(commands: Any, summary: str) -> None:
    verbs = add_group(commands, "interface", summary)
    listing = add_verb(verbs, "list", "List all interface types available", list_all)
    listing.add_argument("-m", "--only-msgs", action="store_true", help="only messages")
    listing.add_argument("-s", "--only-srvs", action="store_true", help="only services")
    listing.add_argument("-a", "--only-actions", action="store_true", help="only actions")
    package = add_verb(verbs, "package", "List the interface types of one package", list_package)
    package.add_argument("package_name", help="Name of the ROS package")
    show = add_verb(verbs, "show", "Output the interface definition", show_definition)
    show.add_argument("type", help="Type, such as std_msgs/msg/String")


def interfaces(package: str) -> list[str]:
    """Return 'package/kind/Name' of every definition a package installs."""
    share = packages.share(package)
    return sorted(
        f"{package}/{kind}/{file.stem}" for kind in KINDS for file in share.glob(f"{kind}/*.{kind}")
    )


def list_all(options: argparse.Namespace) -> None:
    chosen = [
        kind
        for kind, only in (
            ("msg", options.only_msgs),
            ("srv", options.only_srvs),
            ("action", options.only_actions),
        )
        if only
    ]
    names = [name for package in packages.names() for name in interfaces(package)]
    for kind in chosen or KINDS:
        print(f"{KINDS[kind]}:")
        for name in names:
            if name.split("/")[1] == kind:
                print(f"    {name}")


def list_package(options: argparse.Namespace) -> None:
    for name in interfaces(options.package_name):
        print(name)


def definition_file(name: str) -> Path:
    parts = name.split("/")
    if len(parts) == 2:
        parts.insert(1, "msg")
    if len(parts) == 3 and parts[1] in KINDS:
        file = packages.share(parts[0]) / parts[1] / f"{parts[2]}.{parts[1]}"
        if file.is_file():
            return file
    raise CommandError(f"Unknown interface '{name}'")


def show_definition(options: argparse.Namespace) -> None:
    for line in expanded_lines(options.type):
        print(line)


def expanded_lines(name: str, depth: int = 0) -> list[str]:
    """Return the lines of a definition, followed by those of each nested type, indented."""
    lines = []
    package = name.split("/")[0]
    for line in definition_file(name).read_text(encoding="utf-8").splitlines():
        if depth and (not line.strip() or line.lstrip().startswith("#")):
            continue
        lines.append("\t" * depth + line)
        match = FIELD.match(line)
        if match and not BUILT_IN.match(match[1]):
            nested = match[1]
            if "/" not in nested:
                nested = "std_msgs/Header" if nested == "Header" else f"{package}/{nested}"
            lines += expanded_lines(nested, depth + 1)
    return lines
