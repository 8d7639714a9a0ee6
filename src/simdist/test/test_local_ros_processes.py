"""The launch stand-in with real processes: output, exit status, and that nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from local_ros_support.processes import (
    ROS2,
    environment,
    is_running,
    launched,
    real_launch_is_installed,
    wait_for,
)

pytestmark = pytest.mark.skipif(real_launch_is_installed(), reason="the real launch is installed")

HEADER = """
import sys
from launch import LaunchDescription
from launch.actions import *
from launch.event_handlers import OnProcessExit, OnProcessStart
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node

def python(code, **options):
    return ExecuteProcess(cmd=[sys.executable, '-S', '-u', '-c', code], output='screen', **options)

def generate_launch_description():
    return LaunchDescription([{entities}])
"""

# Ends in order on SIGINT, and says how often it was asked to.
POLITE = """
import os, signal, time
count = 0
def handle(number, frame):
    global count
    count += 1
signal.signal(signal.SIGINT, handle)
print('pid', os.getpid(), flush=True)
while not count:
    time.sleep(0.01)
time.sleep(0.3)
print('asked', count, 'times', flush=True)
"""

# Ignores SIGINT and SIGTERM, and has a child that does the same.
STUBBORN = """
import os, signal, time
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
child = os.fork()
os.write(1, f"{'parent' if child else 'child'} pid {os.getpid()}\\n".encode())
while True:
    time.sleep(1)
"""

# Writes each line in pieces of one character.
SLOW_WRITER = """
import sys
for i in range(200):
    for character in 40 * '{letter}' + chr(10):
        sys.stdout.write(character)
