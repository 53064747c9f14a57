"""Which stage, phase and IPU each block of a model runs on, and what follows from that.

Strategies are data that options carry; what one capture makes of them is in its `Assignment`.
Nothing here executes a model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from ._context import Place
from ._errors import createPoptorchError
from ._logging import logger
from .enums import AutoStage, Liveness

# A scoped block has ended and no other has begun: an op recorded here belongs nowhere.
OUTSIDE = Place(ipu=-1)


def _require(condition: object, message: str) -> None:
    """PopTorch's own type for misused strategies is AssertionError, with or without `python -O`."""
    if not condition:
        raise AssertionError(message)


class Stage:
    """Blocks that run together on one IPU."""

    def __init__(self, *block_ids: str) -> None:
        _require(
            all(isinstance(block, str) for block in block_ids),
            f"Block IDs are supposed to be strings but got {block_ids}",
        )
        self._blocks = block_ids
        self._ipu: int | None = None

    @property
    def blocks(self) -> tuple[str, ...]:
        """The ids of the blocks in this stage."""
        return self._blocks

    def ipu(self, ipu: int) -> Stage:
        """Run this stage on the given IPU, whatever its blocks ask for."""
        _require(isinstance(ipu, int) and ipu >= 0, f"An IPU is a whole number from 0, not {ipu!r}")
        self._ipu = ipu
        return self

    def __repr__(self) -> str:
        where = "" if self._ipu is None else f".ipu({self._ipu})"
        return f"Stage({', '.join(map(repr, self._blocks))}){where}"


class Phase:
    """Stages that run side by side; ids of blocks instead of stages make up a single stage."""

    def __init__(self, *arg: str | Stage) -> None:
        stages = tuple(item for item in arg if isinstance(item, Stage))
        if len(stages) != len(arg):
            _require(
                all(isinstance(item, str) for item in arg),
                "All arguments must either be block IDs (strings) or Stages: "
                f"{[type(item) for item in arg]}",
            )
            stages = (Stage(*(str(item) for item in arg)),)
        self.stages: tuple[Stage, ...] = stages

    def stage(self, idx: int) -> Stage:
        """The stage at that position of the phase."""
        return self.stages[idx]

    def ipus(self, *ipus: int) -> Phase:
        """Give each stage of the phase its IPU, in order."""
        _require(
            len(ipus) == len(self.stages),
            f"Phase contains {len(self.stages)} stages but you provided {len(ipus)} ipus",
        )
        for stage, ipu in zip(self.stages, ipus, strict=True):
            stage.ipu(ipu)
        return self

    def __repr__(self) -> str:
        return f"Phase({', '.join(map(repr, self.stages))})"


@dataclass(frozen=True)
class _Slot:
    """A stage and its number: that of the stage in a pipeline, or of its phase."""

    stage: Stage
    number: int


class _IExecutionStrategy(ABC):
    """Common to all strategies: the blocks they name, each in one slot."""

    mode: ClassVar[str]

    def __init__(self, numbered: Iterable[tuple[int, Stage]], what: str) -> None:
        self._slots: dict[str, _Slot] = {}
        for number, stage in numbered:
            for block in stage.blocks:
                _require(block not in self._slots, f"{block} associated with more than one stage")
                where = "" if stage._ipu is None else f" on IPU {stage._ipu}"
                logger.debug("block %s added to %s %d%s", block, what, number, where)
                self._slots[block] = _Slot(stage, number)
        self._assignment: Assignment | None = None

    def onStartTracing(self) -> None:
        """A capture begins: what the last one numbered is forgotten."""
        self._assignment = Assignment(self)

    def onEndTracing(self) -> None:
        """The capture ended."""
        self._assignment = None

    @property
    def assignment(self) -> Assignment:
        """The numbering of the capture that is under way."""
        if self._assignment is None:
            self._assignment = Assignment(self)
        return self._assignment

    def stage(self, block_id: str) -> Stage:
        """The stage that holds the block."""
        _require(block_id in self._slots, f"Unknown block {block_id}")
        return self._slots[block_id].stage

    @abstractmethod
    def backendOptions(self) -> dict[str, int | bool]:
        """The part of the options that this strategy stands for, under its native names."""

    @abstractmethod
    def locate(self, block: str, ipu: int | None, stages: dict[str, int]) -> Place:
        """Where a block runs. `stages` remembers those that this capture numbered itself."""

    @abstractmethod
    def settle(self, place: Place) -> Place:
        """The place with its blanks filled: what comes before any block runs first, on IPU 0."""

    def _slot(self, block: str) -> _Slot:
        _require(
            block in self._slots,
            f"Unknown Block '{block}' list of expected Blocks: {list(self._slots)}",
        )
        return self._slots[block]


