"""Models in Paddle's JSON format (PIR) as operations of the older one, which estimates read.

The newer format has other names, gives operands by position, and has constants as operands; the
table says what each operation was called before. One without a row is listed as unknown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .inference_model import JSON_ELEMENTS
from .neutral_pir_shapes import Sized, sizes_of
from .neutral_table import BINARY, TABLE, UNARY

#: Operation -> what it was called, its input slots (`#name`: a constant, which was an attribute),
#: its output slots.
_ROWS: Mapping[str, tuple[str, str, str]] = {
    "conv2d": ("conv2d", "Input Filter", "Output"),
    "depthwise_conv2d": ("depthwise_conv2d", "Input Filter", "Output"),
    "conv3d": ("conv3d", "Input Filter", "Output"),
    "conv2d_transpose": ("conv2d_transpose", "Input Filter #output_size", "Output"),
    "conv3d_transpose": ("conv3d_transpose", "Input Filter", "Output"),
    "batch_norm": (
        "batch_norm", "X Mean Variance Scale Bias", "Y MeanOut VarianceOut SavedMean SavedVariance"
    ),
    "layer_norm": ("layer_norm", "X Scale Bias", "Y Mean Variance"),
    "group_norm": ("group_norm", "X Scale Bias", "Y Mean Variance"),
    "instance_norm": ("instance_norm", "X Scale Bias", "Y SavedMean SavedVariance"),
    "matmul": ("matmul_v2", "X Y", "Out"), "bmm": ("bmm", "X Y", "Out"),
    "dot": ("dot", "X Y", "Out"), "mv": ("mv", "X Vec", "Out"),
    "pool2d": ("pool2d", "X #ksize", "Out"), "pool3d": ("pool3d", "X", "Out"),
    "max_pool2d_with_index": ("max_pool2d_with_index", "X", "Out Mask"),
    "softmax": ("softmax", "X", "Out"), "log_softmax": ("log_softmax", "X", "Out"),
    **{name: (f"reduce_{name}", "X #dim", "Out")
       for name in ("sum", "mean", "max", "min", "prod", "any", "all")},
    "argmax": ("arg_max", "X #axis", "Out"), "argmin": ("arg_min", "X #axis", "Out"),
    "logsumexp": ("logsumexp", "X", "Out"), "p_norm": ("p_norm", "X", "Out"),
    "cumsum": ("cumsum", "X #axis", "Out"), "topk": ("top_k_v2", "X #k", "Out Indices"),
    "argsort": ("argsort", "X", "Out Indices"),
    "embedding": ("lookup_table_v2", "Ids W", "Out"),
    "gather": ("gather", "X Index #axis", "Out"), "gather_nd": ("gather_nd", "X Index", "Out"),
    "index_select": ("index_select", "X Index", "Out"),
    "scatter": ("scatter", "X Ids Updates", "Out"),
    "one_hot": ("one_hot_v2", "X #depth", "Out"),
    "reshape": ("reshape2", "X #shape", "Out"), "flatten": ("flatten_contiguous_range", "X", "Out"),
    "squeeze": ("squeeze2", "X #axes", "Out"), "unsqueeze": ("unsqueeze2", "X #axes", "Out"),
    "transpose": ("transpose2", "X", "Out"), "cast": ("cast", "X", "Out"),
    "expand": ("expand_v2", "X #shape", "Out"), "expand_as": ("expand_as_v2", "X #target", "Out"),
    "tile": ("tile", "X #repeat_times", "Out"),
    "slice": ("slice", "Input #starts #ends", "Out"),
    "strided_slice": ("strided_slice", "Input #starts #ends #strides", "Out"),
    "split": ("split", "X #sections #axis", "Out"),
    "split_with_num": ("split_with_num", "X #axis", "Out"),
    "unbind": ("unbind", "X", "Out"), "concat": ("concat", "X #axis", "Out"),
    "stack": ("stack", "X", "Out"), "add_n": ("sum", "X", "Out"),
    "scale": ("scale", "X #scale", "Out"), "pow": ("pow", "X", "Out"),
    "clip": ("clip", "X #min #max", "Out"), "where": ("where", "Condition X Y", "Out"),
    "prelu": ("prelu", "X Alpha", "Out"), "pad": ("pad", "X", "Out"),
    "pad3d": ("pad3d", "X #paddings", "Out"), "roll": ("roll", "X #shifts", "Out"),
    "flip": ("flip", "X", "Out"), "pixel_shuffle": ("pixel_shuffle", "X", "Out"),
    "tril": ("tril_triu", "X", "Out"), "triu": ("tril_triu", "X", "Out"),
    "meshgrid": ("meshgrid", "X", "Out"),
    "dropout": ("dropout", "X #seed #p", "Out Mask"),
    "assign": ("assign", "X", "Out"), "share_data": ("share_data", "X", "Out"),
    "print": ("print", "X", "Out"),
    **{f"{name}_interp": (f"{name}_interp_v2", "X #size #sizes #scale", "Out")
       for name in ("nearest", "bilinear", "bicubic")},
    "arange": ("range", "#start #end #step", "Out"), "full_like": ("fill_any_like", "#x #v", "Out"),
    "assign_value": ("assign_value", "", "Out"), "shape64": ("shape", "#x", "Out"),
    "shape": ("shape", "#x", "Out"), "full_with_tensor": ("fill_constant", "#v #shape", "Out"),
    "full_batch_size_like": ("fill_constant_batch_size_like", "#x", "Out"),
    "uniform": ("uniform_random", "#shape #min #max", "Out"),
    "gaussian": ("gaussian_random", "#shape", "Out"),
}  # fmt: skip
_ARITHMETIC = {
    "add": "elementwise_add", "subtract": "elementwise_sub", "multiply": "elementwise_mul",
    "divide": "elementwise_div", "fmax": "elementwise_fmax", "fmin": "elementwise_fmin",
    "remainder": "elementwise_mod", "floor_divide": "elementwise_floordiv",
    "hardswish": "hard_swish", "hardsigmoid": "hard_sigmoid", "hardshrink": "hard_shrink",
    "isfinite": "isfinite_v2", "isinf": "isinf_v2", "isnan": "isnan_v2",
}  # fmt: skip
_ATTRIBUTES = {
    ("matmul", "transpose_x"): "trans_x", ("matmul", "transpose_y"): "trans_y",
    ("transpose", "perm"): "axis", ("pool2d", "kernel_size"): "ksize",
    ("pool3d", "kernel_size"): "ksize", ("max_pool2d_with_index", "kernel_size"): "ksize",
    ("pow", "y"): "factor", ("dropout", "mode"): "dropout_implementation",
    **{(name, "axis"): "dim" for name in ("mean", "max", "min", "prod", "any", "all")},
}  # fmt: skip
_CONSTANTS = ("full", "full_int_array")


@dataclass
class _Reader:
    """What values of the program are, by their numbers."""

    batch: int
    names: dict[int, list[str]] = field(default_factory=dict)
    sized: dict[int, list[Sized]] = field(default_factory=dict)
    numbers: dict[int, Any] = field(default_factory=dict)
    operations: list[dict[str, Any]] = field(default_factory=list)
    filled: set[int] = field(default_factory=set)


def operations_of(source: bytes, batch: int) -> list[dict[str, Any]]:
    """The operations of a model, as `program._operations` gives those of the older format; open
    dimensions have the sizes that follow from a micro-batch."""
    reader = _Reader(batch)
    for data in json.loads(source)["program"]["regions"][0]["blocks"][0]["ops"]:
        _read(reader, data)
    return reader.operations


def _read(r: _Reader, data: dict[str, Any]) -> None:
    dialect, _, name = data["#"].rpartition(".")
    name = name.removesuffix("_")
    outputs = data["O"] if isinstance(data["O"], list) else [data["O"]]
    if not dialect:  # a weight
        _bind(r, outputs[0], [data["A"][3]], [])
        return
    given = [int(item["%"]) for item in data.get("I", ()) if int(item["%"]) in r.names]
    attributes = {item["N"]: _plain(item["AT"]) for item in data["A"]}
    if dialect == "0":
        _regroup(r, name, given, attributes, outputs)
    elif name in ("data", "feed"):
        _bind(r, outputs[0], [attributes["name"]], [])
    elif name == "fetch":
        _bind(r, outputs[0], [attributes["name"]], [r.sized[i] for i in given])
        _emit(r, "assign", {"X": given}, {"Out": outputs}, {})
    elif name in _CONSTANTS:
        _bind(r, outputs[0], [f"constant{outputs[0]['%']}"], [])
        r.numbers[int(outputs[0]["%"])] = attributes["value"]
    else:
        _translate(r, name, data, attributes, outputs)


def _regroup(
    r: _Reader, name: str, given: list[int], attributes: dict[str, Any], outputs: list[Any]
) -> None:
    """Tensors joined to a list, or taken out of one: no operation of a device."""
    if name == "combine":
        key = int(outputs[0]["%"])
        r.names[key] = [one for i in given for one in r.names[i]]
        r.sized[key] = [one for i in given for one in r.sized[i]]
        return
    (source,) = given
    first = int(attributes.get("index", 0))
    for position, output in enumerate(outputs):
        key, place = int(output["%"]), first + position
        r.names[key], r.sized[key] = [r.names[source][place]], [r.sized[source][place]]


def _translate(
    r: _Reader, name: str, data: dict[str, Any], attributes: dict[str, Any], outputs: list[Any]
) -> None:
    kind, slots, results = _row(name)
    inputs: dict[str, list[int]] = {}
    ids = [int(item["%"]) for item in data.get("I", ())]
    for position, key in enumerate(ids):
        slot = slots[position] if position < len(slots) else f"Input{position}"
        if key not in r.names:
            continue  # an operand that may be left out
        if not slot.startswith("#"):
            inputs.setdefault(slot, []).append(key)
        elif key in r.numbers:
            attributes[slot[1:]] = r.numbers[key]
    for (owner, old), new in _ATTRIBUTES.items():
        if owner == name and old in attributes:
            attributes[new] = attributes.pop(old)
    known = [r.sized[key] for key in ids if key in r.names]
    for output in outputs:
        _bind(r, output, None, known, name, attributes)
    made: dict[str, list[Any]] = {}
    for position, output in enumerate(outputs):
        slot = results[position] if position < len(results) else f"Unused{position}"
        made.setdefault(slot, []).append(output)
    _emit(r, kind, inputs, made, attributes)


def _row(name: str) -> tuple[str, list[str], list[str]]:
    if name in _ROWS:
        kind, slots, results = _ROWS[name]
        return kind, slots.split(), results.split()
    older = _ARITHMETIC.get(name, name)
    if older in BINARY:
        return older, ["X", "Y"], ["Out"]
    if older in UNARY and older in TABLE:
        return older, ["X"], ["Out"]
    return f"pd_op.{name}", [], []


def _bind(
    r: _Reader,
    output: dict[str, Any],
    names: list[str] | None,
    given: list[list[Sized]],
    kind: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> None:
    """An output gets its variables, with sizes that are known in numbers."""
    key = int(output["%"])
    types = _tensors(output["TT"])
    label = names or [
        f"value{key}" if len(types) == 1 else f"value{key}.{i}" for i in range(len(types))
    ]
    flat = [one for several in given for one in several]
    r.names[key] = label
    r.sized[key] = [
        Sized(tuple(raw), sizes_of(kind, tuple(raw), flat, attributes or {}, r.batch), dtype)
        for raw, dtype in types
    ]


def _tensors(kind: Mapping[str, Any]) -> list[tuple[list[int], str | None]]:
    """Shapes and types in a type: of one tensor, or of a list of them."""
    name = kind["#"].rpartition(".")[2]
    if name == "t_vec":
        return [one for part in kind["D"] for one in _tensors(part)]
    if name != "t_dtensor":
        return []
    element = kind["D"][0]["#"].rpartition("_")[2]
    return [(kind["D"][1], JSON_ELEMENTS.get(element, element))]


def _emit(
    r: _Reader,
    kind: str,
    inputs: Mapping[str, list[int]],
    outputs: Mapping[str, list[Any]],
    attributes: Mapping[str, Any],
) -> None:
    for key in (key for keys in inputs.values() for key in keys):
        if key in r.numbers and key not in r.filled:
            r.filled.add(key)  # a constant that is computed with
            _append(r, "fill_constant", {}, {"Out": _variables(r, [key])}, {})
    made = {
        slot: _variables(r, [int(o["%"]) for o in several]) for slot, several in outputs.items()
    }
    given = {slot: _variables(r, keys) for slot, keys in inputs.items()}
    _append(r, kind, given, made, attributes)


def _append(
    r: _Reader,
    kind: str,
    given: dict[str, Any],
    made: dict[str, Any],
    attributes: Mapping[str, Any],
) -> None:
    r.operations.append(
        {"type": kind, "phase": "forward", "ipu": 0, "stage": 0, "inputs": given, "outputs": made,
         "attributes": dict(attributes)}
    )  # fmt: skip


def _variables(r: _Reader, keys: Iterable[int]) -> list[dict[str, Any]]:
    return [
        {"name": name, "shape": list(one.shape), "dtype": one.dtype}
        for key in keys
        for name, one in zip(r.names[key], r.sized[key], strict=True)
    ]


def _plain(value: Any) -> Any:
    """The value of an attribute, without the types of its parts."""
    if isinstance(value, dict):
        return _plain(value.get("D"))
    return [_plain(item) for item in value] if isinstance(value, list) else value
