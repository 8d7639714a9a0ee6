"""Finding the compiled kernel that suits this processor, and its functions."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

from simdist.planning.backends.native.build_kernel import DIRECTORY, kinds, library_path

#: of the order of weights and of the functions; kernel.cpp has the same number
VERSION = 2

#: what /proc/cpuinfo must list
_FEATURES = {"avx512": {"avx512f", "avx2", "fma"}, "avx2": {"avx2", "fma"}, "generic": set()}

Pointer = ctypes.c_void_p


class KernelUnavailable(Exception):
    """There is no kernel for this processor; the message says why."""


class Library:
    """One compiled kernel."""

    def __init__(self, kind: str, path: Path) -> None:
        try:
            functions = ctypes.CDLL(str(path))
            version = functions.simdist_kernel_version()
        except (OSError, AttributeError) as error:
            raise KernelUnavailable(f"{path.name} cannot be loaded: {error}") from None
        if version != VERSION:
            raise KernelUnavailable(
                f"{path.name} is of version {version}, not {VERSION}: build it again with ./run"
            )
        self.kind = kind
        self.lanes: int = functions.simdist_kernel_lanes()
        number, size = ctypes.c_int, ctypes.c_int64
        self.new = functions.simdist_kernel_new
        self.new.restype, self.new.argtypes = Pointer, [Pointer, Pointer, size]
        self.free = functions.simdist_kernel_free
        self.free.restype, self.free.argtypes = None, [Pointer]
        self.context_size = functions.simdist_kernel_context_size
        self.context_size.restype, self.context_size.argtypes = size, [Pointer]
        self.context = functions.simdist_kernel_context
        self.context.restype = None
        self.context.argtypes = [Pointer, number, *[Pointer] * 7]
        self.follow = functions.simdist_kernel_follow
        self.follow.restype = None
        self.follow.argtypes = [
            *[Pointer] * 4,
            *(number, Pointer, Pointer, number, number, number, Pointer, Pointer),
        ]
        self.returns = functions.simdist_kernel_returns
        self.returns.restype = None
        self.returns.argtypes = [Pointer, Pointer, Pointer, number, number, number, Pointer]


def supported() -> tuple[str, ...]:
    """Kinds of kernel that this processor can run, the fastest first."""
    features = _processor_features()
    return tuple(kind for kind in kinds() if _FEATURES[kind] <= features)


@functools.cache
def load(kind: str | None = None, directory: Path = DIRECTORY) -> Library:
    """The fastest kernel, or the one of ``kind``; raises KernelUnavailable."""
    wanted = supported() if kind is None else (kind,)
    for name in wanted:
        path = library_path(name, directory)
        if path.is_file():
            return Library(name, path)
    raise KernelUnavailable(
        f"no kernel for {' or '.join(wanted)} was built in {directory.name}/ beside its source; "
        "./run builds it"
    )


def _processor_features() -> set[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return set()
    return next((set(line.split()) for line in lines if line.startswith("flags")), set())