class PipelinedExecution(_IExecutionStrategy):
    """Stages work on successive micro-batches at the same time.

    Takes the stages in order (`Stage`, a block id, or a list of block ids), or one `AutoStage` that
    says how blocks become stages. Nothing means `AutoStage.SameAsIpu`.
    """

    mode = "Pipelined"
    _execution_mode: ClassVar[int] = 0

    def __init__(self, *args: AutoStage | Stage | str | Sequence[str]) -> None:
        self._auto_stage = AutoStage.SameAsIpu
        self._stages: list[Stage] = []
        if len(args) == 1 and isinstance(args[0], AutoStage):
            self._auto_stage = args[0]
        else:
            self._stages = [_stage(arg) for arg in args]
        super().__init__(enumerate(self._stages), "stage")

    def backendOptions(self) -> dict[str, int | bool]:
        return {"execution_mode": self._execution_mode}

    def locate(self, block: str, ipu: int | None, stages: dict[str, int]) -> Place:
        if self._slots:
            slot = self._slot(block)
            stage = slot.number
            ipu = ipu if slot.stage._ipu is None else slot.stage._ipu
        else:
            if block not in stages:
                stages[block] = self._next_stage(block, ipu, len(stages))
            stage = stages[block]
        if ipu is None:
            logger.debug("No IPU specified for block %s: default to stage_id %d", block, stage)
            ipu = stage
        return Place(block, stage=stage, ipu=ipu)

    def _next_stage(self, block: str, ipu: int | None, already: int) -> int:
        if self._auto_stage == AutoStage.AutoIncrement:
            return already + 1  # Stage 0 is what runs before the first block.
        if ipu is None:
            raise AssertionError(
                "poptorch.AutoStage.SameAsIpu was selected but no IPU was specified for "
                f"block {block}"
            )
        return ipu

    def settle(self, place: Place) -> Place:
        return replace(place, stage=place.stage or 0, ipu=place.ipu or 0)

    def __repr__(self) -> str:
        shown = map(repr, self._stages) if self._stages else [f"AutoStage.{self._auto_stage.name}"]
        return f"{type(self).__name__}({', '.join(shown)})"


class ShardedExecution(PipelinedExecution):
    """Stages run one after the other, one micro-batch at a time; arguments as for pipelines."""

    mode = "Sharded"
    _execution_mode = 1


def _stage(given: object) -> Stage:
    if isinstance(given, Stage):
        return given
    if isinstance(given, str):
        return Stage(given)
    if isinstance(given, Iterable):
        return Stage(*given)
    raise AssertionError(
        f"Expected a poptorch.Stage, a block ID or a list of block IDs, not {given!r}"
    )


_PHASE_STRIDE = {Liveness.OffChipAfterFwdNoOverlap: 2, Liveness.OffChipAfterEachPhase: 4}


