"""Arguments of the launch files: their defaults, and checks before any process starts.

Pure Python, so that the launch file holds no decisions and a bad value costs nobody a robot.
"""

from __future__ import annotations

import math
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simdist import paths, robots
from simdist.errors import ConfigError, SimdistError

BOOLEANS = ("true", "false")
#: m before the end of a course, where a robot starts again
COURSE_MARGIN = 1.5


@dataclass(frozen=True)
class Argument:
    """A launch argument; ``choices`` or ``low`` and ``high`` bound its values."""

    name: str
    default: str
    description: str
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None

    @property
    def text(self) -> str:
        """The description with the range, for ``--show-args``."""
        if self.low is None:
            return self.description
        return f"{self.description} ({self.low:.10g} to {self.high:.10g})"


ARGUMENTS = (
    Argument("robot", "sim", "what is to walk; sim: a Go1 simulated in MuJoCo", ("sim",)),
    Argument("world", "slope", "name of a world in config/worlds, or the path of a YAML file"),
    Argument("headless", "true", "run without a viewer window", BOOLEANS),
    Argument(
        "lockstep",
        "false",
        "simulation waits for every plan: not in real time, repeatable",
        BOOLEANS,
    ),
    Argument("adapt", "true", "relearn the latent dynamics while walking", BOOLEANS),
    Argument("record", "false", "write a rosbag2 recording", BOOLEANS),
    Argument("bag_dir", "bags", "directory in which recordings are made"),
    Argument("duration", "0", "s of walking; 0: until Ctrl-C", low=0.0, high=86400.0),
    Argument("command_vx", "0.5", "m/s forward", low=-0.5, high=1.2),
    Argument("model", "go1/world_model", "name of a model in models, or its .safetensors file"),
    Argument("seed", "0", "of start pose and planning noise", low=0, high=2**31 - 1),
    Argument("namespace", "", "ROS namespace of all nodes; empty: none"),
    Argument("summary", "", "JSON file for the closing summary; empty: none"),
)


@dataclass(frozen=True)
class LaunchSettings:
    """Checked values, as the nodes take them."""

    robot: str
    world: str
    headless: bool
    lockstep: bool
    adapt: bool
    record: bool
    bag_dir: str
    duration: float
    command_vx: float
    model: str
    seed: int
    namespace: str
    summary: str
    course_length: float  #: m of progress at the end of the course


def check(given: Mapping[str, str]) -> LaunchSettings:
    """Check the text of every argument; raises ConfigError naming argument, value and what is
    allowed. Afterwards the named files exist and the directories can be written to."""
    values = {argument.name: given.get(argument.name, argument.default) for argument in ARGUMENTS}
    for argument in ARGUMENTS:
        if argument.choices and values[argument.name] not in argument.choices:
            allowed = ", ".join(argument.choices)
            raise _refused(argument.name, values[argument.name], f"must be one of: {allowed}")
    record, adapt = values["record"] == "true", values["adapt"] == "true"
    # What is read as text first, then files, then what takes a second to import.
    return LaunchSettings(
        robot="go1",
        world=values["world"],
        headless=values["headless"] == "true",
        lockstep=values["lockstep"] == "true",
        adapt=adapt,
        record=record,
        duration=_number("duration", values["duration"]),
        command_vx=_number("command_vx", values["command_vx"]),
        seed=_whole("seed", values["seed"]),
        namespace=_namespace(values["namespace"]),
        summary=_summary(values["summary"]),
        bag_dir=_bag_directory(values["bag_dir"], record),
        course_length=_course_length(values["world"]),
        model=_model(values["model"], adapt),
    )


def _refused(name: str, value: str, problem: str) -> ConfigError:
    return ConfigError(f"argument {name}:={value}: {problem}")


def _bounds(name: str) -> tuple[float, float]:
    argument = next(a for a in ARGUMENTS if a.name == name)
    assert argument.low is not None
    assert argument.high is not None
    return argument.low, argument.high


def _number(name: str, text: str) -> float:
    low, high = _bounds(name)
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not low <= value <= high:
        raise _refused(name, text, f"must be a number from {low:g} to {high:g}")
    return value


def _whole(name: str, text: str) -> int:
    low, high = _bounds(name)
    if not re.fullmatch(r"[0-9]{1,10}", text) or not low <= int(text) <= high:
        raise _refused(name, text, f"must be a whole number from {int(low)} to {int(high)}")
    return int(text)


def _namespace(text: str) -> str:
    if text and not re.fullmatch(r"/?[A-Za-z_][A-Za-z0-9_]*(/[A-Za-z_][A-Za-z0-9_]*)*", text):
        raise _refused(
            "namespace",
            text,
            "must be a ROS name such as go1 or lab/go1: letters, digits and _, no digit in front",
        )
    return text


def _model(text: str, adapt: bool) -> str:
    # Loading imports PyTorch, which takes a second: only once the cheap checks have passed.
    from simdist.world_model import load_artefact
    from simdist.world_model.simulation_replay import SimulationReplay, find_simulation_replay

    try:
        artefact = load_artefact(paths.model_file(text), robots.get("go1"))
    except SimdistError as error:
        raise _refused("model", text, str(error)) from None
    path = artefact.path.resolve()
    if adapt:
        try:
            SimulationReplay.load(find_simulation_replay(artefact), artefact.contract)
        except SimdistError as error:
            raise _refused(
                "adapt",
                "true",
                f"learning beside the model needs simulation data: {error}; or use adapt:=false",
            ) from None
    return str(path)


def _course_length(text: str) -> float:
    # Composing worlds imports MuJoCo.
    from simdist.simulation.world import load_world

    try:
        world = load_world(text)
    except SimdistError as error:
        raise _refused("world", text, str(error)) from None
    return world.distance(math.inf) - COURSE_MARGIN


def _summary(text: str) -> str:
    if not text:
        return ""
    path = Path(os.path.abspath(os.path.expanduser(text)))
    if path.is_dir():
        raise _refused("summary", text, "is a directory; name a file in it")
    _writable("summary", text, path.parent, make=False)
    return str(path)


def _bag_directory(text: str, record: bool) -> str:
    directory = Path(os.path.abspath(os.path.expanduser(text)))
    if record:
        _writable("bag_dir", text, directory, make=True)
    return str(directory)


def _writable(name: str, text: str, directory: Path, *, make: bool) -> None:
    try:
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise _refused(
            name, text, f"{directory} cannot be written to ({error.strerror}); name another place"
        ) from None
