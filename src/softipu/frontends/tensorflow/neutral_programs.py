"""Keras models, functions and loops on IPUs as what the machine model takes: a graph, settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import tensorflow as tf

from softipu.errors import ModelNotRun
from softipu.estimating.modelled import chip_here
from softipu.graph import Graph, Schedule
from softipu.machine.settings import PROPORTION, Partials, PipelineSchedule, Settings

from . import hlo, system
from .descriptions import LOCK, STAGE, Description, describe
from .neutral import graph_of_hlo

_CHIPS = {"ipu1": "mk1", "ipu2": "mk2", "ipu21": "c600"}
_CONVOLUTIONS = frozenset(
    ("convolution", "convolution_input_gradient", "convolution_weight_gradient")
)


# --- Keras --------------------------------------------------------------------------------------


def of_model(model: Any, mode: str = "train") -> tuple[Graph, Settings]:
    """The step that `fit` ("train"), `evaluate` ("test") or `predict` ("predict") repeats."""
    for key, execution in getattr(model, "_ipu_functions", {}).items():
        if key[0] == mode and execution.element_spec is not None:
            return of_execution(model, execution)
    raise ModelNotRun(f"The model {model.name} has not run in mode {mode!r} on an IPU.")


def of_execution(model: Any, execution: Any) -> tuple[Graph, Settings]:
    """The same of a function of the model that has been built, and may not have run yet."""
    mode = execution.mode
    flat = tf.nest.flatten(execution.element_spec)
    stages = _stages_of(model)
    accumulation = execution._micro_steps if mode == "train" else 1
    steps = max(1, int(model._steps_per_execution.numpy()) // accumulation)
    mapping = _mapping(model, stages)
    training = mode == "train"
    schedule = Schedule(
        micro_batch=_batch(flat), accumulation=accumulation, device_iterations=steps,
        replicas=execution.total_replicas, stage_ipus=mapping,
        recomputed_stages=_recomputed(len(mapping)) if training else frozenset(),
    )  # fmt: skip
    graph = graph_of_hlo(
        hlo.of_execution(model, execution), inputs=len(flat), name=model.name, schedule=schedule,
        stage_of=_by_layer(stages),
    )  # fmt: skip
    return with_convolutions(graph, proportion_of_convolutions()), settings_of(
        pipeline=model._pipelining_kwargs if model._is_pipelined() else {},
        every_output=mode == "predict",
        prefetch=model._infeed_kwargs.get("prefetch_depth"),
    )


def _batch(flat: list[Any]) -> int:
    return next((int(spec.shape[0]) for spec in flat if spec.shape.rank), 1)


def _stages_of(model: Any) -> dict[str, int]:
    """The stage of each layer by its name; of a nested model's layers too."""
    if not model._is_pipelined():
        return {}
    found: dict[str, int] = {}
    for stage, nodes in model._get_pipeline_post_order().stages.items():
        for node in nodes:
            found.setdefault(node.layer.name, stage)
    return found


def _by_layer(stages: dict[str, int]) -> Callable[[str], int | None]:
    def stage_of(op_name: str) -> int | None:
        if not stages:
            return None
        return next((stages[part] for part in op_name.split("/") if part in stages), None)

    return stage_of


def _mapping(model: Any, stages: dict[str, int]) -> tuple[int, ...]:
    if not stages:
        return (0,)
    given = model._pipelining_device_mapping
    return tuple(given) if given else tuple(range(max(stages.values()) + 1))


def _recomputed(stages: int) -> frozenset[int]:
    """With `allow_recompute` stages run forwards again; the last has just done so."""
    config = system.config()
    if config is None or not config.allow_recompute:
        return frozenset()
    return frozenset(range(stages - 1)) if stages > 1 else frozenset((0,))


# --- functions and loops ------------------------------------------------------------------------


def of_function(
    function: Callable[..., Any], *args: Any, replicas: int = 1, name: str | None = None
) -> tuple[Graph, Settings]:
    """One turn of a program of `ipu.loops` with infeeds and outfeeds, or one call of a function.

    The outermost `repeat` becomes the number of device iterations; elements of infeeds become
    inputs, what is sent to outfeeds becomes outputs; stages of a pipeline become stages.
    """
    return described_function(function, *args, replicas=replicas, name=name)()


def described_function(
    function: Callable[..., Any], *args: Any, replicas: int = 1, name: str | None = None
) -> Callable[[], tuple[Graph, Settings]]:
    """What gives the same, in any thread: the function is traced here and now."""
    python = getattr(function, "python_function", function)
    given = [hlo._spec(value) for value in tf.nest.flatten(args)]
    asked = Description()
    with LOCK, describe(asked):
        _trace(python, args, given, asked)
    with LOCK:
        text = hlo.of_function(_stand_alone(python, args, given, asked), *given, *asked.specs)
    called = name or str(getattr(python, "__name__", "function"))
    return _of_description(text, asked, given, replicas, called)


def described_computation(
    body: Callable[..., Any], inputs: list[Any], trace: Callable[..., Any], replicas: int, name: str
) -> Callable[[], tuple[Graph, Settings]]:
    """The same of a computation in a graph of TensorFlow 1: `trace` makes a function of the graph
    from a Python function and its inputs."""
    given = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]
    asked = Description()

    def once(*flat: tf.Tensor) -> list[tf.Tensor]:
        return _tensors(body(*flat)) + asked.sent

    with describe(asked):
        trace(once, given)
    asked.sent.clear()
    whole = _stand_alone(body, given, given, asked)
    text = hlo.of_graph_function(trace(whole, [*given, *asked.specs]))
    return _of_description(text, asked, given, replicas, name)


