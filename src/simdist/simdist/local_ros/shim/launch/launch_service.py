"""The event loop of a launch: visits entities, handles events, stops processes."""

from __future__ import annotations

import asyncio
import signal
import traceback
from collections.abc import Coroutine, Iterable
from typing import TYPE_CHECKING, Any

from .child_process import Guardian
from .console import Console
from .event import Event
from .events import Shutdown
from .events.process import ShutdownProcess, SignalProcess
from .launch_context import LaunchContext
from .launch_description_entity import LaunchDescriptionEntity

if TYPE_CHECKING:
    from .actions.execute_process import ExecuteProcess
    from .event_handler import SomeEntitiesType
    from .launch_description import LaunchDescription

INTERRUPTED = "user interrupted with ctrl-c (SIGINT)"


class LaunchService:
    """Runs launch descriptions until everything has ended or a shutdown is asked for."""

    def __init__(
        self,
        *,
        argv: Iterable[str] | None = None,
        noninteractive: bool = False,
        debug: bool = False,
    ) -> None:
        self.context = LaunchContext(argv=argv, noninteractive=noninteractive)
        self.context.attach(self)
        self.console = Console()
        self.guardian = Guardian()
        self._debug = debug
        self._descriptions: list[LaunchDescription] = []
        self._events: list[Event] = []
        self._wake = asyncio.Event()
        self._shut_down = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._processes: list[ExecuteProcess] = []
        self._process_count = 0
        self._interrupts = 0
        self._return_code = 0

    def include_launch_description(self, launch_description: LaunchDescription) -> None:
        self._descriptions.append(launch_description)

    def run(self, *, shutdown_when_idle: bool = True) -> int:
        """Run until the end; return 1 if the description or a handler raised, else 0."""
        return asyncio.run(self.run_async(shutdown_when_idle=shutdown_when_idle))

    async def run_async(self, *, shutdown_when_idle: bool = True) -> int:
        loop = asyncio.get_running_loop()
        signals = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP)
        for number in signals:
            loop.add_signal_handler(number, self._on_signal, number)
        try:
            self.console.report(
                "INFO", "launch", f"All log files can be found below {self.console.log_directory}"
            )
            self.console.report("INFO", "launch", "Default logging verbosity is set to INFO")
            for description in self._descriptions:
                self._guarded_visit(description)
            await self._process_events(shutdown_when_idle)
        finally:
            for number in signals:
                loop.remove_signal_handler(number)
            self.guardian.close()
            self.console.close()
        return self._return_code

    def shutdown(self, reason: str = "LaunchService.shutdown() called") -> None:
        """Ask for the end of the launch; may be called from a running action or handler."""
        self.emit_event(Shutdown(reason=reason))

    def emit_event(self, event: Event) -> None:
        """Queue `event` behind those already waiting."""
        self._events.append(event)
        self._wake.set()

    def visit(self, entities: SomeEntitiesType | None) -> None:
        """Visit entities, and what they return, depth first and in order."""
        if entities is None:
            return
        if isinstance(entities, LaunchDescriptionEntity):
            self.visit(entities.visit(self.context))
            return
        for entity in entities:
            if not isinstance(entity, LaunchDescriptionEntity):
                raise TypeError(f"expected a launch description entity, got {entity!r}")
            self.visit(entity)

    def start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run `work` beside the event loop; the launch does not end before it does."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    async def sleep_unless_shutdown(self, seconds: float) -> bool:
        """Sleep; return False, at once, if the launch is shut down instead."""
        try:
            await asyncio.wait_for(self._shut_down.wait(), seconds)
        except TimeoutError:
            return True
        return False

    def next_process_name(self, base: str) -> str:
        """Return the unique `name-N` under which a process is shown."""
        self._process_count += 1
        return f"{base}-{self._process_count}"

    def add_process(self, process: ExecuteProcess) -> None:
        self._processes.append(process)

    def remove_process(self, process: ExecuteProcess) -> None:
        self._processes.remove(process)

    def fail(self, error: BaseException) -> None:
        """Report an error of the launch itself, shut down, and make the exit status 1."""
        self.console.report(
            "ERROR", "launch", f"Caught exception in launch (see debug for traceback): {error}"
        )
        if self._debug:
            for line in traceback.format_exception(error):
                self.console.line(line.rstrip("\n"))
        self._return_code = 1
        self.emit_event(Shutdown(reason=f"Caught exception in launch: {error}"))

    def _guarded_visit(self, entities: SomeEntitiesType | None) -> None:
        # Launch files are other people's code: whatever they raise must stop the processes.
        try:
            self.visit(entities)
        except Exception as error:
            self.fail(error)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self._wake.set()

    async def _process_events(self, shutdown_when_idle: bool) -> None:
        while True:
            while self._events:
                self._handle(self._events.pop(0))
            if not self._tasks:
                if self.context.is_shutdown:
                    return
                if shutdown_when_idle:
                    self.emit_event(Shutdown(reason="idle"))
                    continue
            self._wake.clear()
            await self._wake.wait()

    def _handle(self, event: Event) -> None:
        if isinstance(event, Shutdown):
            if self.context.is_shutdown:
                return
            self.context.is_shutdown = True
            self._shut_down.set()
        for handler in self.context.event_handlers:
            try:
                if handler.matches(event):
                    if handler.handle_once:
                        self.context.unregister_event_handler(handler)
                    self.visit(handler.handle(event, self.context))
            except Exception as error:
                self.fail(error)
        if isinstance(event, Shutdown):
            # Newest first: what was started last depends on what was started before it.
            for process in reversed(self._processes):
                process.stop()
        elif isinstance(event, ShutdownProcess):
            for process in self._matching(event):
                process.stop()
        elif isinstance(event, SignalProcess):
            for process in self._matching(event):
                process.send_signal(event.signal)

    def _matching(self, event: ShutdownProcess | SignalProcess) -> list[ExecuteProcess]:
        return [process for process in self._processes if event.process_matcher(process)]

    def _on_signal(self, number: signal.Signals) -> None:
        if number != signal.SIGINT:
            self.console.report("WARNING", "launch", f"received {number.name}, shutting down")
            self.emit_event(Shutdown(reason=number.name))
            return
        self._interrupts += 1
        again = " again, ignoring..." if self._interrupts > 1 else ""
        self.console.report("WARNING", "launch", INTERRUPTED + again)
        self.emit_event(Shutdown(reason="ctrl-c (SIGINT)", due_to_sigint=True))
