"""Which instance this process is, by the variables that poprun (or torchrun, or mpirun) sets.

Only reads and checks: variables that contradict each other are an error, never a guess.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from .. import settings
from ..errors import InstanceEnvironment

_INDEX = ("RANK", "OMPI_COMM_WORLD_RANK")
_COUNT = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
_LOCAL_INDEX = ("POPDIST_LOCAL_INSTANCE_INDEX", "LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
_LOCAL_COUNT = ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")
_TOTAL, _LOCAL = "POPDIST_NUM_TOTAL_REPLICAS", "POPDIST_NUM_LOCAL_REPLICAS"
_OFFSET, _IPUS = "POPDIST_REPLICA_INDEX_OFFSET", "POPDIST_NUM_IPUS_PER_REPLICA"


@dataclass(frozen=True)
class Instance:
    """One process of a program and its share of the replicas."""

    index: int = 0
    count: int = 1
    local_index: int = 0
    #: Instances on the same host; None where nothing says so.
    local_count: int | None = None
    total_replicas: int = 1
    local_replicas: int = 1
    replica_offset: int = 0
    ipus_per_replica: int = 1
    uniform: bool = True
    address: str | None = None
    port: int | None = None
    #: Whether the launcher listens on the port, and not instance 0.
    launcher_listens: bool = False


def is_launched(environ: Mapping[str, str] | None = None) -> bool:
    """Whether poprun started this process."""
    return settings.is_set(_TOTAL, environ)


def read(environ: Mapping[str, str] | None = None) -> Instance:
    """This process among the instances; one that stands alone if no variable says otherwise."""
    source = os.environ if environ is None else environ
    count = _agreed(source, _COUNT)
    index = _agreed(source, _INDEX)
    local = _number(source, _LOCAL, least=1)
    total = _number(source, _TOTAL, least=1)
    offset = _number(source, _OFFSET)
    uniform = bool(settings.get("POPDIST_UNIFORM_REPLICAS_PER_INSTANCE", source))
    if total is None:
        _refuse_parts(source)
    elif local is None:
        # One instance has all of them, as poprun's own default is.
        local = total if count in (None, 1) else _divided(total, count)
    if count is None:
        known = total is not None and local is not None and uniform
        count = _divided(total or 1, local or 1) if known else 1
    if count < 1:
        raise InstanceEnvironment(f"{_given(source, _COUNT)}: there is at least one instance.")
    share = local or 1
    if index is None:
        index = (offset or 0) // share if uniform else 0
    return _checked(
        Instance(
            index=index,
            count=count,
            local_index=_first(_agreed(source, _LOCAL_INDEX), 0),
            local_count=_agreed(source, _LOCAL_COUNT),
            total_replicas=_first(total, count),
            local_replicas=share,
            replica_offset=_first(offset, index * share),
            ipus_per_replica=_first(_number(source, _IPUS, least=1), 1),
            uniform=uniform,
            address=settings.get("MASTER_ADDR", source),
            port=settings.get("MASTER_PORT", source),
            launcher_listens=bool(settings.get("TORCHELASTIC_USE_AGENT_STORE", source)),
        )
    )


def _checked(found: Instance) -> Instance:
    total, local, offset = found.total_replicas, found.local_replicas, found.replica_offset
    rules = (
        (found.index < found.count,
         f"instance {found.index} of {found.count}: they are numbered from 0"),
        (found.local_index < found.count,
         f"local instance {found.local_index}, but there are {found.count} instances"),
        (found.local_count is None or found.local_index < found.local_count <= found.count,
         f"local instance {found.local_index} of {found.local_count} on this host, "
         f"of {found.count} in all"),
        (offset + local <= total,
         f"replicas {offset} to {offset + local - 1}, but there are {total}"),
        (total >= found.count, f"{total} replicas for {found.count} instances"),
        (not found.uniform or local * found.count == total,
         f"{found.count} instances with {local} replicas each are not {total} replicas"),
        (not found.uniform or offset == found.index * local,
         f"instance {found.index} begins at replica {found.index * local}, not at {offset}"),
    )  # fmt: skip
    for holds, contradiction in rules:
        if not holds:
            raise InstanceEnvironment(f"The variables contradict each other: {contradiction}.")
    return found


def _refuse_parts(source: Mapping[str, str]) -> None:
    for name in (_LOCAL, _OFFSET, _IPUS):
        if settings.is_set(name, source):
            raise InstanceEnvironment(f"{name} is set, but {_TOTAL} is not.")


def _divided(total: int, parts: int) -> int:
    if parts < 1 or total % parts:
        raise InstanceEnvironment(f"{total} replicas don't divide into {parts} equal parts.")
    return total // parts


def _agreed(source: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    """The value of variables that mean the same."""
    found = {name: _number(source, name) for name in names if settings.is_set(name, source)}
    if len(set(found.values())) > 1:
        raise InstanceEnvironment(f"{_given(source, names)}: these mean the same, but differ.")
    return next(iter(found.values()), None)


def _given(source: Mapping[str, str], names: tuple[str, ...]) -> str:
    return ", ".join(f"{name}={source[name]}" for name in names if source.get(name))


def _number(source: Mapping[str, str], name: str, least: int = 0) -> int | None:
    if not settings.is_set(name, source):
        return None
    text = str(settings.get(name, source))
    if not text.isascii() or not text.isdigit() or int(text) < least:
        raise InstanceEnvironment(f"{name}={text!r}: expected a whole number from {least}.")
    return int(text)


def _first(value: int | None, default: int) -> int:
    return default if value is None else value
