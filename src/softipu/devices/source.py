"""Which partition a program gets: from IPUoF files, a V-IPU server, or the embedded system.

The first that applies wins: IPUOF_CONFIG_PATH; IPUOF_VIPU_API_HOST; IPUOF_VIPU_API_PARTITION_ID
(of the embedded system); SOFTIPU_SYSTEM; ~/.ipuof.conf.d; /etc/ipuof.conf.d; the default system.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .. import arch, settings
from ..errors import (
    AccessDenied,
    AmbiguousPartition,
    IpuofDisagrees,
    ServerNonsense,
    ServerTimeout,
    ServerUnreachable,
    UnknownPartition,
)
from . import ipuof
from .embedded import EMBEDDED, whole_system
from .home import Home, user_home
from .model import DEFAULT_PARTITION, Partition

if TYPE_CHECKING:
    from .entities import PartitionInfo
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
    if settings.is_set("IPUOF_CONFIG_PATH"):
        return _from_file(settings.expanded("IPUOF_CONFIG_PATH")), tuple
    if _server_is_named():
        return _from_server()
    if settings.is_set("IPUOF_VIPU_API_PARTITION_ID") or settings.is_set("SOFTIPU_SYSTEM"):
        return _embedded(home)
    files = list(_configuration_files())
    if files:
        return _from_file(files[0]), lambda: tuple(ipuof.read(path)[0] for path in files[1:])
    return _embedded(home)


def _configuration_files() -> Iterator[Path]:
    user = user_home()
    for folder in ([] if user is None else [user / ".ipuof.conf.d"]) + [_SYSTEM_WIDE]:
        try:
            names = sorted(name for name in os.listdir(folder) if name.endswith(".conf"))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            _warn_once(f"{folder} cannot be read ({error.strerror}): none of its files is used.")
            continue
        yield from (folder / name for name in names)


def _from_file(path: Path) -> Partition:
    partition, attributes = ipuof.read(path)
    _check_against_server(path, partition, attributes)
    return partition


def _check_against_server(path: Path, partition: Partition, attributes: dict[str, str]) -> None:
    """A file that its server contradicts is an error; one that cannot be asked only a warning.

    The user's access key is not sent there: a file from somewhere may name any host as its server.
    """
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
    except (ServerUnreachable, ServerTimeout, ServerNonsense, AccessDenied) as error:
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
    active = _active_gcd(server.partition_info(wanted), server.address)

    def others() -> tuple[Partition, ...]:
        infos = [info for info in server.partitions() if info.id != wanted]
        return _whole(infos, server.address)

    return active, others


def _active_gcd(info: PartitionInfo, origin: str) -> Partition:
    """What a program gets of a partition: one graph compile domain, the first unless told."""
    from .placement import as_partition

    named = settings.is_set("IPUOF_VIPU_API_GCD_ID")
    gcd = settings.get("IPUOF_VIPU_API_GCD_ID") if named or info.num_gcds > 1 else None
    return as_partition(info, gcd, origin=origin)


def _whole(infos: list[PartitionInfo], origin: str) -> tuple[Partition, ...]:
    from .placement import as_partition

    return tuple(as_partition(info, None, origin=origin) for info in infos)


def _only_partition(server: RemoteController) -> str:
    names = [info.id for info in server.partitions()]
    if len(names) == 1:
        return names[0]
    if not names:
        raise AmbiguousPartition(
            f"The V-IPU server {server.address} has no partition.",
            cause="Nobody created one, or it was removed.",
            remedy="`vipu create partition NAME --size N` makes one.",
        )
    raise AmbiguousPartition(
        f"IPUOF_VIPU_API_HOST is set without IPUOF_VIPU_API_PARTITION_ID, and the server "
        f"{server.address} has {len(names)} partitions ({', '.join(names)})."
    )


def _embedded(home: Home) -> tuple[Partition, Others]:
    """Partitions made with `vipu` on the embedded system, or the whole system if there are none."""
    system = arch.system(settings.get("SOFTIPU_SYSTEM")).name
    database = home.controllers / f"{system}.sqlite"
    wanted = settings.get("IPUOF_VIPU_API_PARTITION_ID")
    infos: list[PartitionInfo] = []
    if home.exists() and database.exists():
        from .controller import Controller

        controller = Controller(database, system=system, read_only=True)
        infos = sorted(controller.partitions(), key=lambda info: info.id)
    if not infos:
        if wanted not in (None, DEFAULT_PARTITION):
            raise _unknown(wanted, system, DEFAULT_PARTITION)
        return whole_system(system), tuple
    chosen = infos[0] if wanted is None else next((i for i in infos if i.id == wanted), None)
    if chosen is None:
        raise _unknown(wanted, system, ", ".join(info.id for info in infos))
    rest = [info for info in infos if info is not chosen]
    return _active_gcd(chosen, EMBEDDED), lambda: _whole(rest, EMBEDDED)


def _unknown(wanted: str, system: str, known: str) -> UnknownPartition:
    return UnknownPartition(
        f"Partition {wanted!r} (IPUOF_VIPU_API_PARTITION_ID) does not exist on the embedded "
        f"system {system}, which has: {known}."
    )
