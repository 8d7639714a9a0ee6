"""What a clone of the repository promises before anything runs."""

from __future__ import annotations

import ast
import json
import re
import runpy
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

import simdist

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "src" / "simdist"
LIBRARY = PACKAGE / "simdist"
MESSAGES = ROOT / "src" / "simdist_msgs"
PIN = re.compile(r"[A-Za-z0-9._-]+(\[[a-z,]+\])?==[A-Za-z0-9.+!]+(\s*;[^#]+)?(\s+#.*)?")

# Joined here, so that this file does not hold what it looks for.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("download", "pytorch", "org"),
        ("registry", "npmjs", "org"),
        ("conda", "anaconda", "org"),
    )
]
MACHINE_PATH = re.compile(rb"(?<![\w.$}~-])/(?:home|root|work|Users|tmp)" + rb"/[\w.-]+")


def tracked_files() -> list[Path]:
    try:
        listed = subprocess.run(
            ["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in paths if path.is_file()]


def library_modules() -> list[str]:
    return sorted(
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")
        for path in LIBRARY.rglob("*.py")
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name
)
def test_every_requirement_is_pinned_exactly(path: Path):
    lines = [line.strip() for line in path.read_text().splitlines()]
    loose = [line for line in lines if line and line[0] != "#" and not PIN.fullmatch(line)]
    assert not loose


def test_no_package_is_pinned_twice():
    names = [
        line.split("==")[0].lower().replace("_", "-")
        for path in (ROOT / "requirements").glob("*.txt")
        for line in path.read_text().splitlines()
        if "==" in line and not line.startswith("#")
    ]
    assert sorted(names) == sorted(set(names))


def test_tracked_files_name_no_registry_and_no_place_on_one_machine():
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        found += [f"{path}: {host}" for host in REGISTRY_HOSTS if host.encode() in content]
        found += [f"{path}: {match.decode()}" for match in MACHINE_PATH.findall(content)]
    assert not found


def test_nothing_that_is_read_is_executed():
    """No pickle, no eval, no YAML or torch file that could bring code with it."""
    found = []
    for path in LIBRARY.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", None) or ""]
                found += [f"{path}: {name}" for name in names if name in FORBIDDEN_IMPORTS]
            if not isinstance(node, ast.Call):
                continue
            called = ast.unparse(node.func)
            given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            arguments = " ".join([*map(ast.unparse, node.args), *given.values()])
            bad = (
                called in ("eval", "exec")
                or (called == "torch.load" and given.get("weights_only") != "True")
                or (called == "yaml.load" and "SafeLoader" not in arguments)
                or given.get("allow_pickle") == "True"
                or given.get("shell") == "True"
            )
            found += [f"{path}:{node.lineno}: {called}"] if bad else []
    assert not found


FORBIDDEN_IMPORTS = {"pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve"}

# Imports every module of the core in one process in which ROS and robot SDKs do not exist.
IMPORT_WITHOUT_ROS = """
import importlib, json, sys

BLOCKED = {
    "rclpy", "simdist_msgs", "std_msgs", "sensor_msgs", "geometry_msgs", "nav_msgs", "launch",
    "visualization_msgs", "diagnostic_msgs",
    "launch_ros", "unitree_sdk2py", "unitree_legged_sdk", "pyrealsense2", "cyclonedds",
}


class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ImportError(f"{name} must not be imported by the core")
        return None


sys.meta_path.insert(0, Blocker())
try:
    import rclpy
except ImportError:
    pass
else:
    raise SystemExit("the blocker does not block")
failures = {}
for module in json.loads(sys.argv[1]):
    try:
        importlib.import_module(module)
    except Exception as error:
        failures[module] = repr(error)
print(json.dumps(failures))
"""


def test_the_core_imports_neither_ros_nor_a_robot_sdk():
    outside = ("simdist.nodes", "simdist.local_ros")
    core = [name for name in library_modules() if not name.startswith(outside)]
    assert "simdist.paths" in core
    found = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT_ROS, json.dumps(core)],
        capture_output=True,
        text=True,
        cwd=PACKAGE,
    )
    assert found.returncode == 0, found.stderr
    assert json.loads(found.stdout.splitlines()[-1]) == {}


