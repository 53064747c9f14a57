"""Turns a model, its options and one call's arguments into an `Executable`.

The steps PopTorch users see in its progress bar and logs: preprocess, capture, check, lower.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from softipu.errors import PopdistMisuse, UnsupportedInput

from ._arg_parsers import flatten, rebuild
from ._attachment import Attachment, clock
from ._capture import Program, Source, capture
from ._compile_log import forward_nodes, log_program, place_of, warn_about_narrowing
from ._engine.backend import backend_device
from ._engine.batching import Batching, Mode, Output
from ._engine.memory import DeviceMemory
from ._engine.plan import Plan
from ._engine.together import Share, share_of
from ._errors import createPoptorchError, failure
from ._executable import Executable
from ._inputs import Arguments, CompiledArguments
from ._logging import logger, native
from ._ops_overlap import OVERLAP, check_overlap_settings, take_overlaps
from ._replicas import (
    check_grouping,
    check_shards,
    shard_of_each_replica,
    warn_about_retrieval,
)
from ._strategies import PipelinedExecution, check_pipeline, forward_stages, ipus_needed
from .enums import CommGroupType, OutputMode, ReductionType
from .optim import _rules
from .optim._attributes import Description

_MODES: dict[OutputMode, Mode] = {
    OutputMode.All: "All",
    OutputMode.EveryN: "EveryN",
    OutputMode.Final: "Final",
    OutputMode.Sum: "Sum",
}


@dataclass(frozen=True)
class Job:
    """What is to be compiled."""

    model: Any
    options: Any
    training: bool
    parameters: dict[str, torch.Tensor]
    buffers: dict[str, torch.Tensor]
    description: Description | None = None
    groups: tuple[tuple[str, ...], ...] = ()
    replica_groups: Mapping[str, tuple[Any, ...]] | None = None
    #: What `model` is a shallow copy of, where it is one.
    original: Any = None


def batching_of(options: Any) -> Batching:
    return Batching(
        iterations=options.device_iterations,
        accumulation=options.Training.gradient_accumulation,
        replicas=options.replication_factor,
        group_size=options.input_group_size,
        orthogonal=options.input_cgt == CommGroupType.Orthogonal,
    )


def share_of_options(options: Any) -> Share:
    """Which part of all replicas this process has."""
    processes = options.Distributed.numProcesses
    local, size = options.replication_factor, options.input_group_size
    orthogonal = options.input_cgt == CommGroupType.Orthogonal
    if processes > 1 and (local % size or (size > 1 and orthogonal)):
        raise failure(
            PopdistMisuse,
            f"Groups of {size} replicas that share inputs reach over several processes of {local} "
            "replicas each.",
            remedy="Use consecutive groups, of a size that divides the replicas of a process.",
        )
    return share_of(options.Distributed.processId, processes, local)


def micro_batch(tensor: torch.Tensor, options: Any) -> torch.Tensor:
    """The part of an input that one micro-batch sees; PopTorch's assertion if it doesn't divide."""
    batching = batching_of(options)
    size = tensor.shape[0] if tensor.dim() else 1
    assert size % batching.inputs == 0, (
        f"Invalid batch dimension: In the input {tensor.shape}, the batch dimension ({size}) must "
        f"be a multiple of Options.deviceIterations({batching.iterations}) * "
        f"(Options.replicationFactor({batching.replicas}) / "
        f"Options.inputReplicaGrouping.input_group_size({batching.group_size})) * "
        f"Options.Training.gradientAccumulation({batching.accumulation}) = {batching.inputs} "
        "because it is used to calculate the batch size which will be executed on the device in "
        "any given iteration. For a full explanation see the batching semantics page of the "
        f"documentation. Way out: pass inputs whose first dimension is {batching.inputs} times the "
        "micro-batch, as poptorch.DataLoader does with the same options, or change these options."
    )
    return tensor.narrow(0, 0, size // batching.inputs) if tensor.dim() else tensor


def prepared(bound: Arguments, options: Any) -> Arguments:
    """The arguments of a call as one micro-batch, checked for what IPUs can't take."""
    tensors = []
    for tensor in bound.tensors():
        _check_input(tensor)
        if tensor.requires_grad:
            logger.warning(
                "Input tensor has requires_grad=True set. This tensor will be detached because "
                "backward pass via inputs is not supported."
            )
        tensors.append(micro_batch(tensor.detach(), options))
    return bound.with_tensors(tensors)


