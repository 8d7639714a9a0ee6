"""What a run of the graph amounted to: the line printed every second, and the closing summary."""

from __future__ import annotations

import json
import math
import os
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from simdist.errors import ConfigError


@dataclass(frozen=True)
class UpdateRecord:
    """One attempt to relearn the dynamics: held-out latent losses before and after."""

    version: int
    accepted: bool
    loss_before: float
    loss_after: float
    simulation_loss_before: float
    simulation_loss_after: float
    message: str = ""


@dataclass
class RunSummary:
    """Collects the newest figures of every node; see :meth:`line` and :meth:`to_dict`."""

    progress: float = 0.0  #: m in the present lap
    finished_laps: float = 0.0  #: m of laps that ended at the end of the course
    speed: float = 0.0
    falls: int = 0
    ticks: int = 0
    late_ticks: int = 0
    plan_ms_p50: float = 0.0
    plan_ms_p99: float = 0.0
    plans: int = 0
    late_plans: int = 0
    degraded_plans: int = 0
    refused_updates: int = 0
    model_versions: list[int] = field(default_factory=list)
    episodes: int = 0
    seconds_of_data: float = 0.0
    updates: list[UpdateRecord] = field(default_factory=list)
    mode: str = "starting"
    mode_changes: list[dict[str, Any]] = field(default_factory=list)
    _first: tuple[float, float] | None = None  # simulated and steady seconds
    _last: tuple[float, float] | None = None

    def clock(self, simulated: float, steady: float) -> None:
        """A message stamped ``simulated`` arrived at ``steady`` (s)."""
        self._first = self._first or (simulated, steady)
        self._last = (simulated, steady)

    def lap_finished(self) -> None:
        """The robot has reached the end of its course and will start again."""
        self.finished_laps += self.progress
        self.progress = 0.0

    def mode_changed(self, time: float, mode: str, reason: str) -> None:
        self.mode = mode
        self.mode_changes.append({"time": round(time, 3), "mode": mode, "reason": reason})

    def model_seen(self, version: int) -> None:
        """The planner plans with this version."""
        if not self.model_versions or self.model_versions[-1] != version:
            self.model_versions.append(version)

    @property
    def duration(self) -> float:
        """Simulated seconds between the first and the last message."""
        return self._last[0] - self._first[0] if self._first and self._last else 0.0

    @property
    def real_time_factor(self) -> float:
        wall = self._last[1] - self._first[1] if self._first and self._last else 0.0
        return self.duration / wall if wall > 0 else 0.0

    @property
    def total_progress(self) -> float:
        return self.finished_laps + self.progress

    def line(self) -> str:
        """One line for people."""
        version = f"v{self.model_versions[-1]}" if self.model_versions else "none"
        return (
            f"t {self.duration:6.1f} s  {self.mode:<8}  progress {self.total_progress:6.2f} m  "
            f"speed {self.speed:5.2f} m/s  plan {self.plan_ms_p50:5.1f}/{self.plan_ms_p99:5.1f} ms"
            f"  model {version}  data {self.seconds_of_data:5.1f} s  falls {self.falls}"
        )

    def closing(self) -> list[str]:
        """The summary for people."""
        versions = ", ".join(map(str, self.model_versions)) or "none"
        lines = [
            f"{self.duration:.1f} s at {self.real_time_factor:.2f} x real time: progress "
            f"{self.total_progress:.2f} m, {self.falls} falls",
            f"{self.ticks} control steps, {self.late_ticks} late; {self.plans} plans, "
            f"{self.plan_ms_p50:.1f} ms median, {self.plan_ms_p99:.1f} ms p99, "
            f"{self.late_plans} late, {self.degraded_plans} degraded",
            f"model versions {versions}; {self.episodes} episodes, "
            f"{self.seconds_of_data:.1f} s of data; {self.refused_updates} updates refused",
        ]
        for update in self.updates:
            verdict = "accepted" if update.accepted else "not accepted"
            lines.append(
                f"update {update.version} {verdict}: held-out loss {update.loss_before:.4f} -> "
                f"{update.loss_after:.4f}, simulation {update.simulation_loss_before:.4f} -> "
                f"{update.simulation_loss_after:.4f}"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """The summary for programs; all numbers finite or null."""
        return {
            "progress_m": _rounded(self.total_progress),
            "falls": self.falls,
            "ticks": self.ticks,
            "late_ticks": self.late_ticks,
            "plan_ms": {"p50": _rounded(self.plan_ms_p50), "p99": _rounded(self.plan_ms_p99)},
            "plans": self.plans,
            "late_plans": self.late_plans,
            "degraded_plans": self.degraded_plans,
            "model_versions": self.model_versions,
            "episodes": self.episodes,
            "seconds_of_data": _rounded(self.seconds_of_data),
            "updates": [
                {name: _finite(value) for name, value in asdict(update).items()}
                for update in self.updates
            ],
            "refused_updates": self.refused_updates,
            "mode_changes": self.mode_changes,
            "duration_s": _rounded(self.duration),
            "real_time_factor": _rounded(self.real_time_factor),
        }

    def write(self, path: Path) -> None:
        """Write the summary as JSON, all of it or nothing; raises ConfigError."""
        try:
            handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            with os.fdopen(handle, "w") as file:
                json.dump(self.to_dict(), file, indent=2, allow_nan=False)
                file.write("\n")
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except OSError as error:
            raise ConfigError(f"cannot write the summary {path}: {error.strerror}") from error


def _rounded(value: float) -> float | None:
    return round(value, 4) if math.isfinite(value) else None


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
