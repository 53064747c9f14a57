"""When each part of a program runs: the steps of an estimate laid out over one call.

A group is what a stage does in one phase; a block is one run of a group, for one micro-batch.
Pipelines advance in turns: in turn t, the group at slot s has micro-batch t - s. A turn lasts as
long as all groups of the slowest IPU; where forward and backward stages take turns (interleaved),
as long as two of the slowest of either. Everything else runs one group after another.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ..machine.result import AT_END, Cycles, Estimate, Step

UPDATE = "update"
FORWARD = "forward"


@dataclass(frozen=True)
class Group:
    """The steps of one stage in one phase, in order. They run on one IPU."""

    ipu: int
    stage: int
    phase: str
    steps: tuple[int, ...]
    cycles: Cycles
    #: Turns that a micro-batch has behind it when it comes here; 0 without a pipeline.
    slot: int
    #: Cycles from the start of a turn, when all of the turn's groups before it run.
    offset: float


@dataclass(frozen=True)
class Block:
    """One run of a group. `micro_batch` is None for what runs once per weight update, or call."""

    group: int
    iteration: int
    micro_batch: int | None
    start: float
    cycles: float


@dataclass(frozen=True)
class Timeline:
    """`groups` run for each micro-batch, `updates` after the last one of each iteration, `ends`
    once all is done."""

    groups: tuple[Group, ...]
    updates: tuple[Group, ...]
    pipelined: bool
    micro_batches: int
    iterations: int
    ends: tuple[Group, ...] = ()
    #: Cycles of the two halves of each turn, where all IPUs run forward stages in the first one and
    #: backward stages in the second.
    halves: tuple[float, float] | None = None

    @property
    def every(self) -> tuple[Group, ...]:
        """All groups, by the numbers that blocks have."""
        return (*self.groups, *self.updates, *self.ends)

    @property
    def depth(self) -> int:
        """Turns in which the pipeline fills, and in which it drains."""
        return max((group.slot for group in self.groups), default=0)

    @property
    def turns(self) -> int:
        """Turns of one iteration."""
        return self.micro_batches + self.depth

    def in_turn(self, turn: int) -> Iterator[tuple[int, int]]:
        """Numbers of groups that work in a turn, each with its micro-batch."""
        for number, group in enumerate(self.groups):
            if 0 <= turn - group.slot < self.micro_batches:
                yield number, turn - group.slot

    @cached_property
    def turn_cycles(self) -> float:
        """Of each turn, also while the pipeline fills or drains: the model counts them as full."""
        if self.halves is not None:
            return sum(self.halves)
        lanes: dict[int, float] = {}
        for group in self.groups:
            lane = group.ipu if self.pipelined else 0
            lanes[lane] = lanes.get(lane, 0.0) + group.cycles.total
        return max(lanes.values(), default=0.0)

    def begins(self, group: Group) -> float:
        """When in a turn the first group of that kind may run."""
        return self.halves[0] if self.halves is not None and group.phase != FORWARD else 0.0

    @property
    def update_cycles(self) -> float:
        return _length(self.updates)

    @property
    def iteration_cycles(self) -> float:
        return self.turns * self.turn_cycles + self.update_cycles

    @property
    def total(self) -> float:
        return self.iteration_cycles * self.iterations + _length(self.ends)

    def turn_blocks(self, iteration: int, turn: int) -> Iterator[Block]:
        """What runs in a turn; the turn after the last one is the weight update."""
        base = iteration * self.iteration_cycles + turn * self.turn_cycles
        if turn == self.turns:
            for number, group in enumerate(self.updates, len(self.groups)):
                start = base + group.offset
                yield Block(number, iteration, None, start, group.cycles.total)
            return
        lanes: dict[int, float] = {}
        for number, micro_batch in self.in_turn(turn):
            group = self.groups[number]
            lane = group.ipu if self.pipelined else 0
            start = max(lanes.get(lane, 0.0), self.begins(group))
            lanes[lane] = start + group.cycles.total
            yield Block(number, iteration, micro_batch, base + start, group.cycles.total)

    def blocks(self) -> Iterator[Block]:
        """All blocks of a call, turn by turn: as many as it takes, so take what you need."""
        for iteration in range(self.iterations):
            for turn in range(self.turns + 1):
                yield from self.turn_blocks(iteration, turn)
        yield from self.end_blocks()

    def end_blocks(self) -> Iterator[Block]:
        """What runs once, after the last iteration."""
        base = self.iteration_cycles * self.iterations
        for number, group in enumerate(self.ends, len(self.groups) + len(self.updates)):
            start = base + group.offset
            yield Block(number, self.iterations - 1, None, start, group.cycles.total)


def _length(groups: Sequence[Group]) -> float:
    return max((group.offset + group.cycles.total for group in groups), default=0.0)


def lay_out(estimate: Estimate) -> Timeline:
    """The timeline of an estimate's steps, as its schedule has them run."""
    schedule = estimate.schedule
    micro_batches, iterations = estimate.loops()
    found = _grouped(estimate.steps, schedule.get("stage_ipus"))
    each = _in_order([key for key in found if key[1] not in (UPDATE, AT_END)])
    ipus = {ipu for ipu, _, _ in each}
    settings = estimate.settings
    in_turns = settings.execution == "pipelined" and settings.pipeline_schedule != "sequential"
    pipelined = in_turns and len(ipus) > 1
    halves = None
    if pipelined and estimate.training and settings.pipeline_schedule == "interleaved":
        halves = _halves(estimate.steps, found, each)
    return Timeline(
        groups=_placed(estimate.steps, found, each, pipelined, halves),
        updates=_side_by_side(estimate.steps, found, UPDATE),
        pipelined=pipelined,
        micro_batches=micro_batches,
        iterations=iterations,
        ends=_side_by_side(estimate.steps, found, AT_END),
        halves=halves,
    )


