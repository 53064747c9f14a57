"""One measurement by several instances, as poprun starts them: a share for each, one result.

A program that poprun didn't start is alone, and nothing here changes what it does.
"""

from __future__ import annotations

import dataclasses
import json
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import popdist

from ..errors import UnfitBenchOption
from ..instances import group
from .figures import Call
from .options import Options


def share(options: Options) -> Options:
    """The options of this instance: under poprun, `replicas` are those that it was given."""
    if not popdist.isPopdistEnvSet():
        return options
    return dataclasses.replace(options, replicas=popdist.getNumLocalReplicas())


def count() -> int:
    return popdist.getNumInstances() if popdist.isPopdistEnvSet() else 1


def is_first() -> bool:
    """Whether this is the instance that speaks for all."""
    return not popdist.isPopdistEnvSet() or popdist.getInstanceIndex() == 0


def tell(text: str, stream: TextIO) -> None:
    """Print in the first instance only."""
    if is_first():
        print(text, file=stream, flush=True)


def tell_who_decides(options: Options, stream: TextIO) -> None:
    """`--replicas` counts for nothing under poprun, which is worth a word if they differ."""
    total = popdist.getNumTotalReplicas() if popdist.isPopdistEnvSet() else options.replicas
    if total != options.replicas:
        tell(f"poprun decides on replicas: {total}, not --replicas {options.replicas}.", stream)


def label() -> str:
    """What stands before figures that are this instance's alone."""
    return f"[instance{popdist.getInstanceIndex() + 1}/{count()}] " if count() > 1 else ""


def calls_each(options: Options) -> int:
    """Of `--iterations` calls, those of each instance: as many as divide evenly."""
    if options.iterations < count():
        raise UnfitBenchOption(
            f"{options.iterations} iterations are fewer than the {count()} instances.",
            cause="The instances that poprun starts divide the calls among them.",
            remedy=f"Use --iterations {count()} or more, or start fewer instances.",
        )
    return options.iterations // count()


def connect() -> None:
    """Before any long work: all instances must come within SOFTIPU_INSTANCES_START seconds."""
    if count() > 1:
        popdist.init()


def wait_for_all() -> None:
    """Returns when all instances have come here, so that they compute at the same time."""
    if count() > 1:
        popdist.synchronize()


@dataclass(frozen=True)
class Part:
    """What one instance did, or all of them."""

    calls: Sequence[Call]
    compile_seconds: float
    settled: bool
    hosts: frozenset[str] = dataclasses.field(default_factory=lambda: frozenset({platform.node()}))

    def packed(self) -> bytes:
        calls = [dataclasses.astuple(call) for call in self.calls]
        return json.dumps([calls, self.compile_seconds, self.settled, list(self.hosts)]).encode()

    @classmethod
    def unpacked(cls, content: bytes) -> Part:
        calls, compile_seconds, settled, hosts = json.loads(content)
        return cls([_call(*values) for values in calls], compile_seconds, settled, frozenset(hosts))


def _call(samples: int, seconds: float, latency: Any) -> Call:
    return Call(samples, seconds, tuple(latency))


def gathered(part: Part) -> Part:
    """What all instances did; the same in each of them."""
    if count() == 1:
        return part
    return joined([Part.unpacked(one) for one in group.current().all_gather_bytes(part.packed())])


def joined(parts: Sequence[Part]) -> Part:
    """The first calls of all instances as one call, the second ones, and so on."""
    return Part(
        calls=[_as_one(calls) for calls in zip(*(part.calls for part in parts), strict=True)],
        compile_seconds=max(part.compile_seconds for part in parts),
        settled=all(part.settled for part in parts),
        hosts=frozenset().union(*(part.hosts for part in parts)),
    )


def _as_one(calls: Sequence[Call]) -> Call:
    """All samples, in the time of the slowest; the mean latency is the mean of the means."""
    shortest, longest, means = zip(*(call.latency for call in calls), strict=True)
    return Call(
        sum(call.samples for call in calls),
        max(call.seconds for call in calls),
        (min(shortest), max(longest), statistics.fmean(means)),
    )
