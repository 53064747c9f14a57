"""What each opcode of HLO becomes in the neutral graph: one function or one row each."""

from __future__ import annotations

from collections.abc import Callable

from .neutral_context import Number, Repeated, Translation, Value, Widened, leaves, spec_of
from .neutral_hlo import Instruction, Shape
from .neutral_names import ELEMENTWISE, POWERS, REDUCTIONS
from .neutral_products import convolution, dot

Handler = Callable[[Translation, Instruction], Value]


def translate(t: Translation, i: Instruction) -> Value:
    """The value of an instruction, with the ops that make it."""
    handler = HANDLERS.get(i.opcode)
    if handler is not None:
        return handler(t, i)
    if i.opcode in ELEMENTWISE:
        return arithmetic(t, i)
    return t.unsupported(i)


# --- constants and looks ------------------------------------------------------------------------


def _constant(t: Translation, i: Instruction) -> Value:
    """A number where one stands for all elements; else numbers that are known when compiled."""
    if i.shape.parts is not None:
        return [Number(spec_of(part)) for part in i.shape.parts]
    text = i.literal.strip()
    try:
        return Number(spec_of(i.shape), float({"true": "1", "false": "0"}.get(text, text)))
    except ValueError:
        return Number(spec_of(i.shape))


def _known(t: Translation, i: Instruction) -> Value:
    return Number(spec_of(i.shape))


def _same(t: Translation, i: Instruction) -> Value:
    return t.value(i.operands[0])


def _reshape(t: Translation, i: Instruction) -> Value:
    value, spec = t.value(i.operands[0]), spec_of(i.shape)
    if isinstance(value, Number):
        return Number(spec, value.value)
    if isinstance(value, Repeated):
        return Repeated(value.source, spec)
    if isinstance(value, Widened):
        return Widened(t.reshaped(value.source, spec[0]), spec)
    return t.reshaped(t.read(i.operands[0]), spec[0])


def _broadcast(t: Translation, i: Instruction) -> Value:
    value, spec = t.value(i.operands[0]), spec_of(i.shape)
    if isinstance(value, Number) and (value.value is not None or not value.spec[0]):
        return Number(spec, value.value)
    if isinstance(value, Repeated):
        return Repeated(value.source, spec)
    if isinstance(value, Number):
        return Number(spec, small=value.spec)
    name = t.read(i.operands[0])
    if t.build.tensors[name].elements == i.shape.elements:
        return t.look(name, spec[0])
    return Repeated(name, spec)


def _transpose(t: Translation, i: Instruction) -> Value:
    """Another order of dimensions: free here, paid for where the data have to be in that order."""
    value, spec = t.value(i.operands[0]), spec_of(i.shape)
    if isinstance(value, Number):
        return Number(spec, value.value)
    if isinstance(value, Repeated):
        return Repeated(value.source, spec)
    name = t.read(i.operands[0])
    return t.looks.permuted(t.op, name, i.numbers("dimensions"), spec[0])


def _slice(t: Translation, i: Instruction) -> Value:
    if t.is_known(i.operands[0]):
        return Number(spec_of(i.shape), t.number(i.operands[0]))
    name = t.read(i.operands[0])
    if t.build.tensors[name].elements == i.shape.elements:
        return t.look(name, i.shape.sizes)
    return t.look(name, i.shape.sizes, "slice_view")


def _convert(t: Translation, i: Instruction) -> Value:
    value, (shape, dtype) = t.value(i.operands[0]), spec_of(i.shape)
    if isinstance(value, Number):
        return Number((shape, dtype), value.value)
    if isinstance(value, Widened) and t.dtype(value.source) == dtype:
        return value.source
    if isinstance(value, Repeated) and t.dtype(value.source) != dtype:
        source = t.op("cast", [value.source], [(t.shape(value.source), dtype)])[0]
        return Repeated(source, (shape, dtype))
    name = t.read(i.operands[0])
    if t.dtype(name) == dtype:
        return t.value(i.operands[0])
    if (t.dtype(name), dtype) == ("float16", "float32"):
        return Widened(name, (shape, dtype))
    return t.op("cast", [name], [(shape, dtype)])[0]


# --- arithmetic ---------------------------------------------------------------------------------


