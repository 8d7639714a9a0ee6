"""How old things are, on the one clock the caller hands in."""

from __future__ import annotations


class AgeWatch:
    """Age of the newest trustworthy stamp of one source.

    A stamp from the future would make a dead source look alive for as long as it lies ahead, so
    it is not taken over and the age keeps growing from the last good one.
    """

    def __init__(self, tolerance_ns: int) -> None:
        self._tolerance_ns = tolerance_ns
        self._stamp_ns: int | None = None
        self.from_future = 0

    def seen(self, stamp_ns: int, now_ns: int) -> None:
        """A sample with this stamp arrived; older ones than the newest change nothing."""
        if stamp_ns > now_ns + self._tolerance_ns:
            self.from_future += 1
        elif self._stamp_ns is None or stamp_ns > self._stamp_ns:
            self._stamp_ns = stamp_ns

    def age_ns(self, now_ns: int) -> int | None:
        """Age of the newest sample, never negative; None before the first."""
        return None if self._stamp_ns is None else max(0, now_ns - self._stamp_ns)

    def reset(self) -> None:
        """Forget the source, for example after the clock went back."""
        self._stamp_ns = None
