"""Loops that run on the IPUs, optionally with an element of an infeed for each iteration."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.compiler.xla import xla

from softipu.frontends.tensorflow import descriptions

_state = threading.local()


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: Any = None,
    maximum_iterations: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """Repeats `body` while `condition` holds; returns the last values of its variables."""
    del use_while_v1  # both kinds compute the same
    return _loop(condition, body, inputs, infeed_queue, maximum_iterations, None)


def _loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    inputs: Any,
    infeed_queue: Any,
    maximum_iterations: Any,
    iterations: int | None,
) -> Any:
    start = [
        x if isinstance(x, tf.TensorArray) else tf.convert_to_tensor(x)
        for x in _convert_to_list([] if inputs is None else inputs)
    ]
    _check_arguments("body", body, start, infeed_queue)
    _check_arguments("condition", condition, start, None, infeed_queue)
    step = _Step(body, [x.dtype for x in start], infeed_queue, iterations)
    asked = descriptions.current()
    if asked is not None and asked.enters(iterations):
        with asked.inside():
            return _described(step(*(start or [tf.constant(0)])), bool(start))
    # A loop without variables gets one, to which the operations of its body are tied.
    variables = start or [tf.constant(0)]
    outputs = tf.compat.v1.while_loop(
        lambda *values: condition(*values[: len(start)]),
        step,
        variables,
        maximum_iterations=maximum_iterations,
        parallel_iterations=1,
    )
    if infeed_queue is not None and not infeed_queue.dequeued and not tf.executing_eagerly():
        raise ValueError("The infeed queue has not been dequeued.")
    outputs = _convert_to_list(outputs)
    if not start:
        return None if tf.executing_eagerly() else outputs[0].op
    return outputs[0] if len(outputs) == 1 else outputs


def _described(outputs: Any, has_variables: bool) -> Any:
    """One turn stands for the loop; its number of turns is known already."""
    outputs = _convert_to_list(outputs)
    if not has_variables:
        return outputs[0].op
    return outputs[0] if len(outputs) == 1 else outputs


def repeat(
    n: Any,
    body: Callable[..., Any],
    inputs: Any = None,
    infeed_queue: Any = None,
    use_while_v1: bool = True,
) -> Any:
    """Runs `body` `n` times; returns the last values of its variables."""
    del use_while_v1
    known = n if isinstance(n, int) else None
    return _loop(lambda *_: True, body, inputs, infeed_queue, n, known)


def iterations() -> int | None:
    """How often the innermost loop around the code that is being traced repeats it, if known."""
    counts = getattr(_state, "counts", None)
    return counts[-1] if counts else None


class _Step:
    """One iteration: takes an element, calls the body, checks what it returned."""

    def __init__(
        self, body: Callable[..., Any], types: list[Any], infeed_queue: Any, iterations: int | None
    ) -> None:
        self._body = body
        self._types = types
        self._infeed_queue = infeed_queue
        self._iterations = iterations

    def __call__(self, *values: Any) -> Any:
        element = [] if self._infeed_queue is None else self._infeed_queue._dequeue()
        args, kwargs = _body_arguments(element)
        counts = _state.__dict__.setdefault("counts", [])
        counts.append(self._iterations)
        try:
            outputs = self._body(*values[: len(self._types)], *args, **kwargs)
        finally:
            counts.pop()
        outputs = outputs if isinstance(outputs, list | tuple) else (outputs,)
        if tf.executing_eagerly():  # where operations are None
            outputs = [o for o in outputs if o is not None]
        tensors, operations = _separated(outputs)
        types = [t.dtype for t in tensors]
        if types != self._types:
            raise TypeError(
                "Mismatch between input types and output types for loop body: "
                f"{self._types} vs {types}."
            )
        tensors = tensors or [tf.constant(0)]
        if operations:
            tensors = tf.tuple(tensors, control_inputs=operations)
        return tensors[0] if len(tensors) == 1 else tensors


def _separated(outputs: Any) -> tuple[list[Any], list[tf.Operation]]:
    converted = [
        o if isinstance(o, tf.Operation | tf.TensorArray) else tf.convert_to_tensor(o)
        for o in outputs
    ]
    operations = [o for o in converted if isinstance(o, tf.Operation)]
    tensors = [o for o in converted if not isinstance(o, tf.Operation)]
    if any(isinstance(o, tf.Operation) for o in converted[: len(tensors)]):
        raise ValueError(
            "IPU loop body must return zero or more Tensor values followed by zero or more "
            "Operations."
        )
    return tensors, operations


def _check_arguments(
    part: str, function: Any, inputs: list[Any], infeed_queue: Any, unused_infeed: Any = None
) -> None:
    needed = xla.check_function_argument_count(function, len(inputs), infeed_queue)
    if needed is None:
        return
    given = f"You specified {len(inputs)} inputs: {inputs}"
    target = f"the loop {part} needs"
    if infeed_queue is not None:
        given += f" and {infeed_queue.number_of_tuple_elements} additional inputs from infeed"
        target = "the computation needs"
    note = "" if unused_infeed is None else " Note that infeed is not passed to the loop condition."
    raise TypeError(
        f"Supplied loop {part} function cannot be called with the specified inputs. "
        f"{given}, but {target} {needed}.{note}"
    )


def _convert_to_list(values: Any) -> list[Any]:
    return list(values) if isinstance(values, list | tuple) else [values]


def _body_arguments(element: Any) -> tuple[list[Any], dict[str, Any]]:
    """An element of an infeed as arguments: a lone dict with string keys is passed by name."""
    parts = _convert_to_list(element)
    if len(parts) == 1 and isinstance(parts[0], dict) and all(isinstance(k, str) for k in parts[0]):
        return [], parts[0]
    return parts, {}
