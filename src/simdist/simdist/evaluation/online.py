"""Adapting while the robot walks: the asynchronous path of the running graph, in lockstep time.

One robot walks trial after trial. A learner beside it gets a fixed number of gradient steps per
second of simulated time, as :mod:`simdist.nodes.finetune` gets what the processor has left, and
what passes its gate is checked and swapped in between two plans, as :mod:`simdist.nodes.planner`
does. Nothing depends on how fast the machine is.
"""

from __future__ import annotations

from dataclasses import replace

from simdist.adaptation import AcceptanceGate, Losses, RunningModel, UpdateStore
from simdist.adaptation.finetune import mean_latent_loss
from simdist.adaptation.session import AdaptationSession, Attempt, SessionConfig
from simdist.adaptation.windows import EncodedWindows, robot_windows
from simdist.errors import SimdistError
from simdist.evaluation.collection import RESET_SECONDS, RobotData
from simdist.evaluation.methods import AdaptingMethod, LearnReport, MethodContext
from simdist.evaluation.trial_pool import torch_threads
from simdist.observation import Observation
from simdist.planning import MppiPlanner, self_test
from simdist.planning.loop import PlanningLoop
from simdist.replay import Episode
from simdist.types import ActionChunk
from simdist.world_model.state_encoder import StateEncoder

#: As in config/nodes.yaml, whose finetuning is shorter than that of a whole round.
STEPS_PER_UPDATE = 150
MIN_NEW_SECONDS = 15.0  #: of robot data between two updates
MOST_SECONDS = 36_000.0
#: A trial is learned from or held out as a whole.
GROUP_SECONDS = 3600.0


class SwappingDriver:
    """The planner; other dynamics may be swapped in between two plans."""

    def __init__(self, context: MethodContext, model: RunningModel, seed: int) -> None:
        self._planner = MppiPlanner(model.model, context.robot, replace(context.planner, seed=seed))
        self._encoder = StateEncoder(model.model)
        self._loop = PlanningLoop(
            self._planner,
            context.robot,
            contract=model.contract,
            commit_steps=context.plan.delay_steps,
        )
        self._version = model.version

    def act(self, observation: Observation) -> ActionChunk:
        context, latent = self._encoder.encode(observation)
        chunk, _ = self._loop.plan(
            observation.stamp_ns, context, latent, observation.command, model_version=self._version
        )
        return chunk

    def swap(self, model: RunningModel) -> None:
        """Plan with ``model`` from the next plan on."""
        self._planner.swap(model.model)
        self._version = model.version


class OnlineDynamics(AdaptingMethod):
    """Learns while it walks, continuing from update to update.

    For an evaluation the robot stops. An update under way is then dropped, so that a run that is
    continued from there goes on as one that was never interrupted.
    """

    wants_data = False

    def __init__(self, name: str, context: MethodContext) -> None:
        super().__init__(name, context)
        self._config = replace(
            context.finetune,
            steps=STEPS_PER_UPDATE,
            warm_up=min(context.finetune.warm_up, STEPS_PER_UPDATE),
            seed=context.seed,
        )

    def learn(self, data: RobotData, minutes: float) -> LearnReport:
        context = self.context
        walk = _Walk(
            context,
            AdaptationSession(
                self.current,
                self.finetuner(self._config),
                AcceptanceGate(context.gate),
                SessionConfig(
                    min_new_seconds=MIN_NEW_SECONDS,
                    capacity_seconds=MOST_SECONDS,
                    group_seconds=GROUP_SECONDS,
                ),
                context.robot.control_dt,
            ),
            UpdateStore(self.current),
            data,
        )
        # Plans and gradients share one thread's worth of time, as the numbers of both depend on it.
        with torch_threads(1):
            while data.room(minutes):
                walk.trial(minutes)
        self.current = walk.store.current
        attempts = walk.attempts
        accepted = sum(attempt.accepted for attempt in attempts)
        reason = f"{accepted} of {len(attempts)} updates accepted"
        if attempts and not accepted:
            reason += f", the last one because: {attempts[-1].reason}"
        if walk.refused:
            reason += f"; the planner refused {len(walk.refused)}: {walk.refused[-1]}"
        return LearnReport(
            accepted > len(walk.refused),
            reason,
            walk.steps,
            self._losses(data),
        )

    def _losses(self, data: RobotData) -> Losses | None:
        """Of the pretrained and the current model, on trials that no update has learned from."""
        held_out = data.buffer().episodes(held_out=True)
        sizes = self.pretrained.model.config
        if not any(len(episode) > sizes.history + sizes.horizon for episode in held_out):
            return None
        windows = robot_windows(held_out, sizes.history, sizes.horizon)
        simulation = self.simulation().validation
        most, cache = self._config.evaluation_windows, self._config.cache_mib * 2**20
        pair = (self.pretrained.model, self.current.model)
        return Losses(
            *(mean_latent_loss(m, EncodedWindows(m, windows, cache), most) for m in pair),
            *(mean_latent_loss(m, EncodedWindows(m, simulation, cache), most) for m in pair),
        )


