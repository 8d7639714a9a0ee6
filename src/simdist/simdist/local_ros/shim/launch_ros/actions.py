"""Nodes, namespaces and parameters for all nodes of a scope."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from launch import Action, Condition, LaunchContext, SomeSubstitutionsType
from launch.actions import ExecuteProcess
from launch.unsupported import unsupported_names
from launch.utilities import perform_substitutions

from .parameter_descriptions import ParameterFile
from .parameters import evaluate_parameters, evaluate_value, write_parameter_file

__all__ = ["Node", "PushROSNamespace", "PushRosNamespace", "SetParameter", "SetParametersFromFile"]

__getattr__ = unsupported_names(__name__)

NAMESPACE = "ros_namespace"
# Key in context.ros_parameters for files; not a valid parameter name.
FILES = "//files"

SomeParameters = Iterable[Mapping[Any, Any] | SomeSubstitutionsType | ParameterFile]
SomeRemapRules = Iterable[tuple[SomeSubstitutionsType, SomeSubstitutionsType]]


class Node(ExecuteProcess):
    """Runs an executable of a package as a ROS node."""

    def __init__(
        self,
        *,
        executable: SomeSubstitutionsType,
        package: SomeSubstitutionsType | None = None,
        name: SomeSubstitutionsType | None = None,
        namespace: SomeSubstitutionsType | None = None,
        exec_name: SomeSubstitutionsType | None = None,
        parameters: SomeParameters | None = None,
        remappings: SomeRemapRules | None = None,
        ros_arguments: Iterable[SomeSubstitutionsType] | None = None,
        arguments: Iterable[SomeSubstitutionsType] | None = None,
        **process_options: Any,
    ) -> None:
        super().__init__(cmd=[executable], name=exec_name, **process_options)
        if isinstance(parameters, (str, Mapping)):
            raise TypeError(f"parameters must be a list, got {parameters!r}")
        self._package = package
        self._executable = executable
        self._node_name = name
        self._namespace = namespace
        self._parameters = list(parameters or [])
        self._remappings = list(remappings or [])
        self._ros_arguments = list(ros_arguments or [])
        self._arguments = list(arguments or [])
        self._temporary_files: list[str] = []

    def build_command(self, context: LaunchContext) -> list[str]:
        name = None
        if self._node_name is not None:
            name = perform_substitutions(context, self._node_name)
        namespace = self._expand_namespace(context)
        command = [self._find_executable(context)]
        command += [perform_substitutions(context, one) for one in self._arguments]
        command.append("--ros-args")
        command += [perform_substitutions(context, one) for one in self._ros_arguments]
        if name is not None:
            command += ["-r", f"__node:={name}"]
        if namespace:
            command += ["-r", f"__ns:={namespace}"]
        target = "/**" if name is None else f"{namespace.rstrip('/')}/{name}"
        for file in self._parameter_files(context, target):
            command += ["--params-file", file]
        for source, destination in self._remappings:
            rule = [perform_substitutions(context, one) for one in (source, destination)]
            command += ["-r", ":=".join(rule)]
        return command

    def clean_up(self) -> None:
        for file in self._temporary_files:
            Path(file).unlink(missing_ok=True)
        self._temporary_files.clear()

    def _find_executable(self, context: LaunchContext) -> str:
        executable = perform_substitutions(context, self._executable)
        if self._package is None:
            return executable
        from ament_index_python.packages import get_package_prefix

        package = perform_substitutions(context, self._package)
        directory = Path(get_package_prefix(package), "lib", package)
        path = directory / executable
        if not (path.is_file() and os.access(path, os.X_OK)):
            raise FileNotFoundError(
                f"executable '{executable}' not found on the libexec directory '{directory}'"
            )
        return str(path)

    def _expand_namespace(self, context: LaunchContext) -> str:
        base = context.launch_configurations.get(NAMESPACE, "")
        if self._namespace is None:
            return base
        return join_namespaces(base, perform_substitutions(context, self._namespace))

    def _parameter_files(self, context: LaunchContext, target: str) -> list[str]:
        """Return the files in order of increasing precedence: scope first, node last."""
        common = dict(context.ros_parameters)
        files = list(common.pop(FILES, []))
        if common:
            files.append(self._write(target, common))
        for item in self._parameters:
            if isinstance(item, Mapping):
                values = evaluate_parameters(context, item)
                if values:
                    files.append(self._write(target, values))
            elif isinstance(item, ParameterFile):
                files.append(existing_file(item.evaluate(context)))
            else:
                files.append(existing_file(perform_substitutions(context, item)))
        return files

    def _write(self, target: str, values: Mapping[str, Any]) -> str:
        file = write_parameter_file(target, values)
        self._temporary_files.append(file)
        return file


class PushRosNamespace(Action):
    """Puts the following nodes of the scope into a namespace below the current one."""

    def __init__(
        self, namespace: SomeSubstitutionsType, *, condition: Condition | None = None
    ) -> None:
        super().__init__(condition=condition)
        self.namespace = namespace

    def execute(self, context: LaunchContext) -> None:
        base = context.launch_configurations.get(NAMESPACE, "")
        pushed = join_namespaces(base, perform_substitutions(context, self.namespace))
        context.launch_configurations[NAMESPACE] = pushed


PushROSNamespace = PushRosNamespace


class SetParameter(Action):
    """Sets a parameter for all following nodes of the scope; what a node says itself wins."""

    def __init__(
        self, name: SomeSubstitutionsType, value: Any, *, condition: Condition | None = None
    ) -> None:
        super().__init__(condition=condition)
        self.name = name
        self.value = value

    def execute(self, context: LaunchContext) -> None:
        name = perform_substitutions(context, self.name)
        context.ros_parameters[name] = evaluate_value(context, self.value)


class SetParametersFromFile(Action):
    """Gives a parameter file to all following nodes of the scope."""

    def __init__(
        self, filename: SomeSubstitutionsType, *, condition: Condition | None = None
    ) -> None:
        super().__init__(condition=condition)
        self.filename = filename

    def execute(self, context: LaunchContext) -> None:
        file = existing_file(perform_substitutions(context, self.filename))
        context.ros_parameters[FILES] = [*context.ros_parameters.get(FILES, []), file]


def join_namespaces(base: str, namespace: str) -> str:
    """Return an absolute namespace; one that starts with '/' replaces the base."""
    if namespace.startswith("/"):
        base = ""
    parts = [part for part in (*base.split("/"), *namespace.split("/")) if part]
    return "/" + "/".join(parts) if parts else ""


def existing_file(path: str) -> str:
    """Return the path if there is such a file: rcl would only abort the node."""
    if not os.path.isfile(path):
        raise FileNotFoundError(f"parameter file '{path}' does not exist")
    return path
