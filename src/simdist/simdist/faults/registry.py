"""How a room of faults lists what it has."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from numpy.random import Generator

from simdist.faults.measurement import Measurement

Injection = Callable[[Generator], Measurement]


@dataclass(frozen=True)
class Fault:
    """A fault, the promise about it, and how to inject it and measure what happens."""

    name: str
    promise: str
    inject: Injection


@dataclass
class Family:
    """The faults of one room; their names begin with that of the family."""

    name: str
    faults: list[Fault] = field(default_factory=list)

    def add(self, name: str, promise: str, inject: Injection) -> None:
        self.faults.append(Fault(f"{self.name}: {name}", promise, inject))

    def fault(self, name: str, promise: str) -> Callable[[Injection], Injection]:
        """Decorator of a function that injects the fault called ``name``."""

        def register(inject: Injection) -> Injection:
            self.add(name, promise, inject)
            return inject

        return register
