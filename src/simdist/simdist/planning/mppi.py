"""Model-predictive path integral control over the latent world model.

Williams et al. 2017 for the algorithm, TD-MPC2 (Hansen et al. 2024) for prior samples and elites.
Plans are anchored: what the planner remembers from one plan to the next is only its deviation from
the policy prior. A plan left to itself drifts to actions that a small model likes and a robot
falls over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simdist.planning.backends import BackendFactory, PlanBackend, PlanningProblem, choose
from simdist.planning.config import PlannerConfig
from simdist.planning.plan import Foresight, Numbers, Plan, PlanningError
from simdist.planning.sequences import action_limits, float32, shift
from simdist.robots import RobotSpec

if TYPE_CHECKING:
    from simdist.world_model.network import WorldModel


@dataclass(frozen=True)
class _Basis:
    """What a plan was made from."""

    plan: Plan
    model: WorldModel
    context: Tensor  #: (B, L, D)
    actions: Tensor  #: (B, N, T, A) of the samples
    returns: Tensor  #: (B, N)


class MppiPlanner:
    """Plans action sequences for one robot, or for ``B`` robots that share a world model.

    Every robot has its own noise (seed ``config.seed + row``), so its plans do not depend on how
    many others are planned for at the same time.
    """

    def __init__(
        self,
        model: WorldModel,
        robot: RobotSpec,
        config: PlannerConfig | None = None,
        backend: str | BackendFactory = "auto",
    ) -> None:
        self.config = config or PlannerConfig()
        self._model = model
        self._make_backend = choose(backend) if isinstance(backend, str) else backend
        self._backend: PlanBackend = self._make_backend(model, self.config.discount)
        self._limits = action_limits(robot, self.config.action_clip)
        self._colour = _colouring(self._backend.horizon, self.config.noise_correlation)
        self._deviation: Tensor | None = None  # (B, T, A) of the last plan from its prior
        self._generators: list[torch.Generator] = []
        self._basis: _Basis | None = None  #: of the last plan

    @torch.inference_mode()
    def reset(self, rows: Sequence[int] | None = None) -> None:
        """Forget the last plan, of all robots or of some: the next one starts at the prior."""
        if rows is None:
            self._deviation = None
        elif self._deviation is not None:
            self._deviation[list(rows)] = 0.0

    def swap(self, model: WorldModel) -> None:
        """Plan with other weights from the next plan on; the warm start stays.

        A plan that is being made keeps the weights it began with.
        """
        backend = self._make_backend(model, self.config.discount)
        if backend.horizon != self._backend.horizon:
            raise PlanningError(
                f"cannot swap in a model of horizon {backend.horizon}: the planner's is "
                f"{self._backend.horizon}"
            )
        self._backend, self._model = backend, model

    @torch.inference_mode()
    def plan(
        self,
        context: Numbers,
        latent: Numbers,
        command: Numbers,
        *,
        elapsed: int = 1,
        committed: Numbers | None = None,
    ) -> Plan:
        """The next actions.

        Args:
            context: ``(B, L, D)`` encoded history.
            latent: ``(B, D)`` present latent state.
            command: ``(B, C)`` commanded velocity, taken to last over the horizon.
            elapsed: control steps since the state the last plan was made for.
            committed: ``(d, A)`` or ``(B, d, A)`` actions that will be played first whatever this
                plan says, because computing it takes time; every sample begins with them.

        Raises:
            PlanningError: an input or the policy's answer is not finite; earlier plans are then
                forgotten.
        """
        config, model = self.config, self._model
        context, latent, command = float32(context), float32(latent), float32(command)
        self._require_finite("observation context", context)
        self._require_finite("latent", latent)
        self._require_finite("command", command)

        problem = self._backend.prepare(context, latent, command)
        policy = problem.prior()
        self._require_finite("policy prior", policy)
        self._remember(policy)
        first = self._committed(committed, policy)
        prior = self._admissible(policy[:, None], first)[:, 0]
        mean = config.anchor * self._shifted_deviation(elapsed)
        std = torch.full_like(mean, config.std)

        # The last samples belong to the policy and do not change, so they are scored once, together
        # with the first samples around the mean.
        shape = prior.shape[0], config.samples, *prior.shape[1:]
        deviations, actions = torch.empty(shape), torch.empty(shape)
        returns = torch.empty(shape[:2])
        around_mean = slice(0, config.samples - config.prior_samples)
        around_prior = slice(around_mean.stop, config.samples)
        deviations[:, around_prior] = config.std * self._noise(config.prior_samples)
        deviations[:, -1] = 0.0

        dropped = torch.zeros(len(prior), dtype=torch.long)
        weights = torch.zeros_like(returns)
        plan = prior
        unscored = slice(None)
        for _ in range(config.iterations):
            samples = mean[:, None] + std[:, None] * self._noise(around_mean.stop)
            samples[:, 0] = mean
            deviations[:, around_mean] = samples
            scored = self._score(problem, deviations[:, unscored], prior, first)
            actions[:, unscored], deviations[:, unscored], returns[:, unscored] = scored
            dropped += (~returns[:, unscored].isfinite()).sum(1)
            unscored = around_mean

            weights = _weights(returns, config.temperature, config.elites)
            plan = torch.einsum("bn,bnta->bta", weights, actions)
            mean = torch.einsum("bn,bnta->bta", weights, deviations)
            spread = (deviations - mean[:, None]).square()
            std = torch.einsum("bn,bnta->bta", weights, spread).sqrt()
            std = std.clamp(config.std_min, config.std_max)
            # Without any finite return the weights are all zero, and zero is no plan.
            some = returns.isfinite().any(1)[:, None, None]
            plan, mean = torch.where(some, plan, prior), torch.where(some, mean, 0.0)
            # A weighted mean of admissible samples is admissible up to rounding.
            plan = self._admissible(plan[:, None], first)[:, 0]

        self._deviation = mean
        answer = self._answer(plan, prior, returns, weights, dropped)
        self._basis = _Basis(answer, model, context, actions, returns)
        return answer

    @torch.inference_mode()
    def foresee(self, plan: Plan, elites: int = 8) -> Foresight:
        """What the model that ``plan`` was made with expects of it and of its best samples.

        Computed when asked, so that planning does not pay for it. Raises PlanningError unless
        ``plan`` is the last one: what others were made from is forgotten.
        """
        basis = self._basis
        if basis is None or basis.plan is not plan:
            raise PlanningError("only the last plan can be foreseen: ask before making another")
        robots, samples, horizon, width = basis.actions.shape
        scores = torch.where(basis.returns.isfinite(), basis.returns, -torch.inf)
        best = scores.topk(min(elites, samples), dim=1)
        chosen = best.indices[..., None, None].expand(-1, -1, horizon, width)
        sequences = torch.cat(
            [torch.from_numpy(plan.actions)[:, None], basis.actions.gather(1, chosen)], 1
        )
        keys = basis.model.prepare_context(basis.context)
        latents = basis.model.dynamics(keys, sequences.flatten(0, 1))
        latents = latents.unflatten(0, (robots, -1)).numpy()
        return Foresight(latents[:, 0], latents[:, 1:], best.values.numpy())

    def _score(
        self, problem: PlanningProblem, deviations: Tensor, prior: Tensor, first: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Actions, deviations and returns of samples that deviate ``(B, N, T, A)`` from the policy.

        Without feedback the policy is the prior's sequence, and deviations are what the limits
        leave of them. In closed loop only the first actions come from the prior; from then on the
        reactive policy answers what the model predicts, and deviations are added to its answers.
        A model without one can only be planned with around the prior.
        """
        if not self.config.closed_loop or self._model.reactive is None:
            actions = self._admissible(prior[:, None] + deviations, first)
            return actions, actions - prior[:, None], problem.returns(actions)
        head = slice(0, 1 if first is None else first.shape[1])
        begin = self._admissible(prior[:, None, head] + deviations[:, :, head], first)
        actions, returns = problem.follow(deviations, begin, self._limits)
        # Where the prediction broke down the policy's answers did, too, and without any weight they
        # would still make a mean that is not finite.
        sound = returns.isfinite() & actions.isfinite().flatten(2).all(2)
        actions = torch.where(sound[..., None, None], actions, prior[:, None])
        return actions, deviations, torch.where(sound, returns, torch.nan)

    def _answer(
        self, mean: Tensor, prior: Tensor, returns: Tensor, weights: Tensor, dropped: Tensor
    ) -> Plan:
        finite = returns.isfinite()
        count = finite.sum(1)
        kept = torch.where(finite, returns, 0.0)
        average = kept.sum(1) / count
        deviations = torch.where(finite, returns - average[:, None], 0.0)
        reason = (
            f"none of {self.config.samples} samples has a finite return; playing the policy prior"
        )
        return Plan(
            actions=mean.numpy(),
            prior=prior.numpy(),
            predicted_return=torch.where(count > 0, (weights * kept).sum(1), torch.nan).numpy(),
            prior_return=returns[:, -1].numpy(),
            return_spread=(deviations.square().sum(1) / count).sqrt().numpy(),
            dropped=dropped.numpy(),
            reasons=tuple("" if good else reason for good in count.tolist()),
        )

    def _shifted_deviation(self, elapsed: int) -> Tensor:
        """The last plan's deviation from its prior, moved ``elapsed`` steps towards the present;
        its last row stands in for the steps it did not reach."""
        assert self._deviation is not None
        return shift(self._deviation, elapsed)

    def _remember(self, policy: Tensor) -> None:
        """Make room for the deviations and the noise of as many robots as ``policy`` has rows."""
        robots = policy.shape[0]
        if self._deviation is None or self._deviation.shape[0] != robots:
            self._deviation = torch.zeros_like(policy)
        while len(self._generators) < robots:
            seed = self.config.seed + len(self._generators)
            self._generators.append(torch.Generator().manual_seed(seed))

    def _committed(self, committed: Numbers | None, policy: Tensor) -> Tensor | None:
        if committed is None:
            return None
        robots, horizon, width = policy.shape
        first = float32(committed)
        if first.dim() == 2:
            first = first.expand(robots, -1, -1)
        if first.shape[0] != robots or first.shape[1] >= horizon or first.shape[2:] != (width,):
            raise PlanningError(
                f"committed actions of shape {tuple(first.shape)}: must be ({robots}, d, {width}) "
                f"with d less than the horizon {horizon}"
            )
        self._require_finite("committed actions", first)
        return first

    def _admissible(self, actions: Tensor, committed: Tensor | None) -> Tensor:
        """``(B, N, T, A)`` inside the action limits, beginning with the committed actions."""
        limited = actions.clamp(*self._limits)
        if committed is not None:
            limited[:, :, : committed.shape[1]] = committed[:, None]
        return limited

    def _noise(self, samples: int) -> Tensor:
        """Noise ``(B, samples, T, A)`` of unit variance, correlated along T."""
        assert self._deviation is not None
        robots, horizon, width = self._deviation.shape
        white = torch.stack(
            [
                torch.randn(samples, horizon, width, generator=generator)
                for generator in self._generators[:robots]
            ]
        )
        return self._colour @ white

    def _require_finite(self, name: str, values: Tensor) -> None:
        finite = values.flatten(1).isfinite().all(1)
        if not finite.all():
            self.reset()
            rows = (~finite).nonzero().flatten().tolist()
            raise PlanningError(f"cannot plan: {name} of robot {rows} is not finite")


def _weights(returns: Tensor, temperature: float, elites: int) -> Tensor:
    """Weights ``(B, N)`` of samples with returns ``(B, N)``; zero for the non-finite ones.

    The temperature is absolute: samples whose returns differ by much less than it count alike.
    """
    scores = torch.where(returns.isfinite(), returns, -torch.inf)
    if elites:
        cut = scores.topk(elites, dim=1).values[:, -1:]
        scores = torch.where(scores >= cut, scores, -torch.inf)
    best = scores.max(dim=1, keepdim=True).values
    # Without any finite return, best is -inf and all weights would be NaN; make them zero.
    relative = torch.where(best.isfinite(), (scores - best) / temperature, -torch.inf)
    unnormalised = relative.exp()
    return unnormalised / unnormalised.sum(1, keepdim=True).clamp(min=1e-30)


def _colouring(horizon: int, correlation: float) -> Tensor:
    """``(T, T)`` matrix that turns white noise into a stationary AR(1) of unit variance."""
    steps = torch.arange(horizon)
    lag = steps[:, None] - steps[None]
    matrix = torch.where(lag >= 0, correlation ** lag.clamp(min=0).float(), 0.0)
    matrix[:, 1:] *= (1.0 - correlation**2) ** 0.5
    return matrix
