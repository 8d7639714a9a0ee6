"""Builds the environment of simdist in numbered, resumable stages.

Called by setup.bash with the system's Python and only its standard library. A finished stage
leaves a stamp with the hash of its inputs, so an interrupted set-up goes on where it stopped and a
changed input repeats only the stages that depend on it.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
KERNEL = ROOT / "src/simdist/simdist/planning/backends/native"
PYTHON_RANGE = ((3, 11), (3, 13))  # half open; mujoco 4 needs 3.11, the Go1 SDK has no 3.13
MINIMUM_GLIBC = (2, 28)  # of the ROS 2 wheels
DISK_BYTES = 4 * 1024**3  # 2 GB installed, the rest for pip's temporary files
HEARTBEAT = 20.0  # s between signs of life where standard error is not a terminal
NO_NETWORK = re.compile(
    r"NewConnectionError|NameResolutionError|Temporary failure in name resolution|ConnectTimeout"
    r"|ReadTimeoutError|ConnectionResetError|Network is unreachable|ProxyError"
)


class SetupError(Exception):
    """A stage could not be finished; the message says what to do."""


class Interrupted(SetupError):
    """Ctrl-C; the stages before are kept."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Stage:
    name: str
    title: str
    inputs: Callable[[], list[str]]  # everything that decides the result
    run: Callable[[], None]


