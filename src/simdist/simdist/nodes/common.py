"""What every node needs: a clean start, a clean end, and a steady clock."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Protocol

import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions

from simdist.errors import SimdistError
from simdist.nodes.parameters import refuse_ignored_parameters

#: Exit status after an error that starting again would only repeat.
REFUSED = 1
#: Exit status after an error of the program itself.
CRASHED = 70


class EndedEarly(Exception):
    """The process was told to end while it was still getting ready."""


class Stop:
    """Whether the process was told to end (SIGINT or SIGTERM)."""

    def __init__(self) -> None:
        self.requested = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def sleep(self, seconds: float) -> None:
        """Sleep, for preparations in steps; raises EndedEarly when the process is to end."""
        time.sleep(seconds)
        if self.requested:
            raise EndedEarly

    def _on_signal(self, signal_number: int, frame: FrameType | None) -> None:
        self.requested = True


class GraphNode(Protocol):
    """A node of this package: made once around an rclpy node, then run until it is done."""

    def run(self, stop: Stop) -> int:
        """Work until ``stop`` is requested; the exit status."""
        ...

    def close(self) -> None:
        """Called at the end in any case, while messages can still be sent."""
        ...


class Spinner:
    """Handles messages on one thread; exceptions of callbacks reach the caller."""

    def __init__(self, node: Node) -> None:
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(node)

    def once(self, timeout: float = 0.0) -> None:
        """Handle one message, waiting for it up to ``timeout`` seconds."""
        self._executor.spin_once(timeout_sec=max(timeout, 0.0))


class Every:
    """True once per period of the steady clock; missed periods are not made up for."""

    def __init__(self, period: float) -> None:
        self._period = period
        self._next = time.monotonic() + period

    def __call__(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = max(self._next + self._period, now)
        return True


def run(name: str, make: Callable[[Node], GraphNode], argv: list[str] | None = None) -> int:
    """Run a node and return the exit status: 0 when it was told to end or is done.

    Errors that a user can mend are printed as one line (REFUSED); others leave their traceback
    (CRASHED), and launch files start the node again.
    """
    stop = Stop()
    # Our own signal handlers only: the graph has to outlive the signal, for the last messages.
    rclpy.init(args=argv, signal_handler_options=SignalHandlerOptions.NO)
    node: Node | None = None
    try:
        node = Node(name)
        graph_node = make(node)
        try:
            refuse_ignored_parameters(node, sys.argv if argv is None else argv)
            return graph_node.run(stop)
        finally:
            graph_node.close()
    except EndedEarly:
        return 0
    except SimdistError as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return REFUSED
    except Exception:
        traceback.print_exc()
        return CRASHED
    finally:
        if node is not None:
            node.destroy_node()
        rclpy.shutdown()


def spin(node: Node, stop: Stop, tick: Callable[[], object] | None = None) -> int:
    """Handle messages until told to stop; ``tick`` is called at least ten times a second."""
    spinner = Spinner(node)
    while not stop.requested:
        spinner.once(0.1)
        if tick is not None:
            tick()
    return 0
