"""In what a world differs from everything that pretraining draws from."""

from __future__ import annotations

from simdist.simulation.batch import Randomisation
from simdist.simulation.world import Strip, WorldSpec


def within(value: float, limits: tuple[float, float]) -> bool:
    """Whether ``value`` lies in the closed range ``limits``."""
    return limits[0] <= value <= limits[1]


def slippery(strip: Strip, ranges: Randomisation) -> bool:
    """Whether the friction of ``strip`` lies outside the range of pretraining."""
    return not within(strip.friction, ranges.friction)


def outside_pretraining(world: WorldSpec, ranges: Randomisation | None = None) -> tuple[str, ...]:
    """The parameters of ``world`` that lie outside ``ranges``; pretraining always has firm ground,
    loads at the centre of the trunk, and motors that act at once."""
    ranges, gaps = ranges or Randomisation(), world.gaps
    hard = {
        "friction": any(slippery(strip, ranges) for strip in world.course),
        "slope": any(abs(strip.slope) > ranges.max_slope for strip in world.course),
        "softness": any(strip.softness is not None for strip in world.course),
        "trunk_mass": not within(gaps.trunk_mass, ranges.trunk_mass),
        "trunk_offset": gaps.trunk_mass != 0 and any(gaps.trunk_offset),
        "motor_strength": not all(within(f, ranges.gain) for f in gaps.motor_strength.values()),
        "action_delay": gaps.action_delay > 0,
    }
    return tuple(name for name, is_hard in hard.items() if is_hard)
