"""Network interfaces of this host: which one instances use to reach the other hosts."""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import NetworkNotFound

_SIOCGIFADDR = 0x8915
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Interface:
    name: str
    address: str


def interfaces() -> list[Interface]:
    """Interfaces with an IPv4 address, in the kernel's order."""
    found = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:
                continue  # it has no address
            found.append(Interface(name, socket.inet_ntoa(answer[20:24])))
    return found


def choose(wanted: Sequence[str], known: Sequence[Interface]) -> Interface:
    """The first interface that a name or a network (`10.1.0.0/16`) of the list means."""
    for word in wanted:
        for interface in known:
            if word == interface.name or _contains(word, interface.address):
                return interface
    listed = ", ".join(f"{one.name} {one.address}" for one in known)
    raise NetworkNotFound(f"No interface is meant by {', '.join(wanted)} (there are: {listed}).")


def check(word: str) -> None:
    """Refuse a network that is none; an interface's name can only be judged on its host."""
    if "/" in word and _network(word) is None:
        raise NetworkNotFound(f"{word!a} is not a network such as 10.1.0.0/16.")


def _network(word: str) -> ipaddress.IPv4Network | None:
    try:
        return ipaddress.IPv4Network(word, strict=False)
    except ValueError:
        return None


def _contains(word: str, address: str) -> bool:
    network = _network(word) if word[:1].isdigit() else None
    return network is not None and ipaddress.IPv4Address(address) in network


def towards(other: str) -> str | None:
    """This host's own address on the way to another one; no packet is sent."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except (OSError, UnicodeError):
        return None


def is_own(name: str) -> bool:
    """Whether a name or address means this machine: only its own addresses can be bound to."""
    try:
        found = socket.getaddrinfo(name, 0, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):
        return False
    for family, kind, protocol, _, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.bind(address)
        except OSError:
            continue
        return True
    return False


def is_loopback(name: str) -> bool:
    """Whether a name or address means, on each host, that host itself."""
    bare = name.lower().rstrip(".")
    if bare == "localhost" or bare.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(bare.partition("%")[0]).is_loopback
    except ValueError:
        return False


def with_address(address: str, known: Sequence[Interface]) -> Interface | None:
    return next((one for one in known if one.address == address), None)
