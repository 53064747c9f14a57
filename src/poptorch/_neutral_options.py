"""What `poptorch.Options` decide about an estimate: the schedule of a graph, and its settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from softipu.graph import Graph, Op, Phase, Schedule
from softipu.machine.settings import PROPORTION, Partials, Settings

from ._capture import Program
from ._hardware import VERSIONS
from ._neutral_context import Translation
from ._neutral_stages import Stages
from ._ops_overlap import OVERLAP
from ._strategies import PipelinedExecution, ShardedExecution
from .enums import Liveness, OutputMode

#: PopART's RecomputationType, by its number.
_NONE, _STANDARD, _NORM_ONLY, _PIPELINE, _ALL = range(5)
#: The chip that `useOfflineIpuTarget` names by its version, where the system has another.
CHIPS = {1: "mk1", 2: "mk2", 21: "c600"}
_NORMS = ("normalise",)


def schedule_of(program: Program, options: Any, stages: Stages, t: Translation) -> Schedule:
    """Loops around the graph, IPUs of its stages, and what the backward pass computes again."""
    recomputed = _recomputed(program, options, stages, t)
    return Schedule(
        micro_batch=micro_batch_size(program),
        accumulation=options.Training.gradient_accumulation if program.training else 1,
        device_iterations=options.device_iterations,
        # Gradients are summed over the replicas of all processes.
        replicas=options.replication_factor * options.Distributed.numProcesses,
        stage_ipus=stages.ipus,
        recomputed_stages=frozenset(recomputed),
        checkpoints=frozenset(_checkpoints(options, t, recomputed)) if recomputed else frozenset(),
    )


def micro_batch_size(program: Program) -> int:
    """The first dimension of the first input that has one."""
    return next((spec.shape[0] for spec in program.inputs if spec.shape), 1)


def _kind_of_recomputation(program: Program, options: Any, stages: Stages) -> int:
    """Pipelines of several IPUs recompute unless they are told otherwise, as in PopTorch."""
    pipelined = type(options._execution_strategy) is PipelinedExecution
    default = _PIPELINE if pipelined and max(stages.ipus) > 0 else _NONE
    return int(options._Popart.options.get("autoRecomputation", default))


def _recomputed(program: Program, options: Any, stages: Stages, t: Translation) -> set[int]:
    if not program.trained:
        return set()
    kind = _kind_of_recomputation(program, options, stages)
    if kind == _NONE:
        return set()
    every = set(range(len(stages.ipus)))
    last = len(stages.ipus) - 1
    if kind != _PIPELINE or not last or _last_segment(t, last) is not None:
        return every
    return every - {last}


def _last_segment(t: Translation, last: int) -> set[str] | None:
    """What the last stage of a pipeline makes after its last checkpoint, None without one.

    It runs backwards right after it ran forwards, so that making this again would save nothing
    (PopART, transforms/pipeline.cpp, setFinalFwdStageRecomputation).
    """
    ops = [op for op in t.build.ops if op.phase is Phase.FORWARD and op.stage == last]
    kept = t.checkpoints
    marked = [index for index, op in enumerate(ops) if not kept.isdisjoint(op.outputs)]
    if not marked:
        return None
    return {name for op in ops[marked[-1] + 1 :] for name in op.outputs}


def _checkpoints(options: Any, t: Translation, stages: set[int]) -> set[str]:
    """What is kept: what the user marked, and what the kind of recomputation keeps by itself."""
    kept = set(t.checkpoints)
    kind = int(options._Popart.options.get("autoRecomputation", _PIPELINE))
    forward = [op for op in t.build.ops if op.phase is Phase.FORWARD and op.stage in stages]
    if kind == _NORM_ONLY:
        kept |= {name for op in forward if op.kind not in _NORMS for name in op.outputs}
    elif kind == _STANDARD:
        kept |= cheapest_cuts(t, forward)
    elif kind == _PIPELINE:
        last = max(op.stage for op in t.build.ops if op.phase is Phase.FORWARD)
        if last and last in stages:
            kept |= _last_segment(t, last) or set()
    return kept


def cheapest_cuts(t: Translation, ops: list[Op]) -> set[str]:
    """Checkpoints as PopART's standard recomputation sets them: about the root of the number of
    ops, each where least is alive."""
    count = max(1, round(len(ops) ** 0.5))
    last = {name: index for index, op in enumerate(ops) for name in op.inputs}
    made = {name: index for index, op in enumerate(ops) for name in op.outputs}
    alive: list[set[str]] = []
    now: set[str] = set()
    for index, op in enumerate(ops):
        now |= {name for name in op.outputs if last.get(name, -1) > index}
        now -= {name for name in op.inputs if last[name] <= index}
        alive.append({name for name in now if name in made})
    sizes = [sum(t.build.tensors[name].bytes for name in names) for names in alive]
    kept: set[str] = set()
    length = -(-len(ops) // count) if ops else 1
    for start in range(0, len(ops) - 1, length):
        segment = range(start, min(start + length, len(ops)))
        kept |= alive[min(segment, key=lambda index: sizes[index])]
    return kept


# --- settings ---------------------------------------------------------------------------------


def settings_for(program: Program, graph: Graph, options: Any, chip: str) -> Settings:
    """Settings of a program: what its options say, and which of its I/O it marked as overlapped."""
    settings = settings_of(options, chip, program.training)
    if not settings.io_tiles:
        return settings
    output = next(node for node in program.micro.graph.nodes if node.op == "output")
    marked = (output.meta.get("softipu") or {}).get(OVERLAP, {})
    names = [program.inputs[number].name for number in marked.get("inputs", ())]
    names += [graph.outputs[number] for number in marked.get("outputs", ())]
    return replace(settings, overlapped=tuple(names))


def settings_of(options: Any, chip: str, training: bool) -> Settings:
    """Options as the machine model wants them; `chip` unless the options name another."""
    popart: Mapping[str, Any] = options._Popart.options
    version = int(options.ipu_version) if options.exists("ipu_version") else 0
    if version in CHIPS and VERSIONS.get(chip) != version:
        chip = CHIPS[version]
    optimiser = _location(options, "optimizer")
    return Settings(
        chip=chip,
        available_memory_proportion=_proportions(options.available_memory_proportion),
        matmul_partials=_partials(
            (popart.get("matmulOptions") or {}).get(
                "partialsType", popart.get("partialsTypeMatMuls")
            )
        ),
        convolution_partials=_partials(
            (popart.get("convolutionOptions") or {}).get("partialsType")
        ),
        execution=_execution(options._execution_strategy),
        prefetch_depth=_prefetch(popart),
        io_tiles=int(
            options.TensorLocations._values.get("numIOTiles", popart.get("numIOTiles", 0))
        ),
        synthetic_data=bool(int(popart.get("syntheticDataMode", 0))),
        optimiser_state_off_chip=optimiser.get("onChip", 1) == 0,
        activations_off_chip=_off_chip(options, "activation"),
        weights_off_chip=_off_chip(options, "weight"),
        accumulators_off_chip=_location(options, "accumulator").get("onChip", 1) == 0,
        replicated_tensor_sharding=any(
            bool(_location(options, kind).get("useReplicatedTensorSharding", 0))
            for kind in ("optimizer", "weight", "accumulator")
        ),
        stochastic_rounding=bool(popart.get("enableStochasticRounding", False)),
        outputs_every_micro_batch=_output_mode(options, training) is OutputMode.All,
    )


def _output_mode(options: Any, training: bool) -> OutputMode:
    """Training returns what the last micro-batch gave unless it is told otherwise."""
    chosen = options._values.get("output_mode")
    if chosen is None or OutputMode(chosen) is OutputMode.Default:
        return OutputMode.Final if training else OutputMode.All
    return OutputMode(chosen)


def _location(options: Any, kind: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = options.TensorLocations._values.get(f"location_{kind}") or {}
    return found


def _off_chip(options: Any, kind: str) -> bool:
    """Placed off the chip by the user, or by phases that leave nothing behind."""
    if _location(options, kind).get("onChip", 1) == 0:
        return True
    liveness = getattr(options._execution_strategy, "_tensors_liveness", Liveness.AlwaysLive)
    return liveness is not Liveness.AlwaysLive


def _proportions(given: Mapping[int, float]) -> float | tuple[float, ...]:
    if not given:
        return PROPORTION
    return tuple(float(given.get(ipu, PROPORTION)) for ipu in range(max(given) + 1))


def _partials(given: Any) -> Partials:
    return "float16" if given == "half" else "float32"


def _execution(strategy: Any) -> Literal["pipelined", "sharded", "phased"]:
    if isinstance(strategy, ShardedExecution):
        return "sharded"
    return "pipelined" if isinstance(strategy, PipelinedExecution) else "phased"


def _prefetch(popart: Mapping[str, Any]) -> int:
    if not popart.get("enablePrefetchDatastreams", True):
        return 0
    return int(popart.get("defaultBufferingDepth", popart.get("defaultPrefetchBufferingDepth", 1)))
