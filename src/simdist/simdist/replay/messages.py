"""Our message definitions for reading and writing bags without ROS."""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rosbags.interfaces import Nodetype
from rosbags.interfaces.typing import Typesdict
from rosbags.typesys import Stores, get_types_from_msg, get_typestore
from rosbags.typesys.store import Typestore

from simdist.errors import BagError

PACKAGE = "simdist_msgs"
_NS = 1_000_000_000
_MAX_DEFINITION = 200_000  #: characters
_TYPE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,100}/(msg|srv|action)/[A-Za-z][A-Za-z0-9_]{0,100}")
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,200}")


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
    store.register(_our_types())
    return store


def _our_types() -> Typesdict:
    types: Typesdict = {}
    for path in sorted(definitions_dir().glob("*.msg")):
        types.update(get_types_from_msg(path.read_text("utf8"), f"{PACKAGE}/msg/{path.stem}"))
    return types


@functools.lru_cache(maxsize=256)
def same_definition(kind: str, encoding: str, definition: str) -> bool:
    """Whether a definition out of a recording means what our message type ``kind`` means.

    True where the recording does not say (``definition`` empty or in IDL).
    """
    if not definition or encoding != "ros2msg":
        return True
    store = typestore()
    if kind not in store.types:
        return False
    if definition == store.generate_msgdef(kind, ros_version=2)[0]:
        return True
    try:
        theirs = parse_definition(kind, definition)
    except BagError:
        return False
    ours = store.fielddefs
    return all(name in ours and fields == list(ours[name][1]) for name, fields in theirs.items())


def parse_definition(kind: str, definition: str) -> dict[str, list[Any]]:
    """Fields by message type of a definition that anybody may have written.

    Constants are left out. What is returned holds nothing but identifiers and numbers, because
    rosbags makes Python code of it.

    Raises:
        BagError: it is no definition, or far too long for one.
    """
    if len(definition) > _MAX_DEFINITION or not _TYPE_NAME.fullmatch(kind):
        raise BagError(f"the definition of {kind[:80]!r} is not that of a message")
    try:
        parsed = get_types_from_msg(definition, kind)
        fields = {name: list(members) for name, (_, members) in parsed.items()}
        for name, members in fields.items():
            if not _TYPE_NAME.fullmatch(name) or not all(map(_is_field, members)):
                raise ValueError(name)
    except Exception as error:  # the parser has many ways to fail
        raise BagError(f"the definition of {kind} cannot be read") from error
    return fields


def _is_field(member: Any) -> bool:
    name, description = member
    if not _IDENTIFIER.fullmatch(name):
        return False
    node, details = description
    while node in (Nodetype.ARRAY, Nodetype.SEQUENCE):
        (node, details), size = details
        if not isinstance(size, int):
            return False
    if node == Nodetype.NAME:
        return isinstance(details, str) and _TYPE_NAME.fullmatch(details) is not None
    base, size = details
    return isinstance(size, int) and _IDENTIFIER.fullmatch(base) is not None


def typestore_for(definitions: Iterable[tuple[str, str]]) -> Typestore:
    """A type store of ROS 2 Jazzy and ours that also knows types by ``(name, definition)``.

    Raises:
        BagError: a definition is none, or says otherwise than another one.
    """
    store = get_typestore(Stores.ROS2_JAZZY)
    store.register(_our_types())
    for kind, definition in definitions:
        if kind in store.types:
            continue
        fields = parse_definition(kind, definition)
        new: Any = {name: ([], members) for name, members in fields.items()}
        try:
            store.register(new)
        except Exception as error:
            raise BagError(f"the definition of {kind} contradicts another one") from error
    return store


def header_stamp_ns(data: bytes | memoryview) -> int | None:
    """The stamp in ns of a CDR message that begins with a std_msgs/Header, without decoding it.

    None when the message is too short. Negative when the stamp is.
    """
    if len(data) < 12:
        return None
    little = data[1] & 1
    seconds, nanoseconds = struct.unpack_from("<iI" if little else ">iI", data, 4)
    return seconds * _NS + nanoseconds
