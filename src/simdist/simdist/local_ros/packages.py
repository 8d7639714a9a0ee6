"""Packages in the ament index, and their executables."""

from __future__ import annotations

import os
from pathlib import Path

from ament_index_python.packages import (
    PackageNotFoundError,
    get_package_prefix,
    get_package_share_directory,
    get_packages_with_prefixes,
)

from simdist.local_ros.errors import CommandError


def names() -> list[str]:
    return sorted(get_packages_with_prefixes())


def prefix(package: str) -> Path:
    try:
        return Path(get_package_prefix(package))
    except (PackageNotFoundError, ValueError):
        raise CommandError(f"Package '{package}' not found") from None


def share(package: str) -> Path:
    try:
        return Path(get_package_share_directory(package))
    except (PackageNotFoundError, ValueError):
        raise CommandError(f"Package '{package}' not found") from None


def executables(package: str) -> list[Path]:
    """Return the executable files of a package's libexec directory, sorted by path."""
    directory = prefix(package) / "lib" / package
    return sorted(
        path for path in directory.rglob("*") if path.is_file() and os.access(path, os.X_OK)
    )
