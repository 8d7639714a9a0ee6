"""How fast the feet slide over the ground, which only a simulator can tell."""

from __future__ import annotations

import mujoco
import numpy as np

from simdist.simulation.robot_model import foot_geoms
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.types import Array

MINIMUM_FORCE = 10.0  #: N, below which a foot is not counted as standing on the ground


class SlipMeter:
    """Reads sliding speeds off one simulation."""

    def __init__(self, simulation: RobotSimulation) -> None:
        model = simulation.model
        self._simulation = simulation
        geoms = foot_geoms(model, simulation.robot)
        self._foot_of = {int(geom): foot for foot, geom in enumerate(geoms)}
        self._velocity, self._force = np.zeros(6), np.zeros(6)

    def speeds(self) -> Array:
        """Speed ``(feet,)`` m/s along the ground of the point at which each foot touches it, the
        fastest of several; 0 for a foot that bears less than MINIMUM_FORCE. A foot that rolls
        without sliding has speed 0 as well."""
        model, data = self._simulation.model, self._simulation.data
        speeds = np.zeros(len(self._foot_of))
        for index, contact in enumerate(data.contact):
            geom = next((int(g) for g in contact.geom if int(g) in self._foot_of), None)
            if geom is None:
                continue
            mujoco.mj_contactForce(model, data, index, self._force)
            if self._force[0] < MINIMUM_FORCE:
                continue
            kind = mujoco.mjtObj.mjOBJ_GEOM
            mujoco.mj_objectVelocity(model, data, kind, geom, self._velocity, 0)
            turning, moving = self._velocity[:3], self._velocity[3:]
            velocity = moving + np.cross(turning, contact.pos - data.geom_xpos[geom])
            normal = contact.frame[:3]
            sliding = velocity - normal * (normal @ velocity)
            foot = self._foot_of[geom]
            speeds[foot] = max(speeds[foot], float(np.linalg.norm(sliding)))
        return speeds
