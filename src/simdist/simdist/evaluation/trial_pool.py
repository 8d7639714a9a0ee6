"""Many trials in one world, on worker processes that load what drives the robot only once."""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch

from simdist import robots
from simdist.errors import SimulationError
from simdist.evaluation.drivers import Driver, PrivilegedDriver
from simdist.evaluation.trials import Trial, TrialConfig, TrialResult
from simdist.observation import Observation, ObservationSpec
from simdist.replay import Episode, EpisodeRecorder
from simdist.robots import RobotSpec
from simdist.simulation.robot_simulation import RobotSimulation
from simdist.simulation.world import WorldSpec
from simdist.types import ActionChunk, AppliedStep

#: Of the exploration noise: share of it that lasts from one control step to the next, and standard
#: deviation in action units.
NOISE_CORRELATION, NOISE_STD = 0.85, 0.15

_FACTORIES_KEPT = 2  #: models in the memory of a worker

DriverFactory = Callable[[int, bool], Driver]
"""(seed, exploring) -> a fresh driver."""


class DriverSource(Protocol):
    """Where drivers come from: small, picklable and hashable, as it travels to the workers.

    Two sources are equal only if their drivers act alike, so a changed model needs another file
    name or hash in its source.
    """

    def load(self, robot: RobotSpec, world: WorldSpec) -> DriverFactory:
        """Read what drivers need; called once per worker."""
        ...


class NoisyDriver:
    """Adds first-order autoregressive noise to another driver's actions.

    The noise belongs to the time at which an action is played: plans that overlap carry the same.
    """

    def __init__(
        self,
        driver: Driver,
        robot: RobotSpec,
        seed: int,
        correlation: float = NOISE_CORRELATION,
        std: float = NOISE_STD,
    ) -> None:
        self._driver, self._robot = driver, robot
        self._rng = np.random.default_rng(seed)
        self._correlation, self._std = correlation, std
        self._noise = [self._rng.normal(size=robot.joint_count)]
        self._start_ns: int | None = None

    def begin(self, simulation: RobotSimulation) -> None:
        """A driver that looks behind the sensors does so with noise, too."""
        if isinstance(self._driver, PrivilegedDriver):
            self._driver.begin(simulation)

    def act(self, observation: Observation) -> ActionChunk:
        chunk = self._driver.act(observation)
        if self._start_ns is None:
            self._start_ns = chunk.stamp_ns
        begin = (chunk.stamp_ns - self._start_ns) // chunk.dt_ns
        noise = self._rows(begin, len(chunk.values))
        robot = self._robot
        values = chunk.values + robot.action_scale * self._std * noise
        return replace(chunk, values=np.clip(values, robot.position_lower, robot.position_upper))

    def _rows(self, begin: int, count: int) -> np.ndarray:
        while len(self._noise) < begin + count:
            fresh = self._rng.normal(size=self._robot.joint_count)
            kept = self._correlation
            self._noise.append(kept * self._noise[-1] + (1.0 - kept**2) ** 0.5 * fresh)
        return np.stack(self._noise[begin : begin + count])


@dataclass(frozen=True)
class TrialJob:
    """One trial to run; ``record`` asks for what the robot saw and did."""

    source: DriverSource
    config: TrialConfig
    exploring: bool = False
    noisy: bool = False
    record: bool = False


@dataclass(frozen=True)
class TrialOutcome:
    """How a trial went, and its recording: segments of one run, oldest first."""

    result: TrialResult
    segments: tuple[Episode, ...] = ()


@dataclass(frozen=True)
class TrialSetting:
    """What all trials of a pool have in common."""

    robot: str
    world: WorldSpec
    layout: ObservationSpec
    contract: str  #: hash of the contract that recordings are marked with
    line: float  #: m of progress at which a trial ends


