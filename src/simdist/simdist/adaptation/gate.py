"""Which candidates may drive the robot."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass

from simdist.adaptation.finetune import Candidate, Losses
from simdist.ranges import Checked, bounded


@dataclass(frozen=True)
class GateConfig(Checked):
    """Settings of :class:`AcceptanceGate`; margins are relative to the parent's loss."""

    improvement: float = bounded(0.02, 0.0, 1.0, "least relative fall of the robot's loss")
    simulation_margin: float = bounded(0.1, 0.0, 10.0, "largest relative rise on simulation")
    seconds: float = bounded(20.0, 0.0, 1e6, "least robot data, s")
    held_out_windows: int = bounded(50, 1, 1_000_000, "fewest held-out robot windows")


@dataclass(frozen=True)
class Decision:
    """The verdict and its reason, in one line."""

    accepted: bool
    reason: str
    losses: Losses


class AcceptanceGate:
    """Accepts what predicts unseen robot data better than its parent, and simulation data not
    much worse."""

    def __init__(self, config: GateConfig | None = None) -> None:
        self.config = config or GateConfig()

    def judge(self, candidate: Candidate) -> Decision:
        refusal = self._refusal(candidate)
        losses = candidate.losses
        reason = refusal or (
            f"held-out robot loss {losses.robot_before:.4f} -> {losses.robot_after:.4f}, "
            f"simulation {losses.simulation_before:.4f} -> {losses.simulation_after:.4f}"
        )
        return Decision(refusal is None, reason, losses)

    def _refusal(self, candidate: Candidate) -> str | None:
        config, losses = self.config, candidate.losses
        if not all(math.isfinite(loss) for loss in astuple(losses)):
            return f"a loss is not finite: {losses}"
        if candidate.seconds_of_data < config.seconds:
            return (
                f"{candidate.seconds_of_data:.1f} s of robot data, "
                f"at least {config.seconds:.1f} s are needed"
            )
        if candidate.held_out_windows < config.held_out_windows:
            return (
                f"{candidate.held_out_windows} held-out windows, "
                f"at least {config.held_out_windows} are needed"
            )
        most = losses.robot_before * (1.0 - config.improvement)
        if not losses.robot_after < losses.robot_before or losses.robot_after > most:
            return (
                f"held-out robot loss {losses.robot_before:.4f} -> {losses.robot_after:.4f}, "
                f"it must fall to {most:.4f}"
            )
        most = losses.simulation_before * (1.0 + config.simulation_margin)
        if losses.simulation_after > most:
            return (
                f"simulation loss {losses.simulation_before:.4f} -> "
                f"{losses.simulation_after:.4f}, it may rise to {most:.4f}"
            )
        return None