class _IPhasedExecution(_IExecutionStrategy):
    """Phases run one after the other, with what they don't need in off-chip memory.

    Takes the phases in order: `Phase`, `Stage`, a block id, or a list of stages or block ids.
    """

    mode = "Phased"
    _serial: ClassVar[bool]

    def __init__(self, *phases: Phase | Stage | str | Sequence[Stage | str | Phase]) -> None:
        _require(
            phases,
            "There is currently no AutoStage for PhasedExecution, please explicitly specify the "
            "phases",
        )
        given: Sequence[object] = phases
        first = phases[0]
        if len(phases) == 1 and isinstance(first, list | tuple):
            # PopTorch's manual passes one list of phases.
            given = first if first and all(isinstance(item, Phase) for item in first) else phases
        self._tensors_liveness = Liveness.AlwaysLive
        self._separate_backward_phase = False
        self._phases = [_phase(item) for item in given]
        numbered = ((n, stage) for n, phase in enumerate(self._phases) for stage in phase.stages)
        super().__init__(numbered, "phase")

    def phase(self, phase: int) -> Phase:
        """The phase of that number."""
        _require(
            isinstance(phase, int) and phase >= 0, "Phases are identified by positive integers"
        )
        return self._phases[phase]

    def useSeparateBackwardPhase(self, use: bool = True) -> _IPhasedExecution:
        """Begin the backward pass in a new phase instead of in the last one of the forward pass."""
        _require(isinstance(use, bool), f"Expected True or False, not {use!r}")
        self._separate_backward_phase = use
        return self

    def backendOptions(self) -> dict[str, int | bool]:
        return {
            "execution_mode": 2,
            "separate_backward_phase": self._separate_backward_phase,
            "tensors_liveness": self._tensors_liveness.value,
            "serial_phases_execution": self._serial,
        }

    def locate(self, block: str, ipu: int | None, stages: dict[str, int]) -> Place:
        slot = self._slot(block)
        ipu = ipu if slot.stage._ipu is None else slot.stage._ipu
        if ipu is None:
            raise createPoptorchError(
                "No active Block, all the ops must belong to a Block: block "
                f"'{block}' of phase {slot.number} has no IPU. Give it one with "
                "poptorch.Block(ipu_id=...), Stage.ipu(...) or Phase.ipus(...)."
            )
        if not self._serial and slot.number % 2 != ipu % 2:
            raise createPoptorchError(
                "When phases are executed in parallel: even phases must run on even IPUs and odd "
                f"phases on odd IPUs (block '{block}' of phase {slot.number} is on IPU {ipu})"
            )
        return Place(block, phase=slot.number, ipu=ipu)

    def settle(self, place: Place) -> Place:
        return replace(place, phase=place.phase or 0, ipu=place.ipu or 0)

    @property
    def stride(self) -> int:
        """Phases of the device per phase of the user: the rest move tensors off the chip."""
        return _PHASE_STRIDE.get(self._tensors_liveness, 1)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._phases))})"


class ParallelPhasedExecution(_IPhasedExecution):
    """Even phases run on even IPUs, odd ones on odd IPUs: one group loads while the other works."""

    _serial = False

    def sendTensorsOffChipAfterFwd(self, off_chip: bool = True) -> ParallelPhasedExecution:
        """Whether tensors leave the chip between the forward and the backward pass."""
        _require(isinstance(off_chip, bool), f"Expected True or False, not {off_chip!r}")
        self._tensors_liveness = Liveness.OffChipAfterFwd if off_chip else Liveness.AlwaysLive
        return self


class SerialPhasedExecution(_IPhasedExecution):
    """All phases run on the same IPUs."""

    _serial = True

    def setTensorsLiveness(self, liveness: Liveness) -> SerialPhasedExecution:
        """How long tensors stay on the chip; see `poptorch.Liveness`."""
        _require(isinstance(liveness, Liveness), f"Expected poptorch.Liveness, not {liveness!r}")
        self._tensors_liveness = liveness
        return self


def _phase(given: object) -> Phase:
    if isinstance(given, Phase):
        return given
    return Phase(*given) if isinstance(given, list | tuple) else Phase(given)  # type: ignore[arg-type]


class Assignment:
    """What one capture made of a strategy: ids of unnamed blocks, stages of unlisted ones.

    It lives only as long as the capture, so that a model captured twice is numbered alike.
    """

    def __init__(self, strategy: _IExecutionStrategy) -> None:
        self._strategy = strategy
        self._next_id = 0
        self._stages: dict[str, int] = {}
        self._ids: dict[object, str] = {}

    def reset_ids(self) -> None:
        self._next_id = 0

    def next_id(self) -> str:
        self._next_id += 1
        return str(self._next_id - 1)

    def id_of(self, owner: object) -> str:
        """The automatic id of an annotation, which keeps it when the layer is called again."""
        if owner not in self._ids:
            self._ids[owner] = self.next_id()
        return self._ids[owner]

    def begin(self, user_id: object, ipu: int | None) -> Place:
        block = str(user_id) if user_id else self.next_id()
        place = self._strategy.locate(block, ipu, self._stages)
        logger.debug("Starting block %s", place)
        return place


# --- Strategies in files ----------------------------------------------------------------------

