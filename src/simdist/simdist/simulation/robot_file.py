"""Reading a robot's MJCF, and bringing it to the order and the names of its RobotSpec.

Files differ in what they call feet and in the order of the legs. Afterwards joints are in the order
of ``joint_names``, and each foot of ``foot_names`` has a colliding geom ``<foot>_foot_collision``
and a site ``<foot>``. Actuators and keyframes of the file are gone.
"""

from __future__ import annotations

from xml.etree import ElementTree

import mujoco

from simdist.errors import ConfigError
from simdist.robots import RobotSpec


def read_robot(robot: RobotSpec) -> mujoco.MjSpec:
    """The robot alone, as its file describes it; raises ConfigError for a file without the joints
    and feet of the specification."""
    model = mujoco.MjSpec.from_string(_text(robot))
    for element in (*model.actuators, *model.keys):
        model.delete(element)
    for foot in robot.foot_names:
        _name_foot(model, robot, foot)
    return model


def _text(robot: RobotSpec) -> str:
    """The file with its legs in the order of the joints."""
    tree = ElementTree.parse(robot.mjcf).getroot()
    base = tree.find(f".//body[@name='{robot.base_body}']")
    if base is None:
        raise ConfigError(f"{robot.mjcf.name} has no body {robot.base_body!r} of {robot.name}")
    place = {name: index for index, name in enumerate(robot.joint_names)}

    def first_joint(leg: ElementTree.Element) -> int:
        names = [joint.get("name") for joint in leg.iter("joint")]
        return min((place[name] for name in names if name in place), default=len(place))

    legs = base.findall("body")
    for leg in legs:
        base.remove(leg)
    base.extend(sorted(legs, key=first_joint))
    # The text has no directory of its own that meshes could be found from.
    compiler = tree.find("compiler")
    if compiler is None:
        compiler = ElementTree.SubElement(tree, "compiler")
    meshes = robot.mjcf.parent / (compiler.get("meshdir") or "")
    compiler.set("meshdir", str(meshes))
    return ElementTree.tostring(tree, encoding="unicode")


def _name_foot(model: mujoco.MjSpec, robot: RobotSpec, foot: str) -> None:
    geom = model.geom(f"{foot}_foot_collision") or model.geom(foot)
    if geom is None:
        raise ConfigError(f"{robot.mjcf.name} has no geom of foot {foot!r} of {robot.name}")
    geom.name = f"{foot}_foot_collision"
    if model.site(foot) is None:
        geom.parent.add_site(name=foot, pos=geom.pos)
