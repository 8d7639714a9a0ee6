"""Package simdist: the library, its nodes and the files that it reads."""

import os
from pathlib import Path

from setuptools import find_packages, setup

PACKAGE = "simdist"
NODES = ("encoder", "finetune", "mujoco_bridge", "operator", "planner", "replay")

# Resolved, because colcon runs a symbolic link to this file when it installs by links.
HERE = Path(__file__).resolve().parent


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


setup(
    name=PACKAGE,
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
