"""The `ros2` stand-in against a real node: what it prints and how it exits."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from local_ros_support.processes import (
    PATIENCE,
    ROS2,
    environment,
    real_launch_is_installed,
    wait_for,
)

pytest.importorskip("rclpy")
pytestmark = [
    pytest.mark.launch,
    pytest.mark.skipif(real_launch_is_installed(), reason="the real ros2 is installed"),
]

TALKER = Path(__file__).with_name("local_ros_support") / "talker.py"
DOMAIN = 1 + os.getpid() % 100


@pytest.fixture(scope="module")
def talker(tmp_path_factory) -> Iterator[dict[str, str]]:
    """Run the node; yield the environment in which it can be seen."""
    variables = environment(tmp_path_factory.mktemp("talker"), DOMAIN)
    process = subprocess.Popen(
        [sys.executable, str(TALKER)], env=variables, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "talker is ready\n"
    yield variables
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == 0


def ros2(variables: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ROS2, *arguments], env=variables, capture_output=True, text=True, timeout=PATIENCE
    )


def output(variables: dict[str, str], *arguments: str) -> str:
    result = ros2(variables, *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout


def run_until(
    variables: dict[str, str],
    pattern: str,
    file: Path,
    *arguments: str,
    cwd: Path | None = None,
    then: Callable[[], object] = lambda: None,
) -> tuple[int, str]:
    """Run a command until it has printed `pattern`, call `then`, and press Ctrl-C."""
    with file.open("w") as out:
        process = subprocess.Popen(
            [*ROS2, *arguments], env=variables, stdout=out, stderr=subprocess.STDOUT, cwd=cwd
        )
    try:
        wait_for(
            lambda: re.search(pattern, file.read_text()) is not None or process.poll() is not None,
            pattern,
        )
        then()
        process.send_signal(signal.SIGINT)
        return process.wait(PATIENCE), file.read_text()
    finally:
        process.kill()


def test_topics_and_nodes_are_listed(talker):
    topics = output(talker, "topic", "list", "-t").splitlines()
    assert "/count [std_msgs/msg/Int32]" in topics
    assert "/values [std_msgs/msg/Float32MultiArray]" in topics
    assert output(talker, "node", "list") == "/talker\n"
    info = output(talker, "node", "info", "/talker")
    assert "  Publishers:\n    /count: std_msgs/msg/Int32\n" in info
    assert "    /reset: std_srvs/srv/Trigger\n" in info


def test_topic_info_counts_and_names_the_ends(talker):
    assert output(talker, "topic", "info", "/count") == (
        "Type: std_msgs/msg/Int32\nPublisher count: 1\nSubscription count: 0\n"
    )
    verbose = output(talker, "topic", "info", "/count", "-v")
    assert "Node name: talker\n" in verbose
    assert "Reliability: RELIABLE\n" in verbose


def test_echo_prints_yaml_documents(talker):
    message, rest = yaml.safe_load_all(output(talker, "topic", "echo", "/count", "--once"))
    assert isinstance(message["data"], int)
    assert rest is None
    long = output(talker, "topic", "echo", "/values", "--once")
    values = next(yaml.safe_load_all(long))["data"]
    assert values == [0.5] * 128 + ["..."]
    field = output(talker, "topic", "echo", "/values", "--once", "--field", "data", "--no-arr")
    assert field == "'<sequence type: float, length: 200>'\n---\n"


def test_echo_without_a_publisher_says_so(talker):
    result = ros2(talker, "topic", "echo", "/nothing")
    assert result.returncode == 1
    assert "Could not determine the type for the passed topic" in result.stderr


def test_hz_measures_until_ctrl_c_and_leaves_no_traceback(talker, tmp_path):
    code, text = run_until(talker, "window: ", tmp_path / "out", "topic", "hz", "/count")
    assert code == signal.SIGINT
    assert re.search(r"^average rate: [\d.]+\n\tmin: [\d.]+s max: [\d.]+s std dev: ", text, re.M)
    assert "Traceback" not in text


def test_ctrl_c_ends_a_command_that_a_script_started_with_it_ignored(talker, tmp_path):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        code, _ = run_until(talker, "window: ", tmp_path / "out", "topic", "hz", "/count")
    finally:
        signal.signal(signal.SIGINT, before)
    assert code == signal.SIGINT


def test_pub_reaches_echo(talker):
    listener = subprocess.Popen(
        [*ROS2, "topic", "echo", "/said", "std_msgs/msg/String", "--once"],
        env=talker,
        stdout=subprocess.PIPE,
        text=True,
    )
    said = output(talker, "topic", "pub", "--once", "/said", "std_msgs/msg/String", "{data: hi}")
    assert "publishing #1: std_msgs.msg.String(data='hi')" in said
    assert listener.communicate(timeout=PATIENCE)[0] == "data: hi\n---\n"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("{dat: 1}", "has no field 'dat'"),
        ("{data: 1.5}", "expected an integer, got 1.5"),
        ("{data: [1]}", "Failed to populate field"),
        ("1", "needs to be a dictionary in YAML format"),
        ("{data: ", "not valid YAML"),
    ],
)
def test_pub_refuses_values_that_do_not_fit(talker, values, message):
    result = ros2(talker, "topic", "pub", "--once", "/n", "std_msgs/msg/Int32", values)
    assert result.returncode == 1
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_parameters_are_read_and_set(talker):
    assert "  gains.kp\n" in output(talker, "param", "list", "/talker")
    assert output(talker, "param", "get", "/talker", "rate") == "Integer value is: 50\n"
    assert output(talker, "param", "get", "/talker", "gains.kp") == (
        "Double values are: [1.0, 2.5]\n"
    )
    assert output(talker, "param", "set", "/talker", "name", "eve") == "Set parameter successful\n"
    assert output(talker, "param", "get", "/talker", "name") == "String value is: eve\n"
    refused = ros2(talker, "param", "set", "/talker", "name", "bad")
    assert refused.stderr == "Setting parameter failed: bad is refused\n"
    dump = yaml.safe_load(output(talker, "param", "dump", "/talker"))
    parameters = dump["/talker"]["ros__parameters"]
    assert parameters["gains"] == {"kp": [1.0, 2.5]}
    assert parameters["name"] == "eve"


def test_parameters_are_described(talker):
    assert output(talker, "param", "describe", "/talker", "rate") == (
        "Parameter name: rate\n  Type: integer\n  Description: publishing rate\n  Constraints:\n"
        "    Min value: 1\n    Max value: 100\n    Step: 1\n"
    )


def test_unknown_nodes_and_parameters_exit_with_1(talker):
    missing_node = ros2(talker, "param", "get", "/nobody", "rate")
    assert (missing_node.returncode, missing_node.stderr) == (1, "Node not found\n")
    missing_parameter = ros2(talker, "param", "get", "/talker", "nothing")
    assert (missing_parameter.returncode, missing_parameter.stderr) == (1, "Parameter not set.\n")
    missing_info = ros2(talker, "node", "info", "/nobody")
    assert (missing_info.returncode, missing_info.stderr) == (
        1,
        "Unable to find node '/nobody'\n",
    )


def test_services_are_listed_and_called(talker):
    assert "/reset [std_srvs/srv/Trigger]\n" in output(talker, "service", "list", "-t")
    assert output(talker, "service", "type", "/reset") == "std_srvs/srv/Trigger\n"
    called = output(talker, "service", "call", "/reset", "std_srvs/srv/Trigger")
    assert "requester: making request: std_srvs.srv.Trigger_Request()\n" in called
    assert "response:\nstd_srvs.srv.Trigger_Response(success=True" in called


def test_a_bag_holds_what_was_said_and_plays_it_again(talker, tmp_path):
    code, text = run_until(
        talker,
        r"Subscribed to topic '/count'",
        tmp_path / "record.txt",
        *("bag", "record", "/count", "-o", "bag"),
        cwd=tmp_path,
        # What reaches a later subscriber has reached the recorder before.
        then=lambda: output(talker, "topic", "echo", "/count", "--once"),
    )
    assert (code, "Traceback" in text) == (0, False)
    bag = tmp_path / "bag"
    info = output(talker, "bag", "info", str(bag))
    assert "Storage id:        mcap\n" in info
    count = re.search(r"Topic: /count \| Type: std_msgs/msg/Int32 \| Count: (\d+) \|", info)
    assert count is not None
    assert int(count[1]) > 0

    # In a domain of its own only the player speaks.
    alone = {**talker, "ROS_DOMAIN_ID": str(1 + DOMAIN % 100)}
    listener = subprocess.Popen(
        [*ROS2, "topic", "echo", "/count", "std_msgs/msg/Int32", "--once"],
        env=alone,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(
            lambda: (
                ros2(alone, "bag", "play", str(bag)).returncode == 0 and listener.poll() is not None
            ),
            "a message of the bag",
        )
        assert re.match(r"data: \d+\n---\n", listener.communicate()[0])
    finally:
        listener.kill()


def test_a_bag_is_not_overwritten_and_a_missing_one_is_named(talker, tmp_path):
    result = ros2(talker, "bag", "record", "/count", "-o", str(tmp_path))
    assert result.returncode == 1
    assert f"Output folder '{tmp_path}' already exists." in result.stderr
    result = ros2(talker, "bag", "info", str(tmp_path / "nothing"))
    assert result.returncode == 2
    assert "does not exist!" in result.stderr


def test_doctor_reports_the_environment(talker):
    result = ros2(talker, "doctor", "--report")
    assert "middleware name    : rmw_fastrtps_cpp\n" in result.stdout
    assert (result.returncode == 0) == ("checks passed" in result.stdout)
    broken = ros2({**talker, "ROS_DOMAIN_ID": "1000"}, "doctor")
    assert broken.returncode == 1
    assert "ROS_DOMAIN_ID is '1000', allowed are 0 to 101" in broken.stdout


def test_a_launched_node_takes_name_namespace_and_parameters(tmp_path):
    file = tmp_path / "talker.launch.py"
    file.write_text(
        "import sys\n"
        "from launch import LaunchDescription\n"
        "from launch_ros.actions import Node\n"
        "def generate_launch_description():\n"
        f"    return LaunchDescription([Node(executable=sys.executable,"
        f" arguments=[{str(TALKER)!r}], name='speaker', namespace='ns',"
        " output='screen', parameters=[{'rate': 20}])])\n"
    )
    variables = environment(tmp_path / "log", 1 + (DOMAIN + 1) % 100)
    found: list[str] = []
    code, text = run_until(
        variables,
        "talker is ready",
        tmp_path / "out",
        *("launch", str(file)),
        then=lambda: found.append(output(variables, "param", "get", "/ns/speaker", "rate")),
    )
    assert found == ["Integer value is: 20\n"]
    assert code == 0
    assert "process has finished cleanly" in text
