"""Operations whose Python functions in the wheel no longer build nodes of the older representation.

The wheel binds them straight to C++, which knows dynamic graphs and PIR only. Here each is a row:
the operator, its inputs and attributes. Calls outside static graphs still go to C++.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Attributes = Callable[[dict[str, Any]], dict[str, Any]]
_REQUIRED = inspect.Parameter.empty
_WORDS = {"name": None, "out": None}


def _none(arguments: dict[str, Any]) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Form:
    """How to build the node: slots in the order of the tensor arguments, then the others."""

    operator: str
    slots: tuple[str, ...] = ("X",)
    parameters: tuple[tuple[str, Any], ...] = (("x", _REQUIRED),)
    attributes: Attributes = _none
    output: str = "Out"
    #: Type of the result; None: that of the first tensor.
    dtype: Callable[[dict[str, Any]], Any] | None = None
    #: Further outputs and their types.
    also: tuple[tuple[str, str], ...] = ()

    @functools.cached_property
    def signature(self) -> inspect.Signature:
        positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
        rows = [*self.parameters, *_WORDS.items()]
        return inspect.Signature(
            [inspect.Parameter(name, positional, default=default) for name, default in rows]
        )


_XY = (("x", _REQUIRED), ("y", _REQUIRED))
_REDUCTION = (("x", _REQUIRED), ("axis", None), ("keepdim", False))
#: Spellings that the wheel's functions take as well.
_ALIASES = {"input": "x", "other": "y", "dim": "axis", "keepdims": "keepdim", "keep_dim": "keepdim",
            "tensor1": "x",
            "tensor2": "y", "mat2": "y"}  # fmt: skip


def _always(name: str) -> Callable[[dict[str, Any]], Any]:
    return lambda _: name


def _axes(axis: Any) -> list[int]:
    if axis is None:
        return []
    return [int(one) for one in axis] if isinstance(axis, Sequence) else [int(axis)]


def _reduced(arguments: dict[str, Any]) -> dict[str, Any]:
    axes = _axes(arguments["axis"])
    rank = len(arguments["x"].shape)
    return {
        "dim": axes or list(range(rank)) or [0],
        "keep_dim": arguments["keepdim"],
        "reduce_all": not axes or len(axes) == rank,
    }


def _summed(arguments: dict[str, Any]) -> dict[str, Any]:
    attributes = _reduced(arguments)
    if arguments["dtype"] is not None:
        attributes["in_dtype"] = arguments["x"].dtype
        attributes["out_dtype"] = _vartype(arguments["dtype"])
    return attributes


def _sum_dtype(arguments: dict[str, Any]) -> Any:
    if arguments["dtype"] is not None:
        return _vartype(arguments["dtype"])
    whole = _vartype("bool"), _vartype("int32")
    return _vartype("int64") if arguments["x"].dtype in whole else arguments["x"].dtype


def _log_summed(arguments: dict[str, Any]) -> dict[str, Any]:
    reduced = _reduced(arguments)
    return {
        "axis": reduced["dim"], "keepdim": reduced["keep_dim"],
        "reduce_all": reduced["reduce_all"],
    }  # fmt: skip


def _arg_extreme(arguments: dict[str, Any]) -> dict[str, Any]:
    axis = arguments["axis"]
    return {
        "axis": 0 if axis is None else axis,
        "keepdims": arguments["keepdim"],
        "flatten": axis is None,
        "dtype": _vartype(arguments["dtype"]),
    }


def _vartype(dtype: Any) -> Any:
    from paddle.base.framework import convert_np_dtype_to_dtype_

    return convert_np_dtype_to_dtype_(dtype) if isinstance(dtype, str) else dtype


def _unary(*names: str, dtype: Any = None, **operators: str) -> dict[str, Form]:
    named = {**{name: name for name in names}, **operators}
    return {name: Form(operator, dtype=dtype) for name, operator in named.items()}


def _binary(dtype: Any = None, attributes: Attributes = _none, **operators: str) -> dict[str, Form]:
    return {
        name: Form(operator, ("X", "Y"), _XY, attributes, dtype=dtype)
        for name, operator in operators.items()
    }


def _broadcast(arguments: dict[str, Any]) -> dict[str, Any]:
    return {"axis": -1}


def _taken(*names: str, **renamed: str) -> Attributes:
    """Attributes that are arguments, under the same or another name."""
    pairs = {**{name: name for name in names}, **renamed}
    return lambda arguments: {theirs: arguments[ours] for ours, theirs in pairs.items()}


_BOOL = _always("bool")
_UNARY = """abs acos acosh asin atanh ceil cos cosh exp expm1 floor log log10 log1p log2 rsqrt
            sigmoid sign sin sinh sqrt tanh"""
FORMS: dict[str, Form] = {
    **_unary(*_UNARY.split()),
    **_unary("logical_not", dtype=_BOOL, isfinite="isfinite_v2", isinf="isinf_v2",
             isnan="isnan_v2"),
    **_binary(_BOOL, logical_and="logical_and", logical_or="logical_or", logical_xor="logical_xor"),
    **_binary(_BOOL, _broadcast, greater_than="greater_than"),
    **_binary(None, _broadcast, multiply="elementwise_mul", maximum="elementwise_max",
              minimum="elementwise_min"),
    **_binary(bmm="bmm", dot="dot"),
    "matmul": Form("matmul_v2", ("X", "Y"),
                   (*_XY, ("transpose_x", False), ("transpose_y", False)),
                   _taken(transpose_x="trans_x", transpose_y="trans_y")),
    "sum": Form("reduce_sum", ("X",),
                (("x", _REQUIRED), ("axis", None), ("dtype", None), ("keepdim", False)),
                _summed, dtype=_sum_dtype),
    "all": Form("reduce_all", ("X",), _REDUCTION, _reduced, dtype=_BOOL),
    "any": Form("reduce_any", ("X",), _REDUCTION, _reduced, dtype=_BOOL),
    "amax": Form("reduce_amax", ("X",), _REDUCTION, _reduced),
    "amin": Form("reduce_amin", ("X",), _REDUCTION, _reduced),
    "logsumexp": Form("logsumexp", ("X",), _REDUCTION, _log_summed),
    "argmax": Form("arg_max", ("X",), (*_REDUCTION, ("dtype", "int64")), _arg_extreme,
                   dtype=lambda arguments: arguments["dtype"]),
    "argmin": Form("arg_min", ("X",), (*_REDUCTION, ("dtype", "int64")), _arg_extreme,
                   dtype=lambda arguments: arguments["dtype"]),
    "isclose": Form("isclose", ("Input", "Other"),
                    (*_XY, ("rtol", 1e-05), ("atol", 1e-08), ("equal_nan", False)),
                    lambda a: {"rtol": str(a["rtol"]), "atol": str(a["atol"]),
                               "equal_nan": a["equal_nan"]}, dtype=_BOOL),
    "round": Form("round", ("X",), (("x", _REQUIRED), ("decimals", 0)), _taken("decimals")),
    "tril": Form("tril_triu", ("X",), (("x", _REQUIRED), ("diagonal", 0)),
                 lambda a: {"diagonal": a["diagonal"], "lower": True}),
    "triu": Form("tril_triu", ("X",), (("x", _REQUIRED), ("diagonal", 0)),
                 lambda a: {"diagonal": a["diagonal"], "lower": False}),
    "diagonal": Form("diagonal", ("Input",),
                     (("x", _REQUIRED), ("offset", 0), ("axis1", 0), ("axis2", 1)),
                     _taken("offset", "axis1", "axis2")),
    "roll": Form("roll", ("X",), (("x", _REQUIRED), ("shifts", _REQUIRED), ("axis", None)),
                 lambda a: {"shifts": _axes(a["shifts"]), "axis": _axes(a["axis"])}),
    "expand_as": Form("expand_as_v2", ("X", "Y"), _XY,
                      lambda a: {"target_shape": list(a["y"].shape)}),
    "index_put": Form("index_put", ("x", "indices", "value"),
                      (("x", _REQUIRED), ("indices", _REQUIRED), ("value", _REQUIRED),
                       ("accumulate", False)), _taken("accumulate"), output="out"),
    "gelu": Form("gelu", ("X",), (("x", _REQUIRED), ("approximate", False)),
                 lambda a: {"approximate": a["approximate"] in (True, "tanh")}),
    "softplus": Form("softplus", ("X",), (("x", _REQUIRED), ("beta", 1), ("threshold", 20)),
                     lambda a: {"beta": float(a["beta"]), "threshold": float(a["threshold"])}),
    "grid_sample": Form("grid_sampler", ("X", "Grid"),
                        (("x", _REQUIRED), ("grid", _REQUIRED), ("mode", "bilinear"),
                         ("padding_mode", "zeros"), ("align_corners", True)),
                        _taken("mode", "padding_mode", "align_corners"), output="Output"),
}  # fmt: skip


def build(name: str, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Append the node to the program being built; returns its first output."""
    return build_all(name, form, args, kwargs)[0]


