"""What the compiler would have made: target, tiles and their memory, compute sets, liveness.

The model knows the bytes of an IPU's fullest tile with why they are there, and those of all its
tiles together. That the other tiles are all alike, are divided as all tiles together are, and that
the fullest comes first, is assumed.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise

from softipu import arch
from softipu.machine.result import Estimate, IpuMemory, Step
from softipu.report.summary import fullest_tile, tiles_per_ipu

from ._programs import ComputeSet, Program
from ._records import Computed, Record, divided

#: Our category -> the one of libpva. The model doesn't tell its kinds of code and variables apart.
CATEGORIES = {
    "code": "vertexCode",
    "vertex_state": "vertexInstanceState",
    "exchange_code": "internalExchangeCode",
}
#: Named by scripts, and part of the ones above.
INCLUDED = ("controlCode", "vectorListDescriptor")
NOT_ALWAYS_LIVE = ("activations", "temporary")


class IPU(Record):
    """One of all replicas' IPUs, and the tiles that it has."""

    class Architecture(enum.Enum):
        Ipu1 = "ipu1"
        Ipu2 = "ipu2"
        Ipu21 = "ipu21"

    def __init__(self, tiles: Computed[Tile]) -> None:
        self.tiles = tiles


class Target(Record):
    def __init__(self, estimate: Estimate) -> None:
        chip = arch.chip(estimate.settings.chip)
        self.numReplicas = int(estimate.schedule.get("replicas", 1))
        self.numIPUs = max(1, len(estimate.memory)) * self.numReplicas
        self.tilesPerIpu = tiles_per_ipu(estimate)
        self.numTiles = self.numIPUs * self.tilesPerIpu
        self.bytesPerTile = chip.tile_memory
        self.bytesPerIPU = self.tilesPerIpu * chip.tile_memory
        self.totalMemory = self.numTiles * chip.tile_memory
        self.clockFrequency = estimate.clock_hz
        self.architecture = IPU.Architecture(chip.architecture)


class GraphInfo(Record):
    def __init__(self, steps: tuple[Step, ...]) -> None:
        computing = [step for step in steps if step.cycles.compute > 0]
        self.numComputeSets = len(computing)
        self.numVertices = sum(step.tiles_used for step in computing)


class Variable(Record):
    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def __repr__(self) -> str:
        return f"<{self.name}: {self.size} bytes>"


class Total(Record):
    """The model packs without gaps."""

    def __init__(self, size: int) -> None:
        self.excludingGaps = self.includingGaps = size


class Category(Record):
    def __init__(self, total: int) -> None:
        self.total = total


class Categories(Record):
    def __init__(self, parts: dict[str, int]) -> None:
        sums = dict.fromkeys([*CATEGORIES.values(), *INCLUDED, "variable"], 0)
        for name, size in parts.items():
            sums[CATEGORIES.get(name, "variable")] += size
        for name, size in sums.items():
            setattr(self, name, Category(size))


class TileMemory(Record):
    def __init__(self, memory: IpuMemory, size: int, is_fullest: bool) -> None:
        self.total = Total(size)
        self.overflowed = Total(max(0, size - memory.capacity))
        self._parts = memory.fullest_tile if is_fullest else divided(size, memory.all_tiles)
        # Without any part, division has nothing to divide by: all of it is variables then.
        if sum(self._parts.values()) != size:
            self._parts = {"variable": size}
        self.alwaysLiveBytes = size * min(memory.always_live, memory.used) // max(1, memory.used)
        self.notAlwaysLiveBytes = size - self.alwaysLiveBytes

    @cached_property
    def category(self) -> Categories:
        return Categories(self._parts)

    def always_live(self) -> list[Variable]:
        weights = {name: size for name, size in self._parts.items() if name not in NOT_ALWAYS_LIVE}
        sizes = divided(self.alwaysLiveBytes, weights or {"variable": 1})
        return [Variable(CATEGORIES.get(name, name), size) for name, size in sizes.items()]


class Tile(Record):
    def __init__(self, memory: TileMemory) -> None:
        self.memory = memory


class NotAlwaysLive(Record):
    def __init__(self, live: int, temporary: int) -> None:
        self.bytes = live + temporary
        self.variables = [Variable("live", live), Variable("temporary", temporary)]