@pytest.mark.parametrize("directory", [PACKAGE, MESSAGES], ids=lambda d: d.name)
def test_package_xml_agrees_with_the_package(directory: Path):
    root = ElementTree.parse(directory / "package.xml").getroot()
    assert root.get("format") == "3"
    assert root.findtext("name") == directory.name
    assert root.findtext("version") == simdist.__version__
    assert root.findtext("license") == "Apache-2.0"
    named = [element.text for element in root if element.tag.endswith("depend")]
    assert len(named) == len(set(named))


def test_setup_py_has_the_version_of_the_package():
    assert f'version="{simdist.__version__}"' in (PACKAGE / "setup.py").read_text()


def imported_packages(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def test_every_ros_package_that_is_imported_is_declared():
    root = ElementTree.parse(PACKAGE / "package.xml").getroot()
    declared = {element.text for element in root if element.tag.endswith("depend")}
    ros = re.compile(
        r"\w+_msgs|\w+_interfaces|std_srvs|rclpy|launch|launch_ros|ament_index_python|tf2\w*"
    )
    used = {
        name
        for path in [*LIBRARY.rglob("*.py"), *(ROOT / "launch").glob("*.py")]
        if "local_ros" not in path.parts  # stands in for the real tools, their packages included
        for name in imported_packages(path)
        if ros.fullmatch(name)
    }
    assert used <= declared


@pytest.mark.parametrize("path", sorted((MESSAGES / "msg").glob("*.msg")), ids=lambda p: p.stem)
def test_every_message_has_header_and_sequence(path: Path):
    fields = [line.split("#")[0].split() for line in path.read_text().splitlines()]
    assert ["std_msgs/Header", "header"] in fields
    assert ["uint64", "sequence"] in fields


def test_every_message_file_is_built():
    listed = re.findall(
        r'"((?:msg|srv)/\w+\.(?:msg|srv))"', (MESSAGES / "CMakeLists.txt").read_text()
    )
    present = [*MESSAGES.glob("msg/*.msg"), *MESSAGES.glob("srv/*.srv")]
    assert sorted(listed) == sorted(str(path.relative_to(MESSAGES)) for path in present)


def test_every_executable_leads_to_a_function(monkeypatch: pytest.MonkeyPatch):
    declared: dict = {}
    monkeypatch.setattr("setuptools.setup", lambda **keywords: declared.update(keywords))
    runpy.run_path(str(PACKAGE / "setup.py"))
    scripts = declared["entry_points"]["console_scripts"]
    for node in ("mujoco_bridge", "encoder", "planner", "replay", "finetune", "operator"):
        assert any(script.startswith(f"{node} = ") for script in scripts)
    for script in scripts:
        module, _, function = script.partition(" = ")[2].partition(":")
        tree = ast.parse(Path(PACKAGE, *module.split(".")).with_suffix(".py").read_text())
        functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
        assert function in functions, script


@pytest.mark.parametrize("name", ["launch", "config", "models"])
def test_shipped_directories_are_inside_the_package(name: str):
    assert (PACKAGE / name).resolve() == ROOT / name
    assert any((ROOT / name).iterdir())


def dockerfile_lines() -> list[list[str]]:
    content = (ROOT / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    return [line.split() for line in content.splitlines() if line and line[0] != "#"]


def test_dockerfile_builds_on_pinned_images_only():
    stages: set[str] = set()
    for words in dockerfile_lines():
        if words[0] != "FROM":
            continue
        image = words[1]
        if image not in stages:
            tag = image.partition(":")[2]
            assert tag, image
            assert tag != "latest", image
        if "AS" in words:
            stages.add(words[-1])
    assert {"workstation", "robot"} <= stages


def test_dockerfile_copies_only_what_exists():
    sources = [
        source
        for words in dockerfile_lines()
        if words[0] == "COPY"
        for source in words[1:-1]
        if not source.startswith("--")
    ]
    assert sources
    assert not [source for source in sources if not (ROOT / source).exists()]


def test_run_alone_prints_its_usage_and_needs_no_environment(tmp_path: Path):
    found = subprocess.run(
        [str(ROOT / "run")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
    )
    assert found.returncode == 0
    assert "usage: ./run COMMAND" in found.stdout
