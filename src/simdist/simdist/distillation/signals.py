"""What only a simulation can tell: the critic's inputs, and the terms of the reward."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from simdist.robots import RobotSpec
from simdist.tasks import LocomotionTask
from simdist.types import Array

ACTION_LIMIT = 8.0  #: beyond every joint limit of the robots here; keeps the network's input sane


class SimulatedRobots(Protocol):
    """States of N robots and what their simulator knows about them, as
    :class:`~simdist.simulation.rollout_batch.RolloutBatch` describes them."""

    robot: RobotSpec
    rotation: np.ndarray
    linear_velocity: np.ndarray
    angular_velocity: np.ndarray
    joint_position: np.ndarray
    joint_velocity: np.ndarray
    joint_torque: np.ndarray
    foot_height: np.ndarray
    foot_force: np.ndarray
    contact: np.ndarray
    trunk_force: np.ndarray
    base_height: np.ndarray
    diverged: Any
    friction: np.ndarray
    trunk_mass_added: np.ndarray
    kp_factor: np.ndarray
    kd_factor: np.ndarray
    slope: np.ndarray


def privileged_inputs(simulation: SimulatedRobots) -> Array:
    """Contact forces, foot heights, contacts, friction, added mass, gain factors and slope,
    ``(N, 17)``, scaled as the critic has learned them."""
    return np.concatenate(
        [
            simulation.foot_force * 0.02,
            simulation.foot_height * 5.0,
            simulation.contact,
            simulation.friction[:, None],
            simulation.trunk_mass_added[:, None],
            simulation.kp_factor[:, None] - 1.0,
            simulation.kd_factor[:, None] - 1.0,
            simulation.slope[:, None] * 3.0,
        ],
        axis=1,
    )


def reward_terms(
    task: LocomotionTask,
    simulation: SimulatedRobots,
    *,
    command: Array,
    action: Array,
    previous_action: Array,
    previous_velocity: Array,
    phase: Array,
) -> dict[str, Array]:
    """Unweighted reward terms ``(N,)`` of the step that ``simulation`` has just made with
    ``action (N, n)``, from joint velocities ``previous_velocity``, to gait angle ``phase (N,)``."""
    dt = simulation.robot.control_dt
    return task.terms(
        command=command,
        linear_velocity=simulation.linear_velocity,
        angular_velocity=simulation.angular_velocity,
        gravity=-simulation.rotation[:, 2, :],
        joint_position=simulation.joint_position,
        joint_acceleration=(simulation.joint_velocity - previous_velocity) / dt,
        joint_torque=simulation.joint_torque,
        action=action,
        previous_action=previous_action,
        contact=simulation.contact,
        foot_height=simulation.foot_height,
        phase=phase,
    )


def fallen(task: LocomotionTask, simulation: SimulatedRobots) -> np.ndarray:
    """Which robots ``(N,)`` have fallen or diverged."""
    return simulation.diverged | task.fallen(
        -simulation.rotation[:, 2, :], simulation.base_height, simulation.trunk_force
    )
