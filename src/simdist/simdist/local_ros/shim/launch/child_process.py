"""Starting processes so that none can outlive the launch."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

PR_SET_PDEATHSIG = 1
ROS_WHEELS_GUARD = "_ROS_WHEELS_BOOTSTRAP_COMPLETE"
LINE_LIMIT = 1 << 20
POLL = 0.02

_libc = ctypes.CDLL(None, use_errno=True)


class Guardian:
    """Tells the guardian process which process groups live; starts it with the first one."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def add(self, group: int) -> None:
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(Path(__file__).with_name("guardian.py"))],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                text=True,
            )
        self._send(f"+{group}\n")

    def remove(self, group: int) -> None:
        self._send(f"-{group}\n")

    def close(self) -> None:
        """End the guardian and wait for it."""
        if self._process is not None:
            if self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()
            self._process.wait()
            self._process = None

    def _send(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        # Should it have been killed, the parent-death signal of each child still stands.
        with contextlib.suppress(OSError):
            self._process.stdin.write(line)
            self._process.stdin.flush()


def start(
    command: list[str], *, shell: bool, environment: Mapping[str, str], directory: str | None
) -> subprocess.Popen[bytes]:
    """Start `command` in a process group of its own, tied to the life of this process.

    A group of its own keeps a terminal's Ctrl-C from reaching the child a second time. The
    parent-death signal survives the exec that the ROS wheels' start-up does in each Python.
    """
    parent = os.getpid()

    def prepare() -> None:
        os.setpgid(0, 0)
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # the launch died before the call above took effect
            os._exit(1)

    return subprocess.Popen(
        ["/bin/sh", "-c", " ".join(command)] if shell else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=child_environment(environment),
        cwd=directory,
        preexec_fn=prepare,
    )


async def wait(process: subprocess.Popen[bytes]) -> int:
    """Wait for the process alone.

    asyncio's own subprocesses also wait for the end of the output, which a grandchild can hold.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # an old kernel
        while process.poll() is None:
            await asyncio.sleep(POLL)
        return process.wait()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
    return process.wait()


async def open_stream(
    pipe: IO[bytes] | None,
) -> tuple[asyncio.StreamReader, asyncio.ReadTransport]:
    """Return a reader for an output pipe, and the transport that has to be closed."""
    reader = asyncio.StreamReader(limit=LINE_LIMIT)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader, transport


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a child: unbuffered, and with a consistent wheel guard.

    The guard promises that LD_LIBRARY_PATH is complete; without that variable a child could not
    load the ROS libraries, so the guard has to go as well.
    """
    result = {"PYTHONUNBUFFERED": "1", **environment}
    if not result.get("LD_LIBRARY_PATH"):
        result.pop(ROS_WHEELS_GUARD, None)
    return result


def group_is_alive(group: int) -> bool:
    """Return whether a process of the group still runs; zombies do not count."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return any(_runs_in_group(stat, group) for stat in Path("/proc").glob("[0-9]*/stat"))


def _runs_in_group(stat: Path, group: int) -> bool:
    try:
        # pid (command) state ppid pgrp ...; the command may contain blanks and brackets
        state, _, pgrp = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
    except (OSError, ValueError):
        return False
    return int(pgrp) == group and state not in "ZX"


def signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
