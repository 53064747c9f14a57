"""Which partition a program gets: from IPUoF files, a V-IPU server, or the embedded system.

The first that applies wins: IPUOF_CONFIG_PATH; IPUOF_VIPU_API_HOST; IPUOF_VIPU_API_PARTITION_ID
(of the embedded system); SOFTIPU_SYSTEM; ~/.ipuof.conf.d; /etc/ipuof.conf.d; the default system.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .. import arch, settings
from ..errors import (
    AmbiguousPartition,
    IpuofDisagrees,
    ServerTimeout,
    ServerUnreachable,
    UnknownPartition,
)
from . import ipuof
from .embedded import EMBEDDED, whole_system
from .home import Home
from .model import DEFAULT_PARTITION, Partition

if TYPE_CHECKING:
    from .remote import RemoteController

Others = Callable[[], tuple[Partition, ...]]

#: A file that names its server is checked against it, but must not wait long for that.
_CHECK_SECONDS = 2.0
_SYSTEM_WIDE = Path("/etc/ipuof.conf.d")


def partitions(home: Home) -> tuple[Partition, ...]:
    """All partitions in view; the first is the active one."""
    active, others = _look(home)
    return (active, *others())


def active_partition(home: Home) -> Partition:
    return _look(home)[0]


def _look(home: Home) -> tuple[Partition, Others]:
    """The active partition, and a way to get the others, which programs never need."""
    configured = settings.get("IPUOF_CONFIG_PATH")
    if configured is not None:
        return _from_file(Path(configured).expanduser()), tuple
    if _server_is_named():
        return _from_server()
    if settings.is_set("IPUOF_VIPU_API_PARTITION_ID") or settings.is_set("SOFTIPU_SYSTEM"):
        return _embedded(home)
    files = list(_configuration_files())
    if files:
        return _from_file(files[0]), lambda: tuple(ipuof.read(path)[0] for path in files[1:])
    return _embedded(home)


def _configuration_files() -> Iterator[Path]:
    for folder in (Path.home() / ".ipuof.conf.d", _SYSTEM_WIDE):
        yield from sorted(folder.glob("*.conf"))


def _from_file(path: Path) -> Partition:
    partition, attributes = ipuof.read(path)
    _check_against_server(path, partition, attributes)
    return partition


def _check_against_server(path: Path, partition: Partition, attributes: dict[str, str]) -> None:
    """A file that its server contradicts is an error; a server that is gone only a warning."""
    from .remote import RemoteController, parse_address

    named = attributes.get(ipuof.ATTRIBUTE_SERVER)
    if _server_is_named():
        server = _server()
        name = settings.get("IPUOF_VIPU_API_PARTITION_ID") or partition.name
    elif named is not None:
        host, port = parse_address(named)
        server = RemoteController(
            host,
            port or settings.get("IPUOF_VIPU_API_PORT"),
            timeout=_CHECK_SECONDS,
            access_key=settings.get("SOFTIPU_VIPU_ACCESS_KEY"),
        )
        name = partition.name
    else:
        return
    try:
        theirs = server.partition(name, partition.gcd or 0)
    except UnknownPartition:
        raise IpuofDisagrees(
            f"{path} describes partition {name}, but the V-IPU server {server.address} has no "
            "such partition."
        ) from None
    except (ServerUnreachable, ServerTimeout) as error:
        if _server_is_named():
            raise
        _warn_once(f"{error.what} {path} was used unchecked.")
        return
    if [ipu.key for ipu in theirs.ipus] != [ipu.key for ipu in partition.ipus]:
        raise IpuofDisagrees(
            f"{path} and the V-IPU server {server.address} give partition {name} different IPUs "
            f"({len(partition.ipus)} in the file, {len(theirs.ipus)} on the server)."
        )


@cache
def _warn_once(text: str) -> None:
    print(f"softipu: warning: {text}", file=sys.stderr)


def _server_is_named() -> bool:
    """`vipu --server-version` calls the embedded system by a name, which scripts copy here."""
    return settings.get("IPUOF_VIPU_API_HOST") not in (None, EMBEDDED)


def _server() -> RemoteController:
    from .remote import RemoteController, parse_address

    host, port = parse_address(settings.get("IPUOF_VIPU_API_HOST"))
    return RemoteController(
        host,
        port or settings.get("IPUOF_VIPU_API_PORT"),
        timeout=settings.get("IPUOF_VIPU_API_TIMEOUT"),
        access_key=settings.get("SOFTIPU_VIPU_ACCESS_KEY"),
    )


def _from_server() -> tuple[Partition, Others]:
    server = _server()
    wanted = settings.get("IPUOF_VIPU_API_PARTITION_ID") or _only_partition(server)
    active = server.partition(wanted, settings.get("IPUOF_VIPU_API_GCD_ID"))

    def others() -> tuple[Partition, ...]:
        names = [info.id for info in server.partitions()]
        return tuple(replace(server.partition(name), gcd=None) for name in names if name != wanted)

    # The tools name the GCD only where the user did.
    named = settings.is_set("IPUOF_VIPU_API_GCD_ID")
    return (active if named else replace(active, gcd=None)), others


def _only_partition(server: RemoteController) -> str:
    names = [info.id for info in server.partitions()]
    if len(names) == 1:
        return names[0]
    raise AmbiguousPartition(
        f"IPUOF_VIPU_API_HOST is set without IPUOF_VIPU_API_PARTITION_ID, and the server "
        f"{server.address} has {len(names)} partitions ({', '.join(names) or 'none'})."
    )


def _embedded(home: Home) -> tuple[Partition, Others]:
    """Partitions made with `vipu` on the embedded system, or the whole system if there are none."""
    system = arch.system(settings.get("SOFTIPU_SYSTEM")).name
    database = home.controllers / f"{system}.sqlite"
    wanted = settings.get("IPUOF_VIPU_API_PARTITION_ID")
    found: tuple[Partition, ...] = (whole_system(system),)
    if home.exists() and database.exists():
        from .controller import Controller

        controller = Controller(database, system=system, read_only=True)
        names = sorted(info.id for info in controller.partitions())
        if names:
            gcd = settings.get("IPUOF_VIPU_API_GCD_ID")
            found = tuple(
                controller.partition(name, gcd if name == wanted else None) for name in names
            )
    if wanted is None:
        return found[0], lambda: found[1:]
    active = [one for one in found if one.name == wanted]
    if not active:
        listed = ", ".join(one.name for one in found)
        raise UnknownPartition(
            f"Partition {wanted!r} (IPUOF_VIPU_API_PARTITION_ID) does not exist on the embedded "
            f"system {system}, which has: {listed or DEFAULT_PARTITION}."
        )
    return active[0], lambda: tuple(one for one in found if one.name != wanted)