def arithmetic(t: Translation, i: Instruction) -> Value:
    spec = spec_of(i.shape)
    if all(t.is_known(name) for name in i.operands):
        return Number(spec, _folded(i.opcode, [t.number(name) for name in i.operands]))
    neutral = _without_effect(t, i)
    if neutral is not None:
        return t.value(neutral)
    inputs = [name for name in map(t.small, i.operands) if name is not None]
    if not inputs:
        # Numbers that are known, but differ: made of constants alone.
        return Number(spec)
    if i.opcode == "add" and _is_bias(t, i) and len(inputs) == 2 and t.add_bias(*inputs):
        return t.value(i.operands[0])
    return t.arithmetic(_function(t, i, inputs), inputs, spec)


def _is_bias(t: Translation, i: Instruction) -> bool:
    """A weight for each channel added to what a product made, and nothing else reads that."""
    left, right = (t.value(name) for name in i.operands)
    if not isinstance(right, Repeated) or not isinstance(left, str):
        return False
    lone = len(t.users[i.operands[0]]) == 1
    wide = t.build.tensors[right.source].elements > 1
    return lone and wide and right.spec[0][-1:] == t.shape(right.source)[-1:]


def _function(t: Translation, i: Instruction, inputs: list[str]) -> str:
    function = ELEMENTWISE[i.opcode]
    if i.opcode == "multiply" and i.operands[0] == i.operands[1]:
        inputs[:] = inputs[:1]
        return "square"
    if i.opcode == "power":
        exponent = t.number(i.operands[1])
        return "pow" if exponent is None else POWERS.get(exponent, "pow_scalar")
    if i.opcode in ("and", "or", "xor", "not") and i.shape.dtype != "bool":
        return function.replace("logical", "bitwise")
    if i.opcode == "maximum" and 0.0 in (t.number(name) for name in i.operands):
        return "relu"
    return function


def _without_effect(t: Translation, i: Instruction) -> str | None:
    """x + 0, x · 1, x / 1: the operand that is the result."""
    if len(i.operands) != 2 or i.opcode not in ("add", "subtract", "multiply", "divide"):
        return None
    nothing = 0.0 if i.opcode in ("add", "subtract") else 1.0
    left, right = i.operands
    if t.number(right) == nothing and not t.is_known(left):
        return left
    if i.opcode in ("add", "multiply") and t.number(left) == nothing and not t.is_known(right):
        return right
    return None


def _folded(opcode: str, numbers: list[float | None]) -> float | None:
    if len(numbers) != 2 or numbers[0] is None or numbers[1] is None:
        return None
    left, right = numbers[0], numbers[1]
    if opcode == "divide":
        return left / right if right else None
    known = {
        "add": left + right, "subtract": left - right, "multiply": left * right,
        "maximum": max(left, right), "minimum": min(left, right),
    }  # fmt: skip
    return known.get(opcode)


# --- reductions and windows ---------------------------------------------------------------------


def applied(t: Translation, i: Instruction) -> str:
    """The opcode of what a reduction applies."""
    body = t.module.computations[i.called("to_apply")]
    return body.by_name()[body.root].opcode


def reduce(t: Translation, i: Instruction, function: str = "") -> Value:
    axes = i.numbers("dimensions")
    first = i.operands[0]
    if i.shape.parts is not None:
        # Values beside their positions: what argmax is made of.
        (made,) = t.op(
            "reduce", [t.read(first)], [spec_of(i.shape.parts[0])], function="argmax", axes=axes
        )
        return [made for _ in i.shape.parts]
    if t.is_known(first):
        return Number(spec_of(i.shape))
    name = t.narrow(first)
    if not axes or t.build.tensors[name].elements == i.shape.elements:
        return t.look(name, i.shape.sizes)
    function = function or REDUCTIONS.get(applied(t, i), "")
    if not function:
        return t.unsupported(i)
    return t.reduced(function, name, t.result_spec(i), axes)


def window(i: Instruction, name: str = "window") -> dict[str, tuple[int, ...]]:
    """Sizes and strides of the dimensions that a window moves along."""
    fields = dict(
        part.split("=") for part in i.attributes.get(name, "{}").strip("{}").split() if "=" in part
    )
    sizes = [int(size) for size in fields.get("size", "1").split("x")]
    strides = [int(size) for size in fields["stride"].split("x")] if "stride" in fields else None
    strides = strides or [1] * len(sizes)
    moving = [pair for pair in zip(sizes, strides, strict=True) if pair != (1, 1)] or [(1, 1)]
    return {"kernel": tuple(p[0] for p in moving), "stride": tuple(p[1] for p in moving)}


