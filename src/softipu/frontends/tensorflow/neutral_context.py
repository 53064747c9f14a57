"""One translation of an HLO computation into a neutral graph: values, places, reading, writing.

Constants stay numbers, repetition stays a note beside the small tensor, and casts of halves wait
until somebody needs the wide form: an IPU's compiler leaves nothing else of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from softipu.graph import Builder, Phase, Role
from softipu.graph.orders import Looks

from .neutral_hlo import Instruction, Module, Shape
from .neutral_units import Unit, forward_name, is_gradient

Spec = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Number:
    """Known when compiled: one number everywhere, or (None) numbers that nobody looks at."""

    spec: Spec
    value: float | None = None
    #: What is repeated, where that is smaller.
    small: Spec | None = None


@dataclass(frozen=True)
class Repeated:
    """A small tensor along more dimensions."""

    source: str
    spec: Spec


@dataclass(frozen=True)
class Widened:
    """A tensor of halves that the next op wants in single precision."""

    source: str
    spec: Spec


Value = str | Number | Repeated | Widened | list[Any] | None
#: The pipeline stage of an operation by its name, where it has one of its own.
StageOf = Callable[[str], int | None]


class Translation:
    """The graph being built, and what each instruction has become in it."""

    def __init__(self, name: str, module: Module, stage_of: StageOf = lambda _: None) -> None:
        self.build = Builder(name)
        self.module = module
        self.stage_of = stage_of
        self.values: dict[str, Value] = {}
        self.instructions: dict[str, Instruction] = {}
        self.users: dict[str, list[str]] = defaultdict(list)
        self.roots: set[str] = set()
        self.unknown: dict[str, int] = {}
        #: Masks of dropouts, which the backward pass draws again.
        self.masks: dict[str, Spec] = {}
        self.looks = Looks(self.build)
        self._unit = Unit([])
        self._stages: dict[str, int] = {}
        self._constants: dict[tuple[str, Spec], str] = {}
        self._scalars: dict[tuple[str, tuple[str, ...], Phase], str] = {}

    # --- places ---------------------------------------------------------------------------------

    def begin(self, unit: Unit) -> None:
        """The ops that follow belong to this unit."""
        self._unit = unit

    @property
    def phase(self) -> Phase:
        return self._unit.phase

    def _stage(self, inputs: Sequence[str]) -> int:
        op_name = self._unit.last.op_name
        if self.phase is Phase.UPDATE:
            return 0  # updates are placed when the graph is finished
        named = self.stage_of(forward_name(op_name) if is_gradient(op_name) else op_name)
        if named is not None:
            return named
        known = [self._stages[name] for name in inputs if name in self._stages]
        if not known:
            return 0
        return min(known) if self.phase is Phase.BACKWARD else max(known)

    # --- what instructions say ------------------------------------------------------------------

    def shape(self, name: str) -> tuple[int, ...]:
        return self.build.tensors[name].shape

    def dtype(self, name: str) -> str:
        return self.build.tensors[name].dtype

    def value(self, instruction: str) -> Value:
        return self.values[instruction]

    def number(self, instruction: str) -> float | None:
        """The one number that a value is everywhere, if it is known."""
        value = self.values[instruction]
        return value.value if isinstance(value, Number) else None

    def is_known(self, instruction: str) -> bool:
        return isinstance(self.values[instruction], Number)

    # --- reading --------------------------------------------------------------------------------

    def read(self, instruction: str) -> str:
        """The tensor that an instruction has become, in full."""
        value = self.values[instruction]
        name = self.tensor(value)
        if isinstance(value, Repeated | Widened):
            self.values[instruction] = name
        return name

    def tensor(self, value: Value) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, Number):
            return self.constant(value)
        if isinstance(value, Repeated):
            return self.look(value.source, value.spec[0], "expand_view")
        if isinstance(value, Widened):
            return self.op("cast", [value.source], [value.spec])[0]
        raise TypeError(f"a tuple or token is read as a tensor: {value!r}")

    def narrow(self, instruction: str) -> str:
        """The tensor without the cast to single precision that the CPU's numerics put before it."""
        value = self.values[instruction]
        return value.source if isinstance(value, Widened) else self.read(instruction)

    def small(self, instruction: str) -> str | None:
        """An operand of arithmetic: repetition is implied, and a number is part of the code."""
        value = self.values[instruction]
        if isinstance(value, Number) and (value.value is not None or not value.spec[0]):
            return None
        if isinstance(value, Number):
            return self.constant(Number(value.small or value.spec))
        return value.source if isinstance(value, Repeated) else self.read(instruction)

    def constant(self, value: Number) -> str:
        key = (str(value.value), value.spec)
        if key not in self._constants:
            self._constants[key] = self.build.tensor("constant", *value.spec, Role.CONSTANT)
        return self._constants[key]

    # --- writing --------------------------------------------------------------------------------

    def op(
        self, kind: str, inputs: Iterable[str], outputs: Sequence[Spec], **attributes: Any
    ) -> tuple[str, ...]:
        """An op in the place of the unit that is being translated."""
        given = list(inputs)
        instruction = self._unit.last
        stage = self._stage(given)
        plain = forward_name(instruction.op_name)
        made = self.build.op(
            kind, given, outputs, name=instruction.name.replace("%", ""), phase=self.phase,
            stage=stage, path=plain.rpartition("/")[0].replace("/", "."),
            source=f"tf.{instruction.op_type}" if instruction.op_type
            else f"hlo.{instruction.opcode}",
            **attributes,
        )  # fmt: skip
        if self.phase is Phase.UPDATE:
            return made
        lasting = (Role.WEIGHT, Role.STATE, Role.CONSTANT)
        for name in given:
            if self.build.tensors[name].role in lasting:
                self._stages.setdefault(name, stage)
        if stage or any(name in self._stages for name in given) or not self._only_looks(given):
            self._stages.update(dict.fromkeys(made, stage))
        return made

    def _only_looks(self, names: list[str]) -> bool:
        """Whether these show inputs of the program, which come to whichever stage wants them."""
        roots = [self.looks.root(name) for name in names]
        return all(self.build.tensors[root].role is Role.INPUT for root in roots)

    def look(self, name: str, shape: Sequence[int], kind: str = "view", **attributes: Any) -> str:
        """The tensor in another shape, or itself where it has that shape already."""
        return self.looks.view(self.op, name, shape, kind, **attributes)

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """The tensor in another shape, which may need its data in the order that it shows."""
        if name in self.looks.orders and self.shape(name) != tuple(shape):
            placed = self.in_order(name, range(len(self.shape(name))), shape)
            name = placed or name
        return self.look(name, shape)

    def in_order(self, name: str, axes: Sequence[int], shape: Sequence[int]) -> str | None:
        """The tensor with its axes in this order, in memory; None where a look at it would do."""
        return self.looks.in_order(self.op, self.phase, name, axes, shape)

    def arithmetic(self, function: str, inputs: Sequence[str], spec: Spec) -> str:
        key = (function, tuple(inputs), self.phase)
        if spec[0] == () and key in self._scalars:
            return self._scalars[key]  # each weight's update begins with the same few numbers
        (made,) = self.op("elementwise", inputs, [spec], function=function)
        if spec[0] == ():
            self._scalars[key] = made
        self.looks.lies_as(made, inputs)
        return made

    def reduced(self, function: str, name: str, spec: Spec, axes: Sequence[int]) -> str:
        """A reduction; of images over their whole field it does not matter where TensorFlow has
        the channels: on tiles they lie in one way."""
        shape = self.shape(name)
        field = range(1, len(shape) - 1)
        if len(shape) > 3 and {*field} <= {*axes} and len(shape) - 1 not in axes:
            order = (0, len(shape) - 1, *field)
            name = self.look(name, (shape[0], shape[-1], *shape[1:-1]), order=order)
            axes = tuple(axis + 1 if axis else 0 for axis in axes)
        return self.op("reduce", [name], [spec], function=function, axes=tuple(axes))[0]

    def unsupported(self, instruction: Instruction) -> Value:
        """An instruction without a cost: bounded by its bytes, and listed."""
        source = f"hlo.{instruction.opcode}"
        if instruction.opcode == "custom-call":
            source += f" {instruction.attributes.get('custom_call_target', '')}"
        self.unknown[source] = self.unknown.get(source, 0) + 1
        inputs = [self.read(name) for name in instruction.operands if self._readable(name)]
        specs = [spec_of(shape) for shape in arrays(instruction.shape)]
        made = iter(self.op("unknown", inputs, specs))
        return nested(instruction.shape, lambda _: next(made))

    def _readable(self, instruction: str) -> bool:
        return isinstance(self.values[instruction], str | Number | Repeated | Widened)

    # --- results that only become halves --------------------------------------------------------

    def result_spec(self, instruction: Instruction) -> Spec:
        """The spec of a result; of halves, where all that happens to it is a cast to them."""
        shape, dtype = spec_of(instruction.shape)
        if dtype == "float32" and self._only_becomes_half(instruction.name):
            return shape, "float16"
        return shape, dtype

    def _only_becomes_half(self, name: str) -> bool:
        users = [self.instructions[user] for user in self.users[name]]
        if not users or name in self.roots:
            return False
        return all(
            self._only_becomes_half(user.name)
            if user.opcode in ("reshape", "transpose", "bitcast")
            else user.opcode == "convert" and user.shape.dtype == "float16"
            for user in users
        )

    def add_bias(self, name: str, bias: str) -> bool:
        """Whether `bias` could become part of the product or convolution that made `name`."""
        for position in range(len(self.build.ops) - 1, max(-1, len(self.build.ops) - 12), -1):
            found = self.build.ops[position]
            if name in found.outputs:
                if found.kind == "view":
                    name = found.inputs[0]
                    continue
                if found.kind not in ("matmul", "convolution") or len(found.inputs) != 2:
                    return False
                if bias not in self.build.tensors or self._made_after(bias, position):
                    return False
                self.build.ops[position] = replace(found, inputs=(*found.inputs, bias))
                return True
        return False

    def _made_after(self, name: str, position: int) -> bool:
        return any(name in op.outputs for op in self.build.ops[position:])


def spec_of(shape: Shape) -> Spec:
    return shape.sizes, shape.dtype


def leaves(shape: Shape) -> list[Shape]:
    return list(shape.parts) if shape.parts is not None else [shape]


def arrays(shape: Shape) -> list[Shape]:
    """The arrays of a tuple, those of tuples inside it too; tokens are none."""
    if shape.parts is not None:
        return [array for part in shape.parts for array in arrays(part)]
    return [shape] if shape.dtype else []


def nested(shape: Shape, made: Callable[[Shape], Value]) -> Value:
    """A value of a shape, from what is made for each of its arrays, in their order."""
    if shape.parts is not None:
        return [nested(part, made) for part in shape.parts]
    return made(shape) if shape.dtype else None
