"""Where the planner expects the feet to go, for people to look at."""

from __future__ import annotations

import torch
from rclpy.node import Node

from simdist.errors import SimdistError
from simdist.nodes import convert
from simdist.nodes.common import Every
from simdist.nodes.qos import publisher
from simdist.planning import MppiPlanner, Plan
from simdist.world_model import Artefact
from simdist.world_model.foot_probe import LoadedProbe, load_foot_probe, probe_beside

ELITES = 6  #: samples that are drawn beside the plan
PERIOD = 0.2  #: s between two pictures, of the steady clock


class PlannerMarkers:
    """Draws plans only where a probe lies beside the model and somebody looks.

    Model updates leave the frozen parts as they are, so the probe stays valid across them.
    """

    def __init__(self, node: Node, planner: MppiPlanner, artefact: Artefact) -> None:
        self._planner = planner
        self._publisher = publisher(node, "planner/markers")
        self._due = Every(PERIOD)
        self._probe: LoadedProbe | None = None
        path = probe_beside(artefact.path)
        if path.exists():
            try:
                self._probe = load_foot_probe(path, artefact)
            except SimdistError as error:  # a robot need not stand still for want of a picture
                node.get_logger().warning(f"plans are not drawn: {error}")

    def draw(self, stamp_ns: int, plan: Plan) -> None:
        """Publish the foot tracks of ``plan``, the last one made, if it is time to."""
        probe = self._probe
        if probe is None or not self._publisher.get_subscription_count() or not self._due():
            return
        foresight = self._planner.foresee(plan, ELITES)
        with torch.inference_mode():
            tracks, elites = (
                probe.probe(torch.from_numpy(latents[0])).numpy()
                for latents in (foresight.plan, foresight.elites)
            )
        self._publisher.publish(
            convert.markers_message(stamp_ns, "base", probe.feet, tracks, elites)
        )