class Setup:
    """The stages for one kind of environment: ROS 2 from wheels, or an installed ROS 2."""

    def __init__(self, kind: str, prefix: Path) -> None:
        self.kind = kind
        self.prefix = prefix
        self.python = prefix / "bin" / "python3"
        self.state = prefix / ".simdist"
        self.lock_fd = -1
        wheels = kind == "wheels"
        self.build_base = self.state / "build" if wheels else ROOT / "build"
        self.install_base = prefix if wheels else ROOT / "install"
        self.stages = [
            Stage("tools", "compilers and Python", lambda: [platform.python_version()], self.tools),
            Stage("venv", "virtual environment", lambda: [str(prefix)], self.venv),
            Stage("app", "numerics, simulation and learning", self.app_inputs, self.app),
            Stage("robots", "robot models", lambda: [text("robots.txt")], self.robots),
        ]
        if wheels:
            self.stages.append(Stage("ros", "ROS 2 wheels", self.ros_inputs, self.ros))
        self.stages.append(Stage("dev", "checks and tests", lambda: [text("dev.txt")], self.dev))
        self.stages += [
            Stage("messages", "messages (compiling)", self.message_inputs, self.messages),
            Stage("kernel", "plan kernel (compiling)", self.kernel_inputs, self.kernel),
            Stage("workspace", "package simdist", self.workspace_inputs, self.workspace),
        ]

    # --- what decides each stage -----------------------------------------------------------

    def app_inputs(self) -> list[str]:
        return [text("app.txt"), self.ros_numpy() or ""]

    def ros_inputs(self) -> list[str]:
        return [text("ros.txt"), text("build.txt"), pinned_numpy()]

    def message_inputs(self) -> list[str]:
        return [
            *self.ros_inputs(),
            *contents(ROOT / "src/simdist_msgs"),
            *contents(ROOT / "colcon.meta"),
        ]

    def kernel_inputs(self) -> list[str]:
        return [*contents(KERNEL / "build_kernel.py"), *contents(KERNEL / "kernel")]

    def workspace_inputs(self) -> list[str]:
        """Sources are linked, so only what is added or named counts, not what is in it."""
        package = ROOT / "src/simdist"
        declared = [f"{package}/{name}" for name in ("package.xml", "setup.py", "setup.cfg")]
        inputs = [digest for path in declared for digest in contents(Path(path))]
        inputs += contents(package / "scripts")
        inputs += [str(p) for top in ("launch", "config", "models") for p in files(ROOT / top)]
        return inputs

    # --- stages ----------------------------------------------------------------------------

    def tools(self) -> None:
        missing = []
        low, high = PYTHON_RANGE
        if not low <= sys.version_info[:2] < high:
            missing.append(
                f"Python from 3.{low[1]} to 3.{high[1] - 1} (this is {platform.python_version()})"
            )
        for module, package in (("venv", "python3-venv"), ("ensurepip", "python3-venv")):
            if not importable(module):
                missing.append(f"Python module {module} (apt: {package})")
        if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
            missing.append("Python headers (apt: python3-dev)")
        for command, package in (("gcc", "gcc"), ("g++", "g++"), ("cmake", "cmake")):
            if shutil.which(command) is None:
                missing.append(f"{command} (apt: {package})")
        if shutil.which("make") is None and shutil.which("ninja") is None:
            missing.append("make or ninja (apt: make)")
        if missing:
            names = "".join(f"\n  - {name}" for name in dict.fromkeys(missing))
            raise SetupError(
                f"missing on this machine:{names}\nInstall it, on Debian and Ubuntu with "
                "'sudo apt install python3-venv python3-dev gcc g++ cmake make', and run again."
            )
        if self.kind == "wheels":
            self.check_platform()
        free = shutil.disk_usage(self.prefix).free
        if free < DISK_BYTES and not (self.state / "stamps" / "app").exists():
            raise SetupError(
                f"{free / 1e9:.1f} GB are free at {self.prefix.parent}, "
                f"{DISK_BYTES / 1e9:.1f} GB are needed: free some space and run again."
            )

    def check_platform(self) -> None:
        library, version = platform.libc_ver()
        numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
        if sys.platform == "linux" and platform.machine() == "x86_64" and library == "glibc":
            if numbers >= MINIMUM_GLIBC:
                return
        raise SetupError(
            "ROS 2 wheels exist for Linux on x86_64 with glibc 2.28 or newer; this is "
            f"{sys.platform} on {platform.machine()} with {library or 'another libc'} "
            f"{version}. Install ROS 2 Jazzy and source its setup.bash first, or use docker/."
        )

    def venv(self) -> None:
        # An environment that someone else began is completed, never emptied.
        if not (self.python.exists() and self.quiet(self.python, "-m", "pip", "--version")):
            options = ["--system-site-packages"] if self.kind == "ros" else []
            self.command([sys.executable, "-m", "venv", *options, str(self.prefix)])
        script = self.prefix / "bin" / "pip"
        first = script.read_text().splitlines()[0] if script.exists() else str(self.prefix)
        if str(self.prefix) not in first and "/bin/sh" not in first:
            raise SetupError(
                f"{self.prefix} was made in another place ({first.removeprefix('#!')}) and its "
                f"scripts still point there: remove it ('rm -r {self.prefix}') and run again."
            )
        version = self.output("import sys; print(sys.version_info[:2])")
        low, high = PYTHON_RANGE
        if not str(low) <= version.strip() < str(high):
            raise SetupError(
                f"{self.prefix} holds Python {version.strip()}, which is not from 3.{low[1]} to "
                f"3.{high[1] - 1}: remove it ('rm -r {self.prefix}') and run again."
            )

    def app(self) -> None:
        numpy = self.ros_numpy()
        if numpy is None:
            self.pip("-r", REQUIREMENTS / "app.txt")
            return
        # The message packages of an installed ROS 2 are compiled for its own numpy.
        lines = [line for line in text("app.txt").splitlines() if not line.startswith("numpy==")]
        with tempfile.TemporaryDirectory() as directory:
            requirements = Path(directory, "app.txt")
            requirements.write_text("\n".join([*lines, f"numpy=={numpy}"]) + "\n")
            self.pip("-r", requirements)

    def robots(self) -> None:
        self.pip("--no-deps", "-r", REQUIREMENTS / "robots.txt")

    def ros(self) -> None:
        self.pip("-r", REQUIREMENTS / "ros.txt", "-r", REQUIREMENTS / "build.txt", pinned_numpy())

    def dev(self) -> None:
        self.pip("-r", REQUIREMENTS / "dev.txt")

    def messages(self) -> None:
        if self.kind == "wheels":
            self.point_wheels_at_this_python()
        self.colcon("simdist_msgs")

    def kernel(self) -> None:
        self.command([str(self.python), str(KERNEL / "build_kernel.py")])

    def workspace(self) -> None:
        build, share = self.build_base / "simdist", self.install_base / "share" / "simdist"
        self.drop_dangling_links(build, share, self.install_base / "simdist")
        self.colcon("simdist", "--symlink-install")
        if self.kind == "ros":
            return
        # The source first, then the directory with the metadata of the installed package.
        site = self.output("import sysconfig; print(sysconfig.get_paths()['purelib'])").strip()
        Path(site, "simdist_source.pth").write_text(f"{ROOT / 'src' / 'simdist'}\n{build}\n")
        if self.output("import importlib.util as u; print(u.find_spec('launch_ros'))") == "None\n":
            script = self.prefix / "bin" / "ros2"
            script.write_text(
                f"#!{self.python}\n"
                "import sys\n\nfrom simdist.local_ros.ros2 import main\n\nsys.exit(main())\n"
            )
            script.chmod(0o755)

    # --- parts of stages -------------------------------------------------------------------

    def ros_numpy(self) -> str | None:
        """Version of numpy that an installed ROS 2 brings, None where ROS 2 comes as wheels."""
        if self.kind != "ros":
            return None
        try:
            found = subprocess.run(
                ["/usr/bin/python3", "-c", "import numpy; print(numpy.__version__)"],
                capture_output=True,
                text=True,
            )
        except OSError:
            return None
        return found.stdout.strip() or None

    def point_wheels_at_this_python(self) -> None:
        """Rewrite header paths that the wheels' CMake files exported from their build machine."""
        here = self.output(
            "import numpy, sysconfig\n"
            "print(sysconfig.get_paths()['include'])\nprint(numpy.get_include())"
        )
        python_headers, numpy_headers = here.splitlines()
        for path in (self.prefix / "share").rglob("*.cmake"):
            old = path.read_text(encoding="utf-8", errors="surrogateescape")
            new = re.sub(
                r"/opt/python/cp\d+-cp\d+/lib/python3\.\d+/site-packages/numpy/_core/include",
                lambda _: numpy_headers,
                old,
            )
            new = re.sub(
                r"/opt/python/cp\d+-cp\d+/include/python3\.\d+", lambda _: python_headers, new
            )
            if new != old:
                path.write_text(new, encoding="utf-8", errors="surrogateescape")

    def drop_dangling_links(self, *directories: Path) -> None:
        """Links to files that were removed from the source: colcon stumbles over them."""
        for directory in directories:
            for path in directory.rglob("*"):
                if path.is_symlink() and not path.exists():
                    path.unlink()

    def colcon(self, *arguments: str) -> None:
        packages = [name for name in arguments if not name.startswith("-")]
        options = [name for name in arguments if name.startswith("-")]
        environment = dict(os.environ)
        places = ["--build-base", str(self.build_base), "--install-base", str(self.install_base)]
        if self.kind == "wheels":
            # The messages become part of the virtual environment: one prefix for everything.
            places.append("--merge-install")
            program = [str(self.prefix / "bin" / "colcon")]
            environment["AMENT_PREFIX_PATH"] = environment["CMAKE_PREFIX_PATH"] = str(self.prefix)
        else:
            # Run by the environment's Python, so that the nodes' scripts are started by it.
            program = [str(self.python), shutil.which("colcon") or "colcon"]
        environment["PATH"] = f"{self.prefix / 'bin'}:{environment['PATH']}"
        # Otherwise colcon has make wait while the machine is busy with something else.
        environment.setdefault("MAKEFLAGS", f"-j{os.cpu_count() or 1}")
        self.command(
            [
                *program,
                *("--log-base", str(self.build_base.parent / "log"), "build", *places),
                *("--base-paths", str(ROOT / "src"), "--metas", str(ROOT / "colcon.meta")),
                *("--packages-select", *packages, *options),
                *("--event-handlers", "console_direct+", "console_cohesion-"),
                *("--cmake-args", f"-DPython3_EXECUTABLE={self.python}", "-DBUILD_TESTING=OFF"),
            ],
            environment,
        )

    def pip(self, *arguments: str | Path) -> None:
        self.command(
            [
                *(str(self.python), "-m", "pip", "install", "--no-input"),
                *("--disable-pip-version-check", "--progress-bar", "off", "--prefer-binary"),
                *map(str, arguments),
            ]
        )

    def output(self, program: str) -> str:
        found = subprocess.run([str(self.python), "-c", program], capture_output=True, text=True)
        if found.returncode != 0:
            raise SetupError(f"{self.python} failed: {found.stderr.strip()[-400:]}")
        return found.stdout

    def quiet(self, *arguments: str | Path) -> bool:
        return subprocess.run([*map(str, arguments)], capture_output=True).returncode == 0

    def command(self, arguments: list[str], environment: dict[str, str] | None = None) -> None:
        """Run one command of the current stage; its output goes to the log of the stage."""
        log = self.state / "log.txt"
        # The child inherits the lock: a second set-up waits for it even if this process is killed.
        with (
            log.open("w") as file,
            subprocess.Popen(
                arguments,
                cwd=self.prefix,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                pass_fds=(self.lock_fd,),
            ) as process,
        ):
            assert process.stdout is not None
            with signs_of_life() as show:
                for line in process.stdout:
                    file.write(line)
                    show(line)
            status = process.wait()
        if status != 0:
            output = log.read_text()
            if NO_NETWORK.search(output):
                raise SetupError(
                    "the package index could not be reached. Check the network (or pip's "
                    "configuration: 'pip config list') and run again; finished stages are kept. "
                    f"Full output: {log}"
                )
            tail = "\n".join(output.splitlines()[-12:])
            raise SetupError(f"{tail}\nexit status {status}. Full output: {log}")

    # --- all of it -------------------------------------------------------------------------

    def run(self) -> None:
        self.state.mkdir(parents=True, exist_ok=True)
        with (self.state / "lock").open("w") as lock:
            self.lock_fd = lock.fileno()
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"simdist: another process is setting up {self.prefix}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self.run_stages()

    def run_stages(self) -> None:
        # Inputs that change while the stages run must be newer than the stamp of the whole.
        ready = self.state / "ready"
        fresh = self.state / "ready.new"
        fresh.write_text(f"{self.prefix}\n")
        stamps = self.state / "stamps"
        stamps.mkdir(exist_ok=True)
        if self.kind == "ros" and not (self.install_base / "local_setup.bash").exists():
            for name in ("messages", "workspace"):
                (stamps / name).unlink(missing_ok=True)
        if not any((KERNEL / "build").glob("*.so")):
            (stamps / "kernel").unlink(missing_ok=True)
        for number, stage in enumerate(self.stages, start=1):
            digest = hashlib.sha256("\0".join(stage.inputs()).encode()).hexdigest()
            stamp = stamps / stage.name
            if stamp.exists() and stamp.read_text() == digest:
                continue
            label = f"[{number}/{len(self.stages)}] {stage.title}"
            say(f"simdist set-up {label} ...")
            begin = time.monotonic()
            try:
                stage.run()
            except SetupError as error:
                raise SetupError(f"set-up failed at {label}: {error}") from None
            except KeyboardInterrupt:
                raise Interrupted(
                    f"set-up interrupted at {label}; the next use goes on from there"
                ) from None
            stamp.write_text(digest)
            say(f"simdist set-up {label}: done in {time.monotonic() - begin:.0f} s")
        fresh.replace(ready)


