"""Walking at a commanded velocity with a trot.

Reward terms and weights follow the public configuration of the paper's quadruped, with two
changes that make the trot appear three times sooner: gait 0.05 -> 0.15, foot height 0.2 -> 0.5.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from simdist.robots import RobotSpec
from simdist.types import Array, Flags

TROT_PHASE = np.array([0.0, 0.5, 0.5, 0.0])  #: phase offset per leg, in RobotSpec foot order
STANCE_FRACTION = 0.5  #: of the gait period each foot should be on the ground
SWING_HEIGHT = 0.09  #: m, wanted clearance of a swinging foot
FALL_TILT = np.deg2rad(60.0)  #: from upright
FALL_HEIGHT = 0.14  #: m, base above ground
TRUNK_FORCE = 1.0  #: N on trunk or head that counts as a fall


@dataclass(frozen=True)
class RewardWeights:
    """Weights per second of each reward term."""

    linear_velocity: float = 1.5
    angular_velocity: float = 0.75
    vertical_velocity: float = -2.0
    roll_pitch_rate: float = -0.05
    torque: float = -2e-4
    acceleration: float = -2.5e-7
    action_rate: float = -0.01
    level: float = -4.0
    hip_deviation: float = -0.25
    gait: float = 0.15
    foot_height: float = 0.5


@dataclass(frozen=True)
class CommandRanges:
    """Velocities asked for: forward and sideways m/s, turning rad/s (REP-103)."""

    forward: tuple[float, float] = (-0.5, 1.2)
    sideways: tuple[float, float] = (-0.4, 0.4)
    turning: tuple[float, float] = (-0.8, 0.8)
    straight_fraction: float = 0.4  #: of the commands that are forward only
    stand_fraction: float = 0.03  #: of the commands that are zero

    def sample(self, count: int, rng: np.random.Generator) -> Array:
        """Commands ``(count, 3)``: forward, sideways, turning."""
        command = np.stack(
            [rng.uniform(*limits, count) for limits in (self.forward, self.sideways, self.turning)],
            axis=1,
        )
        command[rng.random(count) < self.straight_fraction, 1:] = 0.0
        command[rng.random(count) < self.stand_fraction] = 0.0
        return command


class LocomotionTask:
    """Rewards, falls and wanted contacts for a batch of robots."""

    def __init__(self, robot: RobotSpec, weights: RewardWeights | None = None) -> None:
        self.robot = robot
        self.weights = weights or RewardWeights()

    def desired_contact(self, phase: Array) -> Flags:
        """Which feet ``(N, 4)`` should be on the ground at gait angle ``phase (N,)`` rad."""
        cycle = np.remainder(phase[:, None] / (2 * np.pi) + 0.5 + TROT_PHASE, 1.0)
        return cycle < STANCE_FRACTION

    def terms(
        self,
        *,
        command: Array,
        linear_velocity: Array,
        angular_velocity: Array,
        gravity: Array,
        joint_position: Array,
        joint_acceleration: Array,
        joint_torque: Array,
        action: Array,
        previous_action: Array,
        contact: Flags,
        foot_height: Array,
        phase: Array,
    ) -> dict[str, Array]:
        """Unweighted reward terms ``(N,)``; velocities and gravity in the base frame."""
        moving = np.linalg.norm(command[:, :2], axis=1) > 0.1
        wanted = self.desired_contact(phase)
        velocity_error = ((command[:, :2] - linear_velocity[:, :2]) ** 2).sum(1)
        turning_error = (command[:, 2] - angular_velocity[:, 2]) ** 2
        clearance_error = (foot_height - SWING_HEIGHT) / (SWING_HEIGHT / 4)
        hips = slice(0, None, 3)
        return {
            "linear_velocity": np.exp(-velocity_error / 0.25),
            "angular_velocity": np.exp(-turning_error / 0.25),
            "vertical_velocity": linear_velocity[:, 2] ** 2,
            "roll_pitch_rate": (angular_velocity[:, :2] ** 2).sum(1),
            "torque": (joint_torque**2).sum(1),
            "acceleration": (joint_acceleration**2).sum(1),
            "action_rate": ((action - previous_action) ** 2).sum(1),
            "level": (gravity[:, :2] ** 2).sum(1),
            "hip_deviation": np.abs(joint_position[:, hips] - self.robot.default_pose[hips]).sum(1),
            "gait": (contact == wanted).sum(1) * moving,
            "foot_height": (np.exp(-0.5 * clearance_error**2) * ~wanted).sum(1) * moving,
        }

    def reward(self, terms: dict[str, Array]) -> Array:
        """Reward ``(N,)`` of one control step."""
        total = sum(getattr(self.weights, f.name) * terms[f.name] for f in fields(self.weights))
        return np.asarray(total) * self.robot.control_dt

    @staticmethod
    def fallen(gravity: Array, base_height: Array, trunk_force: Array) -> Flags:
        """Whether each robot has fallen ``(N,)``: tilted, too low, or trunk on the ground."""
        tilt = np.arccos(np.clip(-gravity[:, 2], -1.0, 1.0))
        return (tilt > FALL_TILT) | (base_height < FALL_HEIGHT) | (trunk_force > TRUNK_FORCE)
