"""The launch stand-in: what a launch file says, and what it evaluates to."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import pytest
import yaml
from local_ros_support.processes import SHIM, real_launch_is_installed

if real_launch_is_installed():
    pytest.skip("the real launch is installed", allow_module_level=True)
if str(SHIM) not in sys.path:
    sys.path.insert(0, str(SHIM))

from launch import LaunchContext, LaunchDescription, LaunchService
from launch.actions import (
    DeclareLaunchArgument,
    GroupAction,
    IncludeLaunchDescription,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    SetLaunchConfiguration,
    Shutdown,
    TimerAction,
)
from launch.conditions import IfCondition, UnlessCondition
from launch.event_handlers import OnShutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import (
    EnvironmentVariable,
    EqualsSubstitution,
    LaunchConfiguration,
    NotSubstitution,
    PathJoinSubstitution,
    TextSubstitution,
    ThisLaunchFileDir,
)
from launch.utilities import perform_substitutions
from launch_ros.actions import Node, PushRosNamespace, SetParameter
from launch_ros.parameter_descriptions import ParameterValue

from simdist.local_ros import launch_description_text


@pytest.fixture(autouse=True)
def log_directory(tmp_path, monkeypatch):
    monkeypatch.setenv("ROS_LOG_DIR", str(tmp_path / "log"))


def run(*entities, **arguments: str) -> tuple[int, LaunchContext]:
    service = LaunchService()
    service.context.launch_configurations.update(arguments)
    service.include_launch_description(LaunchDescription(list(entities)))
    return service.run(), service.context


def configuration(name: str, into: list[str]) -> OpaqueFunction:
    def note(context: LaunchContext) -> None:
        into.append(context.launch_configurations.get(name, "(unset)"))

    return OpaqueFunction(function=note)


def test_a_default_is_used_only_where_no_value_is_given():
    declare = DeclareLaunchArgument("x", default_value="1")
    seen: list[str] = []
    assert run(declare, configuration("x", seen))[0] == 0
    assert run(declare, configuration("x", seen), x="2")[0] == 0
    assert seen == ["1", "2"]


def test_a_value_outside_the_choices_stops_the_launch(capfd):
    seen: list[str] = []
    declare = DeclareLaunchArgument("robot", default_value="go1", choices=["go1", "go2"])
    code, _ = run(declare, configuration("robot", seen), robot="cat")
    assert code == 1
    assert seen == []
    out = capfd.readouterr().out
    assert (
        'Argument "robot" provided value "cat" is not valid. '
        "Valid options are: ['go1', 'go2']" in out
    )


def test_a_required_argument_must_be_given(capfd):
    include = IncludeLaunchDescription(LaunchDescription([DeclareLaunchArgument("x")]))
    assert run(include)[0] == 1
    assert "missing required argument 'x'" in capfd.readouterr().out
    assert run(include, x="1")[0] == 0


def test_show_args_reads_like_the_real_tool():
    description = LaunchDescription(
        [
            DeclareLaunchArgument("world", default_value="flat", description="World to use"),
            DeclareLaunchArgument("robot", description="The robot.", choices=["go1", "go2"]),
            GroupAction(
                [DeclareLaunchArgument("bag", default_value=["a", LaunchConfiguration("world")])],
                condition=IfCondition("false"),
            ),
        ]
    )
    assert launch_description_text.arguments(description).splitlines() == [
        "Arguments (pass arguments as '<name>:=<value>'):",
        "",
        "    'world':",
        "        World to use",
        "        (default: 'flat')",
        "",
        "    'robot':",
        "        The robot. Valid choices are: ['go1', 'go2']",
        "",
        "    'bag':*",
        "        no description given",
        "        (default: 'a' + LaunchConfiguration('world'))",
        "",
        "* argument(s) which are only used if specific conditions occur",
    ]


@pytest.mark.parametrize(("text", "expected"), [("true", True), ("1", True), ("False", False)])
def test_conditions_read_booleans(text, expected):
    context = LaunchContext()
    assert IfCondition(text).evaluate(context) is expected
    assert UnlessCondition(text).evaluate(context) is not expected


def test_a_condition_that_is_no_boolean_is_refused(capfd):
    assert run(LogInfo(msg="hidden", condition=IfCondition("maybe")))[0] == 1
    assert "got 'maybe'" in capfd.readouterr().out


def test_substitutions_evaluate_when_the_launch_runs():
    context = LaunchContext()
    context.launch_configurations["a"] = "x"
    context.environment["WHERE"] = "here"
    assert perform_substitutions(context, ["<", LaunchConfiguration("a"), ">"]) == "<x>"
    assert LaunchConfiguration("b", default="d").perform(context) == "d"
    assert EnvironmentVariable("WHERE").perform(context) == "here"
    assert EnvironmentVariable("NOT_SET_", default_value="d").perform(context) == "d"
    assert PathJoinSubstitution([TextSubstitution(text="/p"), "q"]).perform(context) == "/p/q"
    assert EqualsSubstitution(LaunchConfiguration("a"), "x").perform(context) == "true"
    assert NotSubstitution("true").perform(context) == "false"
    with pytest.raises(RuntimeError, match="launch configuration 'b' does not exist"):
        LaunchConfiguration("b").perform(context)


def test_what_a_group_sets_ends_with_the_group():
    seen: list[str] = []
    group = GroupAction(
        [
            SetLaunchConfiguration("x", "inside"),
            SetEnvironmentVariable("IN_GROUP_", "1"),
            configuration("x", seen),
        ]
    )
    code, context = run(group, configuration("x", seen), x="outside")
    assert code == 0
    assert seen == ["inside", "outside"]
    assert "IN_GROUP_" not in context.environment


def test_an_included_file_knows_its_directory_and_its_arguments(tmp_path):
    file = tmp_path / "inner.launch.py"
    file.write_text(
        "from launch import LaunchDescription\n"
        "from launch.actions import DeclareLaunchArgument, SetLaunchConfiguration\n"
        "from launch.substitutions import LaunchConfiguration, ThisLaunchFileDir\n"
        "def generate_launch_description():\n"
        "    return LaunchDescription([\n"
        "        DeclareLaunchArgument('x'),\n"
        "        SetLaunchConfiguration('result',\n"
        "                               [ThisLaunchFileDir(), LaunchConfiguration('x')]),\n"
        "    ])\n"
    )
    source = PythonLaunchDescriptionSource([str(tmp_path), "/inner.launch.py"])
    seen: list[str] = []
    include = IncludeLaunchDescription(source, launch_arguments=[("x", "!")])
    assert run(include, configuration("result", seen))[0] == 0
    assert seen == [f"{tmp_path}!"]
    with pytest.raises(RuntimeError):
        ThisLaunchFileDir().perform(LaunchContext())


def test_an_error_in_a_launch_file_is_one_line_and_status_1(tmp_path, capfd):
    file = tmp_path / "broken.launch.py"
    file.write_text("raise ValueError('no such robot')\n")
    assert run(IncludeLaunchDescription(PythonLaunchDescriptionSource(str(file))))[0] == 1
    out = capfd.readouterr().out
    assert "no such robot" in out
    assert "Traceback" not in out


def test_shutdown_cancels_timers_and_runs_its_handlers():
    seen: list[str] = []
    code, _ = run(
        RegisterEventHandler(OnShutdown(on_shutdown=[configuration("x", seen)])),
        TimerAction(period=3600.0, actions=[SetLaunchConfiguration("x", "too late")]),
        TimerAction(period=0.01, actions=[Shutdown(reason="enough")]),
        x="in time",
    )
    assert code == 0
    assert seen == ["in time"]


def test_what_is_not_supported_names_the_way_out():
    with pytest.raises(ImportError, match="needs a full ROS 2 installation"):
        from launch.substitutions import PythonExpression  # noqa: F401
    with pytest.raises(NotImplementedError, match="needs a full ROS 2 installation"):
        Node(executable="x", emulate_tty=True)
    with pytest.raises(NotImplementedError, match="cached_output"):
        Node(executable="x", cached_output=True)


def test_a_node_gets_its_name_namespace_parameters_and_remappings():
    node = Node(
        executable="/bin/true",
        name="planner",
        namespace="arm",
        arguments=["--fast"],
        remappings=[("odom", "state/odom")],
        parameters=[
            {
                "rate": LaunchConfiguration("rate"),
                "text": "25",
                "forced": ParameterValue(LaunchConfiguration("rate"), value_type=str),
                "gains": {"kp": [1, 2.5]},
            }
        ],
    )
    commands: list[list[str]] = []

    def build(context: LaunchContext) -> None:
        commands.append(node.build_command(context))

    group = GroupAction(
        [
            PushRosNamespace("go1"),
            SetParameter("use_sim_time", True),
            OpaqueFunction(function=build),
        ]
    )
    code, context = run(group, rate="25")
    assert code == 0
    (command,) = commands
    assert command[:3] == ["/bin/true", "--fast", "--ros-args"]
    assert "__node:=planner" in command
    assert "__ns:=/go1/arm" in command
    assert "odom:=state/odom" in command
    files = [
        yaml.safe_load(Path(value).read_text())
        for flag, value in pairwise(command)
        if flag == "--params-file"
    ]
    assert files == [
        {"/go1/arm/planner": {"ros__parameters": {"use_sim_time": True}}},
        {
            "/go1/arm/planner": {
                "ros__parameters": {
                    "rate": 25,
                    "text": "25",
                    "forced": "25",
                    "gains.kp": [1.0, 2.5],
                }
            }
        },
    ]
    assert context.ros_parameters == {}
    node.clean_up()
    assert not any(Path(value).exists() for value in command if value.endswith(".yaml"))


def test_a_missing_parameter_file_is_refused_before_the_node_starts(capfd):
    node = Node(executable="/bin/true", parameters=["/no/such/file.yaml"])
    assert run(node)[0] == 1
    out = capfd.readouterr().out
    assert "parameter file '/no/such/file.yaml' does not exist" in out
    assert "process started" not in out
