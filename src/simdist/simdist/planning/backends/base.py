"""What the planner asks of a backend."""

from __future__ import annotations

from typing import Protocol

import torch


class PlanningProblem(Protocol):
    """One planning step of ``B`` robots, with everything computed that all samples share.

    A problem belongs to the weights it was prepared with: a swap of the model during a plan does
    not reach it.
    """

    def prior(self) -> torch.Tensor:
        """The policy's action sequence ``(B, T, A)``, unlimited."""
        ...

    def returns(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns ``(B, N)`` of action sequences ``(B, N, T, A)``:
        ``sum_t discount^t r_t + discount^T v_T``. Non-finite where the model fails."""
        ...

    def follow(
        self,
        deviations: torch.Tensor,
        first: torch.Tensor,
        limits: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Actions ``(B, N, T, A)`` of the reactive policy, asked again at every predicted latent,
        plus ``deviations (B, N, T, A)``, within ``limits`` (two of ``(A,)``), and their returns
        ``(B, N)``. Sequences begin with the given actions ``first (B, N, d, A)``, ``d >= 1``."""
        ...


class PlanBackend(Protocol):
    """The returns of one world model, on one kind of processor."""

    @property
    def horizon(self) -> int:
        """Steps ``T`` of an action sequence."""
        ...

    def prepare(
        self, context: torch.Tensor, latent: torch.Tensor, command: torch.Tensor
    ) -> PlanningProblem:
        """Shared work of one plan: context ``(B, L, D)``, latent ``(B, D)`` and the command
        ``(B, C)``, which is taken to stay as it is over the horizon."""
        ...
