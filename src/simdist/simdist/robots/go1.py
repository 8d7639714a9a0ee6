"""Unitree Go1.

Sources: the MJCF is the Go1 of the ``mjlab`` wheel (asset_zoo/robots/unitree_go1), itself from
MuJoCo Menagerie; joint limits, torque limits (23.7 Nm hip and thigh, 35.55 Nm calf) and velocity
limits (30.1 rad/s, calf 20.06 rad/s) are those of Unitree's URDF (go1_description). Gains, default
pose and action scale are the ones the expert is trained with.
"""

from __future__ import annotations

import numpy as np

from simdist.robots.quadruped import JOINT_NAMES, LEGS, model_file, per_leg
from simdist.robots.spec import CameraMount, RobotSpec


def go1() -> RobotSpec:
    """The Go1 with legs in the order FR, FL, RR, RL and joints hip, thigh, calf."""
    default_pose = np.array([-0.1, 0.8, -1.5, 0.1, 0.8, -1.5, -0.1, 1.0, -1.5, 0.1, 1.0, -1.5])
    return RobotSpec(
        name="go1",
        joint_names=JOINT_NAMES,
        default_pose=default_pose,
        action_scale=0.25,
        kp=per_leg(25.0, 25.0, 25.0),
        kd=per_leg(0.5, 0.5, 0.5),
        stand_kp=per_leg(50.0, 50.0, 50.0),
        damping=per_leg(3.0, 3.0, 3.0),
        position_lower=per_leg(-0.863, -0.686, -2.818),
        position_upper=per_leg(0.863, 4.501, -0.888),
        velocity_limit=per_leg(30.1, 30.1, 20.06),
        torque_limit=per_leg(23.7, 23.7, 35.55),
        stand_pose=default_pose.copy(),
        lie_pose=np.array([-0.3, 1.3, -2.7, 0.3, 1.3, -2.7] * 2),
        armature=0.01,
        joint_friction=0.1,
        foot_names=LEGS,
        foot_radius=0.023,
        control_dt=0.02,
        standing_height=0.31,
        base_body="trunk",
        mjcf=model_file("Go1", "mjlab", "mjlab", "asset_zoo/robots/unitree_go1/xmls/go1.xml"),
        # An Intel RealSense D435 (fovy 58 degrees) at the head, tilted down by 30 degrees.
        camera=CameraMount(position=(0.30, 0.0, 0.03), pitch=np.deg2rad(30.0), fovy=58.0),
    )
