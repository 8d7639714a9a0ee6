"""What the paper's authors measured on their robot, for comparison in the report.

Source: the authors' own data for *Simulation Distillation* (15 trials a point: 3 commanded speeds
of 5 trials). Minutes are minutes of data from the real robot; progress is forward progress in m.
"""

from __future__ import annotations

from dataclasses import dataclass

SOURCE = (
    "Simulation Distillation, the authors' own data from a real quadruped; each point is the mean "
    "of 15 trials (3 commanded speeds, 5 trials each)"
)


@dataclass(frozen=True)
class PaperSeries:
    """One experiment of the paper: ``progress_m[i]`` after ``minutes[i]`` of robot data."""

    surface: str
    line_m: float  #: progress that counts as success
    minutes: tuple[float, ...]
    progress_m: tuple[float, ...]
    #: other methods: name, progress before and after their robot data (times were not given)
    others: tuple[tuple[str, float, float], ...] = ()


_SLOPE = PaperSeries(
    surface="slippery slope",
    line_m=1.82,
    minutes=(0.0, 16.4, 26.8, 35.7),
    progress_m=(0.677, 1.400, 1.347, 1.807),
    others=(("IQL", 1.18, 0.28), ("RLPD", 1.18, 0.0)),
)
_FOAM = PaperSeries(
    surface="foam",
    line_m=3.0,
    minutes=(0.0, 16.2, 32.1),
    progress_m=(2.083, 2.863, 3.000),
)

#: world of ours -> the experiment of the paper that it stands for
SERIES = {"slope_sheet": _SLOPE, "slope_slippery": _SLOPE, "foam": _FOAM}

#: mean latent prediction loss on a held-out slip, before and after finetuning
SLIP_LATENT_LOSS = (0.0762, 0.0190)
