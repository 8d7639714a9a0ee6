"""Package simdist: the library, its nodes and the files that it reads."""

import importlib.util
import os
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py
from setuptools.command.develop import develop

PACKAGE = "simdist"
NODES = ("encoder", "finetune", "mujoco_bridge", "operator", "planner", "replay")

# Resolved, because colcon runs a symbolic link to this file when it installs by links.
HERE = Path(__file__).resolve().parent
NATIVE = Path(PACKAGE, "planning", "backends", "native")


def shared_files() -> list[tuple[str, list[str]]]:
    """The files of launch/, config/ and models/, each directory with its place in share/.

    These three stand at the top of the repository; links beside this file keep the paths inside
    the package, as setuptools and colcon need them.
    """
    listed = []
    for top in ("launch", "config", "models"):
        for directory, subdirectories, files in os.walk(HERE / top):
            subdirectories[:] = sorted(d for d in subdirectories if d != "__pycache__")
            relative = Path(directory).relative_to(HERE)
            sources = [str(relative / name) for name in sorted(files)]
            if sources:
                listed.append((str(Path("share", PACKAGE) / relative), sources))
    return listed


def compile_kernel(package_root: Path) -> list[str]:
    """Compile the plan kernel below the package in ``package_root``; the files that are there then.

    Without it plans are made in PyTorch, so a missing compiler does not stop the build.
    """
    spec = importlib.util.spec_from_file_location("build_kernel", HERE / NATIVE / "build_kernel.py")
    assert spec is not None
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    try:
        return [str(path) for path in builder.build(package_root / NATIVE / "build")]
    except RuntimeError as error:
        print(f"warning: no plan kernel, planning will be slower: {error}")
        return []


class BuildWithKernel(build_py):
    """Puts the plan kernel beside the modules that are to be installed."""

    def run(self) -> None:
        super().run()
        self.kernels = compile_kernel(Path(self.build_lib))

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        return [*super().get_outputs(include_bytecode), *getattr(self, "kernels", [])]


class DevelopWithKernel(develop):
    """Puts the plan kernel into the source, which is what runs."""

    def run(self) -> None:
        super().run()
        compile_kernel(HERE)


setup(
    name=PACKAGE,
    cmdclass={"build_py": BuildWithKernel, "develop": DevelopWithKernel},
    version="0.1.0",
    packages=find_packages(include=[PACKAGE, f"{PACKAGE}.*"]),
    package_data={"": ["*.yaml", "*.xml", "*.json", "py.typed"]},
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{PACKAGE}"]),
        (f"share/{PACKAGE}", ["package.xml"]),
        ("bin", [f"scripts/{PACKAGE}"]),
        *shared_files(),
    ],
    install_requires=["setuptools"],
    zip_safe=False,
    maintainer="simdist maintainers",
    maintainer_email="maintainers@simdist.example",
    description="Planning over a learned latent model that is relearned on the running robot.",
    license="Apache-2.0",
    entry_points={
        "console_scripts": [
            f"{PACKAGE} = {PACKAGE}.cli:main",
            *(f"{node} = {PACKAGE}.nodes.entry:{node}" for node in NODES),
        ],
    },
)
