"""What can be learned from a recording: episodes, and a report on everything else in it."""

from __future__ import annotations

import hashlib
import itertools
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from simdist.errors import BagError
from simdist.replay.episode import Episode, data_hash, join
from simdist.replay.mcap import Channel, Survey
from simdist.replay.messages import same_definition, typestore
from simdist.replay.recorder import EpisodeRecorder, Observed
from simdist.replay.storage import Recording, problems_text
from simdist.robots import RobotSpec
from simdist.types import AppliedStep, Mode

OBSERVATION = "simdist_msgs/msg/Observation"
APPLIED_COMMAND = "simdist_msgs/msg/AppliedCommand"

#: What a recording needs to be learned from: last part of the topic name -> type.
LEARNING_TOPICS = {"observation": OBSERVATION, "applied_command": APPLIED_COMMAND}

_NS = 1_000_000_000
#: Stamps farther than this from the median of a recording were made by another clock.
_FAR_NS = 24 * 3600 * _NS
#: A pause longer than this is a pause, no loss of messages.
_PAUSE_NS = 60 * _NS
#: No sensor of a robot measures that much, in any SI unit.
_ABSURD = 1e6
#: A message of these types is far smaller; what is larger is not decoded.
_MAX_LEARNING_MESSAGE = 4 << 20
_TOLERANCE_NS = 2_000_000
#: Why a stamp cannot be meant.
_NO_STAMP = ("stamp zero or negative", "stamp more than a day from the others")

T = TypeVar("T")


@dataclass
class BagReport:
    """What was found in a recording and what of it can be learned from."""

    path: Path
    messages: dict[str, int] = field(default_factory=dict)  #: by topic, of the topics used
    episodes: int = 0
    steps: int = 0
    seconds: float = 0.0  #: of an acting robot that can be learned from
    lost: dict[str, float] = field(default_factory=dict)  #: s of an acting robot lost, by reason
    rejected: dict[str, int] = field(default_factory=dict)  #: messages, by reason
    repeated: dict[str, int] = field(default_factory=dict)  #: messages met again, which is no harm
    breaks: dict[str, int] = field(default_factory=dict)  #: ends of runs and lost steps, by reason
    recovered: bool = False  #: the recording was torn or damaged; what is complete was read
    lost_bytes: int = 0  #: at the torn end
    data_hash: str = ""  #: the same recording always gives the same

    @property
    def seconds_lost(self) -> float:
        """Of an acting robot, as far as it is known."""
        return sum(self.lost.values())

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "path": str(self.path), "seconds_lost": self.seconds_lost}

    def lines(self) -> list[str]:
        """The report for people."""
        found = ", ".join(f"{count} × {topic}" for topic, count in self.messages.items())
        text = [
            f"{self.path}: {found}",
            f"{self.episodes} episodes, {self.steps} steps, {self.seconds:.1f} s",
        ]
        if self.lost:
            listed = ", ".join(f"{s:.2f} s {why}" for why, s in sorted(self.lost.items()))
            text.append(f"lost: {self.seconds_lost:.2f} s of an acting robot ({listed})")
        counted = {"rejected": self.rejected, "repeated": self.repeated, "breaks": self.breaks}
        for title, counts in counted.items():
            if counts:
                text.append(f"{title}: {problems_text(Counter(counts))}")
        if self.recovered:
            text.append(f"torn: complete chunks were read, {self.lost_bytes} bytes lost")
        return text

    def kept(self, episodes: list[Episode], dt: float) -> None:
        """Set the figures of what is kept."""
        self.episodes = len(episodes)
        self.steps = sum(map(len, episodes))
        self.seconds = self.steps * dt
        self.data_hash = data_hash(episodes)

    def damage(self, survey: Survey) -> None:
        """Take over what the files lack."""
        self.recovered = not survey.finished or bool(survey.problems)
        self.lost_bytes = survey.lost_bytes


