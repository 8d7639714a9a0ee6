"""One robot, one world, one driver, for some seconds: how far it got and whether it fell."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from simdist.evaluation.drivers import Driver, PrivilegedDriver
from simdist.observation import Observation, ObservationSpec, Observer, rotation_matrix
from simdist.robots import RobotSpec
from simdist.safety.executor import CommandExecutor, ExecutorConfig
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import WorldSpec
from simdist.tasks.course import Course
from simdist.types import ActionChunk, AppliedStep, Mode

SETTLE_SECONDS = 0.6  #: standing before the driver takes over
UP_TO_SPEED_SECONDS = 2.5  #: after which the commanded speed has been reached


@dataclass(frozen=True)
class TrialConfig:
    """One trial.

    ``plan_every`` is the number of control steps between two plans, and ``delay_steps`` how many
    pass until a plan reaches the robot, as when planning takes its time beside a walking robot.
    """

    speed: float  #: m/s, commanded
    seed: int
    seconds: float = 10.0
    plan_every: int = 1
    delay_steps: int = 0


@dataclass(frozen=True)
class TrialResult:
    """Progress in metres along the course: at the end or at the fall, if there was one, but exactly
    the line once that was reached."""

    speed: float
    seed: int
    progress: float
    fallen: bool
    seconds: float  #: walked
    velocity_error: float  #: m/s, mean |forward velocity - command| once up to speed
    reason: str  #: why the trial failed, or empty
    reached: bool = False  #: whether the line was reached, necessarily before any fall


class Trial:
    """A lockstep trial: the simulation waits for every chunk, so results do not depend on speed.

    The command executor stands between driver and motors exactly as on a robot. The trial ends
    early where the robot has made ``line`` metres of progress.
    """

    def __init__(
        self,
        robot: RobotSpec,
        world: WorldSpec,
        layout: ObservationSpec,
        config: TrialConfig,
        line: float | None = None,
        *,
        ends_at_line: bool = True,
    ) -> None:
        self.robot, self.config, self.line = robot, config, line
        self._ends_at_line = ends_at_line
        self.simulation = RobotSimulation(robot, world, seed=config.seed)
        self._substeps = round(robot.control_dt * 1e9) // self.simulation.step_ns
        self._executor = CommandExecutor(
            robot,
            config=ExecutorConfig(
                chunk_period=config.plan_every * robot.control_dt, activation_time=0.0
            ),
        )
        self._observer = Observer(layout, robot)
        self._layout = layout
        self._course = Course(config.speed)
        self._applied: AppliedStep | None = None

    def run(
        self,
        driver: Driver,
        on_step: Callable[[Observation, AppliedStep], None] | None = None,
    ) -> TrialResult:
        """Stand, then walk; ``on_step`` sees every observation and what was applied to it."""
        simulation, config = self.simulation, self.config
        dt = self.robot.control_dt
        self._stand_up()
        if isinstance(driver, PrivilegedDriver):
            driver.begin(simulation)
        steps, reason, progress = round(config.seconds / dt), "", simulation.progress()
        walked, errors, reached = 0, list[float](), False
        under_way: deque[tuple[int, ActionChunk]] = deque()
        for walked in range(steps):
            observation = self._observe()
            if walked % config.plan_every == 0:
                under_way.append(
                    (walked + (config.delay_steps if walked else 0), driver.act(observation))
                )
            while under_way and under_way[0][0] <= walked:
                refused = self._executor.receive(under_way.popleft()[1], simulation.time_ns)
                if refused is not None:
                    reason = f"chunk refused: {refused}"
            if reason:
                break
            if walked == 0:
                self._executor.request_mode(Mode.ACTIVE, simulation.time_ns)
            self._control_step()
            if on_step is not None and self._applied is not None:
                on_step(observation, self._applied)
            if simulation.fallen():
                reason = "fell"
                break
            if self._executor.mode != Mode.ACTIVE:
                reason = f"executor left ACTIVE: {self._executor.reason}"
                break
            progress = simulation.progress()
            if walked * dt >= UP_TO_SPEED_SECONDS:
                velocity = simulation.base_state().linear_velocity[0]
                errors.append(abs(float(velocity) - config.speed))
            if self.line is not None and progress >= self.line:
                reached = True
                if self._ends_at_line:
                    progress = self.line
                    break
        return TrialResult(
            speed=config.speed,
            seed=config.seed,
            progress=progress,
            fallen=bool(reason),
            seconds=(walked + 1) * dt,
            velocity_error=float(np.mean(errors)) if errors else float("nan"),
            reason=reason,
            reached=reached,
        )

    def _stand_up(self) -> None:
        # The robot already stands; the executor needs to see it and to go through its modes.
        self._control_step()
        self._executor.request_mode(Mode.STAND_UP, self.simulation.time_ns)
        end_ns = None
        while end_ns is None or self.simulation.time_ns < end_ns:
            self._observe()
            self._control_step()
            if end_ns is None and self._executor.mode == Mode.STAND:
                end_ns = self.simulation.time_ns + round(SETTLE_SECONDS * 1e9)
            if self._executor.mode in (Mode.DAMP, Mode.FAULT) or self.simulation.time_ns > 10e9:
                raise RuntimeError(f"the robot did not stand up: {self._executor.reason}")

    def _observe(self) -> Observation:
        simulation = self.simulation
        base = simulation.base_state()
        rotation = rotation_matrix(base.orientation)
        walking = self._executor.mode == Mode.ACTIVE
        yaw = float(np.arctan2(rotation[1, 0], rotation[0, 0]))
        command = (
            self._course.command(float(base.position[1]), yaw, self.robot.control_dt)
            if walking
            else np.zeros(3)
        )
        return self._observer.observe(
            simulation.time_ns,
            simulation.joint_state(),
            base,
            simulation.height_scan(self._layout.scan),
            command,
            self._applied.action if self._applied else None,
        )

    def _control_step(self) -> None:
        simulation, executor = self.simulation, self._executor
        for _ in range(self._substeps):
            now = simulation.time_ns
            command = executor.step(now, simulation.joint_state(), simulation.imu(), now)
            simulation.step(command)
        applied = executor.take_applied()
        self._applied = applied[-1] if applied else self._applied
