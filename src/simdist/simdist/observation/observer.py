"""One robot's observations, one per control step, with the history that goes with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from simdist.errors import ContractError
from simdist.observation.builder import ObservationBuilder
from simdist.observation.history import History
from simdist.observation.spec import ObservationSpec
from simdist.robots import RobotSpec
from simdist.types import Array, BaseState, JointState, Rows


@dataclass(frozen=True)
class Observation:
    """What a robot knew at ``stamp_ns``: proprioception ``(P,)``, height scan ``(S,)``, command
    ``(C,)``, the action applied in the step before ``(A,)``, and the past up to now."""

    stamp_ns: int
    proprioception: Array
    scan: Array
    command: Array
    previous_action: Array
    proprioception_history: np.ndarray  #: (H + 1, P) float32
    action_history: np.ndarray  #: (H, A) float32


class Observer:
    """Builds observations from sensor values and remembers the recent ones.

    The gait clock is time itself: phase 0 at stamp 0. A recording therefore replays to the same
    observations, and the clock never restarts under a walking robot.
    """

    def __init__(self, spec: ObservationSpec, robot: RobotSpec) -> None:
        self.spec, self.robot = spec, robot
        self._builder = ObservationBuilder(spec, robot)
        self._history = History(spec.history, spec.size, robot.joint_count)
        self._dt_ns = round(robot.control_dt * 1e9)
        self._last_ns: int | None = None
        self._columns: dict[tuple[str, ...], Rows] = {}

    def reset(self) -> None:
        """Forget the past."""
        self._history.reset()
        self._last_ns = None

    def observe(
        self,
        stamp_ns: int,
        joints: JointState,
        base: BaseState,
        scan: Array,
        command: Array,
        previous_action: Array | None,
    ) -> Observation:
        """The observation at ``stamp_ns``.

        Joints are matched by name. ``previous_action`` is what was applied since the observation
        one control step earlier; with None, or after a gap, the history starts anew. Raises
        ContractError for foreign joints, wrong sizes and numbers that are not finite.
        """
        order = self._order(joints.names)
        proprioception = self._builder.proprioception(
            linear_velocity=base.linear_velocity,
            angular_velocity=base.angular_velocity,
            orientation=base.orientation,
            joint_position=np.asarray(joints.position)[order],
            joint_velocity=np.asarray(joints.velocity)[order],
            seconds=stamp_ns * 1e-9,
        )
        self._check("proprioception", proprioception, self.spec.size)
        self._check("height scan", scan, self.spec.scan.size)
        self._check("command", command, 3)
        follows = self._last_ns is not None and (
            abs(stamp_ns - self._last_ns - self._dt_ns) <= self._dt_ns // 4
        )
        if previous_action is not None:
            self._check("previous action", previous_action, self.robot.joint_count)
        self._history.push(proprioception, previous_action if follows else None)
        self._last_ns = stamp_ns
        past, actions = self._history.arrays()
        return Observation(
            stamp_ns=stamp_ns,
            proprioception=proprioception,
            scan=scan,
            command=command,
            previous_action=actions[-1],
            proprioception_history=past,
            action_history=actions,
        )

    def _order(self, names: tuple[str, ...]) -> Rows:
        if names not in self._columns:
            missing = set(self.robot.joint_names) - set(names)
            if missing or len(names) != self.robot.joint_count:
                raise ContractError(
                    f"joint state with joints {', '.join(names) or '(none)'} is not that of "
                    f"{self.robot.name}, whose joints are {', '.join(self.robot.joint_names)}"
                )
            self._columns[names] = np.array([names.index(n) for n in self.robot.joint_names])
        return self._columns[names]

    @staticmethod
    def _check(what: str, values: Array, size: int) -> None:
        if np.shape(values) != (size,):
            raise ContractError(f"{what} has shape {np.shape(values)}, wanted ({size},)")
        if not np.isfinite(values).all():
            index = int(np.flatnonzero(~np.isfinite(values))[0])
            raise ContractError(f"{what} is not finite: element {index} is {values[index]}")
