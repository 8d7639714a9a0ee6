"""Compiles the kernel, once for every kind of processor it may run on.

Run by the set-up (tools/bootstrap.py) and by setup.py, with the standard library only:
``python build_kernel.py [DIRECTORY]``. Nothing is compiled when a plan is made.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "kernel" / "kernel.cpp"
DIRECTORY = HERE / "build"

#: flags by kind; a library is used where the processor has all that they name (see library.py)
KINDS_X86 = {
    "avx512": ("-mavx512f", "-mavx2", "-mfma", "-mprefer-vector-width=512"),
    "avx2": ("-mavx2", "-mfma"),
    "generic": (),
}
KINDS_OTHER = {"generic": ()}
#: no -ffast-math: what is not finite must stay so
FLAGS = (
    *("-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"),
    *("-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra", "-Werror=vla"),
)


def kinds() -> dict[str, tuple[str, ...]]:
    """Kinds of processor there are on this architecture, the fastest first."""
    return KINDS_X86 if platform.machine().lower() in ("x86_64", "amd64") else KINDS_OTHER


def library_path(kind: str, directory: Path = DIRECTORY) -> Path:
    """Where the library for one kind lies."""
    return directory / f"plan_kernel_{kind}.so"


def build(directory: Path = DIRECTORY) -> list[Path]:
    """Compile what is missing or older than its source; the libraries of all kinds.

    Raises RuntimeError with the compiler's words.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sources = Path(__file__).resolve(), *SOURCE.parent.iterdir()
    newest = max(path.stat().st_mtime_ns for path in sources)
    built = []
    for kind, flags in kinds().items():
        target = library_path(kind, directory)
        built.append(target)
        if target.exists() and target.stat().st_mtime_ns >= newest:
            continue
        # A process that has the old library open keeps it.
        fresh = target.with_suffix(f".{os.getpid()}.tmp")
        command = [os.environ.get("CXX", "g++"), *FLAGS, *flags, str(SOURCE), "-o", str(fresh)]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise RuntimeError(f"{command[0]} cannot be run: {error.strerror}") from None
        if done.returncode != 0:
            fresh.unlink(missing_ok=True)
            raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr.strip()[-2000:]}")
        # As old as what it was made from: sources may have changed meanwhile.
        os.utime(fresh, ns=(newest, newest))
        fresh.replace(target)
    return built


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    try:
        for path in build(directory):
            print(path)
    except RuntimeError as error:
        print(f"plan kernel: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
