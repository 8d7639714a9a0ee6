"""Messages to core types and back. Lengths are checked here, meanings in the core."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from builtin_interfaces.msg import Time
from geometry_msgs.msg import Point, TwistStamped
from nav_msgs.msg import Odometry
from sensor_msgs.msg import Imu
from sensor_msgs.msg import JointState as JointStateMessage
from simdist_msgs import msg

if TYPE_CHECKING:  # nodes that never learn do not import PyTorch
    from simdist.adaptation import ModelUpdate
from std_msgs.msg import ColorRGBA, Header
from visualization_msgs.msg import Marker, MarkerArray

from simdist.errors import ContractError
from simdist.observation import Observation, ObservationSpec, ScanGrid
from simdist.replay import Episode
from simdist.robots import RobotSpec
from simdist.types import (
    ActionChunk,
    AppliedStep,
    Array,
    BaseState,
    ImuSample,
    JointState,
    Mode,
)

_NS = 1_000_000_000
#: Array index of each action kind is its constant in ActionChunk.msg.
CHUNK_KINDS = ("joint_position", "ee_twist")


def to_time(stamp_ns: int) -> Time:
    return Time(sec=stamp_ns // _NS, nanosec=stamp_ns % _NS)


def to_ns(stamp: Time) -> int:
    return stamp.sec * _NS + stamp.nanosec


def header(stamp_ns: int, frame: str = "") -> Header:
    return Header(stamp=to_time(stamp_ns), frame_id=frame)


def floats(values: np.ndarray) -> array.array:
    """For a ``float32[]`` field, without a Python loop over the elements."""
    return array.array("f", np.ascontiguousarray(values, np.float32).tobytes())


def doubles(values: np.ndarray) -> array.array:
    """For a ``float64[]`` field."""
    return array.array("d", np.ascontiguousarray(values, np.float64).tobytes())


def raw_bytes(values: np.ndarray) -> array.array:
    """For a ``uint8[]`` field: the little-endian float32 of ``values``."""
    return array.array("B", np.ascontiguousarray(values, "<f4").tobytes())


def joint_state_message(stamp_ns: int, state: JointState) -> JointStateMessage:
    return JointStateMessage(
        header=header(stamp_ns),
        name=list(state.names),
        position=doubles(state.position),
        velocity=doubles(state.velocity),
        effort=doubles(state.effort),
    )


def joint_state(message: JointStateMessage) -> JointState:
    """Raises ContractError when a joint lacks its position or velocity."""
    count = len(message.name)
    if len(message.position) != count or len(message.velocity) != count:
        raise ContractError(
            f"joint state of {count} joints has {len(message.position)} positions and "
            f"{len(message.velocity)} velocities"
        )
    return JointState(
        tuple(message.name),
        np.array(message.position),
        np.array(message.velocity),
        np.array(message.effort) if len(message.effort) == count else np.full(count, np.nan),
    )


def imu_message(stamp_ns: int, imu: ImuSample, frame: str) -> Imu:
    message = Imu(header=header(stamp_ns, frame))
    set_quaternion(message.orientation, imu.orientation)
    set_vector(message.angular_velocity, imu.angular_velocity)
    set_vector(message.linear_acceleration, imu.linear_acceleration)
    return message


def odometry_message(stamp_ns: int, base: BaseState, frame: str, child: str) -> Odometry:
    message = Odometry(header=header(stamp_ns, frame), child_frame_id=child)
    set_vector(message.pose.pose.position, base.position)
    set_quaternion(message.pose.pose.orientation, base.orientation)
    set_vector(message.twist.twist.linear, base.linear_velocity)
    set_vector(message.twist.twist.angular, base.angular_velocity)
    return message


def base_state(message: Odometry) -> BaseState:
    pose, twist = message.pose.pose, message.twist.twist
    q = pose.orientation
    return BaseState(
        position=_vector(pose.position),
        orientation=np.array([q.w, q.x, q.y, q.z]),
        linear_velocity=_vector(twist.linear),
        angular_velocity=_vector(twist.angular),
    )


def height_scan_message(stamp_ns: int, frame: str, grid: ScanGrid, height: Array) -> msg.HeightScan:
    return msg.HeightScan(
        header=header(stamp_ns, frame),
        x_min=grid.x_min,
        x_max=grid.x_max,
        y_min=grid.y_min,
        y_max=grid.y_max,
        nx=grid.nx,
        ny=grid.ny,
        height=floats(height),
    )


def height_scan(message: msg.HeightScan, grid: ScanGrid) -> Array:
    """The heights; raises ContractError when they were measured on another grid."""
    bounds = (message.x_min, message.x_max, message.y_min, message.y_max)
    wanted = (grid.x_min, grid.x_max, grid.y_min, grid.y_max)
    if (message.nx, message.ny) != (grid.nx, grid.ny) or not np.allclose(bounds, wanted, atol=1e-4):
        raise ContractError(
            f"height scan of {message.nx} x {message.ny} points in {bounds} m is not the model's, "
            f"which has {grid.nx} x {grid.ny} in {wanted} m"
        )
    return np.array(message.height)


def command_message(stamp_ns: int, command: Array, frame: str) -> TwistStamped:
    message = TwistStamped(header=header(stamp_ns, frame))
    forward, sideways, turning = (float(value) for value in command)
    message.twist.linear.x, message.twist.linear.y = forward, sideways
    message.twist.angular.z = turning
    return message


def command(message: TwistStamped) -> Array:
    """Forward m/s, sideways m/s, turning rad/s."""
    twist = message.twist
    return np.array([twist.linear.x, twist.linear.y, twist.angular.z])


def applied_message(step: AppliedStep, robot: RobotSpec) -> msg.AppliedCommand:
    return msg.AppliedCommand(
        header=header(step.stamp_ns),
        sequence=step.sequence,
        names=list(robot.joint_names),
        position_target=doubles(step.position_target),
        action=floats(step.action),
        mode=int(step.mode),
        chunk_row=step.chunk_row,
        chunk_sequence=step.chunk_sequence,
    )


def applied_step(message: msg.AppliedCommand, robot: RobotSpec) -> AppliedStep:
    """In the robot's joint order; raises ContractError for foreign joints or an unknown mode."""
    names, n = tuple(message.names), robot.joint_count
    action, target = np.array(message.action), np.array(message.position_target)
    if set(names) != set(robot.joint_names) or not len(names) == len(action) == len(target) == n:
        raise ContractError(f"applied command of joints {names[:3]}... is not for {robot.name}")
    if message.mode not in tuple(Mode):
        raise ContractError(f"applied command with unknown mode {message.mode}")
    if names != robot.joint_names:
        order = [names.index(name) for name in robot.joint_names]
        action, target = action[order], target[order]
    return AppliedStep(
        stamp_ns=to_ns(message.header.stamp),
        sequence=message.sequence,
        action=action,
        position_target=target,
        mode=Mode(message.mode),
        chunk_sequence=message.chunk_sequence,
        chunk_row=message.chunk_row,
    )


