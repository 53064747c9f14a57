"""One translation of captured ATen graphs into a neutral graph: names, places, reading, writing.

What each operator becomes is in the other `_neutral_*` files; the table of them in
`_neutral_table`. Nothing here knows a cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.fx import Node

from softipu.errors import EstimateShapesDynamic
from softipu.graph import Builder, Phase, Role
from softipu.graph.orders import Looks

from ._capture.analyse import Memory, memory_of

#: What an operator becomes: given the translation and the node, the names of its results.
Handler = Callable[["Translation", Node], Sequence["str | None"]]
Spec = tuple[tuple[int, ...], str]

_TYPES: dict[torch.dtype, str] = {
    torch.float32: "float32", torch.float64: "float32", torch.float16: "float16",
    torch.bfloat16: "float16", torch.int64: "int32", torch.int32: "int32", torch.int16: "int16",
    torch.int8: "int8", torch.uint8: "uint8", torch.bool: "bool", torch.uint16: "uint16",
    torch.uint32: "uint32", torch.uint64: "uint32",
}  # fmt: skip


def element_type(dtype: torch.dtype) -> str:
    """The type that an IPU holds it in: 64 bits become 32; formats of 8 bits are one."""
    return "float8" if str(dtype).startswith("torch.float8") else _TYPES.get(dtype, "float32")


def spec_of(value: torch.Tensor, name: str = "a tensor") -> Spec:
    """Shape and element type; a complex number is two floats."""
    shape = tuple(value.shape)
    if not all(type(size) is int for size in shape):
        raise EstimateShapesDynamic(f"{name} has the shape {shape}, which is not known in numbers.")
    if value.is_complex():
        return (*shape, 2), "float32"
    return shape, element_type(value.dtype)


@dataclass(frozen=True)
class Empty:
    """Memory that nobody has written yet: it costs nothing until somebody reads it."""

    spec: Spec


Value = str | Empty | None


class Translation:
    """The graph being built, and what each node of the captured one has become in it."""

    def __init__(self, name: str, stage_of: Callable[[Node], int]) -> None:
        self.build = Builder(name)
        self.values: dict[Node, Value | list[Value]] = {}
        #: What placeholders stood for before anything was written.
        self.bound: dict[Node, Value | list[Value]] = {}
        self.unknown: dict[str, int] = {}
        #: Results of a fused operator that its backward pass uses again, by the node.
        self.kept: dict[Node, str] = {}
        #: Hints for products, by the tensor that was multiplied: they hold for gradients too.
        self.hints: dict[str, dict[str, Any]] = {}
        self.stage_of = stage_of
        #: Constants of the graph that is being read, by their name in it.
        self.constants: Mapping[str, Any] = {}
        #: Phase and stage that override those of nodes, inside an update.
        self.place: tuple[Phase, int] | None = None
        #: The last tensor that was written to a piece of memory.
        self._written: dict[Memory, str] = {}
        #: Nodes whose results the user asked to keep for the backward pass.
        self.noted: list[Node] = []
        #: Random numbers of the forward pass, which the backward pass draws again.
        self._drawn: dict[str, tuple[Spec, str]] = {}
        self._redrawn: dict[str, str] = {}
        self.looks = Looks(self.build)

    # --- what nodes say -------------------------------------------------------------------------

    def argument(self, node: Node, name: str, default: Any = None) -> Any:
        """What an operator's parameter has in this call, or its own default."""
        if name in node.kwargs:
            return node.kwargs[name]
        for index, parameter in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
            if parameter.name == name:
                given = node.args[index] if index < len(node.args) else parameter.default_value
                return default if given is None else given
        return default

    def specs(self, node: Node) -> list[Spec | None]:
        """Shape and type of each result."""
        value = node.meta.get("val")
        several = value if isinstance(value, list | tuple) else [value]
        return [
            spec_of(item, node.name) if isinstance(item, torch.Tensor) else None for item in several
        ]

    def spec(self, node: Node, index: int = 0) -> Spec:
        found = self.specs(node)[index]
        assert found is not None, f"{node.name} has no result {index}"
        return found

    def nodes_in(self, node: Node) -> list[Node]:
        """The nodes among a node's arguments, lists included, in order."""
        return list(_flat((*node.args, *node.kwargs.values())))

    def shape(self, name: str) -> tuple[int, ...]:
        return self.build.tensors[name].shape

    def dtype(self, name: str) -> str:
        return self.build.tensors[name].dtype

    def phase(self, node: Node) -> Phase:
        if self.place is not None:
            return self.place[0]
        return Phase.BACKWARD if _notes(node).get("backward") else Phase.FORWARD

    # --- reading and writing --------------------------------------------------------------------

    def read(self, node: Node, reader: Node | None = None) -> str:
        """The tensor that a node has become; memory nobody wrote is filled with zeros here."""
        value = self._now(node)
        if isinstance(value, Empty):
            (value,) = self.emit(reader or node, "fill", [], [value.spec])
            self.values[node] = value
        assert isinstance(value, str), f"{node.name} stands for {value!r}"
        if reader is not None and self.phase(reader) is Phase.BACKWARD and value in self._drawn:
            return self._drawn_again(value, reader)
        return value

    def _now(self, node: Node) -> Value | list[Value]:
        """What a node shows after all that was written to its memory so far."""
        value = self.values[node]
        written = self._written.get(memory_of(node)) if self._written else None
        if written is None or written == value or not isinstance(value, str):
            return value
        if self.build.tensors[written].elements != self.build.tensors[value].elements:
            return value
        return self.viewed(node, written, self.shape(value))

    def inputs(self, node: Node) -> list[str]:
        """The tensors that a node reads."""
        return [self.read(item, node) for item in self.nodes_in(node) if self._stands(item)]

    def _stands(self, node: Node) -> bool:
        return isinstance(self.values.get(node), str | Empty)

    def write(self, target: Node, name: str) -> None:
        """`name` is what `target` holds from now on, and the memory that it is a look at."""
        before = self.values.get(target)
        self.values[target] = name
        if isinstance(before, str):
            whole = self.values.get(memory_of(target)[0])
            known = whole if isinstance(whole, str) else before
            if self.build.tensors[known].elements != self.build.tensors[name].elements:
                return
        self._written[memory_of(target)] = name

    def drawn(self, name: str, function: str) -> None:
        """A dropout mask, which the backward pass draws again from the same seed, as in PopART."""
        tensor = self.build.tensors[name]
        self._drawn[name] = (tensor.shape, tensor.dtype), function

    def is_drawn(self, name: str) -> bool:
        return name in self._drawn

    def _drawn_again(self, name: str, reader: Node) -> str:
        if name not in self._redrawn:
            spec, function = self._drawn[name]
            (self._redrawn[name],) = self.emit(reader, "random", [], [spec], function=function)
        return self._redrawn[name]

    # --- making ops -----------------------------------------------------------------------------

    def emit(
        self,
        node: Node,
        kind: str,
        inputs: Iterable[str],
        outputs: Sequence[Spec] | None = None,
        **attributes: Any,
    ) -> tuple[str, ...]:
        """An op in the place of the node; its outputs are those of the node unless given."""
        specs = [spec for spec in self.specs(node) if spec] if outputs is None else outputs
        inputs = list(inputs)
        # The stage of an update is found when the graph is whole: that of its weight.
        phase, stage = self.place or (self.phase(node), self.stage_of(node))
        return self.build.op(
            kind, inputs, specs, name=node.name, phase=phase, stage=stage, path=path_of(node),
            source=source_of(node), **attributes,
        )  # fmt: skip

    def viewed(
        self, node: Node, name: str, shape: Sequence[int], kind: str = "view", **attributes: Any
    ) -> str:
        """The tensor in another shape, or itself where it has that shape already."""
        return self.looks.view(partial(self.emit, node), name, shape, kind, **attributes)

    def elementwise(self, node: Node, function: str, inputs: Iterable[str], spec: Spec) -> str:
        """Arithmetic of matching elements; its result lies in memory as the first operand does."""
        inputs = list(inputs)
        (made,) = self.emit(node, "elementwise", inputs, [spec], function=function)
        self.looks.lies_as(made, inputs)
        return made

    def unsupported(self, node: Node) -> Sequence[str | None]:
        """An operator without a row: bounded by its bytes, and listed."""
        source = source_of(node)
        self.unknown[source] = self.unknown.get(source, 0) + 1
        specs = self.specs(node)
        made = iter(self.emit(node, "unknown", self.inputs(node)))
        return [next(made) if spec else None for spec in specs]

    @property
    def checkpoints(self) -> set[str]:
        """The tensors that the user asked to keep, as they were when all was written to them."""
        found = [self._written.get(memory_of(node), self.values[node]) for node in self.noted]
        return {name for name in found if isinstance(name, str)}

    def constant(self, name: str, value: torch.Tensor) -> str:
        return self.build.tensor(name, *spec_of(value, name), Role.CONSTANT)


def path_of(node: Node) -> str:
    """Where the node comes from in the user's model, such as `encoder.layer.3`."""
    path = _notes(node).get("path")
    return path.replace("/", ".") if isinstance(path, str) else ""


def source_of(node: Node) -> str:
    """What the framework calls the operator: `aten.convolution`."""
    space, name = getattr(node.target, "namespace", ""), operator_name(node)
    return f"{space}.{name}" if space else name


def operator_name(node: Node) -> str:
    """The operator's name without its overload."""
    name = getattr(node.target, "_opname", None) or getattr(node.target, "__name__", node.name)
    return str(name)


def _notes(node: Node) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = node.meta.get("softipu") or {}
    return notes


def _flat(values: Iterable[Any]) -> Iterable[Node]:
    for value in values:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, list | tuple):
            yield from _flat(value)
