"""Whether IPUs could run a Keras model's pipeline with the options it has; nothing is built here.

Results depend on few of the options, but a model that trains here should do so on IPUs.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.ipu.ops import _pipeline_checks, pipelining_ops

from softipu.frontends.tensorflow import system

from ._pipelining_schedule import Schedule


def check(
    schedule: Schedule,
    device_mapping: list[int] | None,
    options: dict[str, Any],
    *,
    training: bool,
    count: int,
) -> None:
    """`count` is the number of mini-batches that go through the pipeline before it is empty."""
    stages = sorted(schedule.stages)
    mapping = list(range(len(stages))) if device_mapping is None else device_mapping
    order = options.get("pipeline_schedule") or pipelining_ops.PipelineSchedule.Grouped
    _pipeline_checks.check_member(order, pipelining_ops.PipelineSchedule, "pipeline_schedule")
    _pipeline_checks.check_mapping(mapping, stages, order, training, 1)
    if training:
        _pipeline_checks.check_state_sharding(
            options.get("replicated_optimizer_state_sharding"),
            options.get("offload_weight_update_variables"),
        )
    _check_shared_weights(schedule, mapping)
    config = system.config()
    io_tiles = config is not None and config.io_tiles.num_io_tiles > 0
    grouped = order is pipelining_ops.PipelineSchedule.Grouped
    multiple = _pipeline_checks.overlap(order, mapping, training)
    problem = _pipeline_checks.count_error(count, multiple, io_tiles and grouped)
    if problem:
        raise tf.errors.FailedPreconditionError(None, None, problem)


def _check_shared_weights(schedule: Schedule, mapping: list[int]) -> None:
    """Weights are in the memory of one IPU."""
    stages: dict[int, set[int]] = {}
    names: dict[int, str] = {}
    for stage, nodes in schedule.stages.items():
        for weight in (weight for node in nodes for weight in node.layer.weights):
            stages.setdefault(id(weight), set()).add(stage)
            names[id(weight)] = weight.name
    for key, using in stages.items():
        ipus = sorted({mapping[stage] for stage in using})
        if len(ipus) > 1:
            raise tf.errors.FailedPreconditionError(
                None,
                None,
                f"The variable {names[key]} is used by the pipeline stages {sorted(using)}, which "
                f"are on the IPUs {ipus}, but an input can only be used by pipeline stages on the "
                "same IPU. Put these stages on one IPU with `device_mapping` in "
                "`set_pipelining_options`, or use a layer for each.",
            )
