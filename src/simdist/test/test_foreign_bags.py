"""Recordings made elsewhere become episodes by a mapping file, and say what of them could not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from bag_rig import DT, ROBOT
from rosbags.rosbag2 import StoragePlugin, Writer

from simdist.errors import BagError, ConfigError
from simdist.observation.builder import projected_gravity, rotation_matrix
from simdist.observation.spec import legged_observation
from simdist.replay.bag import BagReport
from simdist.replay.episode import Episode
from simdist.replay.foreign import read_foreign_episodes
from simdist.replay.mapping import load_mapping, parse_mapping
from simdist.replay.messages import typestore, typestore_for

LAYOUT = legged_observation(12)
PARTS = LAYOUT.slices()
NS = 10**9
BEGIN = 1_700_000_000 * NS
SECONDS = 2.0
#: Their names, in an order of their own, and the one joint that turns the other way.
THEIRS = {name: f"dog/{i}" for i, name in enumerate(reversed(ROBOT.joint_names))}
SIGN = np.where(np.array(ROBOT.joint_names) == "FL_hip_joint", -1.0, 1.0)


def q(t: float) -> np.ndarray:
    return ROBOT.default_pose + 0.3 * np.sin(2 * t + np.arange(12))


def dq(t: float) -> np.ndarray:
    return 0.6 * np.cos(2 * t + np.arange(12))


def target(t: float) -> np.ndarray:
    return ROBOT.default_pose + 0.2 * np.cos(3 * t + np.arange(12))


def orientation(t: float) -> np.ndarray:
    """w, x, y, z of a robot that turns left and rolls a little."""
    yaw, roll = 0.5 * t, 0.1 * np.sin(t)
    a, b = np.array([np.cos(yaw / 2), 0, 0, np.sin(yaw / 2)]), np.sin(roll / 2)
    return np.array([a[0] * np.cos(roll / 2), a[0] * b, a[3] * b, a[3] * np.cos(roll / 2)])


def velocity(t: float) -> np.ndarray:
    """In the world."""
    return np.array([0.5 * np.cos(0.5 * t), 0.5 * np.sin(0.5 * t), 0.02])


TYPES = typestore().types


def vector(values: Any, kind: str = "geometry_msgs/msg/Vector3") -> Any:
    return TYPES[kind](*map(float, values))


def head(stamp_ns: int) -> Any:
    stamp = TYPES["builtin_interfaces/msg/Time"](stamp_ns // NS, stamp_ns % NS)
    return TYPES["std_msgs/msg/Header"](stamp, "base")


def joints(stamp_ns: int, position: np.ndarray, rate: np.ndarray, effort: np.ndarray) -> Any:
    """In degrees, in their order, turned their way."""
    names = list(THEIRS.values())
    order = [ROBOT.joint_names.index(name) for name in THEIRS]
    shown = [np.degrees(SIGN * position)[order], np.degrees(SIGN * rate)[order]]
    return TYPES["sensor_msgs/msg/JointState"](
        head(stamp_ns), names, *shown, (SIGN * effort)[order]
    )


def imu(stamp_ns: int, t: float) -> Any:
    w, x, y, z = orientation(t)
    zeros = np.zeros(9)
    return TYPES["sensor_msgs/msg/Imu"](
        head(stamp_ns),
        vector([x, y, z, w], "geometry_msgs/msg/Quaternion"), zeros,
        vector([0.1, 0.0, 0.5]), zeros,
        vector([0, 0, 9.81]), zeros,
    )  # fmt: skip


def odometry(stamp_ns: int, t: float) -> Any:
    pose = TYPES["geometry_msgs/msg/Pose"](
        vector([0, 0, 0], "geometry_msgs/msg/Point"),
        vector([0, 0, 0, 1], "geometry_msgs/msg/Quaternion"),
    )
    twist = TYPES["geometry_msgs/msg/Twist"](vector(velocity(t)), vector([0, 0, 0]))
    return TYPES["nav_msgs/msg/Odometry"](
        head(stamp_ns), "base",
        TYPES["geometry_msgs/msg/PoseWithCovariance"](pose, np.zeros(36)),
        TYPES["geometry_msgs/msg/TwistWithCovariance"](twist, np.zeros(36)),
    )  # fmt: skip


def command(stamp_ns: int, t: float) -> Any:
    twist = TYPES["geometry_msgs/msg/Twist"](vector([0.5, 0, 0]), vector([0, 0, 0.25]))
    return TYPES["geometry_msgs/msg/TwistStamped"](head(stamp_ns), twist)


Make = Callable[[int, float], Any]
SOURCES: dict[str, tuple[str, float, Make]] = {
    "/dog/joints": (
        "sensor_msgs/msg/JointState",
        200.0,
        lambda ns, t: joints(ns, q(t), dq(t), 20.0 * (target(t) - q(t)) - 0.5 * dq(t)),
    ),
    "/dog/targets": (
        "sensor_msgs/msg/JointState",
        50.0,
        lambda ns, t: joints(ns, target(t), np.zeros(12), np.zeros(12)),
    ),
    "/dog/imu": ("sensor_msgs/msg/Imu", 100.0, imu),
    "/dog/odom": ("nav_msgs/msg/Odometry", 100.0, odometry),
    "/cmd": ("geometry_msgs/msg/TwistStamped", 10.0, command),
}


def messages() -> list[tuple[str, int, Any]]:
    return [
        (topic, BEGIN + round(i / rate * NS), make(BEGIN + round(i / rate * NS), i / rate))
        for topic, (_, rate, make) in SOURCES.items()
        for i in range(round(SECONDS * rate) + 1)
    ]


def record(path: Path, found: list[tuple[str, int, Any]], plugin=StoragePlugin.MCAP) -> Path:
    with Writer(path, version=9, storage_plugin=plugin) as writer:
        made = {
            topic: writer.add_connection(topic, kind, typestore=typestore())
            for topic, (kind, _, _) in SOURCES.items()
        }
        for topic, stamp_ns, message in found:
            data = typestore().serialize_cdr(message, SOURCES[topic][0])
            writer.write(made[topic], stamp_ns, data)
    return path


def description(**changed: Any) -> dict[str, Any]:
    return {
        "robot": "go1",
        "joints": THEIRS,
        "joint_sign": {"FL_hip_joint": -1},
        "joint_states": {"topic": "/dog/joints", "unit": "deg"},
        "target": {"topic": "/dog/targets", "unit": "deg"},
        "imu": {"topic": "/dog/imu"},
        "odom": {"topic": "/dog/odom", "frame": "world"},
        "command": {"topic": "/cmd"},
        **changed,
    }


def read(path: Path, steps: int = 1, **changed: Any) -> tuple[list[Episode], BagReport]:
    mapping = parse_mapping(description(**changed), "test")
    return read_foreign_episodes(path, mapping, ROBOT, LAYOUT, "c", steps)


@pytest.fixture(scope="module")
def dog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record(tmp_path_factory.mktemp("foreign") / "dog", messages())


def assert_truth(episode: Episode, tolerance: float = 2e-3) -> None:
    for row, stamp_ns in enumerate(episode.stamp_ns):
        t = (int(stamp_ns) - BEGIN) / NS
        part = {name: episode.proprio[row, where] for name, where in PARTS.items()}
        wanted = {
            "base_lin_vel": rotation_matrix(orientation(t)).T @ velocity(t),
            "base_ang_vel": [0.1, 0.0, 0.5],
            "projected_gravity": projected_gravity(orientation(t)),
            "joint_pos": q(t) - ROBOT.default_pose,
            "joint_vel": dq(t),
        }
        for name, value in wanted.items():
            np.testing.assert_allclose(part[name], value, atol=tolerance, err_msg=name)


def test_names_units_frames_and_rates_are_translated(dog: Path) -> None:
    (episode,), report = read(dog)
    assert len(episode) == pytest.approx(SECONDS / 0.02, abs=1)
    assert (np.diff(episode.stamp_ns) == DT).all()
    assert_truth(episode)
    for row, stamp_ns in enumerate(episode.stamp_ns):
        t = (int(stamp_ns) - BEGIN) / NS
        np.testing.assert_allclose(episode.action[row], ROBOT.action(target(t)), atol=1e-3)
    np.testing.assert_allclose(episode.command, np.tile([0.5, 0, 0.25], (len(episode), 1)))
    np.testing.assert_allclose(episode.scan, ROBOT.standing_height - LAYOUT.scan.offset, rtol=1e-6)
    assert report.lost == {}
    assert report.rejected == {}


def test_targets_can_be_worked_out_from_torque_and_gains(dog: Path) -> None:
    (episode,), _ = read(dog, target={"kp": 20.0, "kd": 0.5})
    for row, stamp_ns in enumerate(episode.stamp_ns):
        t = (int(stamp_ns) - BEGIN) / NS + 0.01  # what counts is the middle of the step
        np.testing.assert_allclose(episode.action[row], ROBOT.action(target(t)), atol=0.02)


def test_order_of_arrival_and_storage_do_not_change_the_data(dog: Path, tmp_path: Path) -> None:
    found = messages()
    random.Random(0).shuffle(found)
    record(tmp_path / "shuffled", found)
    record(tmp_path / "sqlite", found + found[:50], StoragePlugin.SQLITE3)
    hashes = {read(path)[1].data_hash for path in (dog, dog, tmp_path / "shuffled")}
    hashes.add(read(tmp_path / "sqlite")[1].data_hash)
    assert len(hashes) == 1


def test_gaps_and_bad_numbers_end_episodes_and_are_counted(tmp_path: Path) -> None:
    found = [
        item
        for item in messages()
        if not (item[0] == "/dog/imu" and 0.5 < (item[1] - BEGIN) / NS < 0.9)
    ]
    bad = next(m for topic, ns, m in found if topic == "/dog/odom" and ns == BEGIN + NS)
    bad.twist.twist.linear.x = np.nan
    found.append(("/dog/odom", BEGIN, odometry(0, 0.0)))
    found.append(("/dog/joints", BEGIN, joints(BEGIN + 10**17, q(0), dq(0), q(0))))
    record(tmp_path / "bag", found)
    episodes, report = read(tmp_path / "bag", 10)
    assert len(episodes) == 2
    for episode in episodes:
        assert_truth(episode)
    assert report.lost["imu missing"] == pytest.approx(0.4, abs=0.03)
    assert report.rejected["/dog/odom not finite"] == 1
    assert report.rejected["/dog/odom without a stamp"] == 1


def test_a_silent_command_counts_as_zero(tmp_path: Path) -> None:
    found = [m for m in messages() if m[0] != "/cmd" or m[1] <= BEGIN + NS // 2]
    record(tmp_path / "bag", found)
    (episode,), report = read(tmp_path / "bag")
    seconds = (episode.stamp_ns - BEGIN) / NS
    assert (episode.command[seconds < 0.99, 0] == 0.5).all()
    assert (episode.command[seconds > 1.03] == 0).all()
    assert report.lost == {}


def test_only_the_stretches_asked_for_are_used(dog: Path) -> None:
    episodes, _ = read(dog, use=[[0.2, 0.5], [1, 1.4]])
    assert [len(e) for e in episodes] == pytest.approx([15, 20], abs=1)


def test_a_sensor_that_is_mounted_askew_is_turned(dog: Path) -> None:
    turned = [np.sqrt(0.5), 0.0, 0.0, np.sqrt(0.5)]  # the sensor's x looks to the left
    (episode,), _ = read(dog, imu={"topic": "/dog/imu", "mount": turned})
    np.testing.assert_allclose(episode.proprio[0, PARTS["base_ang_vel"]], [0, 0.1, 0.5], atol=1e-6)


def test_messages_of_other_packages_are_read_by_paths_and_log_time(tmp_path: Path) -> None:
    low_state = (
        "unitree_go/IMUState imu_state\nunitree_go/MotorState[20] motor_state\nuint32 tick\n"
        + 80 * "=" + "\nMSG: unitree_go/IMUState\nfloat32[4] quaternion\nfloat32[3] gyroscope\n"
        + 80 * "=" + "\nMSG: unitree_go/MotorState\nuint8 mode\nfloat32 q\nfloat32 dq\n"
    )  # fmt: skip
    low_command = (
        "unitree_go/MotorCmd[20] motor_cmd\n"
        + 80 * "=" + "\nMSG: unitree_go/MotorCmd\nuint8 mode\nfloat32 q\n"
    )  # fmt: skip
    kinds = {
        "/lowstate": ("unitree_go/msg/LowState", low_state),
        "/lowcmd": ("unitree_go/msg/LowCmd", low_command),
    }
    store = typestore_for(kinds.values())
    state, orders, imu_state, motor, order = (
        store.types[f"unitree_go/msg/{name}"]
        for name in ("LowState", "LowCmd", "IMUState", "MotorState", "MotorCmd")
    )
    path = tmp_path / "go2"
    with Writer(path, version=9, storage_plugin=StoragePlugin.MCAP) as writer:
        made = {
            topic: writer.add_connection(topic, kind, msgdef=text, rihs01="RIHS01_" + 64 * "0")
            for topic, (kind, text) in kinds.items()
        }
        made["/odom"] = writer.add_connection(
            "/odom", "nav_msgs/msg/Odometry", typestore=typestore()
        )
        for i in range(200):
            t = i / 100
            ns = BEGIN + i * NS // 100
            padded_q, padded_dq = np.pad(q(t), (0, 8)), np.pad(dq(t), (0, 8))
            told = np.pad(target(t), (0, 8)).tolist()
            inertial = imu_state(orientation(t).astype("f4"), np.array([0.1, 0, 0.5], "f4"))
            motors = [motor(1, *map(float, pair)) for pair in zip(padded_q, padded_dq, strict=True)]
            for topic, kind, message in (
                ("/lowstate", "unitree_go/msg/LowState", state(inertial, motors, i)),
                (
                    "/lowcmd",
                    "unitree_go/msg/LowCmd",
                    orders([order(1, x) for x in told]),
                ),
            ):
                writer.write(made[topic], ns, store.serialize_cdr(message, kind))
            data = typestore().serialize_cdr(odometry(0, t), "nav_msgs/msg/Odometry")
            writer.write(made["/odom"], ns, data)
    mapping = {
        "robot": "go1",
        "clock": "log",
        "joints": {name: i for i, name in enumerate(ROBOT.joint_names)},
        "joint_states": {
            "topic": "/lowstate",
            "position": "motor_state[].q",
            "velocity": "motor_state[].dq",
        },
        "target": {"topic": "/lowcmd", "position": "motor_cmd[].q"},
        "imu": {
            "topic": "/lowstate",
            "orientation": "imu_state.quaternion",
            "angular_velocity": "imu_state.gyroscope",
            "quaternion": "wxyz",
        },
        "odom": {"topic": "/odom", "frame": "world"},
    }
    (episode,), report = read_foreign_episodes(
        path, parse_mapping(mapping, "test"), ROBOT, LAYOUT, "c"
    )
    assert_truth(episode)
    assert report.rejected == {}
    assert (episode.command == 0).all()


def test_a_foreign_recording_fits_a_model_by_its_mapping(dog: Path, tmp_path: Path) -> None:
    from graph_rig import random_model

    from simdist.adaptation.offline import read_robot_data
    from simdist.world_model.artefact import load_artefact

    parent = load_artefact(random_model(tmp_path))
    data = read_robot_data([dog], parent, parse_mapping(description(), "test"))
    (episode,) = data.episodes
    assert episode.contract == parent.contract.hash()
    network = parent.contract.network
    assert episode.proprio.shape[1] == network.proprio_dim
    assert episode.scan.shape[1] == network.scan_dim
    assert len(episode.window_starts(parent.contract.history, parent.contract.horizon)) > 0
    with pytest.raises(ConfigError, match="the mapping is for go2"):
        read_robot_data([dog], parent, parse_mapping(description(robot="go2"), "test"))


# --- what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"robot": "toaster"}, "toaster"),
        ({"robots": "go1"}, "unknown name 'robots'"),
        ({"odom": None}, "lacks odom"),
        ({"odom": {"topic": "/odom", "frame": "moon"}}, "body, world"),
        ({"joint_states": {"topic": "/j", "unit": "grad"}}, "rad, deg"),
        ({"joint_states": {"topic": "/j", "position": "a; b"}}, "path of fields"),
        ({"joint_states": {"topic": "/j", "position": "__class__.mro"}}, "path of fields"),
        ({"joint_states": ["/j"]}, "mapping of names"),
        ({"joint_states": {"topic": 5}}, "must be text"),
        ({"joints": {"elbow": "x"}}, "no joint of go1"),
        ({"joints": {"FR_hip_joint": "FL_hip_joint"}}, "same one"),
        ({"joint_sign": {"FR_hip_joint": 2}}, "1 or -1"),
        ({"joint_offset": {"FR_hip_joint": float("nan")}}, "finite"),
        ({"imu": {"topic": "/i", "mount": [1, 1, 1, 1]}}, "length"),
        ({"target": {"unit": "rad"}}, "either a topic"),
        ({"target": {"topic": "/t", "kp": 1.0}}, "either a topic"),
        ({"max_gap": 0}, "max_gap"),
        ({"use": [[3, 1]]}, "from < to"),
        ({"use": 5}, "from, to"),
        ({"clock": "sun"}, "header, log"),
    ],
)
def test_a_wrong_mapping_is_refused_with_its_reason(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=r"mapping\.yaml|toaster") as caught:
        parse_mapping(description(**changed), "mapping.yaml")
    assert said in str(caught.value)


def test_a_mapping_file_is_read_without_trust(tmp_path: Path) -> None:
    file = tmp_path / "map.yaml"
    file.write_text(yaml.safe_dump(description()))
    assert load_mapping(file) == parse_mapping(description(), "x")
    for text in ("][", "!!python/object/apply:os.system ['true']", "", "- 1"):
        file.write_text(text)
        with pytest.raises(ConfigError):
            load_mapping(file)
    with pytest.raises(ConfigError):
        load_mapping(tmp_path / "none.yaml")


def test_what_the_recording_lacks_is_named(dog: Path, tmp_path: Path) -> None:
    with pytest.raises(BagError, match=r"lacks /imu/data.*found .*/dog/imu"):
        read(dog, imu={"topic": "/imu/data"})
    with pytest.raises(BagError, match="lacks joints"):
        read(dog, joints={"FR_hip_joint": "leg_of_another_robot"})
    with pytest.raises(BagError, match="say so in the mapping"):
        read(dog, odom={"topic": "/cmd"})


def test_the_examples_of_the_documentation_are_mappings() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "bags.md").read_text()
    examples = [part.split("```")[0] for part in text.split("```yaml\n")[1:]]
    assert len(examples) == 2
    for example in examples:
        assert parse_mapping(yaml.safe_load(example), "docs/bags.md").joint_states.topic
