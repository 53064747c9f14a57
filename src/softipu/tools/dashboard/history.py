"""The last minutes of the totals, for the plots: bounded in time and in number of points.

It lives in memory only and starts empty; pages that were open keep what they have seen.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, fields
from typing import Any

from .snapshot import Snapshot

#: More points than this cannot be told apart on a screen; longer histories are thinned to it.
MOST_POINTS = 1200


@dataclass(frozen=True)
class Point:
    time: float
    busy: float
    utilisation: float
    power: float
    host_in: float
    host_out: float


COLUMNS = [field.name for field in fields(Point)]


def point(snapshot: Snapshot) -> Point:
    totals = snapshot.totals
    return Point(
        snapshot.time,
        totals.busy,
        totals.utilisation,
        totals.power,
        totals.host_in,
        totals.host_out,
    )


class History:
    """A ring of points at least `spacing` seconds apart, each the mean of what lies between."""

    def __init__(self, *, minutes: float, interval: float) -> None:
        self.seconds = minutes * 60
        self._thinned = self.seconds / MOST_POINTS > interval
        self.spacing = max(interval, self.seconds / MOST_POINTS)
        self._pending: list[Point] = []
        self._points: deque[Point] = deque(maxlen=MOST_POINTS + MOST_POINTS // 10)

    def add(self, new: Point) -> None:
        self._pending.append(new)
        last = self._points[-1].time if self._points else float("-inf")
        if self._thinned and new.time - last < self.spacing:
            return
        self._points.append(_mean(self._pending))
        self._pending = []
        while self._points and self._points[0].time < new.time - self.seconds:
            self._points.popleft()

    def __len__(self) -> int:
        return len(self._points)

    def to_json(self) -> dict[str, Any]:
        rows = [[round(value, 4) for value in vars(one).values()] for one in tuple(self._points)]
        return {
            "seconds": self.seconds,
            "spacing": self.spacing,
            "columns": COLUMNS,
            "points": rows,
        }


def _mean(points: list[Point]) -> Point:
    if len(points) == 1:
        return points[0]
    columns = zip(*(vars(one).values() for one in points), strict=True)
    means = [sum(column) / len(points) for column in columns]
    return Point(points[-1].time, *means[1:])
