"""The services of the bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rclpy.node import Node
from simdist_msgs import srv
from std_srvs.srv import Trigger

from simdist.nodes.bridge_topics import BridgeTopics
from simdist.simulation.stand_in import StandIn
from simdist.types import Mode


class BridgeRequests:
    """Passes requests on to the executor; ``restarted`` is called after a reset."""

    def __init__(
        self, node: Node, robot: StandIn, topics: BridgeTopics, restarted: Callable[[], None]
    ) -> None:
        self._robot, self._topics, self._restarted = robot, topics, restarted
        node.create_service(srv.SetMode, "set_mode", self._on_set_mode)
        node.create_service(Trigger, "rearm", self._on_rearm)
        node.create_service(Trigger, "reset_simulation", self._on_reset)

    def _on_set_mode(
        self, request: srv.SetMode.Request, response: srv.SetMode.Response
    ) -> srv.SetMode.Response:
        # The executor refuses what is no mode, with the list of those there are.
        mode: Any = Mode(request.mode) if request.mode in tuple(Mode) else request.mode
        granted = self._robot.executor.request_mode(mode, self._robot.now_ns)
        response.success, response.message = granted
        self._topics.publish_mode_changes()
        return response

    def _on_rearm(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        granted = self._robot.executor.rearm(self._robot.now_ns)
        response.success, response.message = granted
        self._topics.publish_mode_changes()
        return response

    def _on_reset(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        self._robot.restart()
        self._restarted()
        self._topics.publish_mode_changes()
        response.success, response.message = True, "the robot lies at the start"
        return response