class _ByStamp(Generic[T]):
    """Items of one kind; what shares its stamp with something else is not to be trusted."""

    def __init__(self, what: str, rejected: Counter[str]) -> None:
        self._what, self._rejected = what, rejected
        self._items: dict[int, dict[bytes, T]] = {}
        self.refused: dict[int, str] = {}  #: stamp -> why
        self.repeated = 0

    def add(self, stamp_ns: int, data: bytes, item: T) -> None:
        same = self._items.setdefault(stamp_ns, {})
        digest = hashlib.sha256(data).digest()
        if digest in same:
            self.repeated += 1
        same[digest] = item

    def refuse(self, stamp_ns: int, reason: str, count: int = 1) -> None:
        self._rejected[reason] += count
        self.refused[stamp_ns] = reason

    def stamps(self) -> list[int]:
        return sorted(self._items)

    def pop(self, stamp_ns: int, reason: str) -> None:
        self.refuse(stamp_ns, reason, len(self._items.pop(stamp_ns)))

    def settle(self) -> list[T]:
        """The trustworthy items in the order of their stamps, whatever order they came in."""
        for stamp_ns in [s for s, same in self._items.items() if len(same) > 1]:
            self.pop(stamp_ns, f"{self._what}s that share a stamp and differ")
        return [next(iter(self._items[stamp_ns].values())) for stamp_ns in self.stamps()]


def read_episodes(
    path: Path | str,
    robot: RobotSpec,
    contract: str | None = None,
    *,
    namespace: str | None = None,
    layout: tuple[int, int] | None = None,
    min_steps: int = 1,
) -> tuple[list[Episode], BagReport]:
    """Read what a robot did while ACTIVE.

    Messages are ordered by header stamp and sequence, never by arrival. ``contract`` is the hash
    of the model to be taught; observations made for another one are rejected and counted. With
    None the contract of most observations counts, and with ``layout`` None their sizes of
    proprioception and exteroception. ``namespace`` chooses a robot where the recording holds
    several. Runs shorter than ``min_steps`` are dropped and counted.

    Raises:
        BagError: no recording, none of our topics, topics of several robots, or nothing but
            foreign contracts, joints or versions of the messages.
    """
    recording = Recording(path)
    survey = recording.survey()
    report = BagReport(recording.path)
    report.damage(survey)
    rejected: Counter[str] = Counter(survey.problems)
    chosen = _choose(survey, recording, namespace, rejected)
    report.messages = dict.fromkeys(sorted(c.topic for c in chosen), 0)
    by_contract: dict[str, _ByStamp[Observed]] = {}
    applied: _ByStamp[AppliedStep] = _ByStamp("applied command", rejected)
    foreign: dict[int, str] = {}
    store = typestore()
    for message in recording.messages(lambda channel: channel in chosen):
        topic, kind = message.channel.topic, message.channel.kind
        report.messages[topic] += 1
        if len(message.data) > _MAX_LEARNING_MESSAGE:
            rejected[f"{kind.rsplit('/', 1)[-1]} over the size limit"] += 1
            continue
        try:
            decoded: Any = store.deserialize_cdr(message.data, kind)
            if kind == OBSERVATION:
                seen = _observed(decoded)
                of_contract = by_contract.setdefault(
                    str(decoded.contract), _ByStamp("observation", rejected)
                )
                of_contract.add(seen.stamp_ns, message.data, seen)
                continue
            step = _applied_step(decoded, robot)
        except Exception:  # bytes that anybody may have written
            rejected[f"{kind.rsplit('/', 1)[-1]} cannot be decoded"] += 1
            continue
        if isinstance(step, AppliedStep):
            applied.add(step.stamp_ns, message.data, step)
        else:
            rejected[step] += 1
            if decoded.mode == Mode.ACTIVE:
                foreign[_stamp_ns(decoded)] = step

    steps = applied.settle()
    contract, observations = _of_contract(path, by_contract, contract, rejected)
    kept = observations.settle()
    if not steps and rejected["joint names"]:
        raise BagError(
            f"{path} was recorded with another robot: its joints are not those of {robot.name}"
        )
    kept = _of_layout(kept, layout, observations)
    kept, steps = _of_one_clock(kept, steps, observations, applied)
    episodes, breaks = _pair(kept, steps, robot, contract)
    long = [episode for episode in episodes if len(episode) >= min_steps]
    short = {int(s) for e in episodes if len(e) < min_steps for s in e.stamp_ns}
    report.breaks = breaks
    report.rejected = {why: count for why, count in rejected.items() if count}
    repeats = {"observation": observations.repeated, "applied command": applied.repeated}
    report.repeated = {what: count for what, count in repeats.items() if count}
    report.kept(long, robot.control_dt)
    why = {stamp_ns: f"in runs shorter than {min_steps} steps" for stamp_ns in short}
    report.lost = _losses(steps, long, why, observations.refused, {**applied.refused, **foreign},
                          robot.control_dt)  # fmt: skip
    return long, report


# ---------------------------------------------------------------------- choosing


