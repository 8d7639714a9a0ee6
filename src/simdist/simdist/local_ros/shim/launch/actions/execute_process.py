"""Processes of the launch: start, output, respawn, and the way they are stopped."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import subprocess
from collections.abc import Iterable, Mapping
from typing import IO, TYPE_CHECKING, Any

from .. import child_process
from ..action import Action
from ..condition import Condition
from ..conditions import evaluate_condition_expression
from ..event_handler import Reaction, react
from ..events.process import ProcessExited, ProcessIO, ProcessStarted
from ..substitution import SomeSubstitutionsType, perform_substitutions
from ..unsupported import NeedsFullRos, refuse_options

if TYPE_CHECKING:
    from ..launch_context import LaunchContext

# What reaches the screen, for standard output and standard error, as in real launch.
SCREEN = {
    "screen": (True, True),
    "both": (True, True),
    "full": (True, True),
    "log": (False, True),
    "own_log": (False, False),
}
# Polling of what a process left in its group; there is no event for the end of a group.
GROUP_POLL = 0.02
# Seconds that the output of an ended process may still take to arrive.
LAST_OUTPUT = 1.0

Environment = Mapping[SomeSubstitutionsType, SomeSubstitutionsType]


class ExecuteProcess(Action):
    """Runs a command and shows its output line by line under `[name-N]`."""

    def __init__(
        self,
        *,
        cmd: Iterable[SomeSubstitutionsType],
        name: SomeSubstitutionsType | None = None,
        prefix: SomeSubstitutionsType | None = None,
        cwd: SomeSubstitutionsType | None = None,
        env: Environment | None = None,
        additional_env: Environment | None = None,
        shell: bool = False,
        output: SomeSubstitutionsType = "log",
        on_exit: Reaction | None = None,
        respawn: bool | SomeSubstitutionsType = False,
        respawn_delay: float | None = None,
        respawn_max_retries: int = -1,
        sigterm_timeout: SomeSubstitutionsType = "5",
        sigkill_timeout: SomeSubstitutionsType = "5",
        emulate_tty: bool = False,
        condition: Condition | None = None,
        **unsupported: Any,
    ) -> None:
        super().__init__(condition=condition)
        refuse_options(type(self).__name__, unsupported)
        if emulate_tty:
            raise NeedsFullRos(f"{type(self).__name__}(emulate_tty=True)")
        self._cmd = list(cmd)
        self._name = name
        self._prefix = prefix
        self._cwd = cwd
        self._env = env
        self._additional_env = additional_env or {}
        self._shell = shell
        self._output = output
        self._on_exit = on_exit
        self._respawn = respawn
        self._respawn_delay = respawn_delay or 0.0
        self._respawn_max_retries = respawn_max_retries
        self._sigterm_timeout = sigterm_timeout
        self._sigkill_timeout = sigkill_timeout

        # Known once the action has been executed.
        self._context: LaunchContext | None = None
        self._screen = (True, True)
        self._timeouts = (5.0, 5.0)
        self._process: subprocess.Popen[bytes] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stop_requested = False
        self.process_details: dict[str, Any] | None = None
        self.return_code: int | None = None

    def build_command(self, context: LaunchContext) -> list[str]:
        """Return the command line; subclasses add what they know."""
        return [perform_substitutions(context, part) for part in self._cmd]

    def clean_up(self) -> None:
        """Called when the action is over and will not respawn."""

    def execute(self, context: LaunchContext) -> None:
        if context.is_shutdown:
            return
        if self._context is not None:
            raise RuntimeError(f"{type(self).__name__} action executed more than once: {self._cmd}")
        self._context = context
        try:
            respawn = self._prepare(context)
        except BaseException:
            self.clean_up()
            raise
        context.service.add_process(self)
        context.service.start_task(self._supervise(context, respawn))

    def stop(self) -> None:
        """Ask the process to end: SIGINT, then SIGTERM, then SIGKILL. Also ends respawning."""
        self._stop_requested = True
        if self._process is not None and self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._escalate(self._process))

    def send_signal(self, number: signal.Signals) -> None:
        """Signal the process and what it started in its process group."""
        if self._process is not None and self._context is not None:
            name = self._name_shown
            self._report("INFO", f"sending signal '{number.name}' to process[{name}]")
            child_process.signal_group(self._process.pid, number)

    def _prepare(self, context: LaunchContext) -> bool:
        """Evaluate everything the process needs; return whether it respawns."""
        command = self.build_command(context)
        if not command:
            raise ValueError(f"{type(self).__name__} has an empty command")
        base = os.path.basename(shlex.split(command[0])[0] if self._shell else command[0])
        if self._name is not None:
            base = perform_substitutions(context, self._name)
        if self._prefix is not None:
            command = shlex.split(perform_substitutions(context, self._prefix)) + command
        self._timeouts = (
            float(perform_substitutions(context, self._sigterm_timeout)),
            float(perform_substitutions(context, self._sigkill_timeout)),
        )
        self._screen = self._evaluate_output(context)
        self.process_details = {
            "name": context.service.next_process_name(base),
            "cmd": command,
            "cwd": None if self._cwd is None else perform_substitutions(context, self._cwd),
            "env": self._evaluate_environment(context),
            "pid": None,
        }
        if isinstance(self._respawn, bool):
            return self._respawn
        return evaluate_condition_expression(context, self._respawn)

    @property
    def _name_shown(self) -> str:
        assert self.process_details is not None
        return self.process_details["name"]

    def _report(self, level: str, message: str) -> None:
        assert self._context is not None
        self._context.service.console.report(level, self._name_shown, message)

    def _event_details(self) -> dict[str, Any]:
        assert self.process_details is not None
        details = self.process_details
        return {
            "action": self,
            "name": details["name"],
            "cmd": details["cmd"],
            "pid": details["pid"],
        }

    def _evaluate_output(self, context: LaunchContext) -> tuple[bool, bool]:
        output = os.environ.get("OVERRIDE_LAUNCH_PROCESS_OUTPUT")
        if not output:
            if isinstance(self._output, Mapping):
                raise NeedsFullRos("output as a dictionary")
            output = perform_substitutions(context, self._output)
        if output not in SCREEN:
            raise ValueError(f"output '{output}' is not one of {', '.join(sorted(SCREEN))}")
        return SCREEN[output]

    def _evaluate_environment(self, context: LaunchContext) -> dict[str, str]:
        def evaluate(pairs: Environment) -> dict[str, str]:
            return {
                perform_substitutions(context, name): perform_substitutions(context, value)
                for name, value in pairs.items()
            }

        base = dict(context.environment) if self._env is None else evaluate(self._env)
        return {**base, **evaluate(self._additional_env)}

    async def _supervise(self, context: LaunchContext, respawn: bool) -> None:
        """Run the process, and again if it is to respawn, until it is over."""
        try:
            tries = 0
            while not self._stop_requested:
                code = await self._run_once(context)
                exited = ProcessExited(returncode=code, **self._event_details())
                context.service.emit_event(exited)
                context.service.visit(react(self._on_exit, exited, context))
                retry = self._respawn_max_retries < 0 or tries < self._respawn_max_retries
                if self._stop_requested or not (respawn and retry):
                    return
                tries += 1
                if not await context.service.sleep_unless_shutdown(self._respawn_delay):
                    return
        finally:
            context.service.remove_process(self)
            self.clean_up()

    async def _run_once(self, context: LaunchContext) -> int:
        assert self.process_details is not None
        details = self.process_details
        try:
            process = child_process.start(
                details["cmd"],
                shell=self._shell,
                environment=details["env"],
                directory=details["cwd"],
            )
        except OSError as error:
            raise RuntimeError(f"cannot start {shlex.join(details['cmd'])}: {error}") from error
        group = process.pid
        context.service.guardian.add(group)
        self._process = process
        details["pid"] = process.pid
        self._report("INFO", f"process started with pid [{process.pid}]")
        context.service.emit_event(ProcessStarted(**self._event_details()))
        readers = [
            asyncio.create_task(self._forward(context, pipe, descriptor))
            for pipe, descriptor in ((process.stdout, 1), (process.stderr, 2))
        ]
        if self._stop_requested:
            self.stop()
        code = await child_process.wait(process)
        await self._end_leftovers(group)
        await self._finish_output(readers)
        self._process = None
        if self._stopping is not None:
            self._stopping.cancel()
        context.service.guardian.remove(group)
        self.return_code = code
        if code == 0:
            self._report("INFO", f"process has finished cleanly [pid {process.pid}]")
        else:
            command = " ".join(details["cmd"])
            self._report(
                "ERROR",
                f"process has died [pid {process.pid}, exit code {code}, cmd '{command}'].",
            )
        return code

    async def _forward(
        self, context: LaunchContext, pipe: IO[bytes] | None, descriptor: int
    ) -> None:
        """Show whole lines; a line longer than the buffer is shown in pieces."""
        screen = self._screen[descriptor - 1]
        stream, transport = await child_process.open_stream(pipe)
        try:
            while text := await read_line(stream):
                line = text.decode(errors="replace").rstrip("\r\n")
                context.service.console.line(f"[{self._name_shown}] {line}", screen=screen)
                context.service.emit_event(
                    ProcessIO(text=text, fd=descriptor, **self._event_details())
                )
        finally:
            transport.close()

    async def _escalate(self, process: subprocess.Popen[bytes]) -> None:
        sigterm, sigkill = self._timeouts
        self.send_signal(signal.SIGINT)
        for timeout, waited, sent, following in (
            (sigterm, sigterm, signal.SIGINT, signal.SIGTERM),
            (sigkill, sigterm + sigkill, signal.SIGTERM, signal.SIGKILL),
        ):
            await asyncio.sleep(timeout)
            if process.returncode is not None:
                return
            self._report(
                "ERROR",
                f"process[{self._name_shown}] failed to terminate '{waited:g}' seconds after "
                f"receiving '{sent.name}', escalating to '{following.name}'",
            )
            self.send_signal(following)

    async def _end_leftovers(self, group: int) -> None:
        """End what the process started and left behind in its group."""
        if not child_process.group_is_alive(group):
            return
        child_process.signal_group(group, signal.SIGTERM)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeouts[1]
        while child_process.group_is_alive(group):
            if loop.time() > deadline:
                child_process.signal_group(group, signal.SIGKILL)
                return
            await asyncio.sleep(GROUP_POLL)

    async def _finish_output(self, readers: list[asyncio.Task[None]]) -> None:
        """Show the last lines; do not wait for a daemon that kept the pipe and left the group."""
        _, waiting = await asyncio.wait(readers, timeout=LAST_OUTPUT)
        for reader in waiting:
            reader.cancel()


async def read_line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line with its end, or a piece of one that is too long; b'' at the end."""
    try:
        return await stream.readuntil(b"\n")
    except asyncio.IncompleteReadError as error:
        return error.partial
    except asyncio.LimitOverrunError as error:
        return await stream.read(max(error.consumed, 1))
