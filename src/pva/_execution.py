"""What ran, and when: every program of a call, in the order of the timeline.

A call may have millions of program runs, so they are made while one looks at them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import overload

from softipu.machine.result import Estimate
from softipu.report.timeline import Block, Group, Timeline

from ._programs import Program, Range
from ._records import Computed, Record


class ActiveCycles(Record):
    def __init__(self, start: int, end: int) -> None:
        self.cyclesFrom = Range(start)
        self.cyclesTo = Range(end)


class IpuStep(Record):
    """What one IPU did in a step: its cycles, or none while it waited."""

    def __init__(self, start: int, end: int) -> None:
        self.cycles = end - start
        self.activeCycles = ActiveCycles(start, end)


class ExecutionStep(Record):
    """One run of a program. Replicas do the same at the same time."""

    def __init__(self, program: Program, ipus: int, places: int, start: float) -> None:
        self.program = program
        # Both ends are rounded, so that cycles of steps add up to those of all of them.
        begin, end = round(start), round(start + getattr(program.step.cycles, program.cause))
        own = program.step.ipu

        def of(ipu: int) -> IpuStep:
            return IpuStep(begin, end if ipu % ipus == own else begin)

        self.ipus = Computed(places, of)


class Steps(Sequence[ExecutionStep]):
    """All runs of programs in a call, turn by turn."""

    def __init__(
        self, timeline: Timeline, programs: list[list[Program]], ipus: int, places: int
    ) -> None:
        self._timeline = timeline
        self._groups = [
            [program for number in group.steps for program in programs[number]]
            for group in timeline.every
        ]
        self._ipus = ipus
        self._places = places

    @cached_property
    def _ends(self) -> list[int]:
        """Programs of one iteration up to the end of each turn; the update counts as one."""
        counts = [
            sum(len(self._groups[number]) for number, _ in self._timeline.in_turn(turn))
            for turn in range(self._timeline.turns)
        ]
        counts.append(sum(map(len, self._groups[len(self._timeline.groups) : self._first_end])))
        return list(accumulate(counts))

    @property
    def _first_end(self) -> int:
        """The number of the first group that runs once a call."""
        return len(self._timeline.groups) + len(self._timeline.updates)

    def __len__(self) -> int:
        last = sum(map(len, self._groups[self._first_end :]))
        return self._ends[-1] * self._timeline.iterations + last

    def __iter__(self) -> Iterator[ExecutionStep]:
        for block in self._timeline.blocks():
            yield from self._block(block)

    def _block(self, block: Block) -> Iterator[ExecutionStep]:
        start = block.start
        for program in self._groups[block.group]:
            yield ExecutionStep(program, self._ipus, self._places, start)
            start += getattr(program.step.cycles, program.cause)

    @overload
    def __getitem__(self, index: int) -> ExecutionStep: ...
    @overload
    def __getitem__(self, index: slice) -> list[ExecutionStep]: ...
    def __getitem__(self, index: int | slice) -> ExecutionStep | list[ExecutionStep]:
        if isinstance(index, slice):
            return [self._at(number) for number in range(*index.indices(len(self)))]
        number = index + len(self) if index < 0 else index
        if not 0 <= number < len(self):
            raise IndexError(f"step {index} of {len(self)}")
        return self._at(number)

    def _at(self, number: int) -> ExecutionStep:
        left = number - self._ends[-1] * self._timeline.iterations
        if left >= 0:
            return self._among(self._timeline.end_blocks(), left)
        iteration, inside = divmod(number, self._ends[-1])
        turn = bisect_right(self._ends, inside)
        left = inside - (self._ends[turn - 1] if turn else 0)
        return self._among(self._timeline.turn_blocks(iteration, turn), left)

    def _among(self, blocks: Iterable[Block], left: int) -> ExecutionStep:
        for block in blocks:
            if left < len(self._groups[block.group]):
                return list(self._block(block))[left]
            left -= len(self._groups[block.group])
        raise AssertionError("a turn has fewer programs than were counted")


class Run(Record):
    """One call of the program."""

    def __init__(self, name: str, steps: Steps) -> None:
        self.name = name
        self.steps = steps


class BlockProgram(Record):
    def __init__(self, name: str) -> None:
        self.name = name


class BlockRecord(Record):
    """What a stage did for one micro-batch. All are of the common kind."""

    isCommon = True
    isStreamCopy = isOverflow = isBlockFlush = False

    def __init__(self, block: Block, group: Group, tile: int) -> None:
        self.program = BlockProgram(f"{group.phase}/stage{group.stage}")
        self.cyclesFrom = round(block.start)
        self.cyclesTo = round(block.start + block.cycles)
        self.tile = tile


class TotalCycles(Record):
    def __init__(self, total: int) -> None:
        self.total = total


class Execution(Record):
    def __init__(
        self, estimate: Estimate, timeline: Timeline, programs: list[list[Program]], tiles: int
    ) -> None:
        ipus = max(1, len(estimate.memory))
        places = ipus * int(estimate.schedule.get("replicas", 1))
        self._timeline = timeline
        self._ipus = ipus
        self._tiles = tiles
        self.steps = Steps(timeline, programs, ipus, places)
        self.runs = [Run(estimate.name, self.steps)]
        self.totalCycles = TotalCycles(round(estimate.cycles.total))

    def blocks(self, tile: int) -> list[BlockRecord]:
        groups = self._timeline.every
        ipu = tile // self._tiles % self._ipus
        return [
            BlockRecord(block, groups[block.group], tile)
            for block in self._timeline.blocks()
            if groups[block.group].ipu == ipu
        ]
