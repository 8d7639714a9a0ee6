"""Returns from a compiled kernel, one register of samples at a time."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from simdist.planning.backends.base import PlanningProblem
from simdist.planning.backends.native.library import KernelUnavailable, Library, load
from simdist.planning.backends.native.weights import ContextBiases, sizes, weights
from simdist.planning.backends.threads import usable_threads
from simdist.planning.backends.torch_backend import no_reactive_policy

if TYPE_CHECKING:
    from simdist.world_model.network import ContextKeys, WorldModel

#: largest sizes the kernel takes; far beyond what can be planned with in time, they keep its
#: memory and its whole numbers in bounds
_LIMITS = {
    "latent_dim": 1024,
    "action_dim": 256,
    "horizon": 256,
    "context_length": 1024,
    "ff_factor": 16,
    "dynamics_layers": 64,
    "head_layers": 64,
}
_MAX_REACTIVE_WIDTH = 8192


def unsupported(model: WorldModel) -> str | None:
    """Why the kernel cannot evaluate a model, or None if it can."""
    config = model.config
    for name, limit in _LIMITS.items():
        if (size := getattr(config, name)) > limit:
            return f"{name} = {size} of the world model exceeds the kernel's {limit}"
    if config.reactive_hidden and max(config.reactive_hidden) > _MAX_REACTIVE_WIDTH:
        return f"reactive_hidden = {config.reactive_hidden} exceeds {_MAX_REACTIVE_WIDTH}"
    for name, tensor in model.state_dict().items():
        if tensor.device.type != "cpu" or tensor.dtype != torch.float32:
            return f"{name} is {tensor.dtype} on {tensor.device}, the kernel needs float32 on a CPU"
    return None


class NativeBackend:
    """Evaluates a copy of the world model's weights in the compiled kernel.

    Raises KernelUnavailable if the kernel was not built or does not take the model. Without
    ``threads`` the kernel uses as many as PyTorch does; never more than there are processors (see
    :func:`usable_threads`). What is shared by all samples is left to PyTorch.
    """

    def __init__(
        self,
        model: WorldModel,
        discount: float,
        threads: int | None = None,
        library: Library | None = None,
    ) -> None:
        self._library = library or load()
        if reason := unsupported(model):
            raise KernelUnavailable(reason)
        self._model = model.eval()
        self._threads = None if threads is None else usable_threads(threads)
        self._kernel = _Kernel(self._library, model, discount)

    @property
    def horizon(self) -> int:
        return self._model.config.horizon

    @property
    def kind(self) -> str:
        """Kind of processor the kernel was compiled for."""
        return self._library.kind

    @torch.inference_mode()
    def prepare(self, context: Tensor, latent: Tensor, command: Tensor) -> PlanningProblem:
        threads = self._threads or usable_threads(torch.get_num_threads())
        return _NativeProblem(self._kernel, self._model, threads, context, latent, command)


class _Kernel:
    """One copy of a model's weights; freed with the last problem that uses it."""

    def __init__(self, library: Library, model: WorldModel, discount: float) -> None:
        self.library = library
        self.config = model.config
        discounts = discount ** torch.arange(self.config.horizon + 1, dtype=torch.float32)
        numbers = sizes(model)
        array = weights(model, discounts)
        self.handle = library.new(
            (ctypes.c_int * len(numbers))(*numbers), array.ctypes.data, array.size
        )
        if not self.handle:
            raise KernelUnavailable(f"the kernel refused {array.size} weights for sizes {numbers}")
        self.context_size: int = library.context_size(self.handle)
        self.biases = ContextBiases(model)

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.free(self.handle)

    def context(self, keys: ContextKeys, latent: Tensor, command: Tensor) -> Tensor:
        """What the kernel needs to know about ``B`` robots, ``(B, context size)``."""
        origin = self.biases.origin(keys)
        value = self.biases.value(command, origin)
        inputs = [
            self.biases.reward(latent, command, origin),
            value,
            self.biases.value_pair(value),
            self.biases.reactive(command, origin),
        ]
        robots = len(latent)
        packed = torch.empty(robots, self.context_size)
        kept = [tuple(part.contiguous() for part in pair) for pair in keys.layers]
        pointers = ctypes.c_void_p * len(kept)
        self.library.context(
            self.handle,
            robots,
            pointers(*(key.data_ptr() for key, _ in kept)),
            pointers(*(value.data_ptr() for _, value in kept)),
            *(None if part is None else part.data_ptr() for part in inputs),
            packed.data_ptr(),
        )
        return packed


class _NativeProblem:
    def __init__(
        self,
        kernel: _Kernel,
        model: WorldModel,
        threads: int,
        context: Tensor,
        latent: Tensor,
        command: Tensor,
    ) -> None:
        self._kernel = kernel
        self._threads = threads
        self._model = model
        self._robots = len(latent)
        self._inputs = context, latent, command
        keys = model.prepare_context(context)
        self._context = kernel.context(keys, latent, command)

    @torch.inference_mode()
    def prior(self) -> Tensor:
        context, _, command = self._inputs
        horizon = self._kernel.config.horizon
        return self._model.policy(context, command[:, None].expand(-1, horizon, -1))

    @torch.inference_mode()
    def returns(self, actions: Tensor) -> Tensor:
        robots, samples = self._check("actions", actions, self._kernel.config.horizon)
        actions = actions.contiguous()
        returns = torch.empty(robots, samples)
        self._kernel.library.returns(
            self._kernel.handle,
            self._context.data_ptr(),
            actions.data_ptr(),
            robots,
            samples,
            self._threads,
            returns.data_ptr(),
        )
        return returns

    @torch.inference_mode()
    def follow(
        self, deviations: Tensor, first: Tensor, limits: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor]:
        if self._model.reactive is None:
            raise no_reactive_policy()
        config = self._kernel.config
        robots, samples = self._check("deviations", deviations, config.horizon)
        given = first.shape[2] if first.dim() == 4 else 0
        if not 1 <= given <= config.horizon or first.shape[1] != samples:
            raise ValueError(
                f"first of shape {tuple(first.shape)}: must be ({robots}, {samples}, d, "
                f"{config.action_dim}) with d from 1 to {config.horizon}"
            )
        self._check("first", first, given)
        lowest, highest = (
            limit.to(torch.float32).expand(config.action_dim).contiguous() for limit in limits
        )
        deviations, first = deviations.contiguous(), first.contiguous()
        actions, returns = torch.empty_like(deviations), torch.empty(robots, samples)
        self._kernel.library.follow(
            self._kernel.handle,
            self._context.data_ptr(),
            deviations.data_ptr(),
            first.data_ptr(),
            given,
            lowest.data_ptr(),
            highest.data_ptr(),
            robots,
            samples,
            self._threads,
            actions.data_ptr(),
            returns.data_ptr(),
        )
        return actions, returns

    def _check(self, name: str, sequences: Tensor, steps: int) -> tuple[int, int]:
        """Robots and samples of ``(B, N, steps, A)``; the kernel itself trusts what it is given."""
        wanted = (self._robots, steps, self._kernel.config.action_dim)
        shape = tuple(sequences.shape)
        if len(shape) != 4 or (shape[0], *shape[2:]) != wanted:
            raise ValueError(
                f"{name} of shape {shape}: must be ({wanted[0]}, N, {wanted[1]}, {wanted[2]})"
            )
        if sequences.dtype != torch.float32 or sequences.device.type != "cpu":
            raise ValueError(f"{name} must be float32 on the CPU, not {sequences.dtype}")
        return shape[0], shape[1]