"""


def write(directory: Path, entities: str) -> Path:
    file = directory / "test.launch.py"
    file.write_text(HEADER.replace("{entities}", entities))
    return file


def pids(output: str) -> list[int]:
    return [int(pid) for pid in re.findall(r"\] (?:child |parent )?pid (\d+)", output)]


def run_to_end(directory: Path, entities: str, *arguments: str) -> tuple[int, str]:
    with launched(write(directory, entities), directory, *arguments) as run:
        return run.finish(), run.output


def test_lines_carry_the_name_of_their_process_and_the_exit_is_reported(tmp_path):
    code, output = run_to_end(
        tmp_path,
        "python('print(\"one\"); import sys; print(\"two\", file=sys.stderr)', name='talker'),"
        "python('raise SystemExit(3)', name='loser')",
    )
    assert code == 0, "a process that fails does not make the launch fail"
    assert re.search(r"^\[INFO\] \[talker-1\]: process started with pid \[\d+\]$", output, re.M)
    assert re.search(r"^\[talker-1\] one$", output, re.M)
    assert re.search(r"^\[talker-1\] two$", output, re.M)
    assert re.search(
        r"^\[INFO\] \[talker-1\]: process has finished cleanly \[pid \d+\]$", output, re.M
    )
    assert re.search(
        r"^\[ERROR\] \[loser-2\]: process has died \[pid \d+, exit code 3, cmd '.*'\]\.$",
        output,
        re.M,
    )


def test_output_of_two_processes_is_not_mixed_within_a_line(tmp_path):
    code, output = run_to_end(
        tmp_path, ", ".join(f"python({SLOW_WRITER.format(letter=letter)!r})" for letter in "ab")
    )
    assert code == 0
    lines = [line for line in output.splitlines() if re.match(r"\[python", line)]
    assert len(lines) == 400
    assert {line.split("] ")[1] for line in lines} == {40 * "a", 40 * "b"}


def test_output_log_shows_only_standard_error(tmp_path):
    _, output = run_to_end(
        tmp_path,
        "ExecuteProcess(cmd=['sh', '-c', 'echo quiet; echo loud >&2'], output='log')",
    )
    assert "[sh-1] loud" in output
    assert "[sh-1] quiet" not in output


def test_a_bad_value_starts_nothing_and_exits_with_1(tmp_path):
    code, output = run_to_end(
        tmp_path,
        "DeclareLaunchArgument('robot', choices=['go1']), python('print(1)')",
        "robot:=cat",
    )
    assert code == 1
    assert "process started" not in output
    assert "Traceback" not in output


def test_a_missing_executable_ends_the_launch_with_1(tmp_path):
    code, output = run_to_end(
        tmp_path, f"python({POLITE!r}), ExecuteProcess(cmd=['/no/such/program'])"
    )
    assert code == 1
    assert "/no/such/program" in output
    assert not any(is_running(pid) for pid in pids(output))


def test_the_exit_of_one_process_can_end_the_launch(tmp_path):
    code, output = run_to_end(
        tmp_path,
        f"python({POLITE!r}), python('pass', name='main', on_exit=Shutdown(reason='done'))",
    )
    assert code == 0
    assert "[INFO] [main-2]: process has finished cleanly" in output


def test_event_handlers_start_what_follows(tmp_path):
    code, output = run_to_end(
        tmp_path,
        "first := python('print(\"first\")'),"
        "RegisterEventHandler(OnProcessExit(target_action=first,"
        " on_exit=[python('print(\"second\")')]))",
    )
    assert code == 0
    assert output.index("] first") < output.index("] second")


def test_respawn_starts_again_as_often_as_allowed(tmp_path):
    code, output = run_to_end(
        tmp_path, "python('raise SystemExit(1)', respawn=True, respawn_max_retries=2)"
    )
    assert code == 0
    assert output.count("process started") == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_launch_ends_the_children_in_order(tmp_path, number):
    with launched(write(tmp_path, f"python({POLITE!r})"), tmp_path) as run:
        run.wait_for_output("] pid")
        os.kill(run.process.pid, number)
        assert run.finish() == 0
        assert "asked 1 times" in run.output
        assert "process has finished cleanly" in run.output


def test_ctrl_c_reaches_a_child_once_and_a_second_one_is_ignored(tmp_path):
    with launched(write(tmp_path, f"python({POLITE!r})"), tmp_path) as run:
        run.wait_for_output("] pid")
        run.press_ctrl_c()
        run.wait_for_output("user interrupted with ctrl-c (SIGINT)")
        run.press_ctrl_c()
        assert run.finish() == 0
        assert "asked 1 times" in run.output
        assert "ctrl-c (SIGINT) again, ignoring..." in run.output


def test_a_stubborn_process_and_its_child_are_killed(tmp_path):
    entities = f"python({STUBBORN!r}, sigterm_timeout='0.2', sigkill_timeout='0.2')"
    with launched(write(tmp_path, entities), tmp_path) as run:
        run.wait_for_output("child pid")
        run.wait_for_output("parent pid")
        run.press_ctrl_c()
        assert run.finish() == 0
        assert "escalating to 'SIGTERM'" in run.output
        assert "escalating to 'SIGKILL'" in run.output
        assert len(pids(run.output)) == 2
        assert not any(is_running(pid) for pid in pids(run.output))


def test_what_a_process_leaves_behind_is_ended_with_it(tmp_path):
    code, output = run_to_end(
        tmp_path, "ExecuteProcess(cmd=['sh', '-c', 'sleep 1000 & echo pid $!'], output='screen')"
    )
    assert code == 0
    assert not any(is_running(pid) for pid in pids(output))


def test_no_child_outlives_a_killed_launch(tmp_path):
    entities = f"python({POLITE!r}), python({STUBBORN!r})"
    with launched(write(tmp_path, entities), tmp_path) as run:
        for text in ("[python3-1] pid", "child pid", "parent pid"):
            run.wait_for_output(text.replace("python3", Path(sys.executable).name))
        run.process.kill()
        run.finish()
        children = pids(run.output)
        assert len(children) == 3
        wait_for(lambda: not any(is_running(pid) for pid in children), "the children to end")


def test_parameter_files_are_gone_after_the_launch(tmp_path):
    script = tmp_path / "node.sh"
    script.write_text('#!/bin/sh\nfor a in "$@"; do case $a in *.yaml) echo file $a;; esac; done\n')
    script.chmod(0o755)
    code, output = run_to_end(
        tmp_path, f"Node(executable={str(script)!r}, output='screen', parameters=[dict(a=1)])"
    )
    assert code == 0
    (file,) = re.findall(r"file (\S+\.yaml)", output)
    assert not Path(file).exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["launch", "no_such_package", "x.launch.py"], "Package 'no_such_package' not found"),
        (["run", "no_such_package", "x"], "Package 'no_such_package' not found"),
        (["run", "ament_index_python", "no_such_executable"], "No executable found"),
        (["pkg", "prefix", "no_such_package"], "Package not found"),
    ],
)
def test_unknown_names_are_one_line_and_status_1(tmp_path, arguments, message):
    pytest.importorskip("ament_index_python")
    result = subprocess.run(
        [*ROS2, *arguments], capture_output=True, text=True, env=environment(tmp_path)
    )
    assert result.returncode == 1
    assert result.stderr == message + "\n"


def test_a_malformed_argument_is_refused(tmp_path):
    code, output = run_to_end(tmp_path, "python('print(1)')", "world=flat")
    assert code == 1
    assert output == ("malformed launch argument 'world=flat', expected format '<name>:=<value>'\n")


def test_a_reader_that_went_away_is_no_error(tmp_path):
    pytest.importorskip("ament_index_python")
    command = subprocess.list2cmdline([*ROS2, "pkg", "list"])
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | true"],
        capture_output=True,
        text=True,
        env=environment(tmp_path),
    )
    assert (result.returncode, result.stderr) == (0, "")
