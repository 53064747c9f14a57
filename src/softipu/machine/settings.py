"""What decides a program's cost besides its graph: the chip, and the options that users set."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

#: How stages of a program follow each other.
Execution = Literal["pipelined", "sharded", "phased"]
#: How forward and backward stages of a pipeline take turns.
PipelineSchedule = Literal["grouped", "interleaved", "sequential"]
Partials = Literal["float32", "float16"]


#: What planners of the real stack may use where nobody says otherwise.
PROPORTION = 0.6


@dataclass(frozen=True)
class Settings:
    """All that `estimate` needs to know besides the graph; defaults are those of the real stack."""

    #: A chip of softipu.arch, such as `mk2`, `c600`, `bow`.
    chip: str = "bow"
    #: Tiles and clock of another chip than the real one; None: as softipu.arch says.
    tiles: int | None = None
    clock_hz: float | None = None
    #: Share of tile memory that planners may use for temporary data: for all IPUs, or one for each;
    #: IPUs that none is given for have the default; 0: as little as there is a plan for.
    available_memory_proportion: float | tuple[float, ...] = PROPORTION
    matmul_partials: Partials = "float32"
    convolution_partials: Partials = "float32"
    execution: Execution = "pipelined"
    pipeline_schedule: PipelineSchedule = "grouped"
    #: Batches ready in host memory or on the way before they are needed; 0: fetched in time.
    prefetch_depth: int = 1
    #: Tiles that only do I/O, so that it runs beside compute; 0: no overlap.
    io_tiles: int = 0
    #: Inputs and outputs that go through these tiles, by name; None: all of them.
    overlapped: tuple[str, ...] | None = None
    #: Data are made on the device, so nothing travels.
    synthetic_data: bool = False
    #: Kept in streaming memory; what is off the chip comes when it is needed, and goes back.
    optimiser_state_off_chip: bool = False
    activations_off_chip: bool = False
    weights_off_chip: bool = False
    accumulators_off_chip: bool = False
    replicated_tensor_sharding: bool = False
    #: The chip rounds either way in the same time: no figure depends on it.
    stochastic_rounding: bool = False
    #: How often outputs travel to the host: with each micro-batch, or once a call.
    outputs_every_micro_batch: bool = True
    #: A system of softipu.arch, such as `bow-pod16`; None: the smallest that has enough IPUs.
    system: str | None = None

    def proportion(self, ipu: int) -> float:
        values = self.available_memory_proportion
        if isinstance(values, tuple):
            return values[ipu] if ipu < len(values) else PROPORTION
        return values

    def to_json(self) -> dict[str, Any]:
        return asdict(self)