def _check_input(tensor: torch.Tensor) -> None:
    if tensor.numel() == 0:
        raise failure(
            UnsupportedInput,
            f"Zero-sized tensors are unsupported (Got shape {list(tensor.shape)})",
        )
    if tensor.dtype == torch.bfloat16 or tensor.is_complex():
        raise failure(UnsupportedInput, f"An input has the type {tensor.dtype}.")


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Capturing makes very many objects; Python would look through them again and again, for a
    third of the time."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


@no_collection()
def compile_model(job: Job, bound: Arguments) -> Executable:
    """Captures and checks the model and prepares memory; no IPU is attached yet."""
    device = backend_device()
    micro = prepared(bound, job.options)
    sharded = shards_of(job)
    source = Source(
        model=job.model,
        args=tuple(micro.positional),
        kwargs=micro.named,
        training=job.training,
        options=job.options,
        parameters=job.parameters,
        buffers=job.buffers,
        optimised=frozenset(name for group in job.groups for name in group),
        loss_scaling=_rules.loss_scaling_name(job.description) if job.description else None,
        sharded=frozenset(name for name, _ in sharded),
        device=device,
        original=job.original,
    )
    started = clock()
    program, result = capture(source)
    capture_seconds = clock() - started
    per_replica = ipus_needed(
        [place_of(node) for node in program.nodes], job.options._execution_strategy
    )
    attachment = Attachment(job.options, per_replica)
    remove_overlaps(program, job.options)
    check_program(program, job)
    inputs = zip((spec.name for spec in program.inputs), bound.tensors(), strict=True)
    warn_about_narrowing(program, {**dict(inputs), **job.parameters, **job.buffers})
    log_program(program, job.options)
    plan = _plan(program, job, sharded)
    seed = job.options.random_seed if job.options.exists("random_seed") else 0
    executable = Executable(
        plan,
        CompiledArguments(bound),
        _shell(result),
        attachment,
        device,
        seed,
        per_replica,
    )
    executable.capture_seconds = capture_seconds
    if program.trained:
        _add_update(executable, job)
    elif job.training:
        logger.warning(
            "The model trains nothing: its loss depends on no parameter that requires a gradient "
            "and is in the optimizer."
        )
    native.info("Finished Poplar compilation")
    return executable


def _add_update(executable: Executable, job: Job) -> None:
    program = executable.program
    assert job.description is not None
    scratch = DeviceMemory(executable.memory.device)
    scratch.write_parameters({name: job.parameters[name] for name in program.trained})
    from ._capture.update import add_update

    groups = [list(group) for group in job.groups]
    state = add_update(program, job.description, groups, scratch.parameters)
    executable.memory.state = {
        name: value.to(executable.memory.device) for name, value in state.items()
    }
    write_hypers(executable, job.description)


def write_hypers(executable: Executable, description: Description) -> None:
    """Sends learning rates and the like; a model that trains nothing has no use for them."""
    if executable.program.update is None:
        return
    memory = executable.memory
    memory.attributes = description.rows
    for line in _rules.summary_lines(description, executable.program.groups):
        native.debug(line)
    for name, value in _rules.hyper_spec(description).items():
        memory.upload(memory.hypers, name, value)


