"""Settings of the planner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from simdist.errors import ConfigError
from simdist.ranges import Checked, bounded, from_mapping


@dataclass(frozen=True)
class PlannerConfig(Checked):
    """Settings of :class:`~simdist.planning.MppiPlanner`; actions are in action units.

    The defaults are those of a small world model, whose plans must stay near the policy: an
    absolute temperature over all samples leaves the plan at the prior wherever returns hardly
    differ, and a relative one over a few elites does not. The temperature is about the spread that
    returns have on slippery ground: a small model ranks small deviations badly (rank correlation
    0.4 with the simulator), so a plan has to be the mean of many samples and of many plans, never
    the best few. At 0.03 plans are noise there, and robots fall.
    """

    samples: int = bounded(512, 2, 4096, "action sequences scored per iteration")
    iterations: int = bounded(1, 1, 32, "refinements of the sampling distribution per plan")
    temperature: float = bounded(0.1, 1e-4, 100.0, "softmax temperature, in units of return")
    std: float = bounded(0.2, 1e-3, 2.0, "initial standard deviation of the samples")
    std_min: float = bounded(0.05, 0.0, 2.0, "floor of the refitted standard deviation")
    std_max: float = bounded(0.3, 1e-3, 2.0, "ceiling of the refitted standard deviation")
    noise_correlation: float = bounded(0.8, 0.0, 0.99, "correlation of noise one step apart")
    prior_fraction: float = bounded(0.25, 0.0, 1.0, "share of samples drawn around the prior")
    anchor: float = bounded(0.9, 0.0, 1.0, "share of the last plan's deviation that is kept")
    elites: int = bounded(0, 0, 4096, "best samples that count; 0: all of them")
    discount: float = bounded(0.99, 0.0, 1.0, "discount of return per step")
    action_clip: float = bounded(6.0, 0.1, 100.0, "largest action, on top of joint limits")
    #: deviate from the reactive policy, asked at every predicted step, if the model has one
    closed_loop: bool = True
    seed: int = bounded(0, 0, 2**31 - 1, "seed of the sampling noise")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.std_min > self.std_max:
            raise ConfigError(
                f"PlannerConfig.std_min = {self.std_min}: must not exceed std_max = {self.std_max}"
            )
        if self.elites > self.samples:
            raise ConfigError(
                f"PlannerConfig.elites = {self.elites}: must not exceed samples = {self.samples}"
            )

    @property
    def prior_samples(self) -> int:
        """Samples around the prior: at least the prior itself, and one is left for the mean."""
        return min(max(1, round(self.samples * self.prior_fraction)), self.samples - 1)

    def with_samples(self, samples: int) -> PlannerConfig:
        """The same settings with fewer or more samples."""
        return replace(self, samples=samples, elites=min(self.elites, samples))

    @staticmethod
    def from_mapping(values: Mapping[str, Any] | None, where: str = "planner") -> PlannerConfig:
        """From the ``planner`` section of a YAML file; raises ConfigError naming the bad value."""
        return from_mapping(PlannerConfig, values, where)
