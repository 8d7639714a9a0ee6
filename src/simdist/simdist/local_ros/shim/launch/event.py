"""The base of events."""

from __future__ import annotations


class Event:
    """Something that happened, handed to the registered event handlers."""

    name = "launch.Event"