def remove_overlaps(program: Program, options: Any) -> None:
    """Marks of overlapped I/O are checked and leave the graph: they say how, not what.

    A note on its output remembers them, for estimates."""
    graph = program.micro.graph
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    first = len(program.parameters) + len(program.buffers)
    inputs = placeholders[first : first + len(program.inputs)]
    output = next(node for node in graph.nodes if node.op == "output")
    results: Any = output.args[0]
    found = take_overlaps(graph, inputs, list(results[: len(program.outputs)]))
    if found.active:
        output.meta["softipu"] = (output.meta.get("softipu") or {}) | {OVERLAP: found.to_json()}
    program.micro.recompile()
    check_overlap_settings(
        found,
        pipelined=type(options._execution_strategy) is PipelinedExecution,
        io_tiles=options.toDict().get("numIOTiles", 0),
        output_mode=OutputMode(options.output_mode),
    )


def check_program(program: Program, job: Job) -> None:
    options = job.options
    check_pipeline(
        options._execution_strategy,
        forward_stages([place_of(node) for node in forward_nodes(program)]),
        job.training,
        options.device_iterations,
        options.Training.gradient_accumulation,
    )
    replicas = share_of_options(options).total_replicas
    if program.loose_buffers and replicas > 1 and options.broadcast_buffers:
        raise createPoptorchError(
            "PopTorch does not support broadcasting buffers. If your model is able to tolerate "
            "buffers becoming out of sync between replicas, you can disable buffer broadcasting "
            "using poptorch.Options.broadcastBuffers(False)."
        )


def _plan(program: Program, job: Job, sharded: tuple[tuple[str, tuple[int, ...]], ...]) -> Plan:
    options = job.options
    anchors = []
    for name, _given, mode, period in options.anchored_tensors.values():
        if name not in program.tensor_names:
            raise createPoptorchError(
                f"Anchored tensor {name} is not in the graph. PoplarExecutor.getTensorNames() "
                "lists the names that can be anchored."
            )
        role = program.tensor_names[name]
        if ":" not in role:
            _expose(program, role)
        program.anchors.append(role)
        anchors.append(Output(_MODES[OutputMode(mode)], period))
    reduction = options.Training.accumulation_and_replication_reduction_type
    return Plan(
        program,
        batching_of(options),
        outputs_of(program, options),
        tuple(anchors),
        mean=reduction == ReductionType.Mean,
        sharded=sharded,
        checks_floats=bool(options._Popart.options.get("enableFloatingPointChecks", False)),
        share=share_of_options(options),
    )


def outputs_of(program: Program, options: Any) -> tuple[Output, ...]:
    default = Output(_MODES[OutputMode(options.output_mode)], options.output_return_period)
    return tuple(default for _ in program.outputs)


def _expose(program: Program, node_name: str) -> None:
    """Makes a node one more result of the micro graph."""
    graph = program.micro.graph
    node = next(node for node in graph.nodes if node.name == node_name)
    output = next(node for node in graph.nodes if node.op == "output")
    output.args = ([*output.args[0], node],)
    program.micro.recompile()


def shards_of(job: Job) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """For variables that differ between replica groups: which slice each replica uses."""
    found = []
    replicas = share_of_options(job.options).total_replicas
    for name, (group_type, size, mode) in (job.replica_groups or {}).items():
        if name not in job.parameters:
            raise createPoptorchError(
                f"per_replica_params names {name}, which is no parameter of the model.",
                remedy=f"Name one of {', '.join(job.parameters) or 'none: it has no parameters'}.",
            )
        kind, shards, retrieved = check_grouping(name, group_type, size, mode, replicas)
        of_replicas = shard_of_each_replica(kind, shards, replicas)
        check_shards(name, job.parameters[name], of_replicas)
        warn_about_retrieval(name, retrieved, of_replicas)
        found.append((name, of_replicas))
    return tuple(found)


def _shell(result: Any) -> Any:
    """The structure of a result, holding no real or fake tensor."""
    count = len(flatten(result))
    return rebuild(result, iter([torch.empty(0, device="meta") for _ in range(count)]))
