"""One translation of a Paddle program into a neutral graph: names, places, reading, writing.

Paddle's variables may be written again; each has the tensor that it stands for at the moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from softipu.errors import EstimateNeedsBatch
from softipu.graph import Builder, Phase, Role
from softipu.graph.orders import Looks

Spec = tuple[tuple[int, ...], str]
#: What an operation becomes: it reads its inputs and sets its outputs.
Handler = Callable[["Translation", "Operation"], None]

_TYPES = {
    "float32": "float32", "float64": "float32", "float16": "float16", "bfloat16": "float16",
    "uint16": "float16", "int64": "int32", "int32": "int32", "int16": "int16", "int8": "int8",
    "uint8": "uint8", "bool": "bool",
}  # fmt: skip


def element_type(dtype: str | None) -> str:
    """The type that an IPU holds it in. Paddle's bfloat16 is a uint16 for NumPy."""
    return _TYPES.get(dtype or "", "float32")


class Operation:
    """One operation of `program_of`: its slots as lists of tensors, its attributes."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.type: str = data["type"]
        self.phase = Phase(data["phase"])
        self.ipu: int = data["ipu"]
        self.stage: int = data["stage"]
        self._inputs: dict[str, list[dict[str, Any]]] = data["inputs"]
        self._outputs: dict[str, list[dict[str, Any]]] = data["outputs"]
        self.attributes: dict[str, Any] = data["attributes"]

    def given(self, *slots: str) -> list[str]:
        """Names of the variables in these slots, or in all."""
        wanted = slots or tuple(self._inputs)
        return [item["name"] for slot in wanted for item in self._inputs.get(slot, [])]

    def made(self, *slots: str) -> list[dict[str, Any]]:
        wanted = slots or tuple(self._outputs)
        return [item for slot in wanted for item in self._outputs.get(slot, [])]

    def has(self, slot: str) -> bool:
        return bool(self._outputs.get(slot) or self._inputs.get(slot))

    def slots(self) -> list[str]:
        return list(self._inputs)

    def attribute(self, name: str, default: Any = None) -> Any:
        return self.attributes.get(name, default)


def spec_of(item: dict[str, Any]) -> Spec:
    shape = tuple(item["shape"])
    if any(size < 0 for size in shape):
        raise EstimateNeedsBatch(f"The variable {item['name']} has the shape {list(shape)}.")
    return shape, element_type(item["dtype"])


class Translation:
    """The graph being built, and which tensor each variable is."""

    def __init__(self, name: str) -> None:
        self.build = Builder(name)
        self.values: dict[str, str] = {}
        self.uses: dict[str, int] = {}
        self.unknown: dict[str, int] = {}
        self.looks = Looks(self.build)
        self.operation: Operation | None = None

    # --- reading --------------------------------------------------------------------------------

    def read(self, variable: str) -> str:
        return self.values[variable]

    def first(self, op: Operation, *slots: str) -> str:
        return self.read(op.given(*slots)[0])

    def inputs(self, op: Operation, *slots: str) -> list[str]:
        return [self.values[name] for name in op.given(*slots) if name in self.values]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.build.tensors[name].shape

    def dtype(self, name: str) -> str:
        return self.build.tensors[name].dtype

    def elements(self, name: str) -> int:
        return self.build.tensors[name].elements

    # --- writing --------------------------------------------------------------------------------

    def set(self, op: Operation, slot: str, name: str) -> None:
        """The first variable of an output slot stands for this tensor from now on."""
        for item in op.made(slot)[:1]:
            self.values[item["name"]] = name

    def emit(
        self, kind: str, inputs: Iterable[str], outputs: Sequence[Spec], **attributes: Any
    ) -> tuple[str, ...]:
        op = self.operation
        assert op is not None
        made = op.made()
        variable = made[0]["name"] if made else op.type
        return self.build.op(
            kind, inputs, outputs, name=variable, phase=op.phase, stage=op.stage,
            path=variable.partition(".")[0], source=f"paddle.{op.type}", **attributes,
        )  # fmt: skip

    def look(self, name: str, shape: Sequence[int], kind: str = "view") -> str:
        if self.shape(name) == tuple(shape):
            return name
        if name in self.looks.orders and math.prod(shape) == self.elements(name):
            name = self._in_order_for(name, shape)
        elif kind == "view" and math.prod(shape) != self.elements(name):
            kind = "slice_view" if math.prod(shape) < self.elements(name) else "expand_view"
        return self.looks.view(self.emit, name, shape, kind)

    def _in_order_for(self, name: str, shape: Sequence[int]) -> str:
        """A permuted look as it is, or put in its order where another shape needs it so."""
        assert self.operation is not None
        axes = range(len(self.shape(name)))
        return self.looks.in_order(self.emit, self.operation.phase, name, axes, shape) or name

    def arithmetic(self, function: str, inputs: Sequence[str], spec: Spec) -> str:
        (made,) = self.emit("elementwise", inputs, [spec], function=function)
        self.looks.lies_as(made, inputs)
        return made

    def summed_to(self, name: str, shape: tuple[int, ...]) -> str:
        """The sum over what was repeated, as gradients of broadcast operands are."""
        own = self.shape(name)
        if math.prod(own) == math.prod(shape):
            return self.look(name, shape)
        axes = _repeated(own, shape)
        (made,) = self.emit(
            "reduce", [name], [(shape, self.dtype(name))], function="sum", axes=axes
        )
        return made

    def unsupported(self, op: Operation) -> None:
        """An operation without a row: bounded by its bytes, and listed."""
        source = f"paddle.{op.type}"
        self.unknown[source] = self.unknown.get(source, 0) + 1
        items = [item for item in op.made() if item["dtype"] is not None]
        specs = [spec_of(item) for item in items]
        made = self.emit("unknown", self.inputs(op), specs)
        for item, name in zip(items, made, strict=True):
            self.values[item["name"]] = name

    def add_bias(self, product: str, bias: str) -> bool:
        """Whether `bias` became part of the product or convolution that made `product`."""
        bias = self.looks.root(bias)
        if self.build.tensors[bias].role is not Role.WEIGHT:
            return False
        for position in range(len(self.build.ops) - 1, max(-1, len(self.build.ops) - 8), -1):
            found = self.build.ops[position]
            if product not in found.outputs:
                continue
            if found.kind == "view":
                product = found.inputs[0]
                continue
            if found.kind not in ("matmul", "convolution") or len(found.inputs) != 2:
                return False
            self.build.ops[position] = replace(found, inputs=(*found.inputs, bias))
            return True
        return False


def _repeated(wide: tuple[int, ...], narrow: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions of the wide shape that the narrow one lacks, by the usual broadcasting."""
    padded = (1,) * (len(wide) - len(narrow)) + narrow
    axes = tuple(
        axis
        for axis, (many, one) in enumerate(zip(wide, padded, strict=False))
        if one == 1 and many != 1
    )
    if math.prod(size for axis, size in enumerate(wide) if axis not in axes) == math.prod(narrow):
        return axes
    # `axis` may align the narrow shape with the first dimensions instead.
    return tuple(axis for axis, size in enumerate(wide) if size not in narrow) or (0,)
