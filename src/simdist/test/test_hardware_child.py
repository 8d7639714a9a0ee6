"""The channel to a robot's SDK process: whole messages, and each side watches the other."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sdk_process import DAMPED, state

from simdist import robots
from simdist.errors import ConfigError
from simdist.hardware.channel import Channel, Kind, Layout
from simdist.hardware.child import ChildConfig, ChildLink
from simdist.hardware.link import LinkError, RobotState
from simdist.types import JointCommand

ROBOT = robots.get("go1")
#: The machine is shared: only tests of the watchdogs themselves use short limits.
CALM = ChildConfig(start_timeout=30.0, stall_after=0.2, damp_after=0.2)


def command(value: float) -> JointCommand:
    values = np.full(ROBOT.joint_count, value)
    return JointCommand(values, values, values, values, values)


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., ChildLink]]:
    monkeypatch.setenv(
        "PYTHONPATH", f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    )
    with contextlib.ExitStack() as links:

        def make(behaviour: str = "plain", config: ChildConfig = CALM) -> ChildLink:
            link = ChildLink(ROBOT, "sdk_process", [behaviour, str(tmp_path / "log")], config)
            links.callback(link.close)
            return link

        yield make


def until(link: ChildLink, wanted: Callable[[RobotState], bool], send: float | None) -> RobotState:
    """Poll, commanding ``send`` all the while, until a state is as wanted."""
    for _ in range(10_000):
        now_ns = time.monotonic_ns()
        if send is not None:
            link.send(command(send), now_ns)
        seen = link.poll(now_ns)
        if seen is not None and wanted(seen):
            return seen
        time.sleep(0.002)
    raise AssertionError("no such state came")


def text_when_log(path: Path, wanted: str) -> str:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and path.read_text() != wanted:
        time.sleep(0.01)
    return path.read_text()


def failure(link: ChildLink) -> str:
    """What polling at 500 Hz ends with."""
    with pytest.raises(LinkError) as caught:
        until(link, lambda seen: False, None)
    return str(caught.value)


# ---------------------------------------------------------------------- the channel


@given(st.lists(st.floats(-1e3, 1e3), min_size=12, max_size=12), st.integers(0, 2**63))
@settings(max_examples=30, deadline=None)
def test_states_and_commands_arrive_as_they_were_sent(values: list[float], sequence: int) -> None:
    layout = Layout(ROBOT)
    sent = state(sequence, values[0])
    came = layout.state(layout.pack_state(sent))
    assert (came.sequence, came.received_ns, came.battery) == (
        sent.sequence,
        sent.received_ns,
        sent.battery,
    )
    np.testing.assert_array_equal(came.joints.position, sent.joints.position)
    np.testing.assert_array_equal(came.imu.orientation, sent.imu.orientation)
    wanted = JointCommand(*(np.array(values) + i for i in range(5)))
    for name in ("position", "velocity", "kp", "kd", "effort"):
        back = getattr(layout.command(layout.pack_command(wanted)), name)
        np.testing.assert_array_equal(back, getattr(wanted, name))


def test_a_full_queue_drops_and_counts_instead_of_waiting() -> None:
    mine, theirs = Channel.pair()
    other = Channel(theirs)
    sent = [mine.send(Kind.ALIVE, i, bytes(800)) for i in range(200)]
    assert mine.dropped == sent.count(False) > 0
    first = [packet.sequence for packet in other.receive()]
    assert first == list(range(1, sent.count(True) + 1))
    mine.send(Kind.ALIVE, 0)
    other.receive()
    assert other.missed == mine.dropped


def test_last_words_are_heard_although_the_speaker_left_messages_unread() -> None:
    mine, theirs = Channel.pair()
    other = Channel(theirs)
    mine.send(Kind.COMMAND, 0, b"unread")
    other.send(Kind.REFUSED, 0, b"why")
    other.close()
    assert not mine.send(Kind.COMMAND, 0)
    assert mine.cut
    assert [packet.text for packet in mine.receive()] == ["why"]
    assert mine.ended


@pytest.mark.parametrize("message", [b"short", bytes(64)])
def test_a_message_of_another_version_is_refused(message: bytes) -> None:
    mine, theirs = Channel.pair()
    theirs.send(message)
    with pytest.raises(LinkError):
        mine.receive()


def test_a_state_of_another_robot_is_refused() -> None:
    with pytest.raises(LinkError, match="different robots"):
        Layout(ROBOT).state(b"123")


# ---------------------------------------------------------------------- the process


def test_commands_go_out_and_states_come_in(start: Callable[..., ChildLink]) -> None:
    link = start()
    seen = until(link, lambda s: s.joints.position[0] == 0.25, send=0.25)
    assert (seen.joints.position == 0.25).all()
    assert seen.foot_force.tolist() == [0.25] * 4
    assert link.take_notes() == ["ready"]


def test_a_silent_driver_damps_the_robot(start: Callable[..., ChildLink]) -> None:
    link = start()
    until(link, lambda s: s.joints.position[0] == 0.25, send=0.25)
    assert until(link, lambda s: s.joints.position[0] == DAMPED, send=None)
    assert until(link, lambda s: s.joints.position[0] == 0.5, send=0.5)


def test_a_driver_that_ends_leaves_a_damped_robot_and_no_process(
    start: Callable[..., ChildLink], tmp_path: Path
) -> None:
    link = start()
    until(link, lambda s: s.joints.position[0] == 0.25, send=0.25)
    link.close()
    assert (tmp_path / "log").read_text() == "ended damped"
    with pytest.raises(ProcessLookupError):
        os.kill(link.pid, 0)
    link.close()


def test_a_killed_child_is_reported_at_the_next_poll(start: Callable[..., ChildLink]) -> None:
    link = start()
    until(link, lambda s: True, send=None)
    os.kill(link.pid, signal.SIGKILL)
    os.waitid(os.P_PID, link.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(LinkError, match="SIGKILL"):
        link.poll(time.monotonic_ns())


def test_a_killed_child_is_reported_to_who_sends(start: Callable[..., ChildLink]) -> None:
    link = start()
    os.kill(link.pid, signal.SIGKILL)
    os.waitid(os.P_PID, link.pid, os.WEXITED | os.WNOWAIT)
    with pytest.raises(LinkError, match="SIGKILL"):
        link.send(command(0.0), time.monotonic_ns())


def test_a_stopped_child_is_reported_at_the_first_poll_past_the_limit(
    start: Callable[..., ChildLink],
) -> None:
    link = start()
    until(link, lambda s: True, send=None)
    os.kill(link.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, link.pid, os.WSTOPPED | os.WNOWAIT)
    # The last message came before the child stopped; from here on time is virtual.
    stopped_ns = time.monotonic_ns()
    polls = itertools.count(stopped_ns, 2_000_000)

    def poll_on() -> None:
        for now_ns in itertools.islice(polls, 1000):
            link.poll(now_ns)

    with pytest.raises(LinkError, match="silent for"):
        poll_on()
    assert next(polls) - stopped_ns <= CALM.stall_after * 1e9 + 2 * 2_000_000


def test_a_driver_that_was_away_does_not_accuse_the_child(start: Callable[..., ChildLink]) -> None:
    link = start()
    until(link, lambda s: True, send=None)
    time.sleep(2 * CALM.stall_after)
    assert until(link, lambda s: s.age_ns(time.monotonic_ns()) < 2e8, send=None)


def test_a_silent_robot_is_not_a_stalled_child(start: Callable[..., ChildLink]) -> None:
    link = start("silent_robot")
    for _ in range(100):
        assert link.poll(time.monotonic_ns()) is None
        time.sleep(0.005)


def test_the_childs_refusal_reaches_the_user(start: Callable[..., ChildLink]) -> None:
    with pytest.raises(LinkError, match="interface 'eth9' does not exist; available: lo"):
        start("refuse")


def test_a_child_that_never_gets_ready_is_given_up(start: Callable[..., ChildLink]) -> None:
    with pytest.raises(LinkError, match=r"not ready within 0\.5 s"):
        start("mute", ChildConfig(start_timeout=0.5, end_timeout=0.2))


def test_an_sdk_that_cannot_be_imported_is_reported() -> None:
    with pytest.raises(LinkError, match="exit code 1"):
        ChildLink(ROBOT, "simdist.no_such_module", [], CALM)


def test_a_killed_driver_takes_its_child_along_damped(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import sys, time; from simdist import robots\n"
        "from simdist.hardware.child import ChildLink\n"
        f"link = ChildLink(robots.get('go1'), 'sdk_process', ['plain', {str(log)!r}])\n"
        "print(link.pid, flush=True); time.sleep(60)"
    )
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": f"{here}:{os.environ.get('PYTHONPATH', '')}"}
    driver = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment, text=True
    )
    assert driver.stdout is not None
    assert int(driver.stdout.readline()) > 0
    driver.kill()
    driver.wait()
    assert text_when_log(log, "ended damped") == "ended damped"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1.0])
def test_no_watchdog_can_be_switched_off(value: float) -> None:
    with pytest.raises(ConfigError):
        ChildConfig(stall_after=value)
    with pytest.raises(ConfigError):
        ChildConfig(damp_after=value)
