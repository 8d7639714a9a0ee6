"""`ros2 bag info`: what is in a bag."""

from __future__ import annotations

import argparse
import datetime
from pathlib import Path

from simdist.local_ros.bags import open_bag


def info(options: argparse.Namespace) -> None:
    reader = open_bag(options.bag_path)
    try:
        directory = options.bag_path if options.bag_path.is_dir() else options.bag_path.parent
        files = sorted(file.name for file in directory.iterdir() if file.name != "metadata.yaml")
        size = sum((directory / name).stat().st_size for name in files)
        start, duration = reader.start_time, reader.duration
        if reader.message_count == 0:
            start, duration = 0, 0
        topics = [
            f"Topic: {connection.topic} | Type: {connection.msgtype} | "
            f"Count: {connection.msgcount} | Serialization Format: "
            f"{getattr(connection.ext, 'serialization_format', 'cdr')}"
            for connection in sorted(reader.connections, key=lambda one: one.topic)
        ]
        count = reader.message_count
    finally:
        reader.close()
    rows = [
        ("Files", ("\n" + " " * 19).join(files)),
        ("Bag size", size_text(size)),
        ("Storage id", storage_id(directory, files)),
        ("ROS Distro", "jazzy"),
        ("Duration", f"{duration / 1e9:.9f}s"),
        ("Start", time_text(start)),
        ("End", time_text(start + duration)),
        ("Messages", str(count)),
        ("Topic information", ("\n" + " " * 19).join(topics)),
        ("Service", "0"),
        ("Service information", ""),
    ]
    print()
    for label, value in rows:
        print(f"{label + ':':<18} {value}")
    print()


def storage_id(directory: Path, files: list[str]) -> str:
    return "mcap" if any(name.endswith(".mcap") for name in files) else "sqlite3"


def size_text(size: int) -> str:
    """Return a size in the unit that suits it: B, KiB, MiB or GiB."""
    value = float(size)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024.0:
            return f"{size} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024.0
    return f"{value:.1f} GiB"


def time_text(nanoseconds: int) -> str:
    seconds, rest = divmod(nanoseconds, 10**9)
    moment = datetime.datetime.fromtimestamp(seconds)
    return f"{moment:%b %e %Y %H:%M:%S}.{rest:09d} ({seconds}.{rest:09d})"
