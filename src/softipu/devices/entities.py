"""Agents, clusters and partitions of a V-IPU controller as data, with the rules for each alone.

Both ends of the REST interface use these classes. What depends on other entities (free IPUs, taken
names) is the controller's business, not theirs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidIpuCount, InvalidRequest
from .model import Ipu, is_power_of_two

NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
HOST_PATTERN = r"[A-Za-z0-9][A-Za-z0-9.:_-]{0,62}"
DEFAULT_AGENT_PORT = 8080
#: More than any system has; keeps numbers of requests within what databases and screens can take.
LARGEST_SIZE = 1 << 16
LARGEST_INDEX = LARGEST_SIZE - 1
MOST_AGENTS_PER_CLUSTER = 1024
ACTIVE = "ACTIVE"

C2_COMPATIBLE = "c2-compatible"
POD_NATIVE = "pod-native-default"
SYNC_TYPES = (C2_COMPATIBLE, POD_NATIVE)

#: IPUs that IPU-Links join without a gateway on the largest systems.
_IPUS_PER_LINK_DOMAIN = 64

#: Tells who holds any of these IPUs, one phrase for each process.
Holders = Callable[[tuple[Ipu, ...]], list[str]]


class WrongShape(ValueError):
    """Decoded JSON that is not the entity it should be."""


@dataclass(frozen=True)
class Agent:
    """One IPU-Machine under the controller."""

    id: str
    host: str
    port: int
    system: str  #: arch name of the system whose machine it imitates
    ipus: int

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, raw: Any) -> Agent:
        body = _object(raw)
        return cls(
            id=_text(body, "id"),
            host=_text(body, "host"),
            port=_number(body, "port"),
            system=_text(body, "system"),
            ipus=_number(body, "ipus"),
        )


@dataclass(frozen=True)
class Cluster:
    """Agents in a fixed order, from whose IPUs partitions are cut."""

    id: str
    agents: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"id": self.id, "agents": list(self.agents)}

    @classmethod
    def from_json(cls, raw: Any) -> Cluster:
        body = _object(raw)
        agents = body.get("agents")
        if not isinstance(agents, list) or not all(isinstance(name, str) for name in agents):
            raise WrongShape('"agents" is not a list of names')
        return cls(_text(body, "id"), tuple(agents))


@dataclass(frozen=True)
class PartitionInfo:
    """A partition as the controller keeps it. `ipus` are (host, IPU#, system), in order of id."""

    id: str
    cluster: str
    size: int
    reconfigurable: bool
    num_gcds: int
    gcd_sync_replicas: int
    sync_type: str
    state: str
    created: float  #: wall clock, seconds since 1970
    ipus: tuple[tuple[str, int, str], ...]

    @property
    def ilds(self) -> int:
        """IPU-Link domains that the partition spans."""
        return max(1, self.size // _IPUS_PER_LINK_DOMAIN)

    @property
    def routing(self) -> str:
        """As the tools print it: large fixed partitions close their links to rings."""
        fixed = not self.reconfigurable and self.size >= _IPUS_PER_LINK_DOMAIN
        return "RINGSWNC" if fixed else "DNC"

    def to_json(self) -> dict[str, Any]:
        ipus = [
            {"host": host, "device_id": device_id, "system": system}
            for host, device_id, system in self.ipus
        ]
        return {**vars(self), "ipus": ipus, "ilds": self.ilds, "routing": self.routing}

    @classmethod
    def from_json(cls, raw: Any) -> PartitionInfo:
        body = _object(raw)
        entries = body.get("ipus")
        if not isinstance(entries, list):
            raise WrongShape('"ipus" is not a list')
        info = cls(
            id=_text(body, "id"),
            cluster=_text(body, "cluster"),
            size=_number(body, "size"),
            reconfigurable=_flag(body, "reconfigurable"),
            num_gcds=_number(body, "num_gcds"),
            gcd_sync_replicas=_number(body, "gcd_sync_replicas"),
            sync_type=_text(body, "sync_type"),
            state=_text(body, "state"),
            created=_seconds(body, "created"),
            ipus=tuple(
                (_text(entry, "host"), _number(entry, "device_id"), _text(entry, "system"))
                for entry in map(_object, entries)
            ),
        )
        if len(info.ipus) != info.size:
            raise WrongShape(f"{len(info.ipus)} IPUs are listed, but the size is {info.size}")
        if not is_power_of_two(info.num_gcds) or info.num_gcds > info.size:
            raise WrongShape(f"{info.size} IPUs cannot form {info.num_gcds} GCDs")
        return info


@dataclass(frozen=True)
class PartitionRequest:
    """What `vipu create partition` asks for; None leaves the choice to the controller."""

    id: str
    size: int
    cluster: str | None = None
    reconfigurable: bool = False
    num_gcds: int = 1
    gcd_sync_replicas: int = 1
    index: int | None = None
    sync_type: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in vars(self).items() if value is not None}


def check_name(name: str, what: str) -> None:
    if not re.fullmatch(NAME_PATTERN, name):
        raise InvalidRequest(
            f"{shown(name)} cannot name a {what}: use up to 64 letters, digits, dots, dashes and "
            "underscores, and begin with a letter or digit."
        )


def check_agent(name: str, host: str, port: int) -> None:
    check_name(name, "agent")
    if not re.fullmatch(HOST_PATTERN, host):
        raise InvalidRequest(f"{shown(host)} is not a host name or address.")
    if not 1 <= port <= 65535:
        raise InvalidRequest(f"{port} is not a port number from 1 to 65535.")


def check_request(request: PartitionRequest) -> str:
    """Refuse what can never be created; gives the sync type that the partition gets."""
    check_name(request.id, "partition")
    if request.cluster is not None:
        check_name(request.cluster, "cluster")
    if not is_power_of_two(request.size):
        raise InvalidIpuCount(
            f"A partition of {request.size} IPUs was asked for, which is not a power of two."
        )
    if not is_power_of_two(request.num_gcds) or request.num_gcds > request.size:
        raise InvalidRequest(
            f"{request.num_gcds} GCDs were asked for: the number must be a power of two and not "
            f"above the partition's size ({request.size})."
        )
    if not is_power_of_two(request.gcd_sync_replicas) or request.gcd_sync_replicas > request.size:
        raise InvalidRequest(
            f"{request.gcd_sync_replicas} sync replicas were asked for: the number must be a "
            f"power of two and not above the partition's size ({request.size})."
        )
    if request.index is not None and request.index < 0:
        raise InvalidRequest(f"The index is {request.index}; indices count from 0.")
    return _sync_type(request)


def _sync_type(request: PartitionRequest) -> str:
    if request.sync_type is None:
        return C2_COMPATIBLE if request.reconfigurable else POD_NATIVE
    wanted = normal_sync_type(request.sync_type)
    if request.reconfigurable and wanted != C2_COMPATIBLE and request.index is None:
        raise InvalidRequest(
            f"A reconfigurable partition has sync type {C2_COMPATIBLE}, not {wanted}.",
            remedy="Leave out --reconfigurable or --sync-type, or fix the place with --index.",
        )
    return wanted


def normal_sync_type(text: str) -> str:
    """One spelling for all: scripts write ST_POD_NATIVE_DEFAULT, files c2-compatible."""
    wanted = text.lower().removeprefix("st_").replace("_", "-")
    if wanted not in SYNC_TYPES:
        raise InvalidRequest(f"{shown(text)} is not a sync type (known: {', '.join(SYNC_TYPES)}).")
    return wanted


def shown(text: str) -> str:
    """Text from outside, safe and short enough for a message."""
    return ascii(text if len(text) <= 80 else text[:77] + "...")


def _object(raw: Any) -> Mapping[str, Any]:
    if not isinstance(raw, dict):
        raise WrongShape("an object was expected")
    return raw


def _text(body: Mapping[str, Any], key: str) -> str:
    value = body.get(key)
    if not isinstance(value, str) or not value.isprintable() or len(value) > 256:
        raise WrongShape(f'"{key}" is not a short text')
    return value


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body.get(key)
    if not isinstance(value, bool):
        raise WrongShape(f'"{key}" is not true or false')
    return value


def _number(body: Mapping[str, Any], key: str) -> int:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 32:
        raise WrongShape(f'"{key}" is not a number from 0')
    return value


def _seconds(body: Mapping[str, Any], key: str) -> float:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        raise WrongShape(f'"{key}" is not a time')
    return float(value)