def pool(t: Translation, i: Instruction, function: str = "") -> Value:
    function = function or ("max" if applied(t, i) in ("maximum", "minimum") else "mean")
    name = t.narrow(i.operands[0])
    return t.op("pool", [name], [t.result_spec(i)], function=function, **window(i))[0]


def _pool_gradient(t: Translation, i: Instruction) -> Value:
    """Compares what was with what came out: operand, then the gradient."""
    inputs = [t.narrow(i.operands[1]), t.narrow(i.operands[0])]
    return t.op("pool_gradient", inputs, [t.result_spec(i)], function="max", **window(i))[0]


# --- data that move -----------------------------------------------------------------------------


def _copied(t: Translation, i: Instruction) -> Value:
    """Padding, reversal, a part written into a whole: elements that end up elsewhere."""
    if all(t.is_known(name) for name in i.operands):
        return Number(spec_of(i.shape))
    names = [n for n in i.operands if not t.is_known(n) and not _is_scalar(t, n)]
    inputs = [t.read(name) for name in names]
    return t.op("copy", inputs, [spec_of(i.shape)])[0]


def _reversed(t: Translation, i: Instruction) -> Value:
    """Kernels are read backwards for the gradient of a convolution's input, at its own cost."""
    return _same(t, i) if "BackpropInput" in i.op_type else _copied(t, i)


def _is_scalar(t: Translation, name: str) -> bool:
    return t.instructions[name].shape.sizes == () if name in t.instructions else False


def _concatenate(t: Translation, i: Instruction) -> Value:
    spec = spec_of(i.shape)
    if all(t.is_known(name) for name in i.operands):
        return Number(spec)
    inputs = [t.read(name) for name in i.operands]
    (axis,) = i.numbers("dimensions") or (0,)
    if len(inputs) == 1:
        return inputs[0]
    return t.op("concat", inputs, [spec], axis=axis)[0]


def gather(t: Translation, i: Instruction) -> Value:
    if all(t.is_known(name) for name in i.operands):
        return Number(spec_of(i.shape))
    inputs = [t.read(name) for name in i.operands[:2]]
    axis = (i.numbers("start_index_map") or (0,))[0]
    return t.op("gather", inputs, [spec_of(i.shape)], axis=axis)[0]


def _scatter(t: Translation, i: Instruction) -> Value:
    """Into zeros, as gradients of lookups are: the table itself is nothing that moves."""
    table, indices, *updates = i.operands
    given = [*updates, indices] if t.is_known(table) else [table, indices, *updates]
    axis = (i.numbers("scatter_dims_to_operand_dims") or (0,))[0]
    function = "add" if applied(t, i) == "add" else "set"
    inputs = [t.read(name) for name in given]
    shapes = leaves(i.shape)
    made = t.op("scatter", inputs, [spec_of(shapes[0])], axis=axis, function=function)[0]
    return [made for _ in shapes] if i.shape.parts is not None else made


def _sort(t: Translation, i: Instruction) -> Value:
    name = t.read(i.operands[0])
    (axis,) = i.numbers("dimensions") or (0,)
    shapes = leaves(i.shape)
    made = t.op("sort", [name], [spec_of(shape) for shape in shapes[:2]], axis=axis)
    values: list[Value] = [made[min(n, len(made) - 1)] for n in range(len(shapes))]
    return values if i.shape.parts is not None else values[0]


def _random(t: Translation, i: Instruction) -> Value:
    """Bits or numbers; the state of the generator is the hardware's own."""
    function = "normal" if "normal" in i.attributes.get("distribution", "") else "uniform"
    shapes = leaves(i.shape)
    (made,) = t.op("random", [], [spec_of(shapes[-1])], function=function)
    if i.shape.parts is None:
        return made
    return [*(Number(spec_of(shape)) for shape in shapes[:-1]), made]


# --- norms, tuples, collectives, the host -------------------------------------------------------


def _norm(t: Translation, i: Instruction) -> Value:
    shapes = leaves(i.shape)
    feature = int(i.attributes.get("feature_index", "0"))
    training = i.opcode == "batch-norm-training"
    inputs = [t.narrow(i.operands[0])]
    inputs += [t.read(name) for name in i.operands[1:] if not t.is_known(name)]
    spec = (shapes[0].sizes, t.dtype(inputs[0]))
    specs = [spec, *(spec_of(shape) for shape in shapes[1:])] if training else [spec]
    made = t.op(
        "normalise", inputs, specs, function="batch", groups=shapes[0].sizes[feature],
        training=training,
    )  # fmt: skip
    return _as_wide(t, list(made), shapes) if training else made[0]


