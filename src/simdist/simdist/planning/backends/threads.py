"""How many threads a plan may take."""

from __future__ import annotations

import functools
import logging
import os

from simdist.errors import ConfigError

_log = logging.getLogger(__name__)


def processors() -> int:
    """Processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def usable_threads(wanted: int) -> int:
    """``wanted`` threads, or as many as there are processors where that is fewer, which is logged.

    Workers beyond the processors wait for each other: a plan gets slower, not faster. Raises
    ConfigError below 1.
    """
    if wanted < 1:
        raise ConfigError(f"planner threads = {wanted}: must be at least 1")
    usable = min(wanted, processors())
    if usable < wanted:
        _say_once(wanted, usable)
    return usable


@functools.cache
def _say_once(wanted: int, usable: int) -> None:
    _log.warning(
        "planner threads = %d: this process may use %d processors, planning with %d threads",
        wanted,
        usable,
        usable,
    )