def _choose(
    survey: Survey, recording: Recording, namespace: str | None, rejected: Counter[str]
) -> set[Channel]:
    """The channels to learn from; raises BagError when they are missing or ambiguous."""
    path, chosen = recording.path, set()
    other: list[Channel] = []
    for name, kind in LEARNING_TOPICS.items():
        only = None if namespace is None else f"/{namespace.strip('/')}/{name}".replace("//", "/")
        fitting = [
            c
            for c in survey.counts
            if c.topic.rsplit("/", 1)[-1] == name
            and c.kind == kind
            and (only is None or c.topic == only)
        ]
        if len({c.topic for c in fitting}) > 1:
            raise BagError(
                f"{path} holds several robots: {', '.join(sorted({c.topic for c in fitting}))}; "
                "choose one by its namespace"
            )
        if not fitting:
            found = ", ".join(sorted(f"{c.topic} ({c.kind})" for c in survey.counts)) or "none"
            where = f" in namespace {namespace}" if namespace else ""
            wanted = ", ".join(f"{n} ({k})" for n, k in LEARNING_TOPICS.items())
            raise BagError(f"{path} lacks {name}{where}: wanted {wanted}; found {found}")
        current = [c for c in fitting if _is_current(c, recording)]
        old = [c for c in fitting if c not in current]
        if not current:
            raise BagError(
                f"{path}: {old[0].topic} was recorded with another version of {kind}; "
                "learn from it with the version that recorded it"
            )
        chosen |= set(current)
        other += old
    for channel in other:
        rejected[f"{channel.kind.rsplit('/', 1)[-1]} in another version"] += survey.counts[channel]
    return chosen


def _is_current(channel: Channel, recording: Recording) -> bool:
    if channel.definition:
        return same_definition(channel.kind, channel.schema_encoding, channel.definition)
    digest = recording.metadata.digests.get(channel.topic)
    return not digest or digest == typestore().hash_rihs01(channel.kind)


def _of_contract(
    path: Path | str,
    found: dict[str, _ByStamp[Observed]],
    contract: str | None,
    rejected: Counter[str],
) -> tuple[str, _ByStamp[Observed]]:
    """The observations made for ``contract``, by default that of the most of them."""
    if contract is None:
        contract = max(found, key=lambda name: (len(found[name].stamps()), name), default="")
    if found and contract not in found:
        raise BagError(
            f"{path} was recorded with another model contract: wanted {contract}, found "
            f"{', '.join(sorted(found)[:3])}; use a model with that contract"
        )
    chosen = found.get(contract) or _ByStamp("observation", rejected)
    for name in sorted(set(found) - {contract}):
        for stamp_ns in found[name].stamps():
            chosen.refuse(stamp_ns, "observation of another contract")
    return contract, chosen


def _of_layout(
    found: list[Observed], layout: tuple[int, int] | None, observations: _ByStamp[Any]
) -> list[Observed]:
    """Those with the right sizes and numbers that something can be learned from."""
    sizes = [(len(seen.proprio), len(seen.scan)) for seen in found]
    layout = layout or _most(sizes)
    kept = []
    for size, seen in zip(sizes, found, strict=True):
        values = (seen.proprio, seen.scan, seen.command)
        if size != layout:
            observations.refuse(seen.stamp_ns, "observation of another layout")
        elif not all(np.isfinite(v).all() for v in values):
            observations.refuse(seen.stamp_ns, "observation not finite")
        elif any(np.abs(v).max(initial=0) > _ABSURD for v in values):
            observations.refuse(seen.stamp_ns, "observation with absurd values")
        else:
            kept.append(seen)
    return kept


