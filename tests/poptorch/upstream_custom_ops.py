"""The custom ops that upstream's PopTorch tests load as compiled libraries, written for softipu.

Not a test: a pytest plugin for runs of the upstream suite (SUITE_PLUGINS), and the example of how
a project ports its own custom ops.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from poptorch import register_custom_op

_TESTS = "test.poptorch"


@register_custom_op("Cube", "com.acme", 1)
def cube(x: Tensor, bias: Tensor) -> list[Tensor]:
    power = x * x * x
    return [power + bias, power]


@register_custom_op("LeakyRelu", "com.acme", 1)
def leaky_relu(x: Tensor, alpha: float = 0.01) -> Tensor:
    return torch.where(x < 0, alpha * x, x)


@register_custom_op("AddScalarFloat", _TESTS, 1)
@register_custom_op("AddScalarInt", _TESTS, 1)
def add_scalar(x: Tensor, scalar: float = 0) -> Tensor:
    return x + scalar


@register_custom_op("AddScalarVecFloat", _TESTS, 1)
@register_custom_op("AddScalarVecInt", _TESTS, 1)
def add_vector(x: Tensor, vec: list[float]) -> Tensor:
    return x + torch.tensor(vec, dtype=x.dtype)


@register_custom_op("AddVecScalarMulFloat", _TESTS, 1)
def add_vector_then_scale(x: Tensor, vec: list[float], scalar: float = 0.0) -> Tensor:
    return (x + torch.tensor(vec, dtype=x.dtype)) * scalar


@register_custom_op("ReduceOp", _TESTS, 1)
def reduce(x: Tensor, reduction: str = "mean") -> Tensor:
    return {"mean": torch.mean, "sum": torch.sum}[reduction](x)


@register_custom_op("ThreeReduceOp", _TESTS, 1)
def reduce_three(*inputs: Tensor, reductions: list[str]) -> list[Tensor]:
    return [reduce.function(x, kind) for x, kind in zip(inputs, reductions, strict=True)]


#: One attribute of each kind, twice; the op adds one if all of them arrive unchanged.
_EXPECTED: dict[str, Any] = {
    "float_one": 1.0,
    "float_minus_two": -2.0,
    "int_zero": 0,
    "int_minus_five": -5,
    "floats_one_two_three": [1.0, 2.0, 3.0],
    "floats_minus_one_two_three": [-1.0, -2.0, -3.0],
    "ints_one_two_three": [1, 2, 3],
    "ints_minus_one_two_three": [-1, -2, -3],
    "a_string": "string with quotes and slash \" ' \\ end",
    "strs": ["\x01", "\x02", "\x03"],
}


@register_custom_op("ManyAttributeOp", _TESTS, 1)
def check_attributes(x: Tensor, **attributes: Any) -> Tensor:
    return x + 1 if repr(sorted(attributes.items())) == repr(sorted(_EXPECTED.items())) else x
