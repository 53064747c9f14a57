"""What several instructions are together: norms, gelu, softmax, losses, dropout, means.

Each takes a unit and sets the values of those of its instructions that others read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from softipu.graph import Phase

from .neutral_context import Number, Repeated, Translation, Value, Widened, spec_of
from .neutral_hlo import Instruction
from .neutral_names import FUNCTIONS, RANDOM
from .neutral_ops import translate, window
from .neutral_units import Unit, outside

#: Gives True where the unit was understood; else its instructions are translated one by one.
Layer = Callable[[Translation, Unit], bool]


def translate_unit(t: Translation, unit: Unit) -> None:
    t.begin(unit)
    layer = LAYERS.get(unit.kind, _function if unit.kind in FUNCTIONS else None)
    if layer is None or not layer(t, unit):
        for instruction in unit.instructions:
            t.begin(Unit([instruction], phase=unit.phase))
            t.values[instruction.name] = translate(t, instruction)


def _results(t: Translation, unit: Unit) -> list[Instruction]:
    return outside(unit, t.users, t.roots)


def _given(t: Translation, unit: Unit) -> list[str]:
    """Instructions outside that the unit reads, in order, without what is known when compiled."""
    inside = {instruction.name for instruction in unit.instructions}
    names = dict.fromkeys(
        operand
        for instruction in unit.instructions
        for operand in instruction.operands
        if operand not in inside and not t.is_known(operand)
    )
    return [name for name in names if isinstance(t.value(name), str | Repeated | Widened)]


def _sources(t: Translation, given: Sequence[str]) -> list[str]:
    """Their tensors, each once; repetition is implied."""
    names = []
    for item in given:
        value = t.value(item)
        source = value.source if isinstance(value, Repeated | Widened) else t.read(item)
        names.append(source)
    return list(dict.fromkeys(names))


def _elements(t: Translation, name: str) -> int:
    return t.build.tensors[name].elements


def _set(t: Translation, instruction: Instruction, name: str) -> None:
    """The value of an instruction that XLA has in another precision than the IPU."""
    shape = instruction.shape
    narrow = t.dtype(name) == "float16" and shape.dtype == "float32"
    t.values[instruction.name] = Widened(name, spec_of(shape)) if narrow else name


# --- arithmetic under one name ------------------------------------------------------------------


def _function(t: Translation, unit: Unit) -> bool:
    """An operator like Sigmoid or Erfc, and the gradient of one."""
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if len(results) != 1 or not inputs or results[0].shape.parts is not None:
        return False
    spec = spec_of(results[0].shape)
    t.values[results[0].name] = t.arithmetic(FUNCTIONS[unit.kind], inputs, spec)
    return True


def _gelu(t: Translation, unit: Unit) -> bool:
    """One vertex, whichever formula: what the backward pass wants of it again is its input."""
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if len(inputs) != 1 or not results:
        return False
    made = t.arithmetic("gelu", inputs, (t.shape(inputs[0]), t.dtype(inputs[0])))
    for instruction in results:
        _set(t, instruction, inputs[0])
    _set(t, results[-1], made)
    return True


def _gelu_gradient(t: Translation, unit: Unit) -> bool:
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if not results or not inputs:
        return False
    spec = spec_of(results[-1].shape)
    made = t.arithmetic("gelu_gradient", inputs[:2], (spec[0], t.dtype(inputs[0])))
    for instruction in results[:-1]:
        # Parts that are added up after: the whole is in the last one.
        t.values[instruction.name] = Number(spec_of(instruction.shape), 0.0)
    _set(t, results[-1], made)
    return True


# --- normalisation ------------------------------------------------------------------------------


def _norm(t: Translation, unit: Unit) -> bool:
    """LayerNormalization as Keras writes it: means and arithmetic, or a batch norm of rows."""
    results, given = _results(t, unit), _sources(t, _given(t, unit))
    if not results or not given:
        return False
    x = max(given, key=lambda name: _elements(t, name))
    size = _elements(t, x)
    whole = [i for i in results if i.shape.elements == size]
    statistics = [i for i in results if i.shape.elements != size]
    function, groups = _statistics(t, unit, size)
    if not whole or not groups:
        return False
    dtype = t.dtype(x)
    specs = [(whole[-1].shape.sizes, dtype)]
    specs += [((groups,), "float32" if i.shape.dtype == "float32" else dtype)
              for i in statistics[:2]]  # fmt: skip
    weights = [name for name in given if name != x and _elements(t, name) <= size][:4]
    made = t.op("normalise", [x, *weights], specs, function=function, groups=groups, training=True)
    for instruction in whole:
        _set(t, instruction, x)
    _set(t, whole[-1], made[0])
    for position, instruction in enumerate(statistics):
        source = made[1 + min(position, 1)] if len(made) > 2 else made[-1]
        t.values[instruction.name] = _as_shaped(t, source, instruction)
    return True


def _as_shaped(t: Translation, name: str, instruction: Instruction) -> Value:
    if _elements(t, name) == instruction.shape.elements:
        return t.look(name, instruction.shape.sizes)
    return Repeated(name, spec_of(instruction.shape))


def _statistics(t: Translation, unit: Unit, size: int) -> tuple[str, int]:
    """Over what the mean is taken: rows (a layer norm) or all but the channels."""
    for i in unit.instructions:
        if i.opcode == "batch-norm-training" and i.shape.parts:
            return "layer", i.shape.parts[1].elements
        if i.opcode == "reduce" and i.shape.elements and size % i.shape.elements == 0:
            rank = len(t.instructions[i.operands[0]].shape.sizes)
            last = rank - 1 in i.numbers("dimensions")
            return ("layer" if last else "batch"), i.shape.elements
    return "", 0


def _norm_gradient(t: Translation, unit: Unit) -> bool:
    results, given = _results(t, unit), _sources(t, _given(t, unit))
    if not results or len(given) < 2:
        return False
    size = max(_elements(t, name) for name in given)
    whole = [i for i in results if i.shape.elements == size]
    weights = [i for i in results if i.shape.elements != size]
    wide = [name for name in given if _elements(t, name) == size]
    small = [name for name in given if _elements(t, name) != size]
    if not whole or not wide:
        return False
    width = max((i.shape.elements for i in weights), default=t.shape(wide[0])[-1])
    first = whole[-1].shape
    specs = [(first.sizes, t.dtype(wide[0])), *(spec_of(i.shape) for i in weights[:2])]
    made = t.op(
        "normalise_gradient", [*wide[:3], *small][:8], specs, function="layer",
        groups=max(1, size // max(1, width)),
    )  # fmt: skip
    for instruction in whole[:-1]:
        t.values[instruction.name] = Number(spec_of(instruction.shape), 0.0)
    _set(t, whole[-1], made[0])
    for position, instruction in enumerate(weights):
        source = made[1 + min(position, len(made) - 2)]
        t.values[instruction.name] = t.look(source, instruction.shape.sizes)
    return True


# --- softmax and losses -------------------------------------------------------------------------


def _softmax(t: Translation, unit: Unit) -> bool:
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if len(results) != 1 or len(inputs) != 1:
        return False
    function = "log_softmax" if unit.kind == "LogSoftmax" else "softmax"
    x = inputs[0]
    axis = _reduced_axis(unit, len(t.shape(x)))
    (made,) = t.op("softmax", [x], [(t.shape(x), t.dtype(x))], axis=axis, function=function)
    _set(t, results[0], t.look(made, results[0].shape.sizes))
    return True


def _reduced_axis(unit: Unit, rank: int) -> int:
    for instruction in unit.instructions:
        if instruction.opcode == "reduce":
            return min(instruction.numbers("dimensions")[-1], max(rank - 1, 0))
    return max(rank - 1, 0)


def _softmax_gradient(t: Translation, unit: Unit) -> bool:
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if len(results) != 1 or len(inputs) != 2:
        return False
    spec = (results[0].shape.sizes, t.dtype(inputs[0]))
    axis = _reduced_axis(unit, len(spec[0]))
    (made,) = t.op("softmax_gradient", inputs, [spec], axis=axis, function="softmax")
    _set(t, results[0], made)
    return True


def _cross_entropy(t: Translation, unit: Unit) -> bool:
    """The loss of each row and, as TensorFlow has it, the gradient of the logits at once."""
    results, given = _results(t, unit), _sources(t, _given(t, unit))
    if len(given) != 2 or not results:
        return False
    logits = next((n for n in given if t.dtype(n).startswith("float")), given[0])
    labels = next(n for n in given if n != logits)
    spec = (t.shape(logits), t.dtype(logits))
    axis = len(spec[0]) - 1
    (logs,) = t.op("softmax", [logits], [spec], axis=axis, function="log_softmax")
    sparse = unit.kind.startswith("Sparse")
    for i in results:
        if i.shape.elements == _elements(t, logits):
            t.begin(Unit(unit.instructions, unit.kind, Phase.BACKWARD))
            if sparse:
                (start,) = t.op("scatter", [logs, labels], [spec], axis=axis, function="set",
                                grouped=True)  # fmt: skip
            else:
                start = labels
            made = t.op("softmax_gradient", [start, logs], [spec], axis=axis,
                        function="log_softmax")[0]  # fmt: skip
        elif sparse:
            made = t.op("gather", [logs, labels], [(i.shape.sizes, spec[1])], axis=axis,
                        grouped=True)[0]  # fmt: skip
        else:
            product = t.arithmetic("mul", [logs, labels], spec)
            made = t.op("reduce", [product], [(i.shape.sizes, spec[1])], function="sum",
                        axes=(axis,))[0]  # fmt: skip
        _set(t, i, made)
        t.begin(unit)
    return True


# --- means, pools, random numbers, lookups ------------------------------------------------------


def _last(unit: Unit, opcode: str) -> Instruction | None:
    return next((i for i in reversed(unit.instructions) if i.opcode == opcode), None)


def _mean(t: Translation, unit: Unit) -> bool:
    """A sum and a division by what it was over."""
    results, found = _results(t, unit), _last(unit, "reduce")
    inputs = _sources(t, _given(t, unit))
    if len(results) != 1 or found is None or len(inputs) != 1:
        return False
    x, axes = inputs[0], found.numbers("dimensions")
    if _elements(t, x) == results[0].shape.elements:
        _set(t, results[0], t.look(x, results[0].shape.sizes))
        return True
    made = t.reduced("mean", x, (found.shape.sizes, t.dtype(x)), axes)
    _set(t, results[0], t.look(made, results[0].shape.sizes))
    return True


def _average_pool(t: Translation, unit: Unit) -> bool:
    found = next((i for i in unit.instructions if i.opcode == "reduce-window"), None)
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if len(results) != 1 or found is None or len(inputs) != 1:
        return False
    spec = (results[0].shape.sizes, t.dtype(inputs[0]))
    (made,) = t.op("pool", inputs, [spec], function="mean", **window(found))
    _set(t, results[0], made)
    return True


def _average_pool_gradient(t: Translation, unit: Unit) -> bool:
    found = next((i for i in unit.instructions if i.opcode == "reduce-window"), None)
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    if len(results) != 1 or found is None or len(inputs) != 1:
        return False
    spec = (results[0].shape.sizes, t.dtype(inputs[0]))
    kernel = window(found)["kernel"]
    whole = t.shape(inputs[0])
    stride = tuple(
        max(1, round(wide / small)) for wide, small in zip(spec[0], whole, strict=True)
        if wide != small
    ) or kernel  # fmt: skip
    (made,) = t.op("pool_gradient", inputs, [spec], function="mean", kernel=kernel, stride=stride)
    _set(t, results[0], made)
    return True


def _random(t: Translation, unit: Unit) -> bool:
    results = _results(t, unit)
    drawn = [i for i in results if i.shape.parts is None and i.shape.elements > 1]
    if len(drawn) != 1:
        return False
    (made,) = t.op("random", [], [spec_of(drawn[0].shape)], function=RANDOM[unit.kind])
    for instruction in results:
        t.values[instruction.name] = Number(spec_of(instruction.shape))
    t.values[drawn[0].name] = made
    return True


def _dropout(t: Translation, unit: Unit) -> bool:
    """A mask and a product; the backward pass draws the mask again from the same seed."""
    results, given = _results(t, unit), _sources(t, _given(t, unit))
    floats = [n for n in given if t.dtype(n).startswith("float") and _elements(t, n) > 1]
    whole = [i for i in results if i.shape.dtype.startswith("float")]
    if len(floats) != 1 or not whole:
        return False
    x = floats[0]
    spec = (t.shape(x), t.dtype(x))
    (mask,) = t.op("random", [], [spec], function="bernoulli")
    t.masks[mask] = spec
    made = t.arithmetic("mul", [x, mask], spec)
    for instruction in results:
        t.values[instruction.name] = mask
    _set(t, whole[-1], made)
    return True


def _dropout_gradient(t: Translation, unit: Unit) -> bool:
    results, given = _results(t, unit), _sources(t, _given(t, unit))
    masks = [name for name in given if name in t.masks]
    gradients = [n for n in given if n not in t.masks and t.dtype(n).startswith("float")]
    if not masks or not gradients or not results:
        return False
    spec = t.masks[masks[0]]
    (mask,) = t.op("random", [], [spec], function="bernoulli")
    made = t.arithmetic("mul", [gradients[0], mask], spec)
    for instruction in results[:-1]:
        t.values[instruction.name] = Number(spec_of(instruction.shape), 0.0)
    _set(t, results[-1], made)
    return True


def _lookup(t: Translation, unit: Unit) -> bool:
    """Rows of a table by index; what XLA does so that indices stay inside is no part of it."""
    results, found = _results(t, unit), _last(unit, "gather")
    given = _given(t, unit)
    if len(results) != 1 or found is None or len(given) != 2:
        return False
    table = next((name for name in given if name == found.operands[0]), None)
    indices = next((name for name in given if name != table), None)
    if table is None or indices is None:
        return False
    axis = (found.numbers("start_index_map") or (0,))[0]
    inputs = [t.narrow(table), t.read(indices)]
    (made,) = t.op("gather", inputs, [(results[0].shape.sizes, t.dtype(inputs[0]))], axis=axis)
    _set(t, results[0], made)
    return True


def _scan(t: Translation, unit: Unit) -> bool:
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    found = _last(unit, "reduce-window")
    if len(results) != 1 or len(inputs) != 1 or found is None:
        return False
    sizes = re.search(r"size=([\dx]+)", found.attributes.get("window", ""))
    widths = [int(size) for size in sizes[1].split("x")] if sizes else [1]
    axis = max(range(len(widths)), key=lambda position: widths[position])
    spec = spec_of(results[0].shape)
    (made,) = t.op("scan", inputs, [spec], function=unit.kind.lower(), axis=axis)
    t.values[results[0].name] = made
    return True


def _top(t: Translation, unit: Unit) -> bool:
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    arrays = [i for i in results if i.shape.parts is None]
    if len(inputs) != 1 or not arrays or len(arrays) != len(results) or len(arrays) > 2:
        return False
    axis = len(t.shape(inputs[0])) - 1
    count = arrays[0].shape.sizes[-1] if arrays[0].shape.sizes else 1
    made = t.op("sort", inputs, [spec_of(i.shape) for i in arrays], axis=axis, count=count)
    for instruction, name in zip(arrays, made, strict=True):
        t.values[instruction.name] = name
    return True


def _extreme(t: Translation, unit: Unit) -> bool:
    """Max, ArgMax and their kin: one reduction."""
    results, inputs = _results(t, unit), _sources(t, _given(t, unit))
    found = _last(unit, "reduce")
    if len(results) != 1 or len(inputs) != 1 or found is None or results[0].shape.parts is not None:
        return False
    spec = spec_of(results[0].shape)
    if _elements(t, inputs[0]) == results[0].shape.elements:
        return False
    (made,) = t.op(
        "reduce", inputs, [spec], function=unit.kind.lower(), axes=found.numbers("dimensions")
    )
    t.values[results[0].name] = made
    return True


LAYERS: dict[str, Layer] = {
    "gelu": _gelu, "gelu_gradient": _gelu_gradient, "norm": _norm, "norm_gradient": _norm_gradient,
    "dropout": _dropout, "dropout_gradient": _dropout_gradient,
    "softmax_gradient": _softmax_gradient, "Softmax": _softmax, "LogSoftmax": _softmax,
    "SparseSoftmaxCrossEntropyWithLogits": _cross_entropy,
    "SoftmaxCrossEntropyWithLogits": _cross_entropy, "Mean": _mean, "AvgPool": _average_pool,
    "AvgPool3D": _average_pool, "AvgPoolGrad": _average_pool_gradient,
    "AvgPool3DGrad": _average_pool_gradient, "ResourceGather": _lookup, "GatherV2": _lookup,
    "Cumsum": _scan, "Cumprod": _scan, "TopKV2": _top, "Max": _extreme, "Min": _extreme,
    "ArgMax": _extreme, "ArgMin": _extreme, **dict.fromkeys(RANDOM, _random),
}  # fmt: skip
