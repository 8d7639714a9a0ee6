"""Where a Go1 is reached from a network interface."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct

from simdist.hardware.go1.packet import ROBOT_ADDRESS, ROBOT_PORT
from simdist.hardware.link import LinkError

_SIOCGIFADDR = 0x8915
_LOOPBACK = "lo"


def robot_address(interface: str) -> str:
    """The robot's address behind ``interface``: 127.0.0.1 for ``lo``, where the simulated Go1
    listens. Raises LinkError if there is no such interface, or the way to the robot is another.
    """
    names = [name for _, name in socket.if_nameindex()]
    if interface not in names:
        raise LinkError(
            f"there is no network interface {interface!r}; this computer has {', '.join(names)}"
        )
    if interface == _LOOPBACK:
        return "127.0.0.1"
    own, used = _address_of(interface), _way_to(ROBOT_ADDRESS)
    if own is None or own != used:
        raise LinkError(
            f"the way to the Go1 ({ROBOT_ADDRESS}:{ROBOT_PORT}) does not lead through "
            f"{interface!r} (its address: {own or 'none'}; used would be {used or 'none'}): give "
            f"it an address of the robot's network, 'sudo ip addr add 192.168.123.162/24 dev "
            f"{interface}', or name the interface that the robot is plugged into"
        )
    return ROBOT_ADDRESS


def _address_of(interface: str) -> str | None:
    request = struct.pack("256s", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end, contextlib.suppress(OSError):
        return socket.inet_ntoa(fcntl.ioctl(end.fileno(), _SIOCGIFADDR, request)[20:24])
    return None


def _way_to(address: str) -> str | None:
    """The own address that packets to ``address`` would carry; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end, contextlib.suppress(OSError):
        end.connect((address, ROBOT_PORT))
        return end.getsockname()[0]
    return None
