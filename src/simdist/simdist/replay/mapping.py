"""The file that explains recordings made elsewhere: which topic holds what, named and meant how."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from reprlib import repr as short
from typing import Any, TypeVar

import numpy as np
import yaml

from simdist import robots
from simdist.errors import ConfigError
from simdist.types import Array

_MAX_SIZE = 1 << 20
#: ``motor_state[].q``: names of fields; [] stands for every element of a list.
_PATH = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\[\])?(\.[A-Za-z][A-Za-z0-9_]*(\[\])?)*")
#: What a plain message of ROS calls its parts.
_JOINT_STATE = {"names": "name", "position": "position", "velocity": "velocity", "effort": "effort"}
_STANDARD: dict[str, dict[str, str]] = {
    "sensor_msgs/msg/JointState": _JOINT_STATE,
    "sensor_msgs/msg/Imu": {
        "orientation": "orientation",
        "angular_velocity": "angular_velocity",
    },
    "nav_msgs/msg/Odometry": {
        "orientation": "pose.pose.orientation",
        "angular_velocity": "twist.twist.angular",
        "linear_velocity": "twist.twist.linear",
    },
    "geometry_msgs/msg/TwistStamped": {"linear": "twist.linear", "angular": "twist.angular"},
    "geometry_msgs/msg/Twist": {"linear": "linear", "angular": "angular"},
    "std_msgs/msg/Float64MultiArray": {"position": "data"},
    "std_msgs/msg/Float32MultiArray": {"position": "data", "height": "data"},
    "simdist_msgs/msg/HeightScan": {"height": "height"},
}

T = TypeVar("T")


@dataclass(frozen=True)
class JointSource:
    """Measured joints. Paths lead to one value per joint; None: as in the standard message."""

    topic: str
    unit: str = "rad"  #: of position and velocity: rad or deg (per second)
    names: str | None = None
    position: str | None = None
    velocity: str | None = None
    effort: str | None = None


@dataclass(frozen=True)
class TargetSource:
    """What the joints were told: targets on a topic, or worked out from the torque that was
    measured and the gains that made it, ``target = q + (torque + kd dq) / kp``."""

    topic: str = ""
    unit: str = "rad"
    names: str | None = None
    position: str | None = None
    kp: float = 0.0  #: Nm/rad; more than 0: from the effort of ``joint_states``
    kd: float = 0.0  #: Nm s/rad


@dataclass(frozen=True)
class ImuSource:
    topic: str
    unit: str = "rad"  #: of the angular velocity
    orientation: str | None = None
    angular_velocity: str | None = None
    quaternion: str = "xyzw"  #: the order in which its four numbers lie in the message
    mount: tuple[float, ...] = (1.0, 0.0, 0.0, 0.0)  #: base from sensor, w x y z


@dataclass(frozen=True)
class VelocitySource:
    """Linear velocity of the base."""

    topic: str
    linear_velocity: str | None = None
    frame: str = "body"  #: body or world


@dataclass(frozen=True)
class CommandSource:
    """What the robot was asked for: a Twist or TwistStamped."""

    topic: str
    linear: str | None = None
    angular: str | None = None
    timeout: float = 0.5  #: s of silence after which it counts as zero


@dataclass(frozen=True)
class ScanSource:
    """Heights on the grid of the model's own height scan."""

    topic: str
    height: str | None = None


@dataclass(frozen=True)
class BagMapping:
    """How to make episodes of a robot out of a recording made elsewhere."""

    robot: str
    joint_states: JointSource
    target: TargetSource
    imu: ImuSource
    odom: VelocitySource
    command: CommandSource | None = None  #: None: the robot was asked for nothing
    height_scan: ScanSource | None = None  #: None: flat ground at the height of the feet
    clock: str = "header"  #: header stamps, or ``log``: when a message reached the recorder
    max_gap: float = 0.1  #: s between two messages across which may be interpolated
    joints: Mapping[str, str | int] | None = None  #: our name -> theirs, or its index
    joint_sign: Mapping[str, float] | None = None  #: our name -> 1 or -1
    joint_offset: Mapping[str, float] | None = None  #: our name -> rad, added after the sign
    use: tuple[tuple[float, float], ...] = ()  #: s since the first joint state; none: all of it

    def columns(self) -> list[str | int]:
        """Their name or index of each joint in the order of our robot."""
        names = robots.get(self.robot).joint_names
        return [(self.joints or {}).get(name, name) for name in names]

    def sign(self) -> Array:
        return self._per_joint(self.joint_sign, 1.0)

    def offset(self) -> Array:
        return self._per_joint(self.joint_offset, 0.0)

    def _per_joint(self, values: Mapping[str, float] | None, default: float) -> Array:
        names = robots.get(self.robot).joint_names
        return np.array([(values or {}).get(name, default) for name in names])


_SECTIONS = {
    "joint_states": JointSource,
    "target": TargetSource,
    "imu": ImuSource,
    "odom": VelocitySource,
    "command": CommandSource,
    "height_scan": ScanSource,
}
_CHOICES = {
    "unit": ("rad", "deg"),
    "quaternion": ("xyzw", "wxyz"),
    "frame": ("body", "world"),
    "clock": ("header", "log"),
}


def standard_path(kind: str, part: str) -> str | None:
    """Where a message type of ROS holds a part; None if it is not known."""
    return _STANDARD.get(kind, {}).get(part)


