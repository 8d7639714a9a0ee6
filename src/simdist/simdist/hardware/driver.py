"""A real robot with the command executor in front of its motors, one tick of 2 ms at a time."""

from __future__ import annotations

from simdist.hardware.health import Health
from simdist.hardware.link import LinkError, RobotLink, RobotState
from simdist.safety import CommandExecutor
from simdist.types import AppliedStep, JointCommand, Mode

_STIFF = (Mode.STAND_UP, Mode.STAND, Mode.ACTIVE)


class RobotDriver:
    """Executor and link, on the steady clock.

    The caller ticks at 500 Hz and hands in every time. A state that grows old is held and then
    damped by the executor; a link that fails latches FAULT, and what is not told to a robot then
    it does by itself: without commands it damps. With ``dry_run`` everything is computed, but the
    robot is told to damp, whatever the executor says.
    """

    def __init__(
        self,
        link: RobotLink,
        executor: CommandExecutor,
        health: Health | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self.link, self.executor = link, executor
        self.health = health or Health()
        self.dry_run = dry_run
        self.state: RobotState | None = None  #: the newest report
        self.wanted: JointCommand | None = None  #: what the executor decided last
        self.applied: AppliedStep | None = None  #: the newest control step
        self.ticks = 0  #: control steps

    def tick(self, now_ns: int) -> AppliedStep | None:
        """Hear the robot, decide, and command it; the control step it began, if it began one.

        Nothing is commanded before the robot's first report. Raises LinkError, with the executor
        in FAULT, when the link fails.
        """
        try:
            state = self.link.poll(now_ns)
            if state is None:
                return None
            self.state = state
            self._watch_health(state, now_ns)
            self.wanted = self.executor.step(now_ns, state.joints, state.imu, state.received_ns)
            self.link.send(self._damping() if self.dry_run else self.wanted, now_ns)
        except LinkError:
            self.executor.request_mode(Mode.FAULT, now_ns)
            raise
        begun = self.executor.take_applied()
        if not begun:
            return None
        self.applied = begun[-1]
        self.ticks += len(begun)
        return self.applied

    def request_mode(self, mode: Mode, now_ns: int) -> tuple[bool, str]:
        """An operator's wish, see :meth:`CommandExecutor.request_mode`; a robot that is not well
        does not stand up."""
        if mode in _STIFF:
            obstacle = "no report yet" if self.state is None else self.health.obstacle(self.state)
            if obstacle:
                return False, f"{mode.name} refused: {obstacle}"
        return self.executor.request_mode(mode, now_ns)

    def close(self) -> None:
        """Damp the joints and let go of the robot."""
        self.link.close()

    def _watch_health(self, state: RobotState, now_ns: int) -> None:
        if self.executor.mode in _STIFF and self.health.obstacle(state):
            # Lying down is a ramp; damping would drop a robot that can still stand.
            granted, _ = self.executor.request_mode(Mode.LIE_DOWN, now_ns)
            if not granted:
                self.executor.request_mode(Mode.DAMP, now_ns)

    def _damping(self) -> JointCommand:
        robot = self.link.robot
        nothing = 0.0 * robot.damping
        return JointCommand(robot.lie_pose, nothing, nothing, robot.damping, nothing)