@contextlib.contextmanager
def signs_of_life() -> Iterator[Callable[[str], None]]:
    """Show what a long command is doing: on one changing line, or now and then in a log."""
    latest = ""
    done = threading.Event()
    terminal = sys.stderr.isatty()
    begin = time.monotonic()

    def tell() -> None:
        while not done.wait(0.5 if terminal else HEARTBEAT):
            line = f"  {time.monotonic() - begin:4.0f} s  {latest}"
            if terminal:
                width = shutil.get_terminal_size().columns - 1
                print(f"\r\033[K{line[:width]}", end="", file=sys.stderr, flush=True)
            else:
                say(line[:100])
        if terminal:
            print("\r\033[K", end="", file=sys.stderr, flush=True)

    def show(line: str) -> None:
        nonlocal latest
        latest = line.strip() or latest

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield show
    finally:
        done.set()
        teller.join()


def importable(module: str) -> bool:
    try:
        __import__(module)
    except ImportError:
        return False
    return True


def text(requirements: str) -> str:
    return (REQUIREMENTS / requirements).read_text()


def pinned_numpy() -> str:
    """The pin of numpy: the ROS 2 wheels ask for any version, the messages are built for one."""
    return next(line for line in text("app.txt").splitlines() if line.startswith("numpy=="))


def files(directory: Path) -> list[Path]:
    return sorted(p for p in directory.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


def contents(path: Path) -> list[str]:
    """Name and hash of a file, or of every file below a directory."""
    paths = files(path) if path.is_dir() else [path] if path.exists() else []
    return [f"{p} {hashlib.sha256(p.read_bytes()).hexdigest()}" for p in paths]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=("wheels", "ros"), required=True)
    parser.add_argument("--prefix", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        Setup(arguments.kind, arguments.prefix).run()
    except SetupError as error:
        say(f"simdist: {error}")
        return 130 if isinstance(error, Interrupted) else 1
    except KeyboardInterrupt:
        say("simdist: set-up interrupted; the next use goes on from there")
        return 130
    except OSError as error:
        say(f"simdist: set-up failed: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
