"""The subset of the ROS 2 `launch_ros` API that launch files in this repository use."""

from __future__ import annotations

from launch.unsupported import unsupported_names

__getattr__ = unsupported_names(__name__)
