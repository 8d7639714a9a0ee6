"""What was measured of a promise, and whether it was held."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Measurement:
    """A number with its unit, the verdict, and what else went wrong (empty if nothing did)."""

    value: float
    unit: str
    held: bool
    trouble: str = ""

    def unless(self, broken: bool, trouble: str) -> Measurement:
        """The same, but not held if something beside the number is ``broken``."""
        if not broken:
            return self
        texts = [text for text in (self.trouble, trouble) if text]
        return replace(self, held=False, trouble="; ".join(texts))

    def __str__(self) -> str:
        number = f"{self.value:.4g}" if math.isfinite(self.value) else str(self.value)
        return f"{number} {self.unit}"


def at_most(value: float, limit: float, unit: str) -> Measurement:
    """Held while ``value`` does not exceed ``limit``; NaN does."""
    return _judged(value, unit, bool(value <= limit), f"at most {limit:g} {unit}")


def exactly(value: float, expected: float, unit: str) -> Measurement:
    """Held while ``value`` is the expected one."""
    return _judged(value, unit, bool(value == expected), f"expected {expected:g} {unit}")


def _judged(value: float, unit: str, held: bool, allowed: str) -> Measurement:
    return Measurement(float(value), unit, held, "" if held else allowed)
