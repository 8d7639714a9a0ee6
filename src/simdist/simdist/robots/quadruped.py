"""What Unitree's quadrupeds have in common."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np

from simdist.errors import ConfigError

LEGS = ("FR", "FL", "RR", "RL")
_JOINTS = ("hip", "thigh", "calf")
JOINT_NAMES = tuple(f"{leg}_{joint}_joint" for leg in LEGS for joint in _JOINTS)


def per_leg(hip: float, thigh: float, calf: float) -> np.ndarray:
    """The same three numbers for each leg, ``(12,)``."""
    return np.array([hip, thigh, calf] * len(LEGS))


def model_file(model: str, package: str, wheel: str, path: str) -> Path:
    """The file ``path`` of the Python ``package`` that comes with ``wheel``.

    Only data files are used; the package is not imported, because it would want others that are
    not installed. Raises ConfigError, which names the ``model``, if the wheel is missing.
    """
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            f"the {model} model comes with the Python package '{wheel}', which is not installed; "
            "install requirements/robots.txt (./run does it)"
        )
    return Path(spec.submodule_search_locations[0]) / path
