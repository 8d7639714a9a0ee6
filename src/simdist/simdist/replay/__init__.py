"""Recorded robot data: episodes, the buffer, and bags on disk.

Bags are imported by name from :mod:`simdist.replay.bag`: learning in memory needs no bag library.
"""

from __future__ import annotations

from simdist.replay.buffer import BufferStatistics, ReplayBuffer
from simdist.replay.episode import Episode, Windows, data_hash, join
from simdist.replay.group_store import GroupStore
from simdist.replay.recorder import EpisodeRecorder, RecorderStatus

__all__ = [
    "BufferStatistics",
    "Episode",
    "EpisodeRecorder",
    "GroupStore",
    "RecorderStatus",
    "ReplayBuffer",
    "Windows",
    "data_hash",
    "join",
]
