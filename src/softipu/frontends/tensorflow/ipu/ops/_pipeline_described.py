"""Pipelines for the machine model: one micro-batch through all stages, and the update behind it.

Each stage is traced in a scope that has its number, by which operations, and their gradients, are
known to belong to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from softipu.errors import EstimateNeedsBatch
from softipu.frontends.tensorflow.descriptions import STAGE, Description

from . import _pipeline_run as running
from ._pipeline_checks import flatten
from ._pipeline_run import Plan


def describe(
    asked: Description,
    plan: Plan,
    count: Any,
    inputs: Sequence[tf.Tensor],
    device_mapping: Any,
    options: dict[str, Any],
) -> Any:
    """Traces a turn of the pipeline, and notes how often it runs and where."""
    known = tf.get_static_value(tf.convert_to_tensor(count))
    if known is None:
        raise EstimateNeedsBatch("The pipeline's gradient_accumulation_count is no known number.")
    turns = int(known) * plan.batch_serialization_iterations
    training = plan.optimizer_function is not None
    asked.accumulation *= turns if training else 1
    asked.iterations *= plan.repeat_count * (1 if training else turns)
    # A stage on all IPUs (-1) counts as one on the first.
    asked.stage_ipus = tuple(max(0, int(ipu)) for ipu in flatten(device_mapping))
    asked.pipeline = options
    numbers = iter(range(len(asked.stage_ipus)))
    with asked.inside():
        outputs = running.forward(plan, inputs, lambda: tf.name_scope(f"{STAGE}{next(numbers)}"))
        done = _train(asked, plan, outputs) if training else asked.send(_tensors(outputs))
    return None if tf.executing_eagerly() else done


def _train(asked: Description, plan: Plan, outputs: Any) -> Any:
    assert plan.optimizer_function is not None
    results = running.as_list(outputs)
    answer = plan.optimizer_function(*results)
    pairs = running.gradients(answer)
    args, kwargs = answer.apply_gradients_args, answer.apply_gradients_kwargs
    with tf.name_scope("update"):
        updated = answer.opt.apply_gradients(pairs, *args, **kwargs)
    sent = [answer.loss] if plan.outfeed_loss else running.unmasked(plan, results)
    with tf.control_dependencies([] if updated is None else [updated]):
        return asked.send([tf.identity(tensor) for tensor in sent])


def _tensors(outputs: Any) -> list[tf.Tensor]:
    return [t for t in tf.nest.flatten(outputs) if isinstance(t, tf.Tensor)]
