"""A simulated robot with the command executor a real one has, on one clock that never goes back."""

from __future__ import annotations

from simdist.safety import CommandExecutor
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.types import AppliedStep, ImuSample, JointState, Mode

LIMP = (Mode.DAMP, Mode.FAULT)


class StandIn:
    """Physics and executor, one physics step at a time.

    Each step is :meth:`sense`, then :meth:`act`. Between the two of a control-step boundary the
    caller may publish what was sensed and wait for an answer to it.

    Time goes on across restarts, with a gap that tells everybody who looks at stamps that nothing
    continues.
    """

    RESTART_GAP_NS = 1_000_000_000

    def __init__(
        self, simulation: RobotSimulation, executor: CommandExecutor, seed: int = 0
    ) -> None:
        self.simulation, self.executor = simulation, executor
        self._seed = seed
        self._offset_ns = 0
        self._dt_ns = round(simulation.robot.control_dt * 1e9)
        if self._dt_ns % simulation.step_ns:
            raise ValueError("a control step must be a whole number of physics steps")
        self.restarts = self.falls = self.ticks = 0
        self.fallen = False
        self.applied: AppliedStep | None = None  #: the newest control step
        simulation.reset(seed, lying=True)

    @property
    def now_ns(self) -> int:
        return self._offset_ns + self.simulation.time_ns

    @property
    def at_boundary(self) -> bool:
        """Whether the next :meth:`act` begins a control step."""
        return self.simulation.time_ns % self._dt_ns == 0

    @property
    def limp(self) -> bool:
        """Whether the robot is damped and nothing moves it: no control step depends on anyone."""
        limp = self.applied is not None and self.applied.mode in LIMP
        return limp and self.executor.mode in LIMP

    @property
    def answerable(self) -> bool:
        """Whether an observation at this boundary is to be answered by a plan: the control step
        before it stood or acted. Encoder and planner go by the same rule."""
        return self.applied is not None and self.applied.mode in (Mode.STAND, Mode.ACTIVE)

    def sense(self) -> tuple[JointState, ImuSample]:
        """Joints and IMU at this moment; with sensor noise, every call is a new measurement."""
        return self.simulation.joint_state(), self.simulation.imu()

    def act(self, joints: JointState, imu: ImuSample) -> AppliedStep | None:
        """One physics step under a fresh command; the control step it began, if it began one."""
        now = self.now_ns
        command = self.executor.step(now, joints, imu, now)
        self.simulation.step(command)
        begun = self.executor.take_applied()
        if not begun:
            return None
        self.applied = begun[-1]
        self.ticks += 1
        self._watch_falls()
        return self.applied

    def _watch_falls(self) -> None:
        acting = self.applied is not None and self.applied.mode == Mode.ACTIVE
        if acting and not self.fallen and self.simulation.fallen():
            self.fallen = True
            self.falls += 1
            # Who lies on the ground must not go on kicking, whatever the posture limits say.
            self.executor.request_mode(Mode.FAULT, self.now_ns)
        elif self.executor.mode == Mode.FAULT and acting and not self.fallen:
            self.fallen = self.simulation.fallen()
            self.falls += self.fallen

    def damp(self, seconds: float = 0.06) -> list[AppliedStep]:
        """Damp the joints and let that take effect; the control steps begun meanwhile."""
        self.executor.request_mode(Mode.DAMP, self.now_ns)
        end_ns = self.now_ns + round(seconds * 1e9)
        steps = []
        while self.now_ns < end_ns:
            step = self.act(*self.sense())
            if step is not None:
                steps.append(step)
        return steps

    def restart(self) -> None:
        """Put the robot back to the start, lying, damped and armed; every time a little
        differently, as the seed says."""
        end_ns = self.now_ns + self.RESTART_GAP_NS
        self.restarts += 1
        self.simulation.reset(self._seed + self.restarts, lying=True)
        self._offset_ns = -(-end_ns // self._dt_ns) * self._dt_ns
        self.fallen = False
        self.applied = None
        self.executor.reset(self.now_ns)
