"""Arguments and names that Paddle had when programs for the IPU API were written.

Tables of what was renamed, dropped or moved since; only programs that use the IPU API see them.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from . import legacy_ops
from .legacy_ops import Form

_REDUCTION = {"dim": "axis", "keep_dim": "keepdim"}
#: Function -> old argument -> its name today.
RENAMED: dict[str, dict[str, str]] = {
    **dict.fromkeys(("mean", "sum", "max", "min", "prod", "all", "any", "logsumexp"), _REDUCTION),
    "squeeze": {"axes": "axis"},
    "unsqueeze": {"axes": "axis"},
    "pow": {"factor": "y"},
    "transpose": {"axis": "perm"},
    "nn.functional.one_hot": {"depth": "num_classes"},
    "nn.functional.ctc_loss": {"input_length": "input_lengths", "label_length": "label_lengths"},
}
#: Function -> arguments that have no meaning any more.
DROPPED: dict[str, tuple[str, ...]] = {
    "reshape": ("inplace", "actual_shape", "act"),
    "nn.functional.one_hot": ("allow_out_of_range",),
}
#: Functions that took the axis from which the smaller operand is aligned.
BROADCAST = {
    "add": "elementwise_add", "subtract": "elementwise_sub", "multiply": "elementwise_mul",
    "divide": "elementwise_div", "maximum": "elementwise_max", "minimum": "elementwise_min",
    "floor_divide": "elementwise_floordiv", "remainder": "elementwise_mod",
    "mod": "elementwise_mod", "pow": "elementwise_pow",
}  # fmt: skip
#: paddle.base.layers had these, among others.
MOVED_COMPARISONS = (
    "equal", "greater_equal", "greater_than", "less_equal", "less_than", "not_equal",
)  # fmt: skip


def install(paddle: Any) -> None:
    """Accept them again."""
    changed: dict[Any, Any] = {}
    for path in {*RENAMED, *DROPPED, *BROADCAST, *_OWN}:
        original = _find(paddle, path)
        changed[original] = _accepting(path, original)
    legacy_ops.rebind(paddle, changed)
    for name in MOVED_COMPARISONS:
        if not hasattr(paddle.base.layers, name):
            setattr(paddle.base.layers, name, getattr(paddle, name))
    _install_base_input(paddle)
    _widen_identity_loss(paddle)


def _find(paddle: Any, path: str) -> Any:
    return functools.reduce(getattr, path.split("."), paddle)


def _accepting(path: str, original: Callable[..., Any]) -> Callable[..., Any]:
    renamed, dropped = RENAMED.get(path, {}), DROPPED.get(path, ())

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        for old, new in renamed.items():
            if old in kwargs and new not in kwargs:
                kwargs[new] = kwargs.pop(old)
        for name in dropped:
            kwargs.pop(name, None)
        if path in BROADCAST and "axis" in kwargs:
            return _aligned(path, args, kwargs)
        own = _OWN.get(path)
        return original(*args, **kwargs) if own is None else own(original, args, kwargs)

    return function


def _aligned(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    axis = kwargs.pop("axis")
    form = Form(BROADCAST[name], ("X", "Y"), legacy_ops._XY, lambda _: {"axis": axis})
    return legacy_ops.build(name, form, args, kwargs)


def _cumsum(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    exclusive, reverse = kwargs.pop("exclusive", None), kwargs.pop("reverse", None)
    if exclusive is None and reverse is None:
        return original(*args, **kwargs)
    form = Form("cumsum", ("X",), (("x", legacy_ops._REQUIRED), ("axis", None)), lambda a: {
        "axis": -1 if a["axis"] is None else a["axis"],
        "flatten": False,
        "exclusive": bool(exclusive),
        "reverse": bool(reverse),
    })  # fmt: skip
    return legacy_ops.build("cumsum", form, args, kwargs)


def _expand(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if "expand_times" not in kwargs:
        return original(*args, **kwargs)
    import paddle

    return paddle.tile(*args, repeat_times=kwargs.pop("expand_times"), **kwargs)


def _dropout(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if kwargs.get("mode") == "downgrade_in_infer":
        kwargs["mode"] = "downscale_in_infer"
    return original(*args, **kwargs)


def _normalize(original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The wheel's function forgot its result in static graphs of the older representation."""
    from paddle.base.framework import in_dynamic_or_pir_mode

    if in_dynamic_or_pir_mode():
        return original(*args, **kwargs)
    return _normalized(*args, **kwargs)


def _normalized(
    x: Any, p: float = 2, axis: int = 1, epsilon: float = 1e-12, name: Any = None
) -> Any:
    import paddle

    form = Form("p_norm", ("X",), (("x", legacy_ops._REQUIRED),), lambda _: {
        "porder": float(p), "axis": axis, "keepdim": True, "epsilon": epsilon,
    })  # fmt: skip
    length = legacy_ops.build("p_norm", form, (x,), {})
    smallest = paddle.full([1], epsilon, dtype=length.dtype)
    return paddle.divide(x, paddle.maximum(length, smallest), name=name)


#: Functions whose old arguments need more than another name.
_OWN: dict[str, Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    "cumsum": _cumsum,
    "expand": _expand,
    "nn.functional.dropout": _dropout,
    "nn.functional.normalize": _normalize,
}


def _install_base_input(paddle: Any) -> None:
    """`paddle.base.input`, a module that is gone."""
    if "paddle.base.input" in sys.modules:
        return
    module = ModuleType("paddle.base.input", "Functions that moved to paddle.nn.functional.")
    module.one_hot = paddle.nn.functional.one_hot  # type: ignore[attr-defined]
    module.embedding = paddle.static.nn.embedding  # type: ignore[attr-defined]
    sys.modules[module.__name__] = module
    paddle.base.input = module


def _widen_identity_loss(paddle: Any) -> None:
    """Paddle's check of types leaves out half precision, which IPU programs have there."""
    original = paddle.incubate.identity_loss
    parameters = (("x", legacy_ops._REQUIRED), ("reduction", "none"))

    def attributes(arguments: dict[str, Any]) -> dict[str, Any]:
        chosen = arguments["reduction"]
        return {"reduction": _REDUCTIONS.get(chosen, chosen)}

    form = Form("identity_loss", ("X",), parameters, attributes)

    @functools.wraps(original)
    def identity_loss(*args: Any, **kwargs: Any) -> Any:
        if paddle.in_dynamic_mode():
            return original(*args, **kwargs)
        return legacy_ops.build("identity_loss", form, args, kwargs)

    legacy_ops.rebind(paddle, {original: identity_loss})


_REDUCTIONS = {"sum": 0, "mean": 1, "none": 2}
