"""Pairing what was observed with what was applied, step by step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from simdist.replay.episode import Episode
from simdist.types import AppliedStep, Mode


@dataclass(frozen=True)
class Observed:
    """One observation as it was published, ``stamp_ns`` from its header."""

    stamp_ns: int
    sequence: int
    proprio: np.ndarray
    scan: np.ndarray
    command: np.ndarray


@dataclass(frozen=True)
class RecorderStatus:
    """Counters since the start."""

    steps: int  #: paired and kept
    dropped: int  #: steps that were discarded
    reasons: dict[str, int]  #: why steps were discarded or segments ended
    episodes: int  #: runs without a gap that were begun


class EpisodeRecorder:
    """Turns streams of observations and applied steps into segments of :class:`Episode`.

    The executor's control steps are the clock: an observation belongs to the applied step whose
    stamp lies within ``tolerance_ns``. Rows are emitted strictly in time order, one control step
    apart. A missing or unpaired step, a jump of a sequence number, a value that is not finite, or
    any mode but ACTIVE ends the run; the next row starts an episode with a new number.

    Segments are at most ``segment_steps`` long, hold each row exactly once and carry the number of
    their episode: consumers :func:`~simdist.replay.episode.join` them, so windows may cross the
    borders of segments but never a gap.

    Observations and applied steps may arrive in any order and up to ``patience`` control steps
    apart; what is later than that counts as lost.
    """

    def __init__(
        self,
        dt_ns: int,
        *,
        contract: str = "",
        segment_steps: int = 100,
        tolerance_ns: int = 2_000_000,
        patience: int = 25,
    ) -> None:
        if not 2 <= segment_steps <= 100_000:
            raise ValueError(f"segment_steps = {segment_steps}: must be from 2 to 100000")
        self._dt_ns = dt_ns
        self._contract = contract
        self._segment_steps = segment_steps
        self._tolerance_ns = min(tolerance_ns, dt_ns // 2 - 1)
        self._patience_ns = patience * dt_ns
        self._observed: dict[int, Observed] = {}
        self._applied: dict[int, AppliedStep] = {}
        self._newest_ns = -(1 << 62)
        self._newest_sequence = -1
        self._done_ns = -(1 << 62)  #: stamps up to here have been dealt with
        self._rows: list[tuple[Observed, AppliedStep]] = []
        self._last: tuple[Observed, AppliedStep] | None = None
        self._episode = 0
        self._segments: list[Episode] = []
        self._kept = 0
        self._dropped = 0
        self._reasons: Counter[str] = Counter()

    def observe(
        self,
        stamp_ns: int,
        sequence: int,
        proprio: np.ndarray,
        scan: np.ndarray,
        command: np.ndarray,
    ) -> None:
        """An observation: ``proprio`` (P,), ``scan`` (E,), ``command`` (3,)."""
        values = [np.asarray(v, np.float32).reshape(-1) for v in (proprio, scan, command)]
        if not all(np.isfinite(v).all() for v in values) or len(values[2]) != 3:
            self._drop("observation not finite or misshapen")
            return
        # Late ones are not counted: the step they belong to was, or was not worth keeping.
        if stamp_ns <= self._done_ns:
            return
        if stamp_ns in self._observed:
            self._reasons["observation repeated"] += 1
            return
        self._observed[stamp_ns] = Observed(stamp_ns, sequence, *values)
        self._advance(stamp_ns)

    def apply(self, step: AppliedStep) -> None:
        """What the executor did in one control step, in any mode."""
        if not np.isfinite(step.action).all():
            self._drop("applied action not finite")
            return
        if self._clock_restarted(step):
            self.reset()
        if step.stamp_ns <= self._done_ns or step.stamp_ns in self._applied:
            self._reasons["applied step repeated or too late"] += 1
            return
        self._newest_sequence = max(self._newest_sequence, step.sequence)
        self._applied[step.stamp_ns] = step
        self._advance(step.stamp_ns)

    def close(self, reason: str = "closed") -> None:
        """Deal with everything that waits, and end the run: the next row starts an episode."""
        self._settle(self._newest_ns + self._patience_ns + self._dt_ns)
        self._end(reason)
        self._observed.clear()

    def reset(self) -> None:
        """The clock starts over (a new simulation): end the run and accept older stamps again."""
        self.close("reset")
        self._newest_ns = self._done_ns = -(1 << 62)

    def take_segments(self) -> list[Episode]:
        """Segments finished since the last call, oldest first."""
        segments, self._segments = self._segments, []
        return segments

    def status(self) -> RecorderStatus:
        return RecorderStatus(self._kept, self._dropped, dict(self._reasons), self._episode)

    def _clock_restarted(self, step: AppliedStep) -> bool:
        # The executor goes on counting when its clock goes back, so this is no late message.
        return (
            step.sequence > self._newest_sequence
            and step.stamp_ns < self._newest_ns - self._patience_ns
        )

    def _advance(self, stamp_ns: int) -> None:
        self._newest_ns = max(self._newest_ns, stamp_ns)
        self._settle(self._newest_ns)

    def _settle(self, now_ns: int) -> None:
        """Deal with applied steps in time order, as far as it is certain what belongs to them."""
        while self._applied:
            stamp_ns = min(self._applied)
            overdue = now_ns - stamp_ns > self._patience_ns
            step = self._applied[stamp_ns]
            # A step out of turn may still be preceded by one under way, a step without an
            # observation may still get it: both wait, but not for ever.
            in_turn = self._last is None or self._follows(step, self._last[1])
            observed = self._partner(stamp_ns)
            wanted = step.mode == Mode.ACTIVE
            if not overdue and (not in_turn or (wanted and observed is None)):
                return
            del self._applied[stamp_ns]
            self._done_ns = stamp_ns + self._tolerance_ns
            if observed is not None:
                del self._observed[observed.stamp_ns]
            self._forget_older_observations(stamp_ns - self._tolerance_ns)
            if not wanted:
                self._end(f"mode {step.mode.name}")
            elif observed is None:
                self._drop("applied step without observation")
                self._end("gap")
            else:
                self._keep(observed, step)
        # Observations that no step claims must not pile up.
        self._forget_older_observations(now_ns - 2 * self._patience_ns)

    def _keep(self, observed: Observed, step: AppliedStep) -> None:
        if self._last is not None and not (
            self._follows(step, self._last[1])
            and observed.sequence == self._last[0].sequence + 1
            and observed.proprio.shape == self._last[0].proprio.shape
            and observed.scan.shape == self._last[0].scan.shape
            and step.action.shape == self._last[1].action.shape
        ):
            self._end("gap")
        if self._last is None:
            self._episode += 1
        self._rows.append((observed, step))
        self._last = (observed, step)
        self._kept += 1
        if len(self._rows) >= self._segment_steps:
            self._emit()

    def _follows(self, step: AppliedStep, previous: AppliedStep) -> bool:
        return (
            step.stamp_ns - previous.stamp_ns == self._dt_ns
            and step.sequence == previous.sequence + 1
        )

    def _partner(self, stamp_ns: int) -> Observed | None:
        exact = self._observed.get(stamp_ns)
        if exact is not None:
            return exact
        near = [s for s in self._observed if abs(s - stamp_ns) <= self._tolerance_ns]
        return self._observed[min(near, key=lambda s: abs(s - stamp_ns))] if near else None

    def _forget_older_observations(self, stamp_ns: int) -> None:
        for old in [s for s in self._observed if s < stamp_ns]:
            del self._observed[old]

    def _drop(self, reason: str) -> None:
        self._dropped += 1
        self._reasons[reason] += 1

    def _end(self, reason: str) -> None:
        if self._last is None:
            return
        self._reasons[reason] += 1
        self._emit()
        self._last = None

    def _emit(self) -> None:
        if not self._rows:
            return
        observed = [row[0] for row in self._rows]
        applied = [row[1] for row in self._rows]
        self._rows = []
        self._segments.append(
            Episode(
                np.array([step.stamp_ns for step in applied], np.int64),
                np.stack([o.proprio for o in observed]),
                np.stack([o.scan for o in observed]),
                np.stack([np.asarray(step.action, np.float32) for step in applied]),
                np.stack([o.command for o in observed]),
                self._episode,
                self._contract,
            )
        )
