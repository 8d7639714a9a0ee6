"""World models whose numbers go wrong under the planner."""

from __future__ import annotations

import copy
import functools
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from simdist.faults.measurement import Measurement, exactly
from simdist.faults.registry import Family
from simdist.faults.small_model import (
    CONTRACT,
    ROBOT,
    planner_of,
    random_inputs_of,
    random_observation,
    small_model,
)
from simdist.planning import Plan, PlanningError, self_test
from simdist.planning.backends.base import PlanningProblem
from simdist.planning.backends.torch_backend import TorchBackend
from simdist.planning.loop import PlanningLoop
from simdist.world_model import WorldModel

FAMILY = Family("planner numerics")

_NAN, _INF = float("nan"), float("inf")
#: So low that a sample that has it weighs nothing.
_WORST = -1e30
_SETTINGS: list[dict[str, Any]] = [
    {"iterations": 2, "closed_loop": False},
    {"iterations": 2, "closed_loop": True},
    {"iterations": 2, "closed_loop": True, "elites": 8},
    {"iterations": 3, "closed_loop": False, "elites": 64},
]


class _Poisoned:
    """The real backend, for some of whose samples the model returns ``value``."""

    def __init__(
        self, model: WorldModel, discount: float, share: float, value: float, seed: int
    ) -> None:
        self._backend = TorchBackend(model, discount)
        self._share, self._value = share, value
        self._draw = torch.Generator().manual_seed(seed)
        self.poisoned = 0

    @property
    def horizon(self) -> int:
        return self._backend.horizon

    def prepare(
        self, context: torch.Tensor, latent: torch.Tensor, command: torch.Tensor
    ) -> PlanningProblem:
        self._problem = self._backend.prepare(context, latent, command)
        return self

    def prior(self) -> torch.Tensor:
        return self._problem.prior()

    def returns(self, actions: torch.Tensor) -> torch.Tensor:
        returns = self._problem.returns(actions)
        return torch.where(self._chosen(returns), self._value, returns)

    def follow(
        self,
        deviations: torch.Tensor,
        first: torch.Tensor,
        limits: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """In closed loop what the model predicts also decides the actions that follow."""
        actions, returns = self._problem.follow(deviations, first, limits)
        chosen = self._chosen(returns)
        if not np.isfinite(self._value):
            given = first.shape[2]
            broken = torch.where(chosen[..., None, None], torch.nan, actions[:, :, given:])
            actions = torch.cat([actions[:, :, :given], broken], 2)
        return actions, torch.where(chosen, self._value, returns)

    def _chosen(self, returns: torch.Tensor) -> torch.Tensor:
        ranks = torch.rand(returns.shape, generator=self._draw).argsort(1)
        chosen = ranks < max(1, round(self._share * returns.shape[1]))
        self.poisoned += int(chosen.sum())
        return chosen


def _plan(share: float, value: float, seed: int, settings: dict[str, Any]):
    backends = []

    def backend(model: WorldModel, discount: float) -> _Poisoned:
        backends.append(_Poisoned(model, discount, share, value, seed))
        return backends[-1]

    planner = planner_of(backend=backend, seed=seed, **settings)
    plan = planner.plan(*random_inputs_of(seed))
    return plan, planner.foresee(plan), backends[-1]


def _partly(share: float, value: float, rng: Generator) -> Measurement:
    """The plan with poisoned returns against the plan in which they are the worst."""
    worst, trouble = 0.0, ""
    for settings in _SETTINGS:
        seed = int(rng.integers(2**31))
        plan, foresight, backend = _plan(share, value, seed, settings)
        expected, _, _ = _plan(share, _WORST, seed, settings)
        worst = max(worst, float(np.abs(plan.actions - expected.actions).max()))
        if not (np.isfinite(plan.actions).all() and np.isfinite(plan.predicted_return).all()):
            worst = _INF
        # The best of the last iteration, of which more than eight are sound.
        if not np.isfinite(foresight.elite_returns).all():
            trouble = "an elite without a finite return"
        if plan.dropped.sum() != backend.poisoned or plan.degraded:
            trouble = f"{plan.dropped.sum()} dropped of {backend.poisoned}"
    return exactly(worst, 0, "of difference in the plan").unless(bool(trouble), trouble)


for _share in (0.01, 0.5):
    for _value in (_NAN, _INF, -_INF):
        FAMILY.add(
            f"{_share:.0%} of the returns are {_value}",
            "none becomes an elite: the plan is as if they were the worst; counted",
            functools.partial(_partly, _share, _value),
        )


def _announced(plan: Plan) -> str:
    if not plan.degraded or not all("finite" in reason for reason in plan.reasons):
        return f"announced: {plan.reasons}"
    return "" if np.isfinite(plan.actions).all() else "not finite"


def _wholly(value: float, rng: Generator) -> Measurement:
    worst, trouble = 0.0, ""
    for settings in _SETTINGS:
        plan, _, _ = _plan(1.0, value, int(rng.integers(2**31)), settings)
        worst = max(worst, float(np.abs(plan.actions - plan.prior).max()))
        trouble = trouble or _announced(plan)
    return exactly(worst, 0, "of difference from the policy").unless(bool(trouble), trouble)


for _value in (_NAN, _INF, -_INF):
    FAMILY.add(
        f"100% of the returns are {_value}",
        "the policy's actions are played, and the plan says that it is degraded",
        functools.partial(_wholly, _value),
    )


def _broken_part(part: str, value: float = _NAN) -> WorldModel:
    model = copy.deepcopy(small_model())
    with torch.no_grad():
        for parameter in getattr(model, part).parameters():
            parameter.fill_(value)
    return model


def _broken_head(part: str, rng: Generator) -> Measurement:
    seed = int(rng.integers(2**31))
    plan = planner_of(_broken_part(part), seed=seed).plan(*random_inputs_of(seed))
    difference = float(np.abs(plan.actions - plan.prior).max())
    trouble = _announced(plan)
    refused = self_test(_broken_part(part), ROBOT) is not None
    return (
        exactly(difference, 0, "of difference from the policy")
        .unless(bool(trouble), trouble)
        .unless(not refused, "the self-test sees nothing")
    )


for _part in ("dynamics", "reward", "value"):
    FAMILY.add(
        f"NaN in every weight of {_part}",
        "the policy's actions are played, announced; the self-test refuses such a model",
        functools.partial(_broken_head, _part),
    )


@FAMILY.fault("a degraded plan as a chunk", "within the limits of the joints, and finite")
def _degraded_chunk(rng: Generator) -> Measurement:
    seed = int(rng.integers(2**31))
    loop = PlanningLoop(planner_of(_broken_part("reward"), seed=seed), ROBOT, contract=CONTRACT)
    observation = random_observation(seed)
    chunk, plan = loop.plan(0, *observation, np.zeros(3), model_version=1)
    beyond = np.maximum(chunk.values - ROBOT.position_upper, ROBOT.position_lower - chunk.values)
    # Plans are of 32 bits.
    worst = float(beyond.max()) if np.isfinite(chunk.values).all() else _INF
    return exactly(max(0.0, round(worst, 6)), 0, "rad beyond the range").unless(
        not plan.degraded, "not announced"
    )


@FAMILY.fault("NaN in every weight of the policy", "no plan, with the reason: nothing is played")
def _broken_policy(rng: Generator) -> Measurement:
    planner = planner_of(_broken_part("policy"))
    made = 0
    for seed in rng.integers(2**31, size=3):
        try:
            planner.plan(*random_inputs_of(int(seed)))
            made += 1
        except PlanningError as error:
            made += "policy prior" not in str(error)
    return exactly(made, 0, "plans made")


def _broken_input(which: int, value: float, rng: Generator) -> Measurement:
    """Refused by name; the plan after it is the one of a planner that has forgotten."""
    seed = int(rng.integers(2**31))
    planner, fresh = planner_of(seed=seed), planner_of(seed=seed)
    planner.plan(*random_inputs_of(seed))
    fresh.plan(*random_inputs_of(seed))
    inputs = [values.clone() for values in random_inputs_of(seed + 1)]
    flat = inputs[which].view(-1)
    flat[int(rng.integers(len(flat)))] = value
    name = ("context", "latent", "command")[which]
    trouble = "a plan was made"
    try:
        planner.plan(*inputs)
    except PlanningError as error:
        trouble = "" if name in str(error) else f"reason: {error}"
    fresh.reset()
    after, expected = planner.plan(*random_inputs_of(seed)), fresh.plan(*random_inputs_of(seed))
    difference = float(np.abs(after.actions - expected.actions).max())
    return exactly(difference, 0, "of difference in the next plan").unless(bool(trouble), trouble)


for _which, _name in enumerate(("context", "latent state", "command")):
    for _value in (_NAN, _INF):
        FAMILY.add(
            f"{_value} in the {_name}",
            "no plan, with the reason; the next plan starts afresh",
            functools.partial(_broken_input, _which, _value),
        )


@FAMILY.fault("returns as large as floats can be", "finite plans")
def _huge(rng: Generator) -> Measurement:
    bad = 0
    for value in (3e38, -3e38):
        for settings in _SETTINGS:
            plan, _, _ = _plan(0.5, value, int(rng.integers(2**31)), settings)
            bad += not np.isfinite(plan.actions).all()
    return exactly(bad, 0, "plans not finite")
