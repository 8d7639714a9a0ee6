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
        self.overtaken = 0  #: samples that came after a newer one

    def seen(self, stamp_ns: int, now_ns: int) -> bool:
        """A sample with this stamp arrived; false when a newer one was there before, so that its
        values say nothing about now."""
        if stamp_ns > now_ns + self._tolerance_ns:
            self.from_future += 1
            return True
        if self._stamp_ns is not None and stamp_ns < self._stamp_ns:
            self.overtaken += 1
            return False
        self._stamp_ns = stamp_ns
        return True

    def age_ns(self, now_ns: int) -> int | None:
        """Age of the newest sample, never negative; None before the first."""
        return None if self._stamp_ns is None else max(0, now_ns - self._stamp_ns)

    def reset(self) -> None:
        """Forget the source, for example after the clock went back."""
        self._stamp_ns = None


class FreezeWatch:
    """Since when a source has been repeating itself, however fresh its stamps are.

    A driver that goes on sending the last thing it heard looks alive by its stamps. No two
    measurements of a moving robot are alike to the last bit.
    """

    def __init__(self) -> None:
        self._values = b""
        self._since_ns = 0

    def seen(self, values: bytes, now_ns: int) -> None:
        """What the source reports now."""
        if values != self._values:
            self._values, self._since_ns = values, now_ns

    def age_ns(self, now_ns: int) -> int:
        """Time since the values last changed."""
        return now_ns - self._since_ns

    def reset(self) -> None:
        """The next values are new ones."""
        self._values = b""
