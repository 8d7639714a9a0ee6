"""What recording, describing and playing bags have in common."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rosbags.interfaces import Nodetype
from rosbags.interfaces.typing import Typesdict
from rosbags.rosbag2 import Reader, ReaderError
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from simdist.local_ros import packages
from simdist.local_ros.errors import CommandError


def log(level: str, logger: str, message: str) -> None:
    """Write a line as the C++ tools do."""
    now = time.time_ns()
    stamp = f"{now // 10**9}.{now % 10**9:09d}"
    print(f"[{level}] [{stamp}] [{logger}]: {message}", file=sys.stderr, flush=True)


def open_bag(path: Path) -> Reader:
    """Open a bag directory, or a file in it; raise CommandError for anything else."""
    directory = path if path.is_dir() else path.parent
    try:
        reader = Reader(directory)
        reader.open()
    except (ReaderError, OSError) as error:
        raise CommandError(f"[ERROR] [ros2bag]: cannot open bag '{path}': {error}") from None
    return reader


def typestore_for(types: Iterable[str]) -> Typestore:
    """Return a type store with the given message types, as the packages here define them."""
    store = get_typestore(Stores.ROS2_JAZZY)
    missing: Typesdict = {}
    waiting = list(types)
    while waiting:
        name = waiting.pop()
        if name in store.types or name in missing:
            continue
        package, kind, short = name.split("/")
        file = packages.share(package) / kind / f"{short}.{kind}"
        if not file.is_file():
            raise CommandError(f"no definition of '{name}' in package '{package}'")
        definitions = get_types_from_msg(file.read_text(encoding="utf-8"), name)
        waiting += [
            nested
            for _, fields in definitions.values()
            for _, field in fields
            for nested in _named_types(field)
            if nested not in definitions
        ]
        missing.update(definitions)
    store.register(missing)
    return store


def _named_types(field: Any) -> list[str]:
    """Return the message type of a field, of its elements, or nothing for a plain field."""
    node, details = field
    if node == Nodetype.NAME:
        return [details]
    if node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        return _named_types(details[0])
    return []