def _norm_gradient(t: Translation, i: Instruction) -> Value:
    shapes = leaves(i.shape)
    feature = int(i.attributes.get("feature_index", "0"))
    x, scale, mean, variance, gradient = i.operands
    inputs = [t.narrow(gradient), t.narrow(x)]
    inputs += [t.read(name) for name in (scale, mean, variance) if not t.is_known(name)]
    specs = [(shapes[0].sizes, t.dtype(inputs[0])), *(spec_of(shape) for shape in shapes[1:])]
    made = t.op(
        "normalise_gradient", inputs, specs, function="batch", groups=shapes[0].sizes[feature]
    )
    return _as_wide(t, list(made), shapes)


def _as_wide(t: Translation, made: list[str], shapes: list[Shape]) -> Value:
    """Halves where XLA has single precision: a cast that is made only if somebody needs it."""
    return [
        Widened(name, spec_of(shape))
        if (t.dtype(name), shape.dtype) == ("float16", "float32")
        else name
        for name, shape in zip(made, shapes, strict=True)
    ]


def _tuple(t: Translation, i: Instruction) -> Value:
    return [t.value(name) for name in i.operands]


def _element(t: Translation, i: Instruction) -> Value:
    value = t.value(i.operands[0])
    assert isinstance(value, list), f"{i.name} takes a part of {value!r}"
    part: Value = value[int(i.attributes["index"])]
    return part


def _collective(kind: str) -> Handler:
    def handler(t: Translation, i: Instruction) -> Value:
        inputs = [t.read(name) for name in i.operands]
        specs = [spec_of(shape) for shape in leaves(i.shape)]
        made = t.op(kind, inputs, specs)
        return list(made) if i.shape.parts is not None else made[0]

    return handler


def _host(t: Translation, i: Instruction) -> Value:
    inputs = [t.read(n) for n in i.operands if isinstance(t.value(n), str)]
    shapes = [shape for shape in leaves(i.shape) if shape.parts is not None or shape.dtype]
    flat = [leaf for shape in shapes for leaf in leaves(shape) if leaf.dtype]
    made = iter(t.op("host", inputs, [spec_of(shape) for shape in flat]))
    values: list[Value] = []
    for shape in leaves(i.shape):
        if shape.parts is not None:
            values.append([next(made) if leaf.dtype else None for leaf in shape.parts])
        else:
            values.append(next(made) if shape.dtype else None)
    return values if i.shape.parts is not None else values[0]


def _nothing(t: Translation, i: Instruction) -> Value:
    return None


def _dynamic_slice(t: Translation, i: Instruction) -> Value:
    """A part whose place is known only while running: a copy of that size."""
    if t.is_known(i.operands[0]):
        return Number(spec_of(i.shape))
    return t.op("copy", [t.read(i.operands[0])], [spec_of(i.shape)])[0]


HANDLERS: dict[str, Handler] = {
    "constant": _constant,
    "iota": _known,
    "partition-id": _known,
    "replica-id": _known,
    "get-dimension-size": _known,
    "copy": _same,
    "set-dimension-size": _same,  # it holds as much as its bound
    "domain": _same,
    "optimization-barrier": _same,
    "reduce-precision": _same,
    "bitcast": _reshape,
    "reshape": _reshape,
    "broadcast": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "convert": _convert,
    "bitcast-convert": _convert,
    "reduce": reduce,
    "reduce-window": pool,
    "select-and-scatter": _pool_gradient,
    "pad": _copied,
    "reverse": _reversed,
    "dynamic-update-slice": _copied,
    "dynamic-slice": _dynamic_slice,
    "concatenate": _concatenate,
    "gather": gather,
    "scatter": _scatter,
    "sort": _sort,
    "rng": _random,
    "rng-bit-generator": _random,
    "batch-norm-training": _norm,
    "batch-norm-inference": _norm,
    "batch-norm-grad": _norm_gradient,
    "tuple": _tuple,
    "get-tuple-element": _element,
    "all-reduce": _collective("all_reduce"),
    "all-gather": _collective("all_gather"),
    "reduce-scatter": _collective("reduce_scatter"),
    "infeed": _host,
    "outfeed": _host,
    "after-all": _nothing,
    "dot": dot,
    "convolution": convolution,
}
