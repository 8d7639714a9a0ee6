"""A link to a Go1, real or simulated."""

from __future__ import annotations

from simdist import robots
from simdist.hardware.child import ChildConfig, ChildLink
from simdist.hardware.go1.address import robot_address
from simdist.hardware.go1.packet import LOCAL_PORT, ROBOT_PORT


def open_link(
    interface: str,
    *,
    port: int = ROBOT_PORT,
    local_port: int = LOCAL_PORT,
    config: ChildConfig | None = None,
) -> ChildLink:
    """A Go1 behind the network ``interface``; ``lo``: the simulated one.

    Raises LinkError if there is no such interface, no robot answers, its built-in controller is
    still in charge, or Unitree's SDK is missing.
    """
    arguments = [robot_address(interface), str(port), str(local_port)]
    return ChildLink(robots.get("go1"), "simdist.hardware.go1.sdk_process", arguments, config)