def build_all(
    name: str, form: Form, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, ...]:
    """The same; returns all its outputs."""
    from paddle.base.layer_helper import LayerHelper

    known = form.signature.parameters
    spelled = {
        key if key in known else _ALIASES.get(key, key): value for key, value in kwargs.items()
    }
    bound = form.signature.bind(*args, **spelled)
    bound.apply_defaults()
    arguments = bound.arguments
    tensors = [name for name, _ in form.parameters[: len(form.slots)]]
    inputs = {slot: arguments[tensor] for slot, tensor in zip(form.slots, tensors, strict=True)}
    helper = LayerHelper(name, name=arguments["name"])
    dtype = arguments[tensors[0]].dtype if form.dtype is None else form.dtype(arguments)
    outputs = {form.output: helper.create_variable_for_type_inference(dtype)}
    for slot, kind in form.also:
        outputs[slot] = helper.create_variable_for_type_inference(kind, stop_gradient=True)
    helper.append_op(
        type=form.operator,
        inputs=inputs,
        outputs=outputs,
        attrs=form.attributes(arguments),
    )
    return tuple(outputs.values())


def _restored(name: str, form: Form, original: Callable[..., Any]) -> Callable[..., Any]:
    from paddle.base.framework import in_dynamic_or_pir_mode

    def function(*args: Any, **kwargs: Any) -> Any:
        if in_dynamic_or_pir_mode():
            return original(*args, **kwargs)
        return build(name, form, args, kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = original.__doc__
    return function


def install(paddle: Any) -> None:
    """Put the restored functions wherever Paddle looks for the C++ ones."""
    originals = {
        name: getattr(paddle._C_ops, name)
        for name in FORMS
        if inspect.isbuiltin(getattr(paddle._C_ops, name, None))
    }
    rebind(paddle, {o: _restored(name, FORMS[name], o) for name, o in originals.items()})


def rebind(paddle: Any, replacements: dict[Any, Any]) -> None:
    """Replace functions by others wherever Paddle's modules and variables hold them."""
    by_identity = {id(old): new for old, new in replacements.items()}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "paddle" and "libpaddle" not in name:
            _rebind_in(module, by_identity)
    _rebind_in(paddle.static.Variable, by_identity)


def _rebind_in(holder: Any, by_identity: dict[int, Any]) -> None:
    for attribute, value in list(vars(holder).items()):
        if callable(value) and id(value) in by_identity:
            setattr(holder, attribute, by_identity[id(value)])