def observation_message(
    observation: Observation, spec: ObservationSpec, contract: str, active: bool
) -> msg.Observation:
    return msg.Observation(
        header=header(observation.stamp_ns, "base"),
        contract=contract,
        proprioception_fields=[field.name for field in spec.fields],
        proprioception_sizes=[field.size for field in spec.fields],
        proprioception=floats(observation.proprioception),
        exteroception=floats(observation.scan),
        previous_action=floats(observation.previous_action),
        command=observation.command.astype(np.float32),
        active=active,
    )


def latent_message(
    observation: Observation,
    context: np.ndarray,
    latent: np.ndarray,
    contract: str,
    version: int,
    active: bool,
) -> msg.LatentState:
    return msg.LatentState(
        header=header(observation.stamp_ns, "base"),
        contract=contract,
        model_version=version,
        latent=floats(latent),
        context_rows=len(context),
        context=floats(context),
        command=observation.command.astype(np.float32),
        active=active,
    )


def latent_arrays(message: msg.LatentState) -> tuple[np.ndarray, np.ndarray]:
    """Context ``(R, D)`` and latent ``(D,)``; raises ContractError when sizes do not agree."""
    latent = np.array(message.latent, np.float32)
    context = np.array(message.context, np.float32)
    if not len(latent) or len(context) != message.context_rows * len(latent):
        raise ContractError(
            f"latent state with {len(context)} context values for {message.context_rows} rows of "
            f"{len(latent)}"
        )
    return context.reshape(message.context_rows, len(latent)), latent


def chunk_message(chunk: ActionChunk, degraded: bool) -> msg.ActionChunk:
    return msg.ActionChunk(
        header=header(chunk.stamp_ns),
        sequence=chunk.sequence,
        observation_stamp=to_time(chunk.observation_stamp_ns),
        contract=chunk.contract,
        model_version=chunk.model_version,
        kind=CHUNK_KINDS.index(chunk.kind),
        names=list(chunk.joint_names),
        dt=chunk.dt_ns * 1e-9,
        steps=len(chunk.values),
        values=doubles(chunk.values),
        degraded=degraded,
    )


