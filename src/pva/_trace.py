"""Traces: what `trace.json` of a report holds, as processes, threads and events in events."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from softipu.errors import ProfileForeign, ProfileMissing, ProfileUnreadable

from ._records import Record


class Event(Record):
    """Times are in microseconds."""

    def __init__(self, label: str, start: float, duration: float) -> None:
        self.label = label
        self.start = start
        self.duration = duration
        self._children: list[Event] = []

    def children(self) -> list[Event]:
        return self._children


class Thread(Record):
    def __init__(self, tid: int, events: list[Event]) -> None:
        self.tid = tid
        self.events = events


class Process(Record):
    def __init__(self, pid: int, threads: list[Thread]) -> None:
        self.pid = pid
        self.threads = threads


class Trace(Record):
    def __init__(self, processes: list[Process]) -> None:
        self.processes = processes


def openTrace(file: str | os.PathLike[str]) -> Trace:
    """Open the `trace.json` of a report. PVTI files of the real tools are refused."""
    try:
        content = Path(file).read_bytes()
    except FileNotFoundError as error:
        raise ProfileMissing(f"{file}: there is no such file.") from error
    except OSError as error:
        raise ProfileUnreadable(f"{file}: {error.strerror or error}.") from error
    if content.startswith(b"SQLite format 3\x00"):
        raise ProfileForeign(
            f"{file} is a database, as Graphcore's tools write it.",
            remedy="Open the trace.json of a report; softipu writes no PVTI files.",
        )
    try:
        return Trace(_processes(json.loads(content)["traceEvents"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ProfileUnreadable(f"{file} is no trace that softipu wrote.") from error


def _processes(events: list[dict[str, Any]]) -> list[Process]:
    threads: dict[int, dict[int, list[dict[str, Any]]]] = {}
    for event in events:
        if event["ph"] == "X":
            threads.setdefault(event["pid"], {}).setdefault(event["tid"], []).append(event)
    return [
        Process(pid, [Thread(tid, _nested(found)) for tid, found in sorted(mine.items())])
        for pid, mine in sorted(threads.items())
    ]


def _nested(events: list[dict[str, Any]]) -> list[Event]:
    """Events inside each other, by their times. The writer has them in that order already."""
    top: list[Event] = []
    around: list[Event] = []
    for one in events:
        event = Event(str(one["name"]), float(one["ts"]), float(one["dur"]))
        while around and not _holds(around[-1], event):
            around.pop()
        (around[-1].children() if around else top).append(event)
        around.append(event)
    return top


def _holds(outer: Event, inner: Event) -> bool:
    """Whether an event can be inside another. A step that takes no time lies at its start."""
    if inner.start == outer.start:
        return inner.duration <= outer.duration and outer.duration > 0
    # A tenth of a nanosecond is how finely times are written.
    return inner.start + 1e-4 < outer.start + outer.duration