def _of_one_clock(
    observations: list[Observed],
    steps: list[AppliedStep],
    refused_observations: _ByStamp[Any],
    refused_steps: _ByStamp[Any],
) -> tuple[list[Observed], list[AppliedStep]]:
    """Without those whose stamps cannot be meant: not positive, or days from most others."""
    acting = [step for step in steps if step.mode == Mode.ACTIVE]
    stamps = sorted(s for s in [i.stamp_ns for i in (*observations, *acting)] if s > 0)
    middle = stamps[len(stamps) // 2] if stamps else 0

    def problem(stamp_ns: int) -> str | None:
        if stamp_ns <= 0:
            return _NO_STAMP[0]
        if abs(stamp_ns - middle) > _FAR_NS:
            return _NO_STAMP[1]
        return None

    kept, kept_steps = [], []
    for seen in observations:
        reason = problem(seen.stamp_ns)
        if reason is None:
            kept.append(seen)
        else:
            refused_observations.refuse(seen.stamp_ns, reason)
    for step in steps:
        reason = problem(step.stamp_ns) if step.mode == Mode.ACTIVE else None
        if reason is None and not np.isfinite(step.action).all():
            reason = "applied command not finite"
        elif reason is None and np.abs(step.action).max(initial=0) > _ABSURD:
            reason = "applied command with absurd values"
        if reason is None:
            kept_steps.append(step)
        else:
            refused_steps.refuse(step.stamp_ns, reason)
    return kept, kept_steps


def _most(values: Iterable[T]) -> T | None:
    """The most frequent value; of equally frequent ones the greatest, so that order is nothing."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value)) if counts else None  # type: ignore[arg-type,operator]


# ---------------------------------------------------------------------- pairing


def _pair(
    observations: list[Observed], applied: list[AppliedStep], robot: RobotSpec, contract: str
) -> tuple[list[Episode], dict[str, int]]:
    dt_ns = round(robot.control_dt * _NS)
    recorder = EpisodeRecorder(dt_ns, contract=contract, tolerance_ns=_TOLERANCE_NS)
    waiting = iter(observations)
    seen = next(waiting, None)
    for step in applied:
        # An observation may be stamped slightly after the step it belongs to.
        while seen is not None and seen.stamp_ns <= step.stamp_ns + dt_ns:
            recorder.observe(seen.stamp_ns, seen.sequence, seen.proprio, seen.scan, seen.command)
            seen = next(waiting, None)
        recorder.apply(step)
    recorder.close("end of recording")
    return join(recorder.take_segments(), dt_ns), recorder.status().reasons


def _losses(
    steps: list[AppliedStep],
    episodes: list[Episode],
    short: dict[int, str],
    observations: dict[int, str],
    applied: dict[int, str],
    dt: float,
) -> dict[str, float]:
    """Seconds in which the robot acted and that are not in ``episodes``, by reason."""
    dt_ns = round(dt * _NS)
    lost: Counter[str] = Counter()
    kept = {int(stamp_ns) for episode in episodes for stamp_ns in episode.stamp_ns}
    near = sorted(observations)
    acting = {step.stamp_ns: step.mode == Mode.ACTIVE for step in steps}
    # Those whose stamps cannot be meant leave a gap, which is counted as such.
    plausible = {s: why for s, why in applied.items() if why not in _NO_STAMP}
    for stamp_ns, active in acting.items():
        if active and stamp_ns not in kept:
            at = bisect_left(near, stamp_ns - _TOLERANCE_NS)
            refused = at < len(near) and near[at] <= stamp_ns + _TOLERANCE_NS
            why = observations[near[at]] if refused else "observation missing"
            lost[short.get(stamp_ns, why)] += 1
    lost.update(plausible.values())
    timeline = sorted({**dict.fromkeys(plausible, True), **acting}.items())
    for (earlier, was), (later, is_) in itertools.pairwise(timeline):
        pause = later - earlier
        if was and is_ and 3 * dt_ns < 2 * pause <= 2 * _PAUSE_NS:
            lost["applied command missing"] += round(pause / dt_ns) - 1
    return {why: round(count * dt, 6) for why, count in lost.items() if count}


# ---------------------------------------------------------------------- messages


def _stamp_ns(message: Any) -> int:
    stamp = message.header.stamp
    return int(stamp.sec) * _NS + int(stamp.nanosec)


def _observed(message: Any) -> Observed:
    return Observed(
        _stamp_ns(message),
        int(message.sequence),
        np.array(message.proprioception, np.float32),
        np.array(message.exteroception, np.float32),
        np.array(message.command, np.float32),
    )


def _applied_step(message: Any, robot: RobotSpec) -> AppliedStep | str:
    """The applied step in the robot's joint order, or why it is rejected."""
    n = robot.joint_count
    names = list(message.names)
    if sorted(names) != sorted(robot.joint_names):
        return "joint names"
    if len(message.action) != n or len(message.position_target) != n:
        return "applied command of the wrong length"
    if message.mode not in tuple(Mode):
        return "unknown mode"
    columns = [names.index(name) for name in robot.joint_names]
    return AppliedStep(
        stamp_ns=_stamp_ns(message),
        sequence=int(message.sequence),
        action=np.asarray(message.action, np.float64)[columns],
        position_target=np.asarray(message.position_target, np.float64)[columns],
        mode=Mode(message.mode),
        chunk_sequence=int(message.chunk_sequence),
        chunk_row=int(message.chunk_row),
    )
