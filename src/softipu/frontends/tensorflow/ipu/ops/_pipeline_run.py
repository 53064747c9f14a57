"""How a pipeline computes: micro-batch after micro-batch, each through all stages, in one loop.

The work on one micro-batch is a function, traced once. Totals (gradients, accumulated outputs) go
round the loop as tensors; the last micro-batch of each window updates the weights and hands out
zeros instead.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from softipu.frontends.tensorflow import replicas

from .. import gradient_accumulation as ga
from ..optimizers.ipu_optimizer import is_keras_optimizer
from . import _pipeline_trace, internal_ops
from ._pipeline_options import OptimizerFunctionOutput


@dataclass(frozen=True)
class Plan:
    """The arguments of a pipeline that matter to its results; all checked."""

    name: str
    stages: Sequence[Any]
    repeat_count: int
    batch_serialization_iterations: int
    infeed_queue: Any
    outfeed_queue: Any
    optimizer_function: Callable[..., OptimizerFunctionOutput] | None
    reduction_method: Any
    gradient_accumulation_dtype: Any
    accumulate_captured: bool
    outfeed_loss: bool
    outfeed_mask: Sequence[Any] | None
    accumulate_outfeed: bool
    accumulate_outfeed_dtype: Any


def run(plan: Plan, count: tf.Tensor, inputs: Sequence[tf.Tensor]) -> Any:
    """The operation that runs the pipeline."""

    def all_micro_batches(count: tf.Tensor, *inputs: tf.Tensor) -> None:
        window = count * plan.batch_serialization_iterations
        micro_batch = _MicroBatch(plan, [count, window, *inputs])

        def body(index: tf.Tensor, *totals: tf.Tensor) -> tuple[tf.Tensor, ...]:
            return (index + 1, *micro_batch(index, totals))

        tf.while_loop(
            lambda index, *_: index < window * plan.repeat_count,
            body,
            (tf.constant(0), *micro_batch.zeros),
            parallel_iterations=1,
        )

    return _pipeline_trace.run_as_one_op(plan.name, all_micro_batches, [count, *inputs])


class _MicroBatch:
    """The traced work on one micro-batch: from its number and the totals to the new totals."""

    def __init__(self, plan: Plan, inputs: Sequence[tf.Tensor]) -> None:
        #: Where each total begins, in the graph around this one: captured, thus replaceable.
        self.zeros: list[tf.Tensor] = []
        self._totals: list[tf.Tensor] = []
        self._plan = plan
        self._inputs = inputs
        specs = [tf.TensorSpec([], tf.int32), *inputs]
        self._traced = _pipeline_trace.trace(f"{plan.name}_micro_batch", self._work, specs)
        _check_captures(self._traced, self.zeros)

    def __call__(self, index: tf.Tensor, totals: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        known = {id(zero): total for zero, total in zip(self.zeros, totals, strict=True)}
        outputs = _pipeline_trace.call(self._traced, [index, *self._inputs], known)
        return outputs[: len(self.zeros)]

    def _work(
        self, index: tf.Tensor, count: tf.Tensor, window: tf.Tensor, *inputs: tf.Tensor
    ) -> list[tf.Tensor]:
        index = index % window
        with internal_ops.iteration_counter(index // self._plan.batch_serialization_iterations):
            outputs = forward(self._plan, inputs)
            if self._plan.optimizer_function is None:
                update = self._infer(outputs)
            else:
                update = self._train(as_list(outputs), index, count)
        totals = _after(update, tf.equal(index + 1, window), self._totals)
        return [*totals, tf.constant(True)]  # a call needs an output

    def _infer(self, outputs: Any) -> Callable[[], Any] | None:
        if _is_nothing(outputs):
            return None
        if self._plan.accumulate_outfeed or not isinstance(outputs, dict | tf.Tensor):
            outputs = as_list(outputs)
        return self._feed_out(outputs)

    def _train(
        self, outputs: list[Any], index: tf.Tensor, count: tf.Tensor
    ) -> Callable[[], Any] | None:
        plan = self._plan
        assert plan.optimizer_function is not None
        answer = plan.optimizer_function(*outputs)
        if not isinstance(answer, OptimizerFunctionOutput):
            raise TypeError(
                "The optimizer_function of a pipeline must return a"
                f" pipelining_ops.OptimizerFunctionOutput, but it returned {answer!r}."
            )
        feed_out = self._feed_out(answer.loss if plan.outfeed_loss else unmasked(plan, outputs))
        factors = ga.scales(plan.reduction_method, index, count)

        def total(gradient: Any, like: Any) -> Any:
            dtype = ga.accumulator_dtype(like, plan.gradient_accumulation_dtype)
            return None if gradient is None else self._total(gradient, dtype, like.shape, factors)

        pairs = [(total(g, variable), variable) for g, variable in _with_zeros(gradients(answer))]
        captured = answer.gradient_source.captured_gradients if answer.gradient_source else None
        if captured and plan.accumulate_captured:
            captured = {tag: [total(g, g) for g in found] for tag, found in captured.items()}

        def update() -> None:
            _apply(answer, pairs, captured)
            if feed_out is not None:
                feed_out()

        return update

    def _feed_out(self, outputs: Any) -> Callable[[], Any] | None:
        """Enqueues `outputs` now, or adds them up and returns what enqueues the sums."""
        queue = self._plan.outfeed_queue
        if isinstance(outputs, list) and not outputs:
            return None
        if not queue:
            raise ValueError(
                "The last computational stage has tensor outputs:"
                f" {', '.join(str(t) for t in as_list(outputs))}, but no outfeed_queue has been"
                " provided."
            )
        if not self._plan.accumulate_outfeed:
            queue.enqueue(outputs)
            return None

        def add(tensor: tf.Tensor) -> tf.Tensor:
            dtype = ga.accumulator_dtype(tensor, self._plan.accumulate_outfeed_dtype)
            return self._total(tensor, dtype, tensor.shape, (None, None))

        sums = tf.nest.map_structure(add, outputs)
        return lambda: queue.enqueue(sums)

    def _total(self, value: Any, dtype: tf.DType, shape: Any, factors: tuple[Any, Any]) -> Any:
        if not shape.is_fully_defined():
            raise ValueError(
                f"The pipeline cannot accumulate {value}, whose shape is not known in advance. Use"
                " data sets with fixed shapes, batched with drop_remainder=True."
            )
        graph = tf.compat.v1.get_default_graph()
        with graph.outer_graph.as_default():
            zeros = tf.zeros(shape, dtype)
        total = ga.add(graph.capture(zeros), value, *factors)
        self.zeros.append(zeros)
        self._totals.append(total)
        return total


def forward(
    plan: Plan,
    inputs: Sequence[tf.Tensor],
    scope: Callable[[], Any] = contextlib.nullcontext,
) -> Any:
    """The outputs of the last stage; each stage is traced inside a `scope`."""
    outputs: Any = list(inputs)
    for number, stage in enumerate(plan.stages):
        args, kwargs = as_list(outputs), {}
        if number == 0 and plan.infeed_queue:
            element = as_list(plan.infeed_queue._dequeue())
            if len(element) == 1 and _are_keywords(element[0]):
                kwargs = element[0]
            else:
                args += element
        outputs = _run_stage(stage, args, kwargs, scope)
    return outputs


def _run_stage(
    stage: Any, args: list[Any], kwargs: dict[str, Any], scope: Callable[[], Any]
) -> Any:
    if isinstance(stage, list):  # stages side by side
        return [
            output
            for part in stage
            for output in as_list(_run_stage(part, list(args), kwargs, scope))
        ]
    with scope():
        outputs = stage(*args, **kwargs)
    return outputs if _is_nothing(outputs) else tf.nest.map_structure(_as_tensor, outputs)


def _are_keywords(element: Any) -> bool:
    return isinstance(element, dict) and all(isinstance(key, str) for key in element)


def _is_nothing(outputs: Any) -> bool:
    return outputs is None or isinstance(outputs, tf.Operation)


def as_list(values: Any) -> list[Any]:
    if values is None:
        return []
    return list(values) if isinstance(values, list | tuple) else [values]


def _as_tensor(value: Any) -> Any:
    return value if _is_nothing(value) else tf.convert_to_tensor(value)


def unmasked(plan: Plan, outputs: list[Any]) -> list[Any]:
    outputs = [output for output in outputs if not _is_nothing(output)]
    mask = plan.outfeed_mask or [False] * len(outputs)
    if outputs and len(mask) != len(outputs):
        raise ValueError(
            f"The last computational stage has {len(outputs)} outputs, but the `outfeed_mask` has"
            f" elements {len(mask)} - these need to match in size."
        )
    return [output for masked, output in zip(mask, outputs, strict=False) if not masked]


def gradients(answer: OptimizerFunctionOutput) -> list[tuple[Any, Any]]:
    optimizer = answer.opt
    if not is_keras_optimizer(optimizer):
        args, kwargs = answer.compute_gradients_args, answer.compute_gradients_kwargs
        return list(optimizer.compute_gradients(answer.loss, *args, **kwargs))
    variables = list(answer.tape.watched_variables() if answer.tape else answer.variables)
    if not variables:
        raise RuntimeError(
            "No variables to optimize. When using OptimzerV2, OptimizerFunctionOutput must contain"
            " a list of variables or a GradientTape."
        )
    return list(zip(optimizer.get_gradients(answer.loss, variables), variables, strict=True))


def _with_zeros(pairs: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Variables that stages read have a gradient, even where the loss does not depend on them."""
    read = {v.ref() for v in tf.compat.v1.get_default_graph()._watched_variables}

    def gradient_of(gradient: Any, variable: Any) -> Any:
        missing = gradient is None and variable.ref() in read
        return tf.zeros_like(variable) if missing else gradient

    return [(gradient_of(gradient, variable), variable) for gradient, variable in pairs]