def _of_description(
    text: str, asked: Description, given: list[Any], replicas: int, called: str
) -> Callable[[], tuple[Graph, Settings]]:
    inputs = [*given, *asked.specs]
    stages = len(asked.stage_ipus)
    settings, proportion = settings_of(pipeline=asked.pipeline), proportion_of_convolutions()

    def described() -> tuple[Graph, Settings]:
        schedule = Schedule(
            micro_batch=_batch(asked.specs or given), accumulation=asked.accumulation,
            device_iterations=_updates(asked), replicas=replicas, stage_ipus=asked.stage_ipus,
        )  # fmt: skip
        stage_of = _by_layer({f"{STAGE}{stage}": stage for stage in range(stages)})
        graph = graph_of_hlo(
            text, inputs=len(inputs), name=called, schedule=schedule,
            stage_of=stage_of if stages > 1 else lambda _: None,
        )  # fmt: skip
        if graph.training:
            graph = replace(
                graph, schedule=replace(schedule, recomputed_stages=_recomputed(stages))
            )
        return with_convolutions(graph, proportion), settings

    return described


def _updates(asked: Description) -> int:
    """Calls of an update: loops around an optimiser that accumulates count its micro-batches."""
    return asked.iterations if asked.pipeline else max(1, asked.iterations // asked.accumulation)


def _trace(python: Any, args: Any, given: list[Any], asked: Description) -> None:
    """Finds out which elements the function takes: it is traced, and the trace thrown away."""

    def once(*flat: tf.Tensor) -> list[tf.Tensor]:
        result = python(*tf.nest.pack_sequence_as(args, list(flat)))
        return _tensors(result) + asked.sent

    tf.function(once, autograph=False).get_concrete_function(*given)
    asked.sent.clear()


def _stand_alone(python: Any, args: Any, given: list[Any], asked: Description) -> Any:
    def whole(*flat: tf.Tensor) -> list[tf.Tensor]:
        again = Description(elements=list(flat[len(given) :]), specs=asked.specs)
        with describe(again):
            result = python(*tf.nest.pack_sequence_as(args, list(flat[: len(given)])))
        return _tensors(result) + again.sent

    return whole


def _tensors(result: Any) -> list[tf.Tensor]:
    flat = tf.nest.flatten(result, expand_composites=True)
    return [item for item in flat if isinstance(item, tf.Tensor)]


# --- settings -----------------------------------------------------------------------------------


def settings_of(
    *,
    pipeline: Mapping[str, Any] | None = None,
    every_output: bool = True,
    prefetch: int | None = None,
) -> Settings:
    """The configuration of the IPU system as the machine model wants it."""
    config = system.config()
    base = Settings(chip=chip())
    options = pipeline or {}
    if config is None:
        return base
    convolutions = config.convolutions.poplar_options
    matmuls = config.matmuls.poplar_options
    order = str(getattr(options.get("pipeline_schedule"), "name", "Grouped")).lower()
    return Settings(
        chip=base.chip,
        available_memory_proportion=_proportion(matmuls),
        matmul_partials=_partials(matmuls), convolution_partials=_partials(convolutions),
        pipeline_schedule=_schedule(order),
        prefetch_depth=_prefetch(config, prefetch), io_tiles=config.io_tiles.num_io_tiles,
        optimiser_state_off_chip=_is_on(options.get("offload_weight_update_variables")),
        activations_off_chip=_is_on(options.get("offload_activations")),
        weights_off_chip=_is_on(options.get("offload_weights")),
        accumulators_off_chip=_is_on(options.get("offload_gradient_accumulation_buffers")),
        replicated_tensor_sharding=_is_on(options.get("replicated_optimizer_state_sharding")),
        stochastic_rounding=config.floating_point_behaviour.esr.name != "OFF",
        outputs_every_micro_batch=every_output,
    )  # fmt: skip


def proportion_of_convolutions() -> float | None:
    """Theirs, where it is not that of products, which settings have for everything."""
    config = system.config()
    if config is None:
        return None
    own = _proportion(config.convolutions.poplar_options)
    return None if own == _proportion(config.matmuls.poplar_options) else own


def with_convolutions(graph: Graph, proportion: float | None) -> Graph:
    """The graph with a memory proportion of its own on each convolution, in bodies too."""
    if proportion is None:
        return graph
    ops = []
    for op in graph.ops:
        own = {"available_memory_proportion": proportion} if op.kind in _CONVOLUTIONS else {}
        bodies = tuple(with_convolutions(body, proportion) for body in op.bodies)
        ops.append(replace(op, attributes={**op.attributes, **own}, bodies=bodies))
    return replace(graph, ops=tuple(ops))


def _proportion(options: Mapping[str, str]) -> float:
    return float(options.get("availableMemoryProportion") or PROPORTION)


def chip() -> str:
    """The chip that the configuration names, or that of the IPUs there are."""
    config = system.config()
    if config is None:
        return chip_here()
    version = (config.ipu_model if system.uses_model() else config.device_connection).version
    return _CHIPS.get(version) or chip_here()


def _partials(options: Mapping[str, str]) -> Partials:
    return "float16" if options.get("partialsType") == "half" else "float32"


def _schedule(order: str) -> PipelineSchedule:
    if order == "interleaved":
        return "interleaved"
    return "sequential" if order == "sequential" else "grouped"


def _prefetch(config: Any, depth: int | None) -> int:
    if not config.optimizations.prefetch_data_streams:
        return 0
    return 1 if depth is None else int(depth)


def _is_on(option: Any) -> bool:
    """Options with three states: True, False, or (None) left to the compiler, which leaves it."""
    return getattr(option, "name", option) in (True, "ON", "THREESTATE_TRUE")
