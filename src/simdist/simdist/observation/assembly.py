"""Bringing together what was measured at the same moment and arrived one by one."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


class StampMatcher:
    """Collects one value of each kind per stamp and hands them out together.

    Values may arrive in any order. A complete set is handed out once all its kinds are there and
    makes everything older obsolete; a stamp handed out before is completed again only if all of
    its values are sent again. Of stamps that stay incomplete the last ``keep`` to come are kept:
    a burst of absurd ones is forgotten, not waited for. Stamps that lie more than ``restart_ns``
    back belong to a clock that started over: then everything before is forgotten.
    """

    def __init__(
        self, kinds: Collection[str], keep: int = 32, restart_ns: int = 2_000_000_000
    ) -> None:
        self._kinds = frozenset(kinds)
        self._keep = keep
        self._restart_ns = restart_ns
        self._waiting: dict[int, dict[str, Any]] = {}
        self._done_ns: int | None = None
        self.incomplete = 0  #: stamps given up with more than half of their kinds there

    def add(self, kind: str, stamp_ns: int, value: Any) -> dict[str, Any] | None:
        """The complete set of ``stamp_ns`` by kind if ``value`` completes it, else None."""
        if kind not in self._kinds:
            raise KeyError(f"unknown kind {kind!r}; known: {', '.join(sorted(self._kinds))}")
        if self._done_ns is not None and stamp_ns < self._done_ns:
            if self._done_ns - stamp_ns < self._restart_ns:
                return None
            self._done_ns = None
            self._waiting.clear()
        values = self._waiting.setdefault(stamp_ns, {})
        values[kind] = value
        if len(values) == len(self._kinds):
            self._done_ns = stamp_ns
            for old in [stamp for stamp in self._waiting if stamp <= stamp_ns]:
                dropped = self._waiting.pop(old)
                self.incomplete += old != stamp_ns and 2 * len(dropped) > len(self._kinds)
            return values
        while len(self._waiting) > self._keep:
            del self._waiting[next(iter(self._waiting))]
        return None
