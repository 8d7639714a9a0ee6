"""Launch descriptions as text, for `ros2 launch --show-args` and `--print`."""

from __future__ import annotations

from typing import Any

from simdist.local_ros.errors import CommandError


def load(source: Any) -> Any:
    """Load a description without running it."""
    from launch import LaunchContext

    try:
        return source.get_launch_description(LaunchContext())
    except Exception as error:  # whatever a launch file raises
        raise CommandError(f"cannot load the launch file: {error}") from error


def arguments(description: Any) -> str:
    """Return the declared arguments in the format of real launch."""
    lines = ["Arguments (pass arguments as '<name>:=<value>'):"]
    declared = description.get_launch_arguments_with_conditions()
    for argument, conditional in declared:
        lines += ["", f"    '{argument.name}':{'*' if conditional else ''}"]
        lines.append(f"        {argument.description}")
        if argument.default_value is not None:
            default = " + ".join(part.describe() for part in argument.default_value) or "''"
            lines.append(f"        (default: {default})")
    if not declared:
        lines += ["", "  No arguments."]
    elif any(conditional for _, conditional in declared):
        lines += ["", "* argument(s) which are only used if specific conditions occur"]
    return "\n".join(lines)


def entities(entity: Any, depth: int = 0) -> str:
    """Return the tree of entities, as far as it is known before the launch."""
    name = getattr(entity, "name", None)
    label = type(entity).__name__ + (f"('{name}')" if isinstance(name, str) else "")
    children = [entities(child, depth + 1) for child in entity.describe_sub_entities()]
    return "\n".join(["    " * depth + label, *children])
