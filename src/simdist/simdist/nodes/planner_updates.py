"""Model updates on their way to the planner."""

from __future__ import annotations

from collections.abc import Callable

from rclpy.node import Node
from simdist_msgs import msg
from std_srvs.srv import Trigger

from simdist.adaptation import RunningModel
from simdist.adaptation.desk import UpdateDesk
from simdist.nodes.qos import subscription
from simdist.world_model import WorldModel


class PlannerUpdates:
    """Has updates checked beside the planner; ``swap`` is called between two plans."""

    def __init__(self, node: Node, desk: UpdateDesk, swap: Callable[[WorldModel], None]) -> None:
        self._log, self._desk, self._swap = node.get_logger(), desk, swap
        self.refused = 0
        self.event = f"version {desk.current.version} loaded"  #: last swap, refusal or rollback
        subscription(node, "model_update", self._on_update)
        node.create_service(Trigger, "planner/rollback", self._on_rollback)

    @property
    def current(self) -> RunningModel:
        """The model to plan with."""
        return self._desk.current

    def take(self) -> None:
        """Swap in an update that has passed its checks meanwhile, or tell why one did not."""
        verdict = self._desk.collect()
        if verdict is None:
            return
        if verdict.model is None:
            self.refused += 1
            self.event = f"update {verdict.version} refused: {verdict.reason}"
            self._log.warning(self.event)
            return
        self._swap(verdict.model.model)
        self.event = f"swapped in: {verdict.reason}"
        self._log.info(self.event)

    def close(self) -> None:
        self._desk.close()

    def _on_update(self, message: msg.ModelUpdate) -> None:
        self._desk.submit(message.version, bytes(message.weights), message.weights_sha256)

    def _on_rollback(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        model = self._desk.rollback()
        response.success = model is not None
        if model is None:
            response.message = f"version {self.current.version} is the first: nothing to undo"
        else:
            self._swap(model.model)
            self.event = response.message = f"rolled back to version {model.version}"
            self._log.info(self.event)
        return response