_KINDS: dict[str, type[PipelinedExecution] | type[_IPhasedExecution]] = {
    kind.__name__: kind
    for kind in (
        PipelinedExecution,
        ShardedExecution,
        ParallelPhasedExecution,
        SerialPhasedExecution,
    )
}


def describe(strategy: _IExecutionStrategy) -> dict[str, Any]:
    """The strategy as JSON; `from_description` makes an equal one of it."""

    def rows(stages: Iterable[Stage]) -> list[dict[str, Any]]:
        return [{"blocks": list(stage.blocks), "ipu": stage._ipu} for stage in stages]

    summary: dict[str, Any] = {"kind": type(strategy).__name__}
    if isinstance(strategy, PipelinedExecution):
        summary["auto_stage"] = strategy._auto_stage.name
        summary["stages"] = rows(strategy._stages)
    elif isinstance(strategy, _IPhasedExecution):
        summary["phases"] = [rows(phase.stages) for phase in strategy._phases]
        summary["liveness"] = strategy._tensors_liveness.name
        summary["separate_backward_phase"] = strategy._separate_backward_phase
    return summary


def from_description(summary: dict[str, Any]) -> _IExecutionStrategy:
    """The strategy that `describe` summed up."""

    def stage(row: dict[str, Any]) -> Stage:
        made = Stage(*row["blocks"])
        return made if row["ipu"] is None else made.ipu(row["ipu"])

    kind = _KINDS.get(summary["kind"])
    if kind is None:
        raise createPoptorchError(
            f"Unknown execution strategy {summary['kind']!r}: expected one of {list(_KINDS)}"
        )
    if issubclass(kind, PipelinedExecution):
        stages = [stage(row) for row in summary["stages"]]
        return kind(*stages) if stages else kind(AutoStage[summary["auto_stage"]])
    phased = kind(*(Phase(*map(stage, rows)) for rows in summary["phases"]))
    phased._tensors_liveness = Liveness[summary["liveness"]]
    return phased.useSeparateBackwardPhase(summary["separate_backward_phase"])


# --- What the places of the ops say about the whole model -------------------------------------


def require_block(place: Place) -> None:
    """Refuse an op that was recorded between two scoped blocks, as the real compiler does."""
    if place.ipu is not None and place.ipu < 0:
        raise createPoptorchError(
            "No active Block, all the ops must belong to a Block",
            cause="forward() computes something after one `with poptorch.Block(…):` has ended and "
            "before another begins.",
            remedy="Move it into a block, or begin blocks that last until the next one with "
            "poptorch.Block.start() or poptorch.BeginBlock.",
        )


def used_places(places: Iterable[Place], strategy: _IExecutionStrategy) -> list[Place]:
    return [strategy.settle(place) for place in places if place.ipu is None or place.ipu >= 0]


def ipus_needed(places: Iterable[Place], strategy: _IExecutionStrategy) -> int:
    """How many IPUs one replica needs. IPUs that a model skips count: devices have no gaps."""
    return max((place.ipu or 0 for place in used_places(places, strategy)), default=0) + 1


def forward_stages(places: Iterable[Place]) -> int:
    """Pipeline stages of the forward pass: each change of IPU begins one, the first is on IPU 0."""
    stages, last = 1, 0
    for place in places:
        if place.ipu is not None and place.ipu >= 0 and place.ipu != last:
            stages, last = stages + 1, place.ipu
    return stages


def check_pipeline(
    strategy: _IExecutionStrategy,
    stages_seen: int,
    training: bool,
    device_iterations: int,
    gradient_accumulation: int,
) -> None:
    """Refuse a pipeline that a step can't fill. `stages_seen` counts those of the forward pass."""
    if strategy.mode != "Pipelined":
        return
    depth = 2 * stages_seen - 1 if training else stages_seen
    if training and gradient_accumulation < depth:
        raise createPoptorchError(
            "poptorch.Options().Training.gradientAccumulation must be greater than or equal to "
            f"the number of pipeline stages ({depth}) when using poptorch.PipelinedExecution. "
            f"Please note that a model with {stages_seen} pipeline stages in PopTorch will have "
            f"an additional {stages_seen - 1} stages when training."
        )
    if not training and device_iterations < depth:
        raise createPoptorchError(
            "poptorch.Options().deviceIterations must be greater than or equal to the number of "
            f"pipeline stages ({depth}) when using PopTorch.PipelinedExecution."
        )
