"""All faults, and the table of their results."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from simdist.faults import chunks, clocks, falls, modes, numerics, silence, state, updates
from simdist.faults.measurement import Measurement
from simdist.faults.registry import Fault

_ROOMS = (state, silence, chunks, falls, modes, clocks, numerics, updates)


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    fault: str
    promise: str
    measurement: Measurement

    @property
    def held(self) -> bool:
        return self.measurement.held

    def to_dict(self) -> dict[str, str | bool]:
        measured = str(self.measurement)
        if self.measurement.trouble:
            measured += f" ({self.measurement.trouble})"
        return {
            "fault": self.fault,
            "promise": self.promise,
            "measured": measured,
            "held": self.held,
        }


def faults(pattern: str = "") -> list[Fault]:
    """The faults whose name contains ``pattern``, whatever its case."""
    every = [fault for room in _ROOMS for fault in room.FAMILY.faults]
    return [fault for fault in every if pattern.lower() in fault.name.lower()]


def run(chosen: list[Fault], seed: int) -> Iterator[Row]:
    """Inject the faults one by one.

    What is random about a fault comes from ``seed`` and its name, so that it is the same whichever
    others run. A fault that ends in an exception is a promise that was not held.
    """
    for fault in chosen:
        rng = np.random.default_rng([seed, zlib.crc32(fault.name.encode())])
        try:
            measurement = fault.inject(rng)
        except Exception as error:  # whatever it is, it is a row and not the end of the table
            measurement = Measurement(1, "exceptions", False, f"{type(error).__name__}: {error}")
        yield Row(fault.name, fault.promise, measurement)