def load_mapping(path: Path) -> BagMapping:
    """Read a mapping file (see docs/bags.md).

    Raises:
        ConfigError: it cannot be read, or an entry is missing, unknown or has no sense.
    """
    try:
        if path.stat().st_size > _MAX_SIZE:
            raise ConfigError(f"{path} is larger than {_MAX_SIZE >> 20} MB: not a mapping file")
        # The parser of libyaml bounds the depth of nesting.
        data = yaml.load(path.read_text("utf8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        raise ConfigError(f"cannot read the mapping file {path}: {error}") from error
    return parse_mapping(data, str(path))


def parse_mapping(data: Any, where: str) -> BagMapping:
    """The mapping that ``data``, as read from YAML, describes; see :func:`load_mapping`."""
    values = _named(BagMapping, data, where)
    for name, kind in _SECTIONS.items():
        if values.get(name) is not None:
            section = _named(kind, values[name], f"{where}: {name}")
            if kind is ImuSource and "mount" in section:
                section["mount"] = _quaternion(section["mount"], f"{where}: imu.mount")
            values[name] = _made(kind, section, f"{where}: {name}")
    mapping = _made(BagMapping, values, where)
    _check(mapping, where)
    return mapping


def _named(kind: type, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ConfigError(f"{where}: must be a mapping of names to values")
    known = [item.name for item in fields(kind)]
    for name in data:
        if name not in known:
            raise ConfigError(f"{where}: unknown name {name!r}; known names: {', '.join(known)}")
    for name, allowed in _CHOICES.items():
        if name in data and name in known and data[name] not in allowed:
            raise ConfigError(
                f"{where}: {name} is {short(data[name])}, allowed: {', '.join(allowed)}"
            )
    return dict(data)


def _made(kind: type[T], values: dict[str, Any], where: str) -> T:
    missing = [name for name in _required(kind) if values.get(name) in (None, "")]
    if missing:
        raise ConfigError(f"{where}: lacks {', '.join(missing)}")
    for item in fields(kind):  # type: ignore[arg-type]
        value = values.get(item.name)
        if value is None:
            continue
        if item.type in ("str", "str | None") and not isinstance(value, str):
            raise ConfigError(f"{where}: {item.name} is {short(value)}, must be text")
        if item.type == "str | None" and not _PATH.fullmatch(value):
            raise ConfigError(
                f"{where}: {item.name} is {short(value)}, must be a path of fields such as "
                "position or motor_state[].q"
            )
        if item.type == "float":
            values[item.name] = _finite(value, f"{where}: {item.name}")
    return kind(**values)


def _required(kind: type) -> list[str]:
    if kind is BagMapping:
        return ["robot", "joint_states", "target", "imu", "odom"]
    return [] if kind is TargetSource else ["topic"]


def _check(mapping: BagMapping, where: str) -> None:
    joints = robots.get(mapping.robot).joint_names  # raises ConfigError for an unknown robot
    for name in ("joints", "joint_sign", "joint_offset"):
        values = getattr(mapping, name)
        if values is None:
            continue
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: {name} must be a mapping of joint names to values")
        for joint, value in values.items():
            if joint not in joints:
                raise ConfigError(
                    f"{where}: {name} names {joint!r}, which is no joint of {mapping.robot}: "
                    f"{', '.join(joints)}"
                )
            if name != "joints":
                number = _finite(value, f"{where}: {name}.{joint}")
                if name == "joint_sign" and abs(number) != 1:
                    raise ConfigError(f"{where}: joint_sign.{joint} is {value}, must be 1 or -1")
            elif not (isinstance(value, str) or (type(value) is int and 0 <= value < 1000)):
                raise ConfigError(f"{where}: joints.{joint} is {short(value)}: a name or an index")
    used = mapping.columns()
    if len(set(used)) < len(used):
        raise ConfigError(f"{where}: two joints are mapped to the same one: {used}")
    if not 0 < mapping.max_gap <= 1:
        raise ConfigError(f"{where}: max_gap is {mapping.max_gap}, must be above 0 and at most 1 s")
    target = mapping.target
    if bool(target.topic) == (target.kp > 0):
        raise ConfigError(
            f"{where}: target needs either a topic, or kp above 0 (and kd) to work it out from the "
            "effort of joint_states"
        )
    for pair in mapping.use if isinstance(mapping.use, list | tuple) else [None]:
        if not (isinstance(pair, list | tuple) and len(pair) == 2):
            raise ConfigError(f"{where}: use must be a list of [from, to] in seconds")
        start, end = (_finite(value, f"{where}: use") for value in pair)
        if not 0 <= start < end:
            raise ConfigError(f"{where}: use holds [{start}, {end}]; wanted 0 <= from < to")


def _quaternion(value: Any, where: str) -> tuple[float, ...]:
    if not isinstance(value, list) or len(value) != 4:
        raise ConfigError(f"{where} must be four numbers w, x, y, z")
    numbers = np.array([_finite(v, where) for v in value])
    if abs(np.linalg.norm(numbers) - 1) > 1e-2:
        raise ConfigError(f"{where} is {value}, whose length is not 1")
    return tuple((numbers / np.linalg.norm(numbers)).tolist())


def _finite(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ConfigError(f"{where} is {short(value)}, must be a finite number")
    return float(value)