class _Walk:
    """A robot and its learner between two evaluations."""

    def __init__(
        self,
        context: MethodContext,
        session: AdaptationSession,
        store: UpdateStore,
        data: RobotData,
    ) -> None:
        self.store = store
        self.attempts: list[Attempt] = []
        self.refused: list[str] = []  #: why the planner did not adopt an accepted update
        self.steps = 0
        self._context, self._session, self._data = context, session, data
        self._steps_per_dt = context.learning.online_steps_per_second * context.robot.control_dt
        self._steps_due = 0.0
        self._driver: SwappingDriver | None = None
        for trial in data.trials:
            for segment in trial.segments:
                self._add(segment)

    def trial(self, minutes: float) -> None:
        """Walk once, as long as there is time left, and learn meanwhile."""
        context, data = self._context, self._data
        index, number = len(data.trials), len(data.trials) + 1
        config = context.plan.trial(index)
        steps = round(min(config.seconds, data.room(minutes)) / context.robot.control_dt)
        config = replace(config, seconds=max(steps, 1) * context.robot.control_dt)
        self._driver = SwappingDriver(context, self.store.current, config.seed)
        received = 0

        def step(segments: list[Episode]) -> None:
            nonlocal received
            for segment in segments:
                self._add(replace(segment, episode=number))
            received += len(segments)
            self._learn(1)

        outcome = context.pool.local.drive(
            self._driver, config, noisy=context.plan.noisy(index), record=True, on_step=step
        )
        for segment in outcome.segments[received:]:
            self._add(replace(segment, episode=number))
        data.add(context.plan.recorded(index, outcome), minutes)
        if outcome.result.fallen:
            self._learn(round(RESET_SECONDS / context.robot.control_dt))
        context.progress(data.trials[-1].cost)

    def _add(self, segment: Episode) -> None:
        problem = self._session.add(segment)
        if problem is not None:
            raise SimdistError(f"robot data does not fit the model: {problem}")

    def _learn(self, control_steps: int) -> None:
        """What the learner does in this time."""
        self._steps_due += control_steps * self._steps_per_dt
        while self._steps_due >= 1.0:
            self._steps_due -= 1.0
            if not self._session.begin():
                continue
            self.steps += 1
            attempt = self._session.step()
            if attempt is not None:
                self._finish(attempt)

    def _finish(self, attempt: Attempt) -> None:
        self.attempts.append(attempt)
        if attempt.update is None:
            return
        robot = self._context.robot
        try:
            model = self.store.prepare(attempt.update, lambda model: self_test(model, robot))
            self.store.adopt(attempt.update, model)
        except SimdistError as error:
            self.refused.append(str(error))
            return
        self._session.running(model.version)
        if self._driver is not None:
            self._driver.swap(model)
