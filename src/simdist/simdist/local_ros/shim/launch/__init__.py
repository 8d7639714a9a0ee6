"""The subset of the ROS 2 `launch` API that launch files in this repository use."""

from __future__ import annotations

from .action import Action
from .condition import Condition
from .event import Event
from .event_handler import BaseEventHandler, EventHandler
from .launch_context import LaunchContext
from .launch_description import LaunchDescription
from .launch_description_entity import LaunchDescriptionEntity
from .launch_description_sources import LaunchDescriptionSource
from .launch_service import LaunchService
from .substitution import SomeSubstitutionsType, Substitution
from .unsupported import unsupported_names

__all__ = [
    "Action",
    "BaseEventHandler",
    "Condition",
    "Event",
    "EventHandler",
    "LaunchContext",
    "LaunchDescription",
    "LaunchDescriptionEntity",
    "LaunchDescriptionSource",
    "LaunchService",
    "SomeSubstitutionsType",
    "Substitution",
]

__getattr__ = unsupported_names(__name__)
