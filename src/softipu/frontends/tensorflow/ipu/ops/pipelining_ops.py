"""Pipelines: models whose parts lie on different IPUs and work on successive micro-batches.

Here the parts run one after the other, which gives the same results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import descriptions, sessions, system
from softipu.frontends.tensorflow.pipeline_options import warn_of_ignored

from .. import _run, ipu_infeed_queue, ipu_outfeed_queue
from ..gradient_accumulation import GradientAccumulationReductionMethod
from . import _pipeline_checks as checks
from . import _pipeline_described, _pipeline_run
from ._pipeline_checks import flatten as _to_flat_list
from ._pipeline_options import (
    OptimizerFunctionOutput,
    PipelineSchedule,
    PipelineStageOptions,
    RecomputationMode,
)

__all__ = [
    "OptimizerFunctionOutput",
    "PipelineSchedule",
    "PipelineStageOptions",
    "RecomputationMode",
    "_to_flat_list",
    "pipeline",
    "recomputation_checkpoint",
]

_ALL_DEVICES = -1


def pipeline(
    computational_stages: Sequence[Any],
    gradient_accumulation_count: Any = None,
    gradient_accumulation_dtype: Any = None,
    gradient_accumulation_for_captured_grads: bool = True,
    repeat_count: int = 1,
    batch_serialization_iterations: int = 1,
    inputs: Any = None,
    infeed_queue: Any = None,
    outfeed_queue: Any = None,
    optimizer_function: Callable[..., Any] | None = None,
    device_mapping: Any = None,
    pipeline_schedule: PipelineSchedule | None = None,
    recomputation_mode: RecomputationMode | None = None,
    forward_propagation_stages_poplar_options: Any = None,
    backward_propagation_stages_poplar_options: Any = None,
    weight_update_poplar_options: PipelineStageOptions | None = None,
    offload_weight_update_variables: bool | None = None,
    replicated_optimizer_state_sharding: bool | None = False,
    offload_activations: bool | None = None,
    offload_gradient_accumulation_buffers: bool | None = None,
    replicated_weight_sharding: bool | None = None,
    offload_weights: bool | None = None,
    continuous_weight_updates: bool = False,
    outfeed_loss: bool = False,
    accumulate_outfeed: bool = False,
    accumulate_outfeed_dtype: Any = None,
    outfeed_mask: Sequence[Any] | None = None,
    reduction_method: Any = GradientAccumulationReductionMethod.SUM,
    name: str | None = None,
) -> Any:
    """An operation that sends `gradient_accumulation_count` micro-batches through the stages.

    It does so `repeat_count` times. The first stage takes `inputs` and an element of the infeed,
    each other one the outputs of the stage before. With an `optimizer_function`, which takes the
    last outputs and returns an OptimizerFunctionOutput, the gradients of all micro-batches are
    reduced by `reduction_method` for one update. Outputs (or the loss, or those not masked) go to
    the outfeed, for each micro-batch or, with `accumulate_outfeed`, as their sum. Options about
    schedule, recomputation, devices and memory are checked, and change no result.
    """
    warn_of_ignored(
        "pipeline",
        {
            "replicated_weight_sharding": replicated_weight_sharding,
            "forward_propagation_stages_poplar_options": forward_propagation_stages_poplar_options,
            "backward_propagation_stages_poplar_options": (
                backward_propagation_stages_poplar_options
            ),
            "weight_update_poplar_options": weight_update_poplar_options,
        },
    )
    training = optimizer_function is not None
    checks.check_count(gradient_accumulation_count)
    if training:
        reduction_method = GradientAccumulationReductionMethod.parse(reduction_method)
    if continuous_weight_updates:
        raise NotImplementedError("Continuous weight updates are currently not supported.")

    serial = batch_serialization_iterations > 1
    if pipeline_schedule is None:
        pipeline_schedule = PipelineSchedule.Sequential if serial else PipelineSchedule.Grouped
    checks.check_member(pipeline_schedule, PipelineSchedule, "pipeline_schedule")
    checks.check_serialization(batch_serialization_iterations, reduction_method, pipeline_schedule)
    checks.check_member(
        RecomputationMode.Auto if recomputation_mode is None else recomputation_mode,
        RecomputationMode,
        "recomputation_mode",
    )
    checks.check_queue(infeed_queue, ipu_infeed_queue.IPUInfeedQueue, "infeed_queue")
    checks.check_queue(outfeed_queue, ipu_outfeed_queue.IPUOutfeedQueue, "outfeed_queue")
    checks.check_stages(computational_stages)
    if device_mapping is None:
        stages = len(computational_stages)
        device_mapping = [0] * stages if serial else list(range(stages))
    checks.check_mapping(
        device_mapping,
        computational_stages,
        pipeline_schedule,
        training,
        batch_serialization_iterations,
    )
    _check_poplar_options(
        computational_stages,
        training,
        forward_propagation_stages_poplar_options,
        backward_propagation_stages_poplar_options,
        weight_update_poplar_options,
    )
    checks.check_outfeed_options(
        training,
        outfeed_loss,
        outfeed_mask,
        accumulate_outfeed,
        outfeed_queue,
        ipu_outfeed_queue.IPUOutfeedMode.ALL,
    )
    if training:
        checks.check_state_sharding(
            replicated_optimizer_state_sharding, offload_weight_update_variables
        )

    _run.note_shard(max(_to_flat_list(device_mapping)))
    multiple = checks.overlap(pipeline_schedule, device_mapping, training)
    plan = _pipeline_run.Plan(
        name=name or "pipeline",
        stages=computational_stages,
        repeat_count=repeat_count,
        batch_serialization_iterations=batch_serialization_iterations,
        infeed_queue=infeed_queue,
        outfeed_queue=outfeed_queue,
        optimizer_function=optimizer_function,
        reduction_method=reduction_method,
        gradient_accumulation_dtype=gradient_accumulation_dtype,
        accumulate_captured=gradient_accumulation_for_captured_grads,
        outfeed_loss=outfeed_loss,
        outfeed_mask=outfeed_mask,
        accumulate_outfeed=accumulate_outfeed,
        accumulate_outfeed_dtype=accumulate_outfeed_dtype,
    )
    asked = descriptions.current()
    if asked is not None:
        options = {
            "pipeline_schedule": pipeline_schedule,
            "offload_weight_update_variables": offload_weight_update_variables,
            "offload_activations": offload_activations,
            "offload_weights": offload_weights,
            "offload_gradient_accumulation_buffers": offload_gradient_accumulation_buffers,
            "replicated_optimizer_state_sharding": replicated_optimizer_state_sharding,
        }
        return _pipeline_described.describe(
            asked,
            plan,
            gradient_accumulation_count,
            _input_tensors(inputs),
            device_mapping,
            options,
        )
    grouped = pipeline_schedule is PipelineSchedule.Grouped
    with tf.control_dependencies(_count_checked(gradient_accumulation_count, multiple, grouped)):
        count = tf.cast(tf.convert_to_tensor(gradient_accumulation_count), tf.int32)
        return _pipeline_run.run(plan, count, _input_tensors(inputs))


def _input_tensors(inputs: Any) -> list[tf.Tensor]:
    if inputs is None:
        return []
    return [
        tf.convert_to_tensor(i) for i in (inputs if isinstance(inputs, list | tuple) else [inputs])
    ]


def _check_poplar_options(
    stages: Sequence[Any], training: bool, forward: Any, backward: Any, update: Any
) -> None:
    kind = PipelineStageOptions
    checks.check_stage_options(forward, kind, stages, "forward_propagation_stages_poplar_options")
    if not training:
        return
    checks.check_stage_options(backward, kind, stages, "backward_propagation_stages_poplar_options")
    if update is not None and not isinstance(update, kind):
        raise TypeError(
            "weight_update_poplar_options to be of type PipelineStageOptions, but got"
            f" {update} instead."
        )


def _count_checked(count: Any, multiple: int, grouped: bool) -> list[Any]:
    """Fails when the pipeline runs, as upstream's compiler does; a list of control dependencies."""
    value = tf.get_static_value(tf.convert_to_tensor(count))
    if value is None:
        fits = tf.equal(tf.cast(count, tf.int32) % multiple, 0)
        message = (
            "Pipeline depth is invalid. Check that pipeline depth is divisible by the overlap"
            f" length ({multiple}) and pipeline depth is >= {multiple}."
        )
        return sessions.require(fits, tf.errors.InvalidArgumentError, message)

    problems = {
        tiles: checks.count_error(int(value), multiple, tiles)
        for tiles in ((False, True) if grouped else (False,))
    }
    if tf.compat.v1.executing_eagerly_outside_functions():
        problem = problems.get(_has_io_tiles(), problems[False])
        if problem:
            raise tf.errors.FailedPreconditionError(None, None, problem)
        return []
    # Programs of TensorFlow 1 may configure their IPUs after they have built the graph.
    failures = []
    for tiles, problem in problems.items():
        if problem:
            fits = tf.constant(False) if not grouped else tf.not_equal(_io_tiles_when_run(), tiles)
            failures += sessions.require(fits, tf.errors.FailedPreconditionError, problem)
    return failures


def _io_tiles_when_run() -> tf.Tensor:
    return tf.ensure_shape(tf.numpy_function(_has_io_tiles, [], tf.bool), [])


def _has_io_tiles() -> bool:
    config = system.config()
    return config is not None and config.io_tiles.num_io_tiles > 0


def recomputation_checkpoint(tensors: Any, name: str | None = None) -> Any:
    """`tensors` unchanged; where activations are computed again, these would be kept."""
    return tf.nest.map_structure(
        lambda tensor: tf.identity(tensor, name=name), tensors, expand_composites=True
    )
