"""The command executor: turns action chunks into motor commands, or damps the joints.

It is called at 200 Hz or more (500 Hz in simulation) and trusts nobody: not the planner, not the
state it is handed, not the caller's punctuality. It reads no clock; every time is an integer of
nanoseconds on one clock that the caller hands in.

Two grids of time: *calls* of :meth:`CommandExecutor.step`, each of which limits the command anew
against the measured state, and *control steps* of ``robot.control_dt`` whose boundaries are whole
multiples after the first call. A new chunk, mode or target takes effect only at a boundary, so
that one control step has exactly one action; only damping takes effect at once.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from simdist.errors import ConfigError
from simdist.ranges import Checked, bounded
from simdist.robots import RobotSpec
from simdist.safety.chunks import AcceptedChunk, ChunkInbox, Refusal
from simdist.safety.limits import JointLimiter, LimitConfig
from simdist.safety.modes import LIES_DOWN, ModeChange, ModeMachine
from simdist.safety.ramp import PoseRamp
from simdist.safety.watchdog import AgeWatch, FreezeWatch
from simdist.types import (
    ActionChunk,
    AppliedStep,
    Array,
    ImuSample,
    JointCommand,
    JointState,
    Mode,
)

_NS = 1_000_000_000
_LIMP = (Mode.DAMP, Mode.FAULT)
#: A joint faster than this many times its limit is a broken sensor.
_IMPLAUSIBLE_VELOCITY = 10.0
#: Orders of joint names that are remembered; whoever sends more pays for each again.
_MAX_ORDERS = 64
#: rad; further than this from the stand pose the legs are folded under the body first.
_FOLD_FIRST = 0.5


@dataclass(frozen=True)
class ExecutorConfig(Checked):
    """Times of the executor. Each has a range: no watchdog can be switched off."""

    hold_after: float = bounded(0.05, 0.005, 0.1, "s; an older state holds the last command")
    damp_after: float = bounded(0.1, 0.01, 0.2, "s; an older or frozen state damps the joints")
    max_call_gap: float = bounded(0.05, 0.01, 0.2, "s between two calls; longer damps the joints")
    max_chunk_age: float = bounded(
        0.16, 0.02, 0.5, "s; damps when the newest chunk answers an older observation"
    )
    chunk_period: float = bounded(0.04, 0.005, 0.2, "s, the planner's period")
    max_open_loop_steps: int = bounded(
        3, 0, 10, "control steps played after a fresh chunk was due; then the joints damp"
    )
    max_chunk_future: float = bounded(0.1, 0.0, 0.5, "s; a first row further ahead is refused")
    stamp_tolerance: float = bounded(
        0.002, 0.0, 0.005, "s; row 0 may be played this much early, stamps be this far ahead"
    )
    stand_up_time: float = bounded(1.0, 0.3, 10.0, "s from the folded to the stand pose")
    fold_time: float = bounded(0.5, 0.2, 10.0, "s to fold the legs before standing up")
    lie_down_time: float = bounded(1.2, 0.3, 10.0, "s from the stand to the folded pose")
    return_time: float = bounded(0.4, 0.1, 5.0, "s from walking to the stand pose")
    max_ramp_speed: float = bounded(4.0, 0.2, 10.0, "rad/s; stretches the ramps above")
    gain_ramp: float = bounded(0.2, 0.02, 2.0, "s over which gains change between modes")
    activation_time: float = bounded(
        0.2, 0.0, 2.0, "s over which targets and gains blend from standing to the chunk"
    )
    activation_timeout: float = bounded(30.0, 0.1, 300.0, "s that ACTIVE waits for a first chunk")
    stand_tolerance: float = bounded(0.5, 0.05, 1.0, "rad; joints this near the stand pose stand")
    stand_timeout: float = bounded(2.0, 0.1, 10.0, "s beyond the ramp to reach the stand pose")
    damp_ramp: float = bounded(0.03, 0.0, 0.04, "s over which stiffness fades on request of DAMP")
    release_time: float = bounded(0.3, 0.02, 2.0, "s over which stiffness fades after lying down")
    armed_at_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hold_after >= self.damp_after:
            raise ConfigError(
                f"ExecutorConfig.hold_after = {self.hold_after}: must be less than damp_after = "
                f"{self.damp_after}"
            )


@dataclass(frozen=True)
class ExecutorStatus:
    """Counters since the start, for diagnostics."""

    mode: Mode
    reason: str
    armed: bool
    waiting_for_chunk: bool
    calls: int
    control_steps: int
    missed_steps: int  #: control steps that passed without a call
    late_steps: int  #: control steps begun more than a quarter of their length late
    holds: int  #: calls that held the last command because the state was old
    protective_stops: int
    faults: int
    chunks_accepted: int
    chunks_refused: dict[str, int]  #: by :class:`Refusal`
    future_states: int  #: states with a stamp ahead of now
    overtaken_states: int  #: states that came after a newer one and were ignored
    chunk_age: float  #: s, of the observation the newest chunk answers; -1 without a chunk
    state_age: float  #: s; -1 before the first state


def _ns(seconds: float) -> int:
    return round(seconds * _NS)


class CommandExecutor:
    """Plays chunks within limits, keeps the modes, and damps when anything disagrees.

    Not thread-safe: one thread calls everything. ``contract`` is the hash that chunks must carry;
    with None the first chunk after arming decides.

    State checks of every call, in this order: joint names, shapes, finite and plausible numbers,
    and while the joints are stiff also posture (all latch FAULT); then the age of the state and
    of the chunk and the time since the last call, and in ACTIVE whether the state changes at all
    (protective stop: DAMP, disarmed). A state that a newer one has overtaken is not looked at.
    """

    def __init__(
        self,
        robot: RobotSpec,
        limits: LimitConfig | None = None,
        config: ExecutorConfig | None = None,
        *,
        contract: str | None = None,
    ) -> None:
        self.robot = robot
        self.limits = limits or LimitConfig()
        self.config = config = config or ExecutorConfig()
        self._contract = contract
        self._dt_ns = _ns(robot.control_dt)
        self._hold_ns = _ns(config.hold_after)
        self._damp_ns = _ns(config.damp_after)
        self._gap_ns = _ns(config.max_call_gap)
        self._chunk_age_ns = _ns(config.max_chunk_age)
        self._silence_ns = _ns(config.chunk_period) + config.max_open_loop_steps * self._dt_ns
        self._limiter = JointLimiter(robot, self.limits)
        self._machine = ModeMachine(config.armed_at_start)
        self._inbox = ChunkInbox(
            robot,
            dt_ns=self._dt_ns,
            max_age_ns=self._chunk_age_ns,
            max_future_ns=_ns(config.max_chunk_future),
            tolerance_ns=_ns(config.stamp_tolerance),
            contract=contract,
        )
        self._watch = AgeWatch(_ns(config.stamp_tolerance))
        self._freeze = FreezeWatch()

        margin = self.limits.implausible_position
        self._position_centre = (robot.position_lower + robot.position_upper) / 2
        self._position_reach = (robot.position_upper - robot.position_lower) / 2 + margin
        self._velocity_reach = robot.velocity_limit * _IMPLAUSIBLE_VELOCITY
        self._columns: dict[tuple[str, ...], NDArray[np.intp] | None] = {robot.joint_names: None}
        self._no_gain = np.zeros(robot.joint_count)
        self._no_gain.setflags(write=False)

        self._anchor_ns: int | None = None
        self._last_call_ns = 0
        self._index = -1
        self._first_sequence = 0
        self._q = robot.lie_pose
        self._dq = self._no_gain
        self._tilt: str | None = None

        # What is being done, as opposed to the machine's mode, which may be ahead until the next
        # boundary.
        self._doing = Mode.DAMP
        self._ramp: PoseRamp | None = None
        self._entered_ns = 0
        self._target = robot.lie_pose
        self._chunk_played: tuple[int, int] = (0, 0)
        self._kp, self._kd = self._no_gain, robot.damping
        self._kp_from, self._kd_from = self._kp, self._kd
        self._kp_to, self._kd_to = self._kp, self._kd
        self._gains_start_ns = 0
        self._gains_end_ns = 0
        self._fade_ns = 0
        self._wish_since_ns = 0

        self._command = JointCommand(
            robot.lie_pose, self._no_gain, self._no_gain, robot.damping, self._no_gain
        )
        self._applied: deque[AppliedStep] = deque(maxlen=500)
        self._calls = self._steps = self._missed = self._late = 0
        self._holds = self._stops = self._faults = 0

    # ------------------------------------------------------------------ requests

    @property
    def mode(self) -> Mode:
        return self._machine.mode

    @property
    def reason(self) -> str:
        """Why the present mode was entered."""
        return self._machine.reason

    @property
    def armed(self) -> bool:
        """Whether STAND_UP would be allowed; false after a protective stop or a fault."""
        return self._machine.armed

    def receive(self, chunk: ActionChunk, now_ns: int) -> Refusal | None:
        """Take in a chunk: None when accepted, else why it was refused (and counted)."""
        return self._inbox.receive(chunk, now_ns)

    def refuse(self, refusal: Refusal) -> None:
        """Count a message that could not even be made into a chunk."""
        self._inbox.refused[refusal.value] += 1

    def request_mode(self, mode: Mode, now_ns: int) -> tuple[bool, str]:
        """An operator's wish: granted or not, and why. It takes effect in :meth:`step`.

        ACTIVE is granted from STAND_UP and STAND and entered when the robot stands and a fresh
        chunk is there; until then the mode stays STAND.
        """
        if mode not in tuple(Mode):
            return False, f"{mode!r} is no mode; allowed: {', '.join(m.name for m in Mode)}"
        if mode == Mode.STAND_UP and self._machine.mode == Mode.DAMP:
            obstacle = self._obstacle(now_ns)
            if obstacle:
                return False, f"STAND_UP refused: {obstacle}"
        granted, message = self._machine.request(mode, now_ns)
        if granted and self._machine.wish == Mode.ACTIVE:
            self._wish_since_ns = now_ns
        if granted and mode == Mode.DAMP and self._doing not in _LIMP:
            self._fade_ns = _ns(self.config.damp_ramp)
        return granted, message

    def rearm(self, now_ns: int) -> tuple[bool, str]:
        """Allow motion again after a protective stop or a fault; FAULT becomes DAMP."""
        granted, message = self._machine.rearm(now_ns)
        if granted:
            self._inbox.clear()
        return granted, message

    def reset(self, now_ns: int) -> None:
        """Start over after the simulation was reset: DAMP, armed as configured, a new grid of
        time. Counters stay."""
        self._machine.reset(self.config.armed_at_start, now_ns)
        self._inbox.clear()
        self._watch.reset()
        self._freeze.reset()
        self._begin_limp(now_ns, 0)
        self._start_grid(now_ns)

    # ------------------------------------------------------------------ outputs

    def take_applied(self) -> list[AppliedStep]:
        """Control steps begun since the last call, oldest first."""
        applied = list(self._applied)
        self._applied.clear()
        return applied

    def take_mode_changes(self) -> list[ModeChange]:
        """Transitions since the last call, oldest first."""
        return self._machine.take_changes()

    def next_boundary(self, now_ns: int) -> int:
        """Start of the first control step at or after ``now_ns`` that has not begun yet: the
        earliest time at which a chunk received now can take effect."""
        if self._anchor_ns is None:
            return now_ns
        index = max(-((self._anchor_ns - now_ns) // self._dt_ns), self._index + 1)
        return self._anchor_ns + index * self._dt_ns

    def status(self) -> ExecutorStatus:
        now_ns = self._last_call_ns
        newest = self._inbox.newest
        age_ns = self._watch.age_ns(now_ns)
        return ExecutorStatus(
            mode=self._machine.mode,
            reason=self._machine.reason,
            armed=self._machine.armed,
            waiting_for_chunk=self._machine.wish is not None,
            calls=self._calls,
            control_steps=self._steps,
            missed_steps=self._missed,
            late_steps=self._late,
            holds=self._holds,
            protective_stops=self._stops,
            faults=self._faults,
            chunks_accepted=self._inbox.accepted,
            chunks_refused=dict(self._inbox.refused),
            future_states=self._watch.from_future,
            overtaken_states=self._watch.overtaken,
            chunk_age=-1.0 if newest is None else (now_ns - newest.observation_stamp_ns) / _NS,
            state_age=-1.0 if age_ns is None else age_ns / _NS,
        )

    # ------------------------------------------------------------------ the loop

    def step(
        self, now_ns: int, state: JointState, imu: ImuSample, state_stamp_ns: int
    ) -> JointCommand:
        """The command for this moment.

        ``state_stamp_ns`` is when ``state`` and ``imu`` were measured. The command's arrays are in
        the robot's joint order, finite and within every limit, whatever came in.
        """
        self._calls += 1
        self._watch_clock(now_ns)
        if self._watch.seen(state_stamp_ns, now_ns):
            problem = self._take_state(state, imu, now_ns)
            if problem is not None:
                self._fault(problem, now_ns)
        holding = False
        if self._machine.mode not in _LIMP:
            holding = self._watch_ages(now_ns)
        if self._machine.mode in _LIMP and self._doing not in _LIMP:
            self._begin_limp(now_ns, self._fade_ns)
        elif self._machine.mode in _LIMP:
            self._doing = self._machine.mode

        assert self._anchor_ns is not None
        index = (now_ns - self._anchor_ns) // self._dt_ns
        if index > self._index:
            boundary_ns = self._anchor_ns + index * self._dt_ns
            self._missed += index - self._index - 1
            self._late += now_ns - boundary_ns > self._dt_ns // 4
            self._index = index
            self._steps += 1
            if not holding:
                self._control_step(boundary_ns, now_ns)
            self._record(boundary_ns)
        if holding:
            self._holds += 1
            return self._command

        if now_ns < self._gains_end_ns:
            s = (now_ns - self._gains_start_ns) / (self._gains_end_ns - self._gains_start_ns)
            self._kp = self._kp_from + s * (self._kp_to - self._kp_from)
            self._kd = self._kd_from + s * (self._kd_to - self._kd_from)
        else:
            self._kp, self._kd = self._kp_to, self._kd_to
        self._command = self._limiter.command(
            self._target, self._command.position, self._kp, self._kd, self._q, self._dq
        )
        return self._command

    def _watch_clock(self, now_ns: int) -> None:
        if self._anchor_ns is None:
            self._start_grid(now_ns)
            return
        gap_ns = now_ns - self._last_call_ns
        self._last_call_ns = now_ns
        if gap_ns < 0:
            self._stop(f"the clock went back by {-gap_ns / 1e6:.0f} ms", now_ns)
            self._inbox.clear()
            self._watch.reset()
            self._freeze.reset()
            self._start_grid(now_ns)
        elif gap_ns > self._gap_ns:
            self._stop(f"the executor did not run for {gap_ns / 1e6:.0f} ms", now_ns)

    def _start_grid(self, now_ns: int) -> None:
        self._anchor_ns = now_ns
        self._last_call_ns = now_ns
        self._first_sequence += self._index + 1
        self._index = -1
        # Ramps of the old clock have no meaning on the new one.
        self._gains_end_ns = now_ns

    def _take_state(self, state: JointState, imu: ImuSample, now_ns: int) -> str | None:
        """Take over the measured joints and posture; returns what is wrong with them."""
        names = tuple(state.names)
        if names not in self._columns:
            if len(names) != len(set(names)) or set(names) != set(self.robot.joint_names):
                return f"joint state names {list(names)[:4]}... are not the robot's joints"
            if len(self._columns) >= _MAX_ORDERS:
                self._columns = {self.robot.joint_names: None}
            self._columns[names] = np.array([names.index(n) for n in self.robot.joint_names])
        columns = self._columns[names]
        q, dq = np.asarray(state.position), np.asarray(state.velocity)
        if q.shape != (len(names),) or dq.shape != (len(names),):
            return f"joint state has shapes {q.shape} and {dq.shape} for {len(names)} joints"
        if columns is not None:
            q, dq = q[columns], dq[columns]
        # Written so that NaN compares as bad.
        good = (np.abs(q - self._position_centre) <= self._position_reach) & (
            np.abs(dq) <= self._velocity_reach
        )
        if not good.all():
            i = int(np.argmin(good))
            return (
                f"joint {self.robot.joint_names[i]} reports {float(q[i]):.3g} rad, "
                f"{float(dq[i]):.3g} rad/s: not finite or beyond what it can do"
            )
        # Copies, for callers that reuse their arrays.
        self._q, self._dq = q.astype(np.float64), dq.astype(np.float64)
        problem = self._take_posture(imu)
        if problem is None:
            sensed = (self._q, self._dq, imu.orientation, imu.angular_velocity)
            self._freeze.seen(b"".join(np.asarray(values).tobytes() for values in sensed), now_ns)
        return problem

    def _take_posture(self, imu: ImuSample) -> str | None:
        orientation = np.asarray(imu.orientation)
        rates = np.asarray(imu.angular_velocity)
        if orientation.shape != (4,) or rates.shape != (3,):
            return f"IMU has shapes {orientation.shape} and {rates.shape}, not (4,) and (3,)"
        w, x, y, z = orientation.tolist()
        norm = w * w + x * x + y * y + z * z
        if not 0.8 < norm < 1.25 or not math.isfinite(sum(rates.tolist())):
            return "IMU orientation is not a unit quaternion, or its rates are not finite"
        roll = math.atan2(2 * (w * x + y * z), norm - 2 * (x * x + y * y))
        pitch = math.asin(max(-1.0, min(1.0, 2 * (w * y - z * x) / norm)))
        self._tilt = None
        if abs(roll) > self.limits.fall_roll:
            self._tilt = f"roll {roll:.2f} rad is beyond {self.limits.fall_roll}"
        elif abs(pitch) > self.limits.fall_pitch:
            self._tilt = f"pitch {pitch:.2f} rad is beyond {self.limits.fall_pitch}"
        # A robot that lies damped may lie as it likes.
        return self._tilt if self._machine.mode not in _LIMP else None

    def _watch_ages(self, now_ns: int) -> bool:
        """Stop on old states and silent planners; true when the last command is to be held."""
        age_ns = self._watch.age_ns(now_ns)
        if age_ns is None or age_ns > self._damp_ns:
            self._stop(_too_old("state", age_ns, self._damp_ns), now_ns)
            return False
        if self._machine.mode == Mode.ACTIVE:
            problem = self._silence(now_ns) or self._frozen(now_ns)
            if problem is not None:
                self._stop(problem, now_ns)
                return False
        return age_ns > self._hold_ns

    def _frozen(self, now_ns: int) -> str | None:
        age_ns = self._freeze.age_ns(now_ns)
        if age_ns <= self._damp_ns:
            return None
        return (
            f"joints and IMU have reported the same values for {age_ns / 1e6:.0f} ms "
            f"(limit {self._damp_ns / 1e6:.0f} ms)"
        )

    def _silence(self, now_ns: int) -> str | None:
        newest = self._inbox.newest
        if newest is None:
            return "no chunk"
        age_ns = now_ns - newest.observation_stamp_ns
        if age_ns > self._chunk_age_ns:
            return _too_old("chunk", age_ns, self._chunk_age_ns)
        # The step that begins at the limit would be one too many.
        if now_ns - newest.received_ns >= self._silence_ns:
            return (
                f"no new chunk for {(now_ns - newest.received_ns) / 1e6:.0f} ms "
                f"(limit {self._silence_ns / 1e6:.0f} ms)"
            )
        return None

    # ------------------------------------------------------------------ control steps

    def _control_step(self, boundary_ns: int, now_ns: int) -> None:
        """Decide the target that is held until the next boundary."""
        if self._machine.mode != self._doing:
            self._begin(self._machine.mode, boundary_ns)
        wanted = self._wanted(boundary_ns, now_ns)
        if self._machine.mode in _LIMP and self._doing not in _LIMP:
            # The mode came to its end, or has nothing left to play.
            self._begin_limp(now_ns, self._fade_ns)
        if self._doing in _LIMP:
            if now_ns >= self._gains_end_ns:
                self._target = self._measured_pose()
            return
        self._target = self._limiter.target(wanted, self._target)

    def _wanted(self, boundary_ns: int, now_ns: int) -> Array:
        """The target the present mode asks for; completes or stops the mode where it ends."""
        mode = self._doing
        self._chunk_played = (0, 0)
        if mode == Mode.STAND_UP:
            assert self._ramp is not None
            if boundary_ns >= self._ramp.end_ns:
                self._finish_standing_up(boundary_ns)
            return self._ramp.at(boundary_ns)
        if mode == Mode.STAND:
            if self._machine.wish == Mode.ACTIVE and self._may_activate(boundary_ns, now_ns):
                self._machine.complete(Mode.ACTIVE, "fresh chunk", now_ns)
                self._begin(Mode.ACTIVE, boundary_ns)
                return self._wanted(boundary_ns, now_ns)
            return self.robot.stand_pose if self._ramp is None else self._ramp.at(boundary_ns)
        if mode == Mode.LIE_DOWN:
            assert self._ramp is not None
            if boundary_ns >= self._ramp.end_ns:
                self._machine.complete(Mode.DAMP, LIES_DOWN, now_ns)
                self._fade_ns = _ns(self.config.release_time)
            return self._ramp.at(boundary_ns)
        if mode == Mode.ACTIVE:
            playing = self._inbox.select(boundary_ns)
            if playing is None:
                self._stop("the chunk has no row for this control step", now_ns)
                return self._target
            chunk, row = playing
            self._chunk_played = (chunk.sequence, row)
            return self._blended(chunk, row, boundary_ns)
        return self._target

    def _blended(self, chunk: AcceptedChunk, row: int, boundary_ns: int) -> Array:
        duration_ns = _ns(self.config.activation_time)
        elapsed_ns = boundary_ns - self._entered_ns
        if elapsed_ns >= duration_ns:
            return chunk.targets[row]
        s = elapsed_ns / duration_ns
        # The limiter's range first: a wild row must not overflow the blend.
        inside = np.clip(chunk.targets[row], self.robot.position_lower, self.robot.position_upper)
        return self.robot.stand_pose + s * (inside - self.robot.stand_pose)

    def _may_activate(self, boundary_ns: int, now_ns: int) -> bool:
        settled = self._ramp is None or boundary_ns >= self._ramp.end_ns
        if settled and self._silence(now_ns) is None and self._inbox.select(boundary_ns):
            return True
        if now_ns - self._wish_since_ns > _ns(self.config.activation_timeout):
            self._machine.withdraw_wish(
                f"no fresh chunk within {self.config.activation_timeout:g} s: still standing",
                now_ns,
            )
        return False

    def _finish_standing_up(self, boundary_ns: int) -> None:
        assert self._ramp is not None
        error = float(np.abs(self._q - self.robot.stand_pose).max())
        if error <= self.config.stand_tolerance:
            self._machine.complete(Mode.STAND, "stands", boundary_ns)
        elif boundary_ns > self._ramp.end_ns + _ns(self.config.stand_timeout):
            self._stop(f"did not reach the stand pose: off by {error:.2f} rad", boundary_ns)

    def _begin(self, mode: Mode, boundary_ns: int) -> None:
        """Start doing a mode: its path from where the robot is, and its gains from what they are.

        Never called for DAMP and FAULT, see :meth:`_begin_limp`.
        """
        robot, config = self.robot, self.config
        came_from, self._doing = self._doing, mode
        self._entered_ns = boundary_ns
        if came_from in _LIMP:
            self._target = self._measured_pose()
        if mode == Mode.ACTIVE:
            self._ramp = None
            self._begin_gains(robot.kp, robot.kd, boundary_ns, _ns(config.activation_time))
            return
        stages = {
            Mode.STAND_UP: [(robot.stand_pose, config.stand_up_time)],
            Mode.STAND: [(robot.stand_pose, config.return_time)],
            Mode.LIE_DOWN: [(robot.lie_pose, config.lie_down_time)],
        }[mode]
        if mode == Mode.STAND_UP:
            far = float(np.abs(self._target - robot.stand_pose).max()) > _FOLD_FIRST
            if far and came_from in _LIMP:
                stages.insert(0, (robot.lie_pose, config.fold_time))
        elif mode == Mode.LIE_DOWN and came_from == Mode.ACTIVE:
            stages.insert(0, (robot.stand_pose, config.return_time))
        # Standing up has just ended at the stand pose: nothing to ramp.
        ramp = PoseRamp(self._target, stages, boundary_ns, config.max_ramp_speed)
        self._ramp = None if came_from == Mode.STAND_UP and mode == Mode.STAND else ramp
        self._begin_gains(robot.stand_kp, robot.damping, boundary_ns, _ns(config.gain_ramp))

    def _begin_limp(self, now_ns: int, fade_ns: int) -> None:
        """Damp from this call on; stiffness fades over ``fade_ns`` (0: gone at once)."""
        self._doing = self._machine.mode
        self._ramp = None
        self._fade_ns = 0
        self._chunk_played = (0, 0)
        self._inbox.clear()
        if fade_ns == 0:
            self._target = self._measured_pose()
        self._begin_gains(self._no_gain, self.robot.damping, now_ns, fade_ns)

    def _begin_gains(self, kp: Array, kd: Array, start_ns: int, duration_ns: int) -> None:
        self._kp_from, self._kd_from = self._kp, self._kd
        self._kp_to, self._kd_to = kp, kd
        self._gains_start_ns = start_ns
        self._gains_end_ns = start_ns + duration_ns

    def _record(self, boundary_ns: int) -> None:
        sequence, row = self._chunk_played
        self._applied.append(
            AppliedStep(
                stamp_ns=boundary_ns,
                sequence=self._first_sequence + self._index,
                action=self.robot.action(self._target),
                position_target=self._target,
                mode=self._doing,
                chunk_sequence=sequence,
                chunk_row=row,
            )
        )

    # ------------------------------------------------------------------ small things

    def _measured_pose(self) -> Array:
        return np.clip(self._q, self.robot.position_lower, self.robot.position_upper)

    def _stop(self, reason: str, now_ns: int) -> None:
        """Protective stop of a stiff robot; a limp one has nothing to stop."""
        if self._machine.mode not in _LIMP:
            self._stops += 1
            self._fade_ns = 0
            self._machine.stop(reason, now_ns)

    def _fault(self, reason: str, now_ns: int) -> None:
        if self._machine.mode != Mode.FAULT:
            self._faults += 1
            self._fade_ns = 0
            self._gains_end_ns = min(self._gains_end_ns, now_ns)
            self._machine.fault(reason, now_ns)

    def _obstacle(self, now_ns: int) -> str | None:
        """Why the robot must not stiffen its joints now."""
        age_ns = self._watch.age_ns(now_ns)
        if age_ns is None or age_ns > self._hold_ns:
            return _too_old("state", age_ns, self._hold_ns)
        return self._tilt and f"{self._tilt}; set the robot upright first"


def _too_old(what: str, age_ns: int | None, limit_ns: int) -> str:
    if age_ns is None:
        return f"no {what} yet"
    return f"{what} is {age_ns / 1e6:.0f} ms old (limit {limit_ns / 1e6:.0f} ms)"