#: IPU, phase, stage.
_Key = tuple[int, str, int]


#: Steps that make or bring what a stage works on; other transfers follow its work.
_FIRST = ("host_input", "ipu_copy", "streaming", "recompute")


def _grouped(steps: Sequence[Step], stage_ipus: Sequence[int] | None) -> dict[_Key, list[int]]:
    """Numbers of the steps of each group, in the order in which groups and steps run."""
    found: dict[_Key, list[int]] = {}
    late = []
    for number, step in enumerate(steps):
        if stage_ipus and step.ipu != stage_ipus[min(step.stage, len(stage_ipus) - 1)]:
            late.append(number)  # a transfer, which belongs to an IPU but to no stage
        else:
            found.setdefault((step.ipu, step.phase, step.stage), []).append(number)
    for number in late:
        step = steps[number]
        own = [key for key in found if key[:2] == (step.ipu, step.phase)]
        stage = own[0][2] if own else step.stage
        found.setdefault((step.ipu, step.phase, stage), []).append(number)
    for numbers in found.values():
        numbers.sort(key=lambda number: steps[number].kind not in _FIRST)
    return found


def _in_order(keys: list[_Key]) -> list[_Key]:
    """Stages go up in the forward pass and down in what follows it.

    Single steps don't tell: a gradient of the first stage may be ready before all others.
    """
    phases = list(dict.fromkeys([FORWARD, *(phase for _, phase, _ in keys)]))
    return sorted(
        keys, key=lambda key: (phases.index(key[1]), key[2] if key[1] == FORWARD else -key[2])
    )


def _sum(steps: Sequence[Step], numbers: Sequence[int]) -> Cycles:
    result = Cycles()
    for number in numbers:
        result = result + steps[number].cycles
    return result


#: Steps in which all IPUs of a replica wait for the host, in either half of a turn.
_WITH_HOST = ("host_input", "host_output")


def _halves(
    steps: Sequence[Step], found: dict[_Key, list[int]], keys: list[_Key]
) -> tuple[float, float]:
    """As the model prices turns: both halves last as long as the longer one of any IPU, and the
    host comes on top."""
    works: dict[tuple[int, bool], float] = {}
    hosts: dict[int, float] = {}
    for key in keys:
        ipu, phase, _ = key
        for number in found[key]:
            step = steps[number]
            if step.kind in _WITH_HOST:
                hosts[ipu] = hosts.get(ipu, 0.0) + step.cycles.total
            else:
                half = ipu, phase == FORWARD
                works[half] = works.get(half, 0.0) + step.cycles.total
    longest = max(works.values(), default=0.0)
    return longest + max(hosts.values(), default=0.0), longest


def _placed(
    steps: Sequence[Step], found: dict[_Key, list[int]], keys: list[_Key], pipelined: bool,
    halves: tuple[float, float] | None,
) -> tuple[Group, ...]:  # fmt: skip
    result = []
    slot, lanes, before = 0, dict[int, float](), None
    for ipu, phase, stage in keys:
        # The last stage's backward pass follows its forward pass in the same turn.
        if pipelined and before not in (None, (ipu, stage)):
            slot += 1
        before = (ipu, stage)
        numbers = found[ipu, phase, stage]
        lane = ipu if pipelined else 0
        cycles = _sum(steps, numbers)
        offset = lanes.get(lane, 0.0)
        if halves is not None and phase != FORWARD:
            offset = max(offset, halves[0])
        group = Group(ipu, stage, phase, tuple(numbers), cycles, slot, offset)
        lanes[lane] = group.offset + cycles.total
        result.append(group)
    return tuple(result)


def _side_by_side(
    steps: Sequence[Step], found: dict[_Key, list[int]], wanted: str
) -> tuple[Group, ...]:
    """Updates of different IPUs don't depend on each other, nor do outputs."""
    result, lanes = [], dict[int, float]()
    for (ipu, phase, stage), numbers in found.items():
        if phase == wanted:
            cycles = _sum(steps, numbers)
            start = lanes.get(ipu, 0.0)
            result.append(Group(ipu, stage, phase, tuple(numbers), cycles, 0, start))
            lanes[ipu] = start + cycles.total
    return tuple(result)
