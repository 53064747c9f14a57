"""Custom operations: Python functions in the place of compiled Poplar ones.

    from softipu.frontends.paddle.custom import register_custom_op

    @register_custom_op("custom_leaky_relu")
    def leaky_relu(x, alpha=0.01):
        return paddle.where(x > 0, x, alpha * x)

The function gets dynamic-graph tensors by position and the attributes of the operation by name; its
gradient follows from autograd unless `@leaky_relu.backward` gives one. The registered object also
builds the operation: `leaky_relu(x, alpha=0.1)` in a static graph, where no C++ extension is built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from softipu.errors import PaddleCustomOpMissing

from . import popart_ops
from .strategy import IpuStrategy

_INTERNAL = ("op_role", "op_role_var", "op_namescope", "op_callstack", "op_device",
             "with_quant_attr", "ipu_index", "ipu_stage")  # fmt: skip
_registered: dict[str, CustomOp] = {}


class CustomOp:
    """A registered function. Calling it in a static graph adds the operation to the program."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self.function = function
        self.gradient: Callable[..., Any] | None = None

    def backward(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: `function(inputs, output_gradients, **attributes)` -> input gradients."""
        self.gradient = function
        return function

    def run(self, inputs: Sequence[Any], attributes: dict[str, Any]) -> list[Any]:
        result = self.function(*inputs, **attributes)
        return list(result) if isinstance(result, list | tuple) else [result]

    def derive(
        self, inputs: Sequence[Any], gradients: Sequence[Any], attributes: dict[str, Any]
    ) -> list[Any]:
        if self.gradient is not None:
            result = self.gradient(inputs, gradients, **attributes)
            return list(result) if isinstance(result, list | tuple) else [result]
        for tensor in inputs:
            tensor.stop_gradient = not tensor.is_floating_point()
        outputs = self.run(inputs, attributes)
        wanted = [tensor for tensor in inputs if not tensor.stop_gradient]
        found = iter(paddle.grad(outputs, wanted, list(gradients), allow_unused=True))
        return [None if tensor.stop_gradient else next(found) for tensor in inputs]

    def __call__(self, *inputs: Any, **attributes: Any) -> Any:
        if paddle.in_dynamic_mode():
            results = self.run(inputs, attributes)
            return results[0] if len(results) == 1 else results
        block = paddle.static.default_main_program().current_block()
        outputs = [
            block.create_var(
                name=paddle.utils.unique_name.generate(self.name), shape=shape, dtype=dtype
            )
            for shape, dtype in _outputs_for(self, inputs, attributes)
        ]
        _call_in_program(self, list(inputs), outputs, attributes)
        return outputs[0] if len(outputs) == 1 else outputs


def register_custom_op(name: str) -> Callable[[Callable[..., Any]], CustomOp]:
    """Decorator: use this function for the Paddle operation `name`."""

    def register(function: Callable[..., Any]) -> CustomOp:
        operator = CustomOp(name, function)
        _registered[name] = operator
        return operator

    return register


#: Sizes that stand for an open one: what differs between them in the outputs is open there.
_SAMPLED = (2, 4)


def _outputs_for(
    op: CustomOp, inputs: Sequence[Any], attributes: dict[str, Any]
) -> list[tuple[list[int], str]]:
    """Shapes and types of the outputs, from what the function returns for ones."""
    is_open = any(size < 0 for var in inputs for size in var.shape)
    one, *others = [
        _sampled(op, inputs, attributes, size) for size in (_SAMPLED if is_open else _SAMPLED[:1])
    ]
    shapes = [list(result.shape) for result in one]
    for other in others:
        for index, result in enumerate(other):
            pairs = zip(shapes[index], result.shape, strict=True)
            shapes[index] = [size if size == again else -1 for size, again in pairs]
    types = [str(result.dtype).removeprefix("paddle.") for result in one]
    return list(zip(shapes, types, strict=True))


def _sampled(
    op: CustomOp, inputs: Sequence[Any], attributes: dict[str, Any], open_size: int
) -> list[Any]:
    kinds = [(var.shape, str(var.dtype).rpartition(".")[2].lower()) for var in inputs]
    samples = [
        np.ones([size if size >= 0 else open_size for size in shape], _NUMPY.get(kind, kind))
        for shape, kind in kinds
    ]
    return list(_dynamically(lambda: op.run([paddle.to_tensor(s) for s in samples], attributes)))


_NUMPY = {"fp32": "float32", "fp16": "float16", "fp64": "float64"}


def _dynamically(function: Callable[[], Any]) -> Any:
    paddle.disable_static()
    try:
        return function()
    finally:
        paddle.enable_static()


def _call_in_program(
    op: CustomOp, inputs: list[Any], outputs: list[Any], attributes: dict[str, Any]
) -> None:
    count = len(inputs)

    def forward(*arrays: Any) -> Any:
        tensors = [paddle.to_tensor(np.array(array)) for array in arrays]
        results = [np.asarray(tensor) for tensor in op.run(tensors, attributes)]
        return results[0] if len(results) == 1 else results

    def backward(*arrays: Any) -> Any:
        tensors = [paddle.to_tensor(np.array(array)) for array in arrays]
        gradients = op.derive(tensors[:count], tensors[count:], attributes)
        results = [
            np.zeros(tensor.shape, "float32") if gradient is None else np.asarray(gradient)
            for gradient, tensor in zip(gradients, tensors, strict=False)
        ]
        return results[0] if len(results) == 1 else results

    paddle.static.py_func(
        func=lambda *arrays: _dynamically(lambda: forward(*arrays)),
        x=inputs,
        out=outputs,
        backward_func=lambda *arrays: _dynamically(lambda: backward(*arrays)),
        skip_vars_in_backward_input=outputs,
    )


def used(program: Any, options: IpuStrategy) -> bool:
    """Whether something else must be put in the place of an operation."""
    return any(
        op.type in _registered or popart_ops.meaning_of(op.type, options) is not None
        for op in program.global_block().ops
    )


def replace(program: Any, options: IpuStrategy) -> None:
    """Put registered functions in place; complain about custom operations that can't run."""
    block = program.global_block()
    known = {op.paddle_op for op in options.custom_ops}
    for index in reversed(range(len(block.ops))):
        op = block.ops[index]
        meaning = popart_ops.meaning_of(op.type, options)
        if op.type in _registered:
            _replace_one(program, index)
        elif meaning is not None:
            _expand(program, index, meaning)
        elif op.type in known and not _runs_on_cpu(op.type):
            raise PaddleCustomOpMissing(f"The custom operation {op.type} can't run here.")


def _replace_one(program: Any, index: int) -> None:
    block = program.global_block()
    old = block.ops[index]
    inputs = [block.var(name) for name in old.input_arg_names]
    outputs = [block.var(name) for name in old.output_arg_names]
    attributes = {name: old.attr(name) for name in old.attr_names if name not in _INTERNAL}
    kept = _kept(old)
    operator = _registered[old.type]
    block._remove_op(index, sync=False)
    with paddle.static.program_guard(program, paddle.static.Program()):
        _call_in_program(operator, inputs, outputs, attributes)
    made = block.ops[-1]
    inserted = block._insert_op_without_sync(
        index,
        type=made.type,
        inputs={"X": inputs},
        outputs={"Out": outputs},
        attrs={name: made.attr(name) for name in _CALLABLES},
    )
    for name, value in kept.items():  # a new operator takes no attributes that it does not know
        inserted._set_attr(name, value)
    block._remove_op(len(block.ops) - 1, sync=False)
    program._sync_with_cpp()


def _expand(program: Any, index: int, meaning: popart_ops.Meaning) -> None:
    """Put operations of Paddle's own in the place of one; they stay on its IPU."""
    block = program.global_block()
    old = block.ops[index]
    inputs = [block.var(name) for name in old.input_arg_names]
    (output,) = (block.var(name) for name in old.output_arg_names)
    attributes = {name: old.attr(name) for name in old.attr_names if name not in _INTERNAL}
    kept = _kept(old)
    block._remove_op(index, sync=False)
    start = len(block.ops)
    with paddle.static.program_guard(program, paddle.static.Program()):
        result = meaning(*inputs, **attributes)
        paddle.assign(result, output)
    output.stop_gradient = result.stop_gradient
    made = block.ops[start:]
    for offset, op in enumerate(made):
        inserted = block._insert_op_without_sync(
            index + offset,
            type=op.type,
            inputs={slot: op.input(slot) for slot in op.input_names},
            outputs={slot: op.output(slot) for slot in op.output_names},
            attrs=op.all_attrs(),
        )
        for name, value in kept.items():
            inserted._set_attr(name, value)
    for _ in made:
        block._remove_op(len(block.ops) - 1, sync=False)
    program._sync_with_cpp()


def _kept(op: Any) -> dict[str, Any]:
    """What operations in the place of one take over from it."""
    return {name: op.attr(name) for name in _PLACED if op.has_attr(name)}


_PLACED = ("op_role", "op_namescope", "ipu_index", "ipu_stage")
_CALLABLES = ("forward_callable_id", "backward_callable_id", "backward_skip_vars")


def _runs_on_cpu(name: str) -> bool:
    native: Any = core  # Paddle's own type hints leave this function out
    kernels = native._get_all_register_op_kernels("all").get(name, [])
    return any("cpu" in kernel.lower() for kernel in kernels)
