"""Opening a profile: the report that everything else hangs from."""

from __future__ import annotations

import enum
import os

from softipu import SDK_VERSION
from softipu.machine.result import FORMAT, Estimate
from softipu.report.files import find_one, read
from softipu.report.timeline import Timeline, lay_out

from ._compilation import Compilation
from ._execution import Execution
from ._programs import PARTS, Program
from ._records import Computed, Record


class ComputeInstrumentationLevel(enum.Enum):
    Off = 0
    Vertex = 1
    Tile = 2
    Ipu = 3
    Device = 4
    Unknown = 5


class ExternalExchangeInstrumentationLevel(enum.Enum):
    Off = 0
    Tile = 1
    Unknown = 2


class PoplarVersion(Record):
    """The version whose behaviour softipu has."""

    def __init__(self) -> None:
        numbers = [int(part) for part in SDK_VERSION.split(".")[:3]]
        self.major, self.minor, self.point = [*numbers, 0, 0, 0][:3]
        self.packageHash = "softipu"
        self.string = f"{SDK_VERSION} ({self.packageHash})"


class Version(Record):
    """Of the profile's own form."""

    def __init__(self) -> None:
        self.major, self.minor, self.point = FORMAT, 0, 0
        self.isUnstableFormat = False


class InstrumentationSettings(Record):
    """Cycles are modelled for each IPU; nothing was measured."""

    def __init__(self) -> None:
        self.computeInstrumentationLevel = ComputeInstrumentationLevel.Ipu
        self.externalExchangeInstrumentationLevel = ExternalExchangeInstrumentationLevel.Off


class Report(Record):
    def __init__(self, estimate: Estimate) -> None:
        timeline = lay_out(estimate)
        programs = _programs(estimate, timeline)
        self.estimate = estimate
        self.compilation = Compilation(estimate, programs)
        tiles = self.compilation.target.tilesPerIpu
        self.execution = Execution(estimate, timeline, programs, tiles)
        self.poplarVersion = PoplarVersion()
        self.version = Version()
        self.instrumentationSettings = InstrumentationSettings()

    def listPrintLength(self, length: int) -> None:
        """How many items are shown when a list is printed."""
        Computed.shown = length


def openReport(
    file: str | os.PathLike[str], debugFile: str | os.PathLike[str] | None = None
) -> Report:
    """Open a `profile.pop` that softipu wrote, or the directory that holds just one.

    Names and places of operators are in the profile itself, so `debugFile` isn't read.
    """
    return Report(read(find_one(file)))


def _programs(estimate: Estimate, timeline: Timeline) -> list[list[Program]]:
    """The programs of each step, placed where its first run is."""
    starts: dict[int, float] = {}
    first = {block.group: block.start for block in timeline.end_blocks()}
    for turn in range(timeline.turns + 1):
        for block in timeline.turn_blocks(0, turn):
            first.setdefault(block.group, block.start)
        if len(first) == len(timeline.every):
            break
    for number, group in enumerate(timeline.every):
        start = first.get(number, timeline.turns * timeline.turn_cycles + group.offset)
        for step in group.steps:
            starts[step] = start
            start += estimate.steps[step].cycles.total
    result = []
    for number, step_data in enumerate(estimate.steps):
        made, start = [], starts[number]
        for cause in PARTS:
            cycles = getattr(step_data.cycles, cause)
            if cycles > 0:
                made.append(Program(step_data, cause, start))
                start += cycles
        result.append(made)
    return result
