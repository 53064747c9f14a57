"""The files beside a lease: the record (who holds the IPU) and the telemetry (what it does).

docs/lease-format.md specifies both for writers in other languages. Reading never trusts a file:
what does not have the documented form is reported as damaged, never as a wrong value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from .process import Identity

FORMAT = 1
#: Times and durations end before the year 9999, with which calendars end.
LATEST_SECOND = 2.5e11


@dataclass(frozen=True)
class Record:
    """Who holds an IPU. Believed only while the IPU's lock is held and the process lives."""

    pid: int
    start_ticks: int
    boot_id: str
    pid_namespace: int
    host: str
    uid: int
    user: str
    command: str
    since: float  #: wall clock, seconds since 1970
    since_boot: float  #: seconds since boot; durations are taken from this one
    partition: str
    device: int  #: id of the attached device within the partition
    ids: list[int]  #: ids of its IPUs within the partition
    monitoring: bool = False  #: GCDA_MONITOR: the tools may show temperature and power
    executable: str = ""  #: name or hash of what runs, "" if unknown
    memory_bytes: int = 0  #: in use on each IPU

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.start_ticks, self.boot_id, self.pid_namespace, self.host)


@dataclass(frozen=True)
class Counters:
    """What an IPU did since the lease began, and in the writer's latest interval."""

    pid: int
    start_ticks: int
    updated_boot: float
    busy_seconds: float
    cycles: int  #: of the modelled IPU; 0 where nothing was estimated
    host_bytes_in: int
    host_bytes_out: int
    window_start_boot: float
    window_busy_seconds: float


Body = TypeVar("Body", Record, Counters)


def dump(body: Record | Counters) -> dict[str, Any]:
    return {"format": FORMAT, **asdict(body)}


def parse(kind: type[Body], raw: Any) -> Body | None:
    """A record or counters from decoded JSON, or None if it is not of the documented form."""
    if not isinstance(raw, dict) or not _is_format(raw.get("format")):
        return None
    values: dict[str, Any] = {}
    for name, fits in _CHECKS[kind]:
        if name not in raw:
            continue  # optional fields have defaults; a missing required one fails below
        value = raw[name]
        if not fits(value):
            return None
        values[name] = value
    try:
        return kind(**values)
    except TypeError:
        return None


def _is_format(value: Any) -> bool:
    return type(value) is int and value == FORMAT  # True would equal 1


def _is_integer(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < LATEST_SECOND


def _is_text(value: Any) -> bool:
    return type(value) is str and value.isprintable() and len(value) <= 4096


_CHECK_OF_TYPE: dict[Any, Callable[[Any], bool]] = {
    "int": _is_integer,
    "float": _is_number,
    "str": _is_text,
    "bool": lambda value: type(value) is bool,
    "list[int]": lambda value: type(value) is list and all(map(_is_integer, value)),
}


_CHECKS = {
    kind: [(field.name, _CHECK_OF_TYPE[field.type]) for field in fields(kind)]
    for kind in (Record, Counters)
}


def complaint(body: Record | Counters) -> str | None:
    """What is wrong with a value that readers would refuse, or None if all is well."""
    for name, fits in _CHECKS[type(body)]:
        if not fits(getattr(body, name)):
            return f"{name}={getattr(body, name)!a:.80} is not allowed (docs/lease-format.md)"
    return None
