"""Salvaging an MCAP file whose writer was killed.

An MCAP file is the magic, then records of one opcode byte, a length of eight bytes and that many
bytes of content, then a footer and the magic again. Messages lie in chunk records; whatever
chunks were written completely can be read once the torn end is replaced by a footer.
(https://mcap.dev/spec)
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from simdist.errors import BagError

MAGIC = b"\x89MCAP0\r\n"
_HEADER, _FOOTER, _DATA_END = 0x01, 0x02, 0x0F
#: Records of the data section; anything else is the beginning of the summary, or damage.
_DATA = frozenset({0x01, 0x03, 0x04, 0x05, 0x06, 0x07, 0x09, 0x0C})


def is_complete(path: Path) -> bool:
    """Whether the file ends as a finished MCAP file does."""
    size = path.stat().st_size
    if size < 2 * len(MAGIC):
        return False
    with path.open("rb") as file:
        begins = file.read(len(MAGIC)) == MAGIC
        file.seek(-len(MAGIC), os.SEEK_END)
        return begins and file.read() == MAGIC


def data_end(path: Path) -> int:
    """Offset behind the last complete record of the data section.

    Raises:
        BagError: the file does not begin like an MCAP file, or breaks off before its header ends.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise BagError(f"{path} is not an MCAP file: it does not begin with the MCAP magic")
        end, first = len(MAGIC), True
        while end + 9 <= size:
            file.seek(end)
            head = file.read(9)
            after = end + 9 + int.from_bytes(head[1:], "little")
            if head[0] not in _DATA or after > size or (first and head[0] != _HEADER):
                break
            end, first = after, False
    if first:
        raise BagError(f"{path} breaks off before its first record: nothing can be recovered")
    return end


def repair(source: Path, destination: Path) -> int:
    """Write the complete records of ``source`` as a readable MCAP file without an index.

    Returns how many bytes at the end of ``source`` were lost.
    """
    end = data_end(source)
    with source.open("rb") as torn, destination.open("wb") as whole:
        shutil.copyfileobj(torn, whole)
        whole.truncate(end)
        whole.seek(end)
        whole.write(_record(_DATA_END, bytes(4)))
        # No summary: readers scan the data section.
        whole.write(_record(_FOOTER, bytes(20)))
        whole.write(MAGIC)
    return source.stat().st_size - end


def _record(opcode: int, content: bytes) -> bytes:
    return bytes([opcode]) + len(content).to_bytes(8, "little") + content
