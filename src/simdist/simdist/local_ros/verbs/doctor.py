"""`ros2 doctor`: what this environment consists of, and what is wrong with it."""

from __future__ import annotations

import argparse
import fcntl
import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simdist.local_ros import packages

SHARED_MEMORY = Path("/dev/shm")
NEEDED_PACKAGES = (
    "rclpy",
    "rmw_fastrtps_cpp",
    "std_msgs",
    "sensor_msgs",
    "simdist_msgs",
    "simdist",
)
NEEDED_SPACE = 1e9  # bytes; bags and shared-memory segments of one run fit
VARIABLES = (
    "AMENT_PREFIX_PATH",
    "ROS_DISTRO",
    "ROS_DOMAIN_ID",
    "ROS_AUTOMATIC_DISCOVERY_RANGE",
    "ROS_LOCALHOST_ONLY",
    "RMW_IMPLEMENTATION",
    "FASTRTPS_DEFAULT_PROFILES_FILE",
    "OMP_WAIT_POLICY",
)

Report = tuple[list[str], list[str]]  # lines to show, problems found


def add_command(commands: Any, summary: str) -> None:
    parser = commands.add_parser("doctor", help=summary, description=summary)
    parser.set_defaults(run=run)
    parser.add_argument("-r", "--report", action="store_true", help="also show what was found")


def run(options: argparse.Namespace) -> int:
    failed = []
    for name, check in CHECKS.items():
        lines, problems = check()
        if options.report:
            print(f"\n   {name.upper()}")
            for line in lines:
                print(line)
        for problem in problems:
            print(f"{name}: WARNING: {problem}")
        if problems:
            failed.append(name)
    if options.report:
        print()
    if failed:
        print(f"{len(failed)}/{len(CHECKS)} check(s) failed\n\nFailed modules: {', '.join(failed)}")
        return 1
    print(f"All {len(CHECKS)} checks passed")
    return 0


def platform_check() -> Report:
    lines = [
        f"system             : {platform.platform()}",
        f"python             : {platform.python_version()} at {sys.executable}",
        f"cpu cores          : {len(os.sched_getaffinity(0))}",
    ]
    for wheel in ("ros-jazzy-rclpy", "ros-jazzy-rmw-fastrtps-cpp", "rosbags", "mujoco", "torch"):
        try:
            lines.append(f"{wheel:<19}: {importlib.metadata.version(wheel)}")
        except importlib.metadata.PackageNotFoundError:
            lines.append(f"{wheel:<19}: not installed as a wheel")
    return lines, []


def middleware_check() -> Report:
    try:
        from rclpy.utilities import get_rmw_implementation_identifier

        return [f"middleware name    : {get_rmw_implementation_identifier()}"], []
    except Exception as error:  # a missing shared library shows in many ways
        return [], [f"rclpy cannot be loaded: {error}"]


def environment_check() -> Report:
    lines = [f"{name:<31}: {os.environ.get(name, '(not set)')}" for name in VARIABLES]
    problems = []
    domain = os.environ.get("ROS_DOMAIN_ID", "0")
    if not (domain.isdigit() and int(domain) <= 101):
        problems.append(f"ROS_DOMAIN_ID is '{domain}', allowed are 0 to 101")
    profile = os.environ.get("FASTRTPS_DEFAULT_PROFILES_FILE")
    if profile and not Path(profile).is_file():
        problems.append(f"FASTRTPS_DEFAULT_PROFILES_FILE names '{profile}', which does not exist")
    return lines, problems


def package_check() -> Report:
    available = packages.names()
    missing = [name for name in NEEDED_PACKAGES if name not in available]
    problems = [f"package '{name}' is not installed: run the set-up again" for name in missing]
    return [f"{name:<19}: {packages.prefix(name)}" for name in available], problems


def shared_memory_check() -> Report:
    """Find Fast DDS segments of processes that were killed; they make discovery slow."""
    files = [*SHARED_MEMORY.glob("fastrtps_*"), *SHARED_MEMORY.glob("fastdds_*")]
    stale = [file for file in files if file.name.endswith("_el") and not is_locked(file)]
    lines = [f"segments           : {len(files)}", f"left by dead owners: {len(stale)}"]
    problems = []
    if stale:
        problems.append(
            f"{len(stale)} shared-memory segment(s) of killed processes in {SHARED_MEMORY}; "
            "remove them with 'fastdds shm clean'"
        )
    return lines, problems


def is_locked(file: Path) -> bool:
    """Return whether a living process holds the lock by which Fast DDS marks its segment."""
    try:
        with file.open("rb") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True  # locked, gone, or of another user: in any case not ours to clean
    return False


def disk_check() -> Report:
    lines, problems = [], []
    for place in dict.fromkeys((Path.cwd(), Path(tempfile.gettempdir()), SHARED_MEMORY)):
        try:
            free = shutil.disk_usage(place).free
        except OSError as error:
            problems.append(f"{place}: {error.strerror}")
            continue
        lines.append(f"{place!s:<19}: {free / 1e9:.1f} GB free")
        if free < (NEEDED_SPACE if place != SHARED_MEMORY else NEEDED_SPACE / 20):
            problems.append(f"only {free / 1e6:.0f} MB free in {place}")
    return lines, problems


CHECKS: dict[str, Callable[[], Report]] = {
    "platform": platform_check,
    "middleware": middleware_check,
    "environment": environment_check,
    "package": package_check,
    "shared memory": shared_memory_check,
    "disk": disk_check,
}