def _apply(answer: OptimizerFunctionOutput, pairs: list[tuple[Any, Any]], captured: Any) -> None:
    kwargs = dict(answer.apply_gradients_kwargs)
    if getattr(answer.opt, "supports_captured_grads", False) or (
        captured and _takes_captured(answer.opt)
    ):
        kwargs["captured_grads"] = captured
    answer.opt.apply_gradients(pairs, *answer.apply_gradients_args, **kwargs)
    if captured and answer.captured_gradient_outfeed:
        answer.captured_gradient_outfeed.enqueue(captured)


def _takes_captured(optimizer: Any) -> bool:
    return "captured_grads" in inspect.signature(type(optimizer).apply_gradients).parameters


def _after(update: Any, last: tf.Tensor, totals: list[tf.Tensor]) -> list[tf.Tensor]:
    """The totals for the next micro-batch; behind the last one of a window, `update` has run."""
    if update is None:
        return totals

    def begin_anew() -> list[tf.Tensor]:
        update()
        return [tf.constant(True), *(tf.zeros_like(total) for total in totals)]

    return list(tf.cond(last, begin_anew, lambda: [tf.constant(False), *totals]))[1:]


def _check_captures(traced: Any, allowed: Sequence[tf.Tensor]) -> None:
    """Stages may use variables and queues from outside, but no other tensors."""
    tracing = replicas.tracing()
    stand_ins = tracing.stand_ins if tracing is not None else {}
    known = {id(tensor) for tensor in allowed} | set(stand_ins)
    for tensor in traced.captured_inputs:
        if tensor.dtype in (tf.resource, tf.variant) or id(tensor) in known:
            continue
        if not hasattr(tensor, "numpy"):  # values of eager tensors are constants
            raise ValueError(
                f"Trying to capture the tensor {tensor.name} which is not a resource. This tensor"
                " needs to be passed as either part of the `input` or `infeed_queue` of the"
                " pipeline."
            )
