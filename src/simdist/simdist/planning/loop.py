"""Planning over and over: what is already committed, how much time passed, and chunks to send."""

from __future__ import annotations

import numpy as np

from simdist.planning.plan import Controller, Plan
from simdist.robots import RobotSpec
from simdist.types import ActionChunk, Array


class PlanningLoop:
    """Turns latent states into action chunks for one robot.

    A plan takes time, and while it is made the robot plays the chunk before. ``commit_steps`` is
    how many control steps that is; they are taken from the previous chunk and pinned, so that
    the plan is made for the time it will be played. In lockstep nothing moves meanwhile: 0.
    Robots play no chunk whose number is not above the last one's: where they outlive a planner,
    ``first_sequence`` must grow from one planner to the next.
    """

    def __init__(
        self,
        controller: Controller,
        robot: RobotSpec,
        *,
        contract: str,
        commit_steps: int = 0,
        first_sequence: int = 1,
    ) -> None:
        self.controller, self.robot = controller, robot
        self.commit_steps = commit_steps
        self._contract = contract
        self._dt_ns = round(robot.control_dt * 1e9)
        self._sequence = first_sequence - 1
        self._stamp_ns: int | None = None
        self._actions: Array | None = None

    def reset(self) -> None:
        """Forget the last plan, as when the robot stopped following it."""
        self.controller.reset()
        self._stamp_ns = self._actions = None

    def plan(
        self,
        stamp_ns: int,
        context: np.ndarray,
        latent: np.ndarray,
        command: Array,
        *,
        model_version: int,
    ) -> tuple[ActionChunk, Plan]:
        """The chunk that answers the observation of ``stamp_ns``; row 0 is for that very time.

        ``context (2H + 1, D)``, ``latent (D,)``, ``command (C,)``. Raises PlanningError.
        """
        elapsed = self._elapsed(stamp_ns)
        plan = self.controller.plan(
            context[None],
            latent[None],
            np.asarray(command, np.float32)[None],
            elapsed=elapsed,
            committed=self._committed(elapsed),
        )
        actions = plan.actions[0].astype(np.float64)
        self._stamp_ns, self._actions = stamp_ns, actions
        self._sequence += 1
        chunk = ActionChunk(
            stamp_ns=stamp_ns,
            observation_stamp_ns=stamp_ns,
            sequence=self._sequence,
            joint_names=self.robot.joint_names,
            kind="joint_position",
            dt_ns=self._dt_ns,
            values=self.robot.target(actions),
            model_version=model_version,
            contract=self._contract,
        )
        return chunk, plan

    def _elapsed(self, stamp_ns: int) -> int:
        """Control steps since the last plan; a plan of another time base is forgotten."""
        if self._stamp_ns is None or self._actions is None:
            return 1
        elapsed = round((stamp_ns - self._stamp_ns) / self._dt_ns)
        if not 0 < elapsed < len(self._actions):
            self.reset()
            return 1
        return elapsed

    def _committed(self, elapsed: int) -> Array | None:
        if not self.commit_steps or self._actions is None:
            return None
        rows = self._actions[elapsed : elapsed + self.commit_steps]
        return rows if len(rows) else None