def chunk(message: msg.ActionChunk) -> ActionChunk | None:
    """The chunk, unchecked but for its shape; None when values and names do not fit."""
    count, steps = len(message.names), message.steps
    if not count or len(message.values) != steps * count or not np.isfinite(message.dt):
        return None
    kinds = dict(enumerate(CHUNK_KINDS))
    return ActionChunk(
        stamp_ns=to_ns(message.header.stamp),
        observation_stamp_ns=to_ns(message.observation_stamp),
        sequence=message.sequence,
        joint_names=tuple(message.names),
        kind=kinds.get(message.kind, f"kind {message.kind}"),
        dt_ns=round(message.dt * 1e9),
        values=np.array(message.values).reshape(steps, count),
        model_version=message.model_version,
        contract=message.contract,
    )


def segment_message(segment: Episode) -> msg.EpisodeSegment:
    return msg.EpisodeSegment(
        header=header(int(segment.stamp_ns[0])),
        contract=segment.contract,
        episode=segment.episode,
        steps=len(segment),
        proprioception_dim=segment.proprio.shape[1],
        exteroception_dim=segment.scan.shape[1],
        action_dim=segment.action.shape[1],
        stamp_ns=array.array("q", segment.stamp_ns.astype(np.int64).tobytes()),
        proprioception=floats(segment.proprio),
        exteroception=floats(segment.scan),
        action=floats(segment.action),
        command=floats(segment.command),
    )


def segment(message: msg.EpisodeSegment) -> Episode:
    """Raises ContractError when an array has not the size that the message claims."""
    steps = message.steps
    arrays = {}
    for name, values, width in (
        ("proprio", message.proprioception, message.proprioception_dim),
        ("scan", message.exteroception, message.exteroception_dim),
        ("action", message.action, message.action_dim),
        ("command", message.command, 3),
    ):
        if len(values) != steps * width:
            raise ContractError(f"segment of {steps} steps has {len(values)} values of {name}")
        arrays[name] = np.array(values, np.float32).reshape(steps, width)
    stamps = np.array(message.stamp_ns, np.int64)
    if len(stamps) != steps:
        raise ContractError(f"segment of {steps} steps has {len(stamps)} stamps")
    return Episode(stamp_ns=stamps, **arrays, episode=message.episode, contract=message.contract)


def update_message(stamp_ns: int, update: ModelUpdate) -> msg.ModelUpdate:
    losses = update.losses
    return msg.ModelUpdate(
        header=header(stamp_ns),
        version=update.version,
        parent=update.parent,
        weights_sha256=update.weights_sha256,
        frozen_sha256=update.frozen_sha256,
        contract=update.contract,
        loss_before=losses.robot_before,
        loss_after=losses.robot_after,
        simulation_loss_before=losses.simulation_before,
        simulation_loss_after=losses.simulation_after,
        episodes=update.episodes,
        seconds_of_data=update.seconds_of_data,
        weights=array.array("B", update.weights),
    )


def markers_message(
    stamp_ns: int, frame: str, feet: Sequence[str], plan: np.ndarray, elites: np.ndarray
) -> MarkerArray:
    """Foot tracks of a plan ``(T, feet, 3)`` and of its best samples ``(E, T, feet, 3)``, in m:
    two markers a foot, a line for the plan and thinner ones for the samples. Samples that are not
    finite are left out, for viewers refuse a marker as a whole."""
    elites = elites[np.isfinite(elites).all((1, 2, 3))]
    if not np.isfinite(plan).all():
        plan = plan[:0]
    markers = []
    for index, foot in enumerate(feet):
        segments = np.stack([elites[:, :-1, index], elites[:, 1:, index]], axis=2)
        for name, kind, points, width, colour in (
            ("plan", Marker.LINE_STRIP, plan[:, index], 0.008, (0.0, 0.45, 0.7, 1.0)),
            ("elites", Marker.LINE_LIST, segments.reshape(-1, 3), 0.003, (0.9, 0.6, 0.0, 0.4)),
        ):
            marker = Marker(header=header(stamp_ns, frame), ns=f"{name}/{foot}", type=kind)
            marker.action = Marker.ADD if len(points) else Marker.DELETE
            marker.pose.orientation.w = 1.0
            marker.scale.x = width
            red, green, blue, opacity = colour
            marker.color = ColorRGBA(r=red, g=green, b=blue, a=opacity)
            marker.lifetime.nanosec = _NS // 2
            marker.points = [Point(x=x, y=y, z=z) for x, y, z in points.astype(float).tolist()]
            markers.append(marker)
    return MarkerArray(markers=markers)


def _vector(message: object) -> Array:
    return np.array([message.x, message.y, message.z])  # type: ignore[attr-defined]


def set_vector(message: object, values: Array) -> None:
    x, y, z = (float(value) for value in values)
    message.x, message.y, message.z = x, y, z  # type: ignore[attr-defined]


def set_quaternion(message: object, quaternion: Array) -> None:
    message.w = float(quaternion[0])  # type: ignore[attr-defined]
    set_vector(message, quaternion[1:])
