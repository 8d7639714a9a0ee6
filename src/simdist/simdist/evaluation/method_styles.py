"""How each method is called, explained and drawn in the report.

Colours are those of Okabe and Ito, which stay apart for colour-blind readers, with lighter ones
of the same hue for dark pages. Line style and marker differ too, so that no meaning hangs on
colour alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MethodStyle:
    """``colours`` are for (light, dark) pages; ``None`` is the colour of the text."""

    label: str
    explanation: str
    learns: bool
    colours: tuple[str, str] | None
    dash: str = "-"
    marker: str = ""


_BLUE = ("#0072B2", "#5AB4F0")
_SKY = ("#3A9BD9", "#9AD4FF")
_GREEN = ("#007A5A", "#2FC79B")
_ORANGE = ("#B87400", "#F0B040")
_RED = ("#C24E00", "#FF8A4C")
_PURPLE = ("#A9518A", "#E79CCB")
_GREY = ("#6B6B6B", "#A8A8A8")

#: in the order of the tables: what is claimed first, then what it is measured against
STYLES: dict[str, MethodStyle] = {
    "simdist": MethodStyle(
        "simdist",
        "the method: plans over the world model and relearns only its dynamics, from robot and "
        "simulation data",
        True,
        _BLUE,
        marker="o",
    ),
    "simdist_online": MethodStyle(
        "simdist online",
        "the same, but learning while the robot walks, with the model swapped in mid-step",
        True,
        _SKY,
        marker="s",
    ),
    "full": MethodStyle(
        "full finetuning",
        "relearns every part of the model; its reward and value labels come from the simulator, "
        "which a robot would not have",
        True,
        _PURPLE,
        marker="D",
    ),
    "rlpd": MethodStyle(
        "RLPD",
        "reinforcement learning (SAC) on half simulation and half robot data, started from the "
        "expert",
        True,
        _RED,
        marker="^",
    ),
    "ppo": MethodStyle(
        "PPO", "goes on training the expert on the robot's own steps", True, _ORANGE, marker="v"
    ),
    "placebo": MethodStyle(
        "placebo",
        "as many learning steps, but on simulation data only: a gain here is not due to robot data",
        True,
        _GREY,
        dash="--",
        marker="x",
    ),
    "frozen": MethodStyle(
        "frozen model", "plans over the world model as it came from simulation", False, _BLUE, "--"
    ),
    "through": MethodStyle(
        "trained through",
        "plans over a model that saw the hard part in simulation: a ceiling for the method",
        False,
        _BLUE,
        "-.",
    ),
    "expert": MethodStyle(
        "expert",
        "the walking policy from simulation, which is given the true state",
        False,
        None,
        "-",
    ),
    "prior": MethodStyle(
        "prior", "the model's policy head alone, without planning", False, None, ":"
    ),
    "smoothed_prior": MethodStyle(
        "smoothed prior",
        "the policy head with overlapping predictions averaged: planning's smoothing without a "
        "model",
        False,
        None,
        "-.",
    ),
    "oracle": MethodStyle(
        "oracle",
        "our planner with the true physics instead of a learned model: the most planning can do",
        False,
        _GREEN,
    ),
    "oracle_nominal": MethodStyle(
        "oracle, nominal",
        "the same planner, believing that the world is as in pretraining; oracle minus this is the "
        "most that relearning the dynamics can buy",
        False,
        _GREEN,
        "--",
    ),
}


#: what ``simdist evaluate`` calls a method of the experiments
ALIASES = {"planner": "frozen"}


def style(method: str) -> MethodStyle:
    """The style of ``method``; a method without one is drawn in the colour of the text."""
    method = ALIASES.get(method, method)
    return STYLES.get(method) or MethodStyle(method, "", True, None, dash=":", marker="*")


def order(method: str) -> tuple[int, str]:
    """Sorting key: methods as listed above, then others by name."""
    names = list(STYLES)
    method = ALIASES.get(method, method)
    return (names.index(method) if method in STYLES else len(names), method)
