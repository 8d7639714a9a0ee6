"""The robot as MuJoCo simulates it: the MJCF of its RobotSpec with motors and sensors added."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from simdist.robots import RobotSpec
from simdist.simulation.robot_file import read_robot

GROUND = 1  #: contype of everything the robot may touch


@dataclass(frozen=True)
class Solver:
    """Constraint solver settings. The elliptic cone is needed wherever slipping matters: cone and
    iterations move the edge at which a foot starts to slip, and fewer than 10 iterations diverge.
    """

    timestep: float
    cone: str = "elliptic"
    impratio: float = 10.0
    iterations: int = 20
    ls_iterations: int = 20


#: Cheap settings for training the expert, which never needs an exact slip edge.
FAST_SOLVER = Solver(timestep=0.005, cone="pyramidal", impratio=1.0, iterations=4, ls_iterations=8)
#: Settings for recorded data.
BATCH_SOLVER = Solver(timestep=0.005)
#: Settings of the robot's stand-in: 500 Hz, the rate of the command executor.
REALTIME_SOLVER = Solver(timestep=0.002)


def set_solver(scene: mujoco.MjSpec, solver: Solver) -> None:
    """Give ``scene`` the options of ``solver``."""
    scene.option.timestep = solver.timestep
    scene.option.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
    scene.option.cone = (
        mujoco.mjtCone.mjCONE_ELLIPTIC
        if solver.cone == "elliptic"
        else mujoco.mjtCone.mjCONE_PYRAMIDAL
    )
    scene.option.impratio = solver.impratio
    scene.option.iterations = solver.iterations
    scene.option.ls_iterations = solver.ls_iterations


def _keeps_colliding(geom: mujoco.MjsGeom, robot: RobotSpec) -> bool:
    return geom.name.endswith("foot_collision") or geom.parent.name == robot.base_body


def _add_motors(model: mujoco.MjSpec, robot: RobotSpec) -> None:
    """PD motors: force = kp (target - q) - kd dq, limited to what the motor can give."""
    for index, name in enumerate(robot.joint_names):
        joint = model.joint(name)
        # What friction a file adds is a guess of its author; the motors' kd is damping enough.
        joint.damping = np.zeros(3)
        joint.armature = robot.armature
        joint.frictionloss = robot.joint_friction
        motor = model.add_actuator()
        motor.name = name
        motor.target = name
        motor.trntype = mujoco.mjtTrn.mjTRN_JOINT
        motor.gainprm[0] = robot.kp[index]
        motor.biastype = mujoco.mjtBias.mjBIAS_AFFINE
        motor.biasprm[1] = -robot.kp[index]
        motor.biasprm[2] = -robot.kd[index]
        motor.forcelimited = 1
        motor.forcerange = [-robot.torque_limit[index], robot.torque_limit[index]]


def _add_sensors(model: mujoco.MjSpec, robot: RobotSpec) -> None:
    """Foot positions and velocities, foot contact forces, force on trunk and head, IMU."""
    sensor, kind = mujoco.mjtSensor, mujoco.mjtObj
    for foot in robot.foot_names:
        site = model.site(foot)
        site.parent.add_site(
            name=f"{foot}_touch",
            pos=site.pos,
            size=[robot.foot_radius * 1.5] * 3,
            type=mujoco.mjtGeom.mjGEOM_SPHERE,
            group=5,
        )
    trunk = model.body(robot.base_body)
    trunk.add_site(
        name="trunk_touch",
        pos=[0.05, 0, 0],
        size=[0.4, 0.3, 0.3],
        type=mujoco.mjtGeom.mjGEOM_BOX,
        group=5,
    )

    def add(name: str, kind_of_sensor: int, site: str) -> None:
        model.add_sensor(name=name, type=kind_of_sensor, objtype=kind.mjOBJ_SITE, objname=site)

    for foot in robot.foot_names:
        add(f"{foot}_position", sensor.mjSENS_FRAMEPOS, foot)
    for foot in robot.foot_names:
        add(f"{foot}_velocity", sensor.mjSENS_FRAMELINVEL, foot)
    for foot in robot.foot_names:
        add(f"{foot}_force", sensor.mjSENS_TOUCH, f"{foot}_touch")
    add("trunk_force", sensor.mjSENS_TOUCH, "trunk_touch")
    add("imu_acceleration", sensor.mjSENS_ACCELEROMETER, "imu")


def build_robot(robot: RobotSpec, *, visual: bool = False) -> mujoco.MjSpec:
    """A scene with nothing but the robot: PD motors, sensors, and only feet, trunk and head
    colliding. Feet have friction 0.8 unless the ground overrides it; ``visual`` keeps the meshes.
    """
    model = read_robot(robot)
    for geom in list(model.geoms):
        if geom.contype == 0 and geom.conaffinity == 0:
            if not visual:
                model.delete(geom)
            continue
        if not _keeps_colliding(geom, robot):
            model.delete(geom)
            continue
        # The robot meets the ground and never itself.
        geom.contype, geom.conaffinity, geom.condim = 0, GROUND, 3
        geom.friction = [0.8 if "foot" in geom.name else 0.4, 0.005, 0.0001]
        geom.priority = 0
    for unused in (model.sensors, *([] if visual else [model.meshes, model.lights, model.cameras])):
        for element in list(unused):
            model.delete(element)
    _add_motors(model, robot)
    _add_sensors(model, robot)
    return model


@dataclass(frozen=True)
class SensorAddresses:
    """Slices of MuJoCo's sensordata for the sensors added here."""

    foot_position: slice
    foot_velocity: slice
    foot_force: slice
    trunk_force: int
    acceleration: slice

    @staticmethod
    def of(model: mujoco.MjModel, robot: RobotSpec) -> SensorAddresses:
        def start(name: str) -> int:
            return int(model.sensor(name).adr[0])

        first, feet = robot.foot_names[0], len(robot.foot_names)
        position, velocity = start(f"{first}_position"), start(f"{first}_velocity")
        force, acceleration = start(f"{first}_force"), start("imu_acceleration")
        return SensorAddresses(
            foot_position=slice(position, position + 3 * feet),
            foot_velocity=slice(velocity, velocity + 3 * feet),
            foot_force=slice(force, force + feet),
            trunk_force=start("trunk_force"),
            acceleration=slice(acceleration, acceleration + 3),
        )


def foot_geoms(model: mujoco.MjModel, robot: RobotSpec) -> np.ndarray:
    """Ids of the foot geoms."""
    return np.array([model.geom(f"{foot}_foot_collision").id for foot in robot.foot_names])
