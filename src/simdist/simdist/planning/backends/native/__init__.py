"""Returns from a compiled kernel (kernel/), many times faster than PyTorch on one thread."""

from __future__ import annotations

from simdist.planning.backends.native.backend import NativeBackend, unsupported
from simdist.planning.backends.native.library import KernelUnavailable

__all__ = ["KernelUnavailable", "NativeBackend", "unsupported"]
