"""Substitutions that know ROS packages."""

from __future__ import annotations

from launch import LaunchContext, SomeSubstitutionsType, Substitution
from launch.substitutions import describe_all
from launch.unsupported import unsupported_names
from launch.utilities import perform_substitutions

__all__ = ["FindPackagePrefix", "FindPackageShare"]

__getattr__ = unsupported_names(__name__)


class FindPackagePrefix(Substitution):
    """The install prefix of a package."""

    def __init__(self, package: SomeSubstitutionsType) -> None:
        self.package = package

    def perform(self, context: LaunchContext) -> str:
        from ament_index_python.packages import get_package_prefix

        return get_package_prefix(perform_substitutions(context, self.package))

    def describe(self) -> str:
        return f"{type(self).__name__}(pkg={describe_all(self.package)})"


class FindPackageShare(FindPackagePrefix):
    """The share directory of a package."""

    def perform(self, context: LaunchContext) -> str:
        from ament_index_python.packages import get_package_share_directory

        return get_package_share_directory(perform_substitutions(context, self.package))
