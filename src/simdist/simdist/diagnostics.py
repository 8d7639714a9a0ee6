"""What there is to say about the health of the running graph, once a second."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from simdist.safety import ExecutorStatus
from simdist.types import Mode


class Level(IntEnum):
    """How bad it is; the numbers are those of the DiagnosticStatus message."""

    OK = 0
    WARN = 1
    ERROR = 2


@dataclass(frozen=True)
class Entry:
    """One part of the graph: how it is, in a line and in numbers."""

    name: str
    level: Level
    message: str
    values: Mapping[str, str]


@dataclass(frozen=True)
class PlannerFigures:
    """What a planner counts, from its start on."""

    model_version: int
    plans: int
    late: int  #: took longer than a period
    degraded: int  #: not made, or without a finite return
    refused_updates: int
    plan_ms_p50: float
    plan_ms_p99: float
    period_ms: float
    last_event: str


class Increase:
    """What was added to counters since the last time somebody asked."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}

    def of(self, counts: Mapping[str, int]) -> dict[str, int]:
        """Those that have grown, by how much; the first time by all they are."""
        grown = {name: count - self._last.get(name, 0) for name, count in counts.items()}
        self._last = dict(counts)
        return {name: by for name, by in grown.items() if by > 0}


class ExecutorReport:
    """Mode, refused chunks, missed deadlines: ERROR while stopped or in FAULT, WARN when anything
    was refused or missed since the last entry."""

    def __init__(self) -> None:
        self._increase = Increase()

    def entry(self, status: ExecutorStatus, late_ticks: int) -> Entry:
        """The present entry; ``late_ticks`` counts control steps begun late by the steady clock."""
        counts = {f"chunks refused ({why})": n for why, n in sorted(status.chunks_refused.items())}
        counts |= {
            "control steps missed": status.missed_steps,
            "control steps late": status.late_steps + late_ticks,
            "calls that held the last command": status.holds,
            "states from the future": status.future_states,
            "states overtaken": status.overtaken_states,
        }
        news = _in_words(self._increase.of(counts))
        mode = f"{status.mode.name}: {status.reason}"
        if status.mode == Mode.FAULT or not status.armed:
            level, message = Level.ERROR, f"{mode}; disarmed" + (f"; {news}" if news else "")
        elif news:
            level, message = Level.WARN, f"{news}; {mode}"
        else:
            level, message = Level.OK, mode
        values = {
            "mode": status.mode.name,
            "reason": status.reason,
            "armed": str(status.armed),
            "control steps": str(status.control_steps),
            "chunks accepted": str(status.chunks_accepted),
            "chunks refused": str(sum(status.chunks_refused.values())),
            **{name: str(count) for name, count in counts.items()},
            "protective stops": str(status.protective_stops),
            "faults": str(status.faults),
            "age of the chunk (s)": f"{status.chunk_age:.3f}",
            "age of the state (s)": f"{status.state_age:.3f}",
        }
        return Entry("command executor", level, message, values)


class PlannerReport:
    """Model version, late and degraded plans, refused updates: WARN when any of these has grown
    since the last entry."""

    def __init__(self) -> None:
        self._increase = Increase()

    def entry(self, figures: PlannerFigures) -> Entry:
        """The present entry."""
        counts = {
            "plans late": figures.late,
            "plans degraded": figures.degraded,
            "model updates refused": figures.refused_updates,
        }
        news = _in_words(self._increase.of(counts))
        times = (
            f"{figures.plan_ms_p50:.1f} ms per plan, p99 {figures.plan_ms_p99:.1f} ms, "
            f"deadline {figures.period_ms:.0f} ms"
        )
        values = {
            "model version": str(figures.model_version),
            "plans": str(figures.plans),
            **{name: str(count) for name, count in counts.items()},
            "plan p50 (ms)": f"{figures.plan_ms_p50:.2f}",
            "plan p99 (ms)": f"{figures.plan_ms_p99:.2f}",
            "period (ms)": f"{figures.period_ms:.0f}",
            "last event": figures.last_event,
        }
        message = f"{news}; {times}" if news else times
        return Entry("planner", Level.WARN if news else Level.OK, message, values)


def _in_words(grown: Mapping[str, int]) -> str:
    return ", ".join(f"{by} {name}" for name, by in grown.items())
