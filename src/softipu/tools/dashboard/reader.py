"""Reads partitions and statuses, and turns whatever goes wrong there into problems to show.

It never raises and never gives nothing: where the partitions cannot be read any more, the last
known ones stay in view, marked so.
"""

from __future__ import annotations

import time
import traceback

from ... import devices
from ...devices import Home, Partition
from ...devices.process import boot_seconds
from ...errors import SoftIPUError
from .collector import Reading, problem, take
from .memory import Memory
from .snapshot import Problem, Snapshot

#: Partitions of the embedded system are read every time; others come over a network or need checks
#: against a server, and change so rarely that a look every few seconds is enough.
PARTITIONS_EVERY_SECONDS = 5.0


class Reader:
    """Takes one snapshot after another. For one thread only."""

    def __init__(self, home: Home | None = None, *, interval: float = 1.0) -> None:
        self._home = home or Home()
        self._interval = interval
        self._memory = Memory()
        self._partitions: tuple[Partition, ...] = ()
        self._partitions_problem: Problem | None = None
        self._read_at = float("-inf")
        # Time on the axis of the plots must not jump when somebody sets the clock.
        self._offset = time.time() - boot_seconds()

    def snapshot(self) -> Snapshot:
        now_boot = boot_seconds()
        self._refresh_partitions(now_boot)
        problems = [] if self._partitions_problem is None else [self._partitions_problem]
        stale = self._partitions_problem is not None
        readings = []
        for partition in self._partitions:
            statuses = None
            try:
                statuses = devices.status(partition, self._home)
            except Exception as error:  # noqa: BLE001 - the page shows it; the others go on
                problems.append(explain(error))
            readings.append(Reading(partition, statuses))
        result, self._memory = take(
            readings,
            problems,
            self._memory,
            now=now_boot + self._offset,
            now_boot=now_boot,
            interval=self._interval,
            home=str(self._home.path),
            stale=stale,
        )
        return result

    def _refresh_partitions(self, now: float) -> None:
        remote = any(partition.origin != "embedded" for partition in self._partitions)
        if remote and now - self._read_at < PARTITIONS_EVERY_SECONDS:
            return
        self._read_at = now
        try:
            self._partitions = devices.partitions(self._home)
            self._partitions_problem = None
        except Exception as error:  # noqa: BLE001 - the page shows it, with the last known ones
            self._partitions_problem = explain(error)


def explain(error: Exception) -> Problem:
    """Any failure in the form of ours; one that is not ours says where it came from."""
    if isinstance(error, SoftIPUError):
        return problem(error)
    last = traceback.extract_tb(error.__traceback__)[-1:]
    place = f" ({last[0].filename}:{last[0].lineno})" if last else ""
    return problem(
        SoftIPUError(
            f"{type(error).__name__}: {error}{place}",
            cause="The state could not be read for a reason that softipu did not foresee.",
        )
    )
