"""Our message definitions for reading and writing bags without ROS."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from simdist.errors import BagError

PACKAGE = "simdist_msgs"


def definitions_dir() -> Path:
    """Directory of the ``.msg`` files: of the installed package, else of the source tree.

    Raises:
        BagError: neither was found.
    """
    prefixes = [p for p in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if p]
    candidates = [Path(prefix) / "share" / PACKAGE / "msg" for prefix in prefixes]
    candidates += [parent / PACKAGE / "msg" for parent in Path(__file__).resolve().parents]
    for candidate in candidates:
        if (candidate / "Observation.msg").is_file():
            return candidate
    raise BagError(
        f"the message definitions of {PACKAGE} were not found in AMENT_PREFIX_PATH: run through "
        "./run, or source the setup.bash of the installation"
    )


@functools.cache
def typestore() -> Typestore:
    """The messages of ROS 2 Jazzy and ours, ready to (de)serialise CDR."""
    store = get_typestore(Stores.ROS2_JAZZY)
    types = {}
    for path in sorted(definitions_dir().glob("*.msg")):
        types.update(get_types_from_msg(path.read_text("utf8"), f"{PACKAGE}/msg/{path.stem}"))
    store.register(types)
    return store