class TrialRunner:
    """Runs trials of one setting in this process."""

    def __init__(self, setting: TrialSetting) -> None:
        self.setting = setting
        self.robot = robots.get(setting.robot)
        self._factories: dict[DriverSource, DriverFactory] = {}

    def run(self, job: TrialJob) -> TrialOutcome:
        """One trial; the outcome depends on the job alone."""
        with torch_threads(1):
            driver = self._factory(job.source)(job.config.seed, job.exploring)
            return self.drive(driver, job.config, noisy=job.noisy, record=job.record)

    def drive(
        self,
        driver: Driver,
        config: TrialConfig,
        *,
        noisy: bool = False,
        record: bool = False,
        on_step: Callable[[list[Episode]], None] | None = None,
    ) -> TrialOutcome:
        """One trial with a driver at hand; ``on_step`` is called after each control step, with
        the segments that became complete with it."""
        setting = self.setting
        trial = Trial(self.robot, setting.world, setting.layout, config, line=setting.line)
        recorder = EpisodeRecorder(round(self.robot.control_dt * 1e9), contract=setting.contract)
        segments: list[Episode] = []
        count = 0

        def step(observation: Observation, applied: AppliedStep) -> None:
            nonlocal count
            count += 1
            recorder.observe(
                observation.stamp_ns,
                count,
                observation.proprioception,
                observation.scan,
                observation.command,
            )
            recorder.apply(applied)
            finished = recorder.take_segments()
            segments.extend(finished)
            if on_step is not None:
                on_step(finished)

        if noisy:
            driver = NoisyDriver(driver, self.robot, config.seed)
        result = trial.run(driver, step if record or on_step else None)
        recorder.close()
        segments.extend(recorder.take_segments())
        return TrialOutcome(result, tuple(segments))

    def _factory(self, source: DriverSource) -> DriverFactory:
        if source not in self._factories:
            while len(self._factories) >= _FACTORIES_KEPT:
                del self._factories[next(iter(self._factories))]
            self._factories[source] = source.load(self.robot, self.setting.world)
        return self._factories[source]


class TrialPool:
    """Runs jobs on ``workers`` processes, or in this one for ``workers = 1``.

    Outcomes come in the order of the jobs and do not depend on the number of workers.
    """

    def __init__(self, setting: TrialSetting, workers: int) -> None:
        self.setting, self._workers = setting, workers
        self._local = TrialRunner(setting)
        self._pool: ProcessPoolExecutor | None = None

    @property
    def local(self) -> TrialRunner:
        """Runs a trial in this process."""
        return self._local

    def __enter__(self) -> TrialPool:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def run(self, jobs: Iterable[TrialJob]) -> Iterator[TrialOutcome]:
        """Outcomes one after the other. Jobs are drawn as workers become free, so endless jobs may
        be given; who stops listening wastes only what is under way."""
        if self._workers <= 1:
            yield from map(self._local.run, jobs)
            return
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self._workers,
                # Spawned, not forked: torch and MuJoCo keep threads of their own.
                mp_context=multiprocessing.get_context("spawn"),
                initializer=_start_worker,
                initargs=(self.setting,),
            )
        waiting: deque[Future[TrialOutcome]] = deque()
        jobs = iter(jobs)
        try:
            for job in jobs:
                waiting.append(self._pool.submit(_run_in_worker, job))
                if len(waiting) > self._workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise SimulationError(
                "a worker process died, perhaps for lack of memory; run again with --workers 1, "
                "what is finished is kept"
            ) from None
        finally:
            for future in waiting:
                future.cancel()


@contextlib.contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sums depend on how many threads share them, so whoever wants to repeat a result says."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


_runner: TrialRunner | None = None  #: of a worker process


def _start_worker(setting: TrialSetting) -> None:
    global _runner
    torch.set_num_threads(1)
    # Ctrl-C goes to the whole process group; only the parent answers it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()
    _runner = TrialRunner(setting)


def _end_with(sentinel: int) -> None:
    """A killed parent cannot tell its workers to end: they would wait for jobs for ever."""
    multiprocessing.connection.wait([sentinel])
    os._exit(1)


def _run_in_worker(job: TrialJob) -> TrialOutcome:
    assert _runner is not None, "the worker was not started by TrialPool"
    return _runner.run(job)