class LivenessStep(Record):
    """A step of the program and what it holds besides what always lives."""

    def __init__(self, step: Step, program: Program, compilation: Compilation) -> None:
        self.program = program
        self._step = step
        self._compilation = compilation

    def notAlwaysLiveMemoryForTile(self, tile: int) -> NotAlwaysLive:
        """Zero on tiles of other IPUs than the step's: what those hold meanwhile isn't known."""
        memory, size, _ = self._compilation.place(tile)
        return self._held(memory, [(size, 1)])

    def notAlwaysLiveMemoryForIpu(self, ipu: int) -> NotAlwaysLive:
        """Of all tiles of an IPU."""
        return self._held(*self._compilation.sizes(ipu))

    @cached_property
    def notAlwaysLiveMemory(self) -> NotAlwaysLive:
        """Of all tiles of one replica."""
        return self.notAlwaysLiveMemoryForIpu(self._step.ipu)

    def _held(self, memory: IpuMemory | None, sizes: list[tuple[int, int]]) -> NotAlwaysLive:
        """On tiles of an IPU: the bytes of a tile, and how many such tiles there are."""
        if memory is None or memory.ipu != self._step.ipu or not memory.used:
            return NotAlwaysLive(0, 0)
        live = max(0, self._step.live_bytes - memory.always_live)
        return NotAlwaysLive(*(
            sum(held * size // memory.used * count for size, count in sizes)
            for held in (live, self._step.temporary_bytes)
        ))  # fmt: skip


class Compilation(Record):
    def __init__(self, estimate: Estimate, programs: list[list[Program]]) -> None:
        self._estimate = estimate
        self._programs = programs
        self._memory = {memory.ipu: memory for memory in estimate.memory}
        self._sizes: dict[int, tuple[IpuMemory | None, list[tuple[int, int]]]] = {}
        self.target = Target(estimate)
        self.graph = GraphInfo(estimate.steps)
        self.tiles = Computed(self.target.numTiles, self._tile)
        self.ipus = [IPU(self._tiles_of(ipu)) for ipu in range(self.target.numIPUs)]
        self.programs = [program for step in programs for program in step]

    @cached_property
    def computeSets(self) -> list[ComputeSet]:
        return [program.computeset for program in self.programs if program.cause == "compute"]

    @cached_property
    def livenessProgramSteps(self) -> list[LivenessStep]:
        """Steps that take time; what takes none has no program of its own."""
        pairs = zip(self._estimate.steps, self._programs, strict=True)
        return [LivenessStep(step, made[-1], self) for step, made in pairs if made]

    @cached_property
    def alwaysLiveVariables(self) -> list[Variable]:
        """Of all tiles of one replica, one for each category."""
        sizes: dict[str, int] = {}
        for ipu in range(self.target.numIPUs // self.target.numReplicas):
            for tile, count in self._alike(ipu):
                for variable in self.alwaysLiveVariablesForTile(tile):
                    sizes[variable.name] = sizes.get(variable.name, 0) + variable.size * count
        return [Variable(name, size) for name, size in sizes.items()]

    def alwaysLiveVariablesForTile(self, tile: int) -> list[Variable]:
        """One for each category: the model doesn't keep single tensors."""
        return self.tiles[tile].memory.always_live()

    def place(self, tile: int) -> tuple[IpuMemory | None, int, bool]:
        """The IPU's memory, the tile's bytes, and whether it is the fullest one."""
        if not 0 <= tile < self.target.numTiles:
            raise IndexError(f"tile {tile} of {self.target.numTiles}")
        ipu, inside = divmod(tile, self.target.tilesPerIpu)
        memory = self._memory.get(ipu % max(1, len(self._memory)))
        if memory is None or not memory.tiles:
            return memory, 0, False
        run = max(0, bisect_right(memory.tiles, (inside, float("inf"))) - 1)
        is_fullest = memory.tiles[run][1] == memory.used and inside == fullest_tile(memory)
        return memory, memory.tiles[run][1], is_fullest

    def sizes(self, ipu: int) -> tuple[IpuMemory | None, list[tuple[int, int]]]:
        """An IPU's memory; bytes of its tiles, each with how many tiles in a row have them."""
        if ipu not in self._sizes:
            if not 0 <= ipu < self.target.numIPUs:
                raise IndexError(f"IPU {ipu} of {self.target.numIPUs}")
            placed = [(self.place(tile), count) for tile, count in self._alike(ipu)]
            self._sizes[ipu] = placed[0][0][0], [(size, count) for (_, size, _), count in placed]
        return self._sizes[ipu]

    def _alike(self, ipu: int) -> Iterator[tuple[int, int]]:
        """Tiles of an IPU that stand for those after them, and for how many: the first of a run
        stands for itself, as it may be the fullest one, of which more is known."""
        memory = self._memory.get(ipu % max(1, len(self._memory)))
        starts = sorted({0, *(start for start, _ in memory.tiles)}) if memory is not None else [0]
        first = ipu * self.target.tilesPerIpu
        for start, end in pairwise([*starts, self.target.tilesPerIpu]):
            yield first + start, 1
            if end > start + 1:
                yield first + start + 1, end - start - 1

    def _tiles_of(self, ipu: int) -> Computed[Tile]:
        first = ipu * self.target.tilesPerIpu
        return Computed(self.target.tilesPerIpu, lambda tile: self._tile(first + tile))

    def _tile(self, tile: int) -> Tile:
        memory, size, is_fullest = self.place(tile)
        if memory is None:
            memory = IpuMemory(0, 1, {}, {}, 0, 0, "", ())
        return Tile(TileMemory(memory, size, is_fullest))
