"""Putting the reality gaps of a world into a MuJoCo model."""

from __future__ import annotations

import mujoco
import numpy as np

from simdist.errors import ConfigError
from simdist.robots import RobotSpec
from simdist.simulation.world import WorldSpec
from simdist.types import Array


def apply_gaps(model: mujoco.MjModel, robot: RobotSpec, world: WorldSpec) -> Array:
    """Make the motors and the trunk of ``model`` those of ``world``.

    Returns the strength ``(n,)`` of each motor, the factor on its gains and on its torque limit.
    Delays and sensor noise are no part of a model. Raises ConfigError for an unknown joint.
    """
    gaps, strength = world.gaps, np.ones(robot.joint_count)
    for joint, factor in gaps.motor_strength.items():
        if joint not in robot.joint_names:
            raise ConfigError(
                f"world {world.name!r}: motor_strength names joint {joint!r}, which "
                f"{robot.name} does not have; its joints: {', '.join(robot.joint_names)}"
            )
        strength[robot.joint_names.index(joint)] = factor
    limit = robot.torque_limit * strength
    model.actuator_forcerange[:] = np.stack([-limit, limit], axis=1)
    model.actuator_gainprm[:, 0] = robot.kp * strength
    model.actuator_biasprm[:, 1] = -robot.kp * strength
    model.actuator_biasprm[:, 2] = -robot.kd * strength
    if gaps.trunk_mass:
        body = model.body(robot.base_body).id
        mass, offset = model.body_mass[body], np.array(gaps.trunk_offset)
        model.body_ipos[body] = (mass * model.body_ipos[body] + gaps.trunk_mass * offset) / (
            mass + gaps.trunk_mass
        )
        model.body_inertia[body] *= (mass + gaps.trunk_mass) / mass
        model.body_mass[body] = mass + gaps.trunk_mass
        mujoco.mj_setConst(model, mujoco.MjData(model))
    return strength
