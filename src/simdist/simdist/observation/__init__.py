"""From sensors to what the world model sees; the same code in training and on the robot."""

from __future__ import annotations

from simdist.observation.builder import ObservationBuilder, projected_gravity, rotation_matrix
from simdist.observation.history import History
from simdist.observation.observer import Observation, Observer
from simdist.observation.spec import ObservationField, ObservationSpec, ScanGrid

__all__ = [
    "History",
    "Observation",
    "ObservationBuilder",
    "ObservationField",
    "ObservationSpec",
    "Observer",
    "ScanGrid",
    "projected_gravity",
    "rotation_matrix",
]
