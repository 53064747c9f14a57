"""Programs: what an IPU runs for a step, one for each cause of its cycles."""

from __future__ import annotations

import enum
from typing import Any

from softipu.machine.result import Step

from ._records import Record


class ProgramType(enum.Enum):
    """Kinds of programs that profiles of softipu hold, and those that scripts ask about."""

    OnTileExecute = enum.auto()
    DoExchange = enum.auto()
    GlobalExchange = enum.auto()
    StreamCopyBegin = enum.auto()
    StreamCopyMid = enum.auto()
    StreamCopyEnd = enum.auto()
    Sync = enum.auto()
    OnEveryTileSwitch = enum.auto()
    Sequence = enum.auto()
    Repeat = enum.auto()
    Unknown = enum.auto()


#: Cause of cycles -> the program that spends them, and the end of its name; in the order of a step.
PARTS: dict[str, tuple[ProgramType, str]] = {
    "host": (ProgramType.StreamCopyMid, ""),
    "links": (ProgramType.GlobalExchange, ""),
    "exchange": (ProgramType.DoExchange, "/ExchangePre"),
    "sync": (ProgramType.Sync, "/Sync"),
    "compute": (ProgramType.OnTileExecute, ""),
}


class Range(Record):
    """When something happens, over the tiles of an IPU. They are in step, so all are equal."""

    def __init__(self, cycles: int) -> None:
        self.min = self.max = cycles


class VertexType(Record):
    def __init__(self, name: str) -> None:
        self.name = name


class Vertex(Record):
    """The work of one tile in a compute set."""

    def __init__(self, kind: str) -> None:
        self.type = VertexType(kind)


class ComputeSet(Record):
    def __init__(self, step: Step) -> None:
        self.name = step.op
        self._vertex = Vertex(step.kind)
        self._count = step.tiles_used

    @property
    def vertices(self) -> list[Vertex]:
        """One for each tile that computes."""
        return [self._vertex] * self._count


class ProgramVisitor:
    """Override the methods for the programs that you want to see."""

    def visitOnTileExecute(self, onTileExecute: Any) -> None:
        """A compute set runs."""

    def visitDoExchange(self, doExchange: Any) -> None:
        """Data travel between the tiles of an IPU."""

    def visitGlobalExchange(self, globalExchange: Any) -> None:
        """Data travel between IPUs."""

    def visitStreamCopyBegin(self, streamCopyBegin: Any) -> None:
        """The host is asked for data."""

    def visitStreamCopyMid(self, streamCopyMid: Any) -> None:
        """Data travel between host and IPU."""

    def visitStreamCopyEnd(self, streamCopyEnd: Any) -> None:
        """The host is told that data have arrived."""

    def visitSync(self, sync: Any) -> None:
        """Tiles wait for each other."""

    def visitOnEveryTileSwitch(self, onEveryTileSwitch: Any) -> None:
        """Every tile takes its own branch."""

    def visitSequence(self, sequence: Any) -> None:
        """Programs one after another."""

    def visitRepeat(self, repeat: Any) -> None:
        """A program several times."""


class Program(Record):
    """One program. `cyclesFrom` and `cyclesTo` are of its first run in a call."""

    Type = ProgramType

    def __init__(self, step: Step, cause: str, start: float) -> None:
        self.type, ending = PARTS[cause]
        self.name = f"{step.op}{ending}"
        self.children: list[Program] = []
        self.step = step
        self.cause = cause
        cycles = getattr(step.cycles, cause)
        self.cyclesFrom = Range(round(start))
        self.cyclesTo = Range(round(start + cycles))
        if cause == "compute":
            self.computeset = ComputeSet(step)

    def accept(self, visitor: ProgramVisitor) -> None:
        getattr(visitor, f"visit{self.type.name}")(self)

    def __repr__(self) -> str:
        return f"<{self.type.name} {self.name!r}>"
