"""Episodes out of recordings made elsewhere, by a mapping file.

Measured signals come at their own rates. They are brought to the robot's control steps: states by
interpolation, targets and commands by holding the last one. A step at which a signal is missing is
left out and ends the episode.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from simdist.errors import BagError, ConfigError
from simdist.observation.builder import ObservationBuilder, rotation_matrix
from simdist.observation.spec import ObservationSpec
from simdist.replay.bag import BagReport
from simdist.replay.episode import Episode
from simdist.replay.mapping import BagMapping, standard_path
from simdist.replay.mcap import Channel
from simdist.replay.messages import typestore_for
from simdist.replay.storage import Recording
from simdist.robots import RobotSpec
from simdist.types import Array, Flags

_NS = 1_000_000_000
_MAX_MESSAGE = 4 << 20
_ABSURD = 1e6
#: A recording longer than this would need more memory than is reasonable.
_MAX_SECONDS = 24 * 3600

Numbers = dict[str, Array]
Extract = Callable[[Any], Numbers]


@dataclass
class _Signal:
    """Samples of one source in the order of their stamps, each stamp once."""

    stamp_ns: np.ndarray  #: (N,)
    values: Numbers  #: by part, (N, ...)


@dataclass
class _Collector:
    extract: Extract
    samples: dict[int, Numbers] = field(default_factory=dict)


def read_foreign_episodes(
    path: Path | str,
    mapping: BagMapping,
    robot: RobotSpec,
    layout: ObservationSpec,
    contract: str = "",
    min_steps: int = 1,
) -> tuple[list[Episode], BagReport]:
    """What a robot did, as ``mapping`` explains it, in the observations of ``layout``.

    Episodes and their hash depend on the stamps alone, not on the order of arrival (with
    ``clock: log`` arrival is all there is). Runs shorter than ``min_steps`` are dropped.

    Raises:
        BagError: no recording, a topic is missing, or nothing in it fits the mapping.
        ConfigError: the mapping is for another robot.
    """
    if mapping.robot != robot.name:
        raise ConfigError(f"the mapping is for {mapping.robot}, the model for {robot.name}")
    recording = Recording(path)
    survey = recording.survey()
    report = BagReport(recording.path)
    report.damage(survey)
    rejected: Counter[str] = Counter(survey.problems)
    sources = _sources(mapping, robot, layout)
    channels = _channels(recording.path, list(survey.counts), mapping, sources)
    collectors = {
        name: _Collector(make(channels[name].kind)) for name, (_, make) in sources.items()
    }
    report.messages = {channel.topic: survey.counts[channel] for channel in channels.values()}
    of_channel: dict[Channel, list[str]] = defaultdict(list)
    for name, channel in channels.items():
        of_channel[channel].append(name)
    store = typestore_for((c.kind, c.definition) for c in channels.values() if c.definition)
    for channel in of_channel:
        if channel.kind not in store.types:
            raise BagError(
                f"{path} does not define {channel.kind} of {channel.topic}: convert it to MCAP, "
                "which carries the definitions"
            )
    for message in recording.messages(lambda channel: channel in of_channel):
        what = message.channel.topic
        if len(message.data) > _MAX_MESSAGE:
            rejected[f"{what} over the size limit"] += 1
            continue
        try:
            decoded = store.deserialize_cdr(message.data, message.channel.kind)
            stamp_ns = message.log_ns if mapping.clock == "log" else _stamp_ns(decoded)
            for name in of_channel[message.channel]:
                numbers = collectors[name].extract(decoded)
                if stamp_ns <= 0:
                    rejected[f"{what} without a stamp"] += 1
                elif not all(np.isfinite(v).all() for v in numbers.values()):
                    rejected[f"{what} not finite"] += 1
                elif any(np.abs(v).max(initial=0) > _ABSURD for v in numbers.values()):
                    rejected[f"{what} with absurd values"] += 1
                else:
                    _keep(collectors[name].samples, stamp_ns, numbers, rejected, what)
        except BagError as error:
            rejected[str(error)] += 1
        except Exception:  # bytes that anybody may have written
            rejected[f"{what} cannot be decoded"] += 1
    signals = {name: _signal(collector.samples) for name, collector in collectors.items()}
    for name in ("joints", "orientation", "velocity", *(["target"] if "target" in signals else [])):
        if signals[name] is None:
            why = ", ".join(f"{count} × {reason}" for reason, count in sorted(rejected.items()))
            raise BagError(
                f"{path}: no usable message of {channels[name].topic}{': ' + why if why else ''}"
            )
    episodes, lost = _episodes(mapping, robot, layout, contract, signals, min_steps)
    report.rejected = dict(rejected)
    report.lost = lost
    report.kept(episodes, robot.control_dt)
    return episodes, report


# ---------------------------------------------------------------------- what to read


def _sources(
    mapping: BagMapping, robot: RobotSpec, layout: ObservationSpec
) -> dict[str, tuple[str, Callable[[str], Extract]]]:
    """Signal -> its topic, and what makes an extractor for the message type found there."""
    joints, target, imu = mapping.joint_states, mapping.target, mapping.imu
    columns, sign, offset = mapping.columns(), mapping.sign(), mapping.offset()

    def ordered(message: Any, names: str | None, path: str, of: str) -> Array:
        values = _numbers(_follow(message, path))
        return values[_columns(message, names, columns, len(values), of)]

    def joint_extractor(kind: str) -> Extract:
        names = _optional(joints.names, kind, "names")
        position = _path(joints.position, kind, "position", joints.topic)
        velocity = _path(joints.velocity, kind, "velocity", joints.topic)
        scale = _scale(joints.unit)

        def extract(message: Any) -> Numbers:
            parts = {
                "q": sign * scale * ordered(message, names, position, joints.topic) + offset,
                "dq": sign * scale * ordered(message, names, velocity, joints.topic),
            }
            if target.kp > 0:
                effort = _path(joints.effort, kind, "effort", joints.topic)
                parts["effort"] = sign * ordered(message, names, effort, joints.topic)
            return parts

        return extract

    def target_extractor(kind: str) -> Extract:
        names = _optional(target.names, kind, "names")
        position = _path(target.position, kind, "position", target.topic)
        return lambda message: {
            "target": sign * _scale(target.unit) * ordered(message, names, position, target.topic)
            + offset
        }

    def orientation_extractor(kind: str) -> Extract:
        orientation = _path(imu.orientation, kind, "orientation", imu.topic)
        angular = _path(imu.angular_velocity, kind, "angular_velocity", imu.topic)
        mount = np.array(imu.mount)
        turn = rotation_matrix(mount)

        def extract(message: Any) -> Numbers:
            quaternion = _vector(_follow(message, orientation), 4)
            if imu.quaternion == "xyzw":
                quaternion = quaternion[[3, 0, 1, 2]]
            length = np.linalg.norm(quaternion)
            if not 0.9 < length < 1.1:
                raise BagError(f"{imu.topic} whose quaternion has not length 1")
            conjugate = mount * np.array([1, -1, -1, -1])
            omega = _scale(imu.unit) * _vector(_follow(message, angular), 3)
            return {
                "orientation": _product(quaternion / length, conjugate),
                "omega": turn @ omega,
            }

        return extract

    def velocity_extractor(kind: str) -> Extract:
        path = _path(mapping.odom.linear_velocity, kind, "linear_velocity", mapping.odom.topic)
        return lambda message: {"velocity": _vector(_follow(message, path), 3)}

    sources: dict[str, tuple[str, Callable[[str], Extract]]] = {
        "joints": (joints.topic, joint_extractor),
        "orientation": (imu.topic, orientation_extractor),
        "velocity": (mapping.odom.topic, velocity_extractor),
    }
    if target.topic:
        sources["target"] = (target.topic, target_extractor)
    if mapping.command is not None:
        command = mapping.command

        def command_extractor(kind: str) -> Extract:
            linear = _path(command.linear, kind, "linear", command.topic)
            angular = _path(command.angular, kind, "angular", command.topic)

            def extract(message: Any) -> Numbers:
                forward = _vector(_follow(message, linear), 3)
                turning = _vector(_follow(message, angular), 3)
                return {"command": np.array([forward[0], forward[1], turning[2]])}

            return extract

        sources["command"] = (command.topic, command_extractor)
    if mapping.height_scan is not None:
        scan = mapping.height_scan

        def scan_extractor(kind: str) -> Extract:
            path = _path(scan.height, kind, "height", scan.topic)
            return lambda message: {"scan": _vector(_follow(message, path), layout.scan.size)}

        sources["scan"] = (scan.topic, scan_extractor)
    return sources


def _channels(
    path: Path,
    found: list[Channel],
    mapping: BagMapping,
    sources: dict[str, tuple[str, Callable[[str], Extract]]],
) -> dict[str, Channel]:
    result: dict[str, Channel] = {}
    for name, (topic, _) in sources.items():
        fitting = [c for c in found if c.topic == topic]
        if not fitting:
            topics = ", ".join(sorted(f"{c.topic} ({c.kind})" for c in found)) or "none"
            raise BagError(f"{path} lacks {topic}, which the mapping names; found {topics}")
        if len(fitting) > 1:
            raise BagError(f"{path}: {topic} has several types or definitions")
        result[name] = fitting[0]
    return result


# ---------------------------------------------------------------------- messages


def _path(given: str | None, kind: str, part: str, topic: str) -> str:
    path = given or standard_path(kind, part)
    if path is None:
        raise BagError(
            f"{topic} is of type {kind}, of which it is not known where it holds {part}: "
            f"say so in the mapping, as in {part}: motor_state[].q"
        )
    return path


def _optional(given: str | None, kind: str, part: str) -> str | None:
    return given or standard_path(kind, part)


def _follow(value: Any, path: str) -> Any:
    """What lies at ``path`` in a message; only fields of messages are ever followed."""
    head, _, rest = path.partition(".")
    name, every = head.removesuffix("[]"), head.endswith("[]")
    if name not in getattr(value, "__dataclass_fields__", {}):
        raise BagError(f"message without field {name}")
    inner = getattr(value, name)
    if every:
        return [_follow(item, rest) if rest else item for item in inner]
    return _follow(inner, rest) if rest else inner


def _numbers(value: Any) -> Array:
    return np.asarray(value, np.float64).reshape(-1)


def _vector(value: Any, size: int) -> Array:
    """A geometry_msgs vector or quaternion (x, y, z, w in this order), or an array."""
    members = getattr(value, "__dataclass_fields__", None)
    if members is not None:
        value = [getattr(value, name) for name in ("x", "y", "z", "w") if name in members]
    numbers = _numbers(value)
    if len(numbers) != size:
        raise BagError(f"vector of {len(numbers)} numbers where {size} are wanted")
    return numbers


def _columns(
    message: Any, names: str | None, columns: list[str | int], count: int, topic: str
) -> list[int]:
    if all(isinstance(column, int) for column in columns):
        found = [int(column) for column in columns]
    elif names is None:
        raise BagError(f"{topic} names no joints: give their indices in the mapping")
    else:
        present = list(_follow(message, names))
        try:
            found = [c if isinstance(c, int) else present.index(c) for c in columns]
        except ValueError:
            raise BagError(f"{topic} lacks joints that the mapping names") from None
    if max(found) >= count:
        raise BagError(f"{topic} holds values of fewer joints than the mapping names")
    return found


def _stamp_ns(message: Any) -> int:
    header = getattr(message, "header", None)
    if header is None:
        raise BagError("message without a header: use clock: log in the mapping")
    return int(header.stamp.sec) * _NS + int(header.stamp.nanosec)


def _scale(unit: str) -> float:
    return np.pi / 180 if unit == "deg" else 1.0


def _product(a: Array, b: Array) -> Array:
    """The product of two quaternions ``(w, x, y, z)``."""
    w, v = a[0], a[1:]
    return np.concatenate([[w * b[0] - v @ b[1:]], w * b[1:] + b[0] * v + np.cross(v, b[1:])])


def _keep(
    samples: dict[int, Numbers], stamp_ns: int, numbers: Numbers, rejected: Counter[str], what: str
) -> None:
    have = samples.get(stamp_ns)
    if have is None:
        samples[stamp_ns] = numbers
        return
    rejected[f"{what} repeated"] += 1
    # Of different messages with one stamp the same one is kept in whatever order they come.
    key = [value.tobytes() for value in numbers.values()]
    if key < [value.tobytes() for value in have.values()]:
        samples[stamp_ns] = numbers


# ---------------------------------------------------------------------- control steps


def _signal(samples: dict[int, Numbers]) -> _Signal | None:
    if not samples:
        return None
    stamps = np.array(sorted(samples), np.int64)
    # A few stamps of another clock must not stretch time over years.
    stamps = stamps[np.abs(stamps - stamps[len(stamps) // 2]) <= _MAX_SECONDS * _NS]
    parts = samples[int(stamps[0])]
    return _Signal(stamps, {k: np.stack([samples[int(s)][k] for s in stamps]) for k in parts})


def _episodes(
    mapping: BagMapping,
    robot: RobotSpec,
    layout: ObservationSpec,
    contract: str,
    signals: dict[str, _Signal | None],
    min_steps: int,
) -> tuple[list[Episode], dict[str, float]]:
    dt_ns = round(robot.control_dt * _NS)
    gap_ns = round(mapping.max_gap * _NS)
    joints = signals["joints"]
    assert joints is not None
    first, last = int(joints.stamp_ns[0]), int(joints.stamp_ns[-1])
    # Steps lie on multiples of the control step, so that cutting a recording moves none.
    grid = np.arange(-(-first // dt_ns) * dt_ns, last + 1, dt_ns, dtype=np.int64)
    states, valid = {}, {}
    for name in ("joints", "orientation", "velocity"):
        signal = signals[name]
        assert signal is not None
        values, valid[name] = _interpolate(signal, grid, gap_ns)
        states.update(values)
    norm = np.linalg.norm(states["orientation"], axis=1, keepdims=True)
    states["orientation"] /= np.where(norm > 1e-6, norm, 1)
    if mapping.odom.frame == "world":
        turn = rotation_matrix(states["orientation"])
        states["velocity"] = np.einsum("nji,nj->ni", turn, states["velocity"])
    # What was told in the middle of a step is what counts in it.
    middle = grid + dt_ns // 2
    if mapping.target.kp > 0:
        then, valid["target"] = _interpolate(joints, middle, gap_ns)
        torque = then["effort"] + mapping.target.kd * then["dq"]
        target = then["q"] + torque / mapping.target.kp
    else:
        signal = signals["target"]
        assert signal is not None
        target, valid["target"] = _hold(signal, "target", middle, gap_ns)
    command = np.zeros((len(grid), 3))
    if (signal := signals.get("command")) is not None:
        assert mapping.command is not None
        held, fresh = _hold(signal, "command", grid, round(mapping.command.timeout * _NS))
        command = np.where(fresh[:, None], held, 0.0)
    flat = robot.standing_height - layout.scan.offset
    scan = np.full((len(grid), layout.scan.size), flat)
    if "scan" in signals:
        signal = signals["scan"]
        if signal is None:
            valid["scan"] = np.zeros(len(grid), bool)
        else:
            scan, valid["scan"] = _hold(signal, "scan", grid, max(gap_ns, dt_ns))

    lost: Counter[str] = Counter()
    usable = _used(mapping, grid, first)
    for name, good in valid.items():
        lost[f"{_TITLES[name]} missing"] += int((usable & ~good).sum())
        usable &= good
    proprio = ObservationBuilder(layout, robot).proprioception(
        linear_velocity=states["velocity"],
        angular_velocity=states["omega"],
        orientation=states["orientation"],
        joint_position=states["q"],
        joint_velocity=states["dq"],
        seconds=grid.astype(np.float64) * 1e-9,
    )
    action = robot.action(target)
    episodes: list[Episode] = []
    edges = np.flatnonzero(np.diff(np.concatenate([[False], usable, [False]]).astype(int)))
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if end - start < min_steps:
            lost[f"in runs shorter than {min_steps} steps"] += int(end - start)
            continue
        rows = slice(int(start), int(end))
        seen, ground, did, asked = (
            np.asarray(a[rows], np.float32) for a in (proprio, scan, action, command)
        )
        episodes.append(Episode(grid[rows], seen, ground, did, asked, len(episodes) + 1, contract))
    seconds = {why: round(n * robot.control_dt, 6) for why, n in lost.items() if n}
    return episodes, seconds


_TITLES = {
    "joints": "joint states",
    "orientation": "imu",
    "velocity": "odom",
    "target": "joint targets",
    "scan": "height scan",
}


def _used(mapping: BagMapping, grid: np.ndarray, first: int) -> Flags:
    if not mapping.use:
        return np.ones(len(grid), bool)
    seconds = (grid - first) / _NS
    return np.any([(seconds >= start) & (seconds <= end) for start, end in mapping.use], axis=0)


def _interpolate(signal: _Signal, grid: np.ndarray, gap_ns: int) -> tuple[Numbers, Flags]:
    """Values ``(N, ...)`` at the grid, and where both neighbours are near enough."""
    stamps = signal.stamp_ns
    after = np.clip(np.searchsorted(stamps, grid), 0, len(stamps) - 1)
    before = np.where(stamps[after] == grid, after, np.maximum(after - 1, 0))
    width = stamps[after] - stamps[before]
    inside = (stamps[before] <= grid) & (grid <= stamps[after])
    share = np.where(width > 0, (grid - stamps[before]) / np.maximum(width, 1), 0.0)[:, None]
    values = {}
    for name, samples in signal.values.items():
        a, b = samples[before], samples[after]
        if name == "orientation":  # q and -q are the same: go the short way
            b = np.where(np.sum(a * b, axis=1, keepdims=True) < 0, -b, b)
        values[name] = (1 - share) * a + share * b
    return values, inside & (width <= gap_ns)


def _hold(signal: _Signal, name: str, grid: np.ndarray, age_ns: int) -> tuple[Array, Flags]:
    """The newest value at or before each step, and where it is not too old."""
    index = np.searchsorted(signal.stamp_ns, grid, side="right") - 1
    at = np.maximum(index, 0)
    return signal.values[name][at], (index >= 0) & (grid - signal.stamp_ns[at] <= age_ns)
