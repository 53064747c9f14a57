"""Operations of extensions that mean operations of PopART's own.

Paddle's IPU back end knows four by their names, and others by `add_custom_op`. Extensions give them
CPU kernels that never run there and are placeholders in published ones, so the meaning is PopART's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import paddle

from .strategy import IpuStrategy

Meaning = Callable[..., Any]
_REDUCTIONS = ("sum", "mean", "none")
#: Probabilities below the smallest normal number count as it, so that no loss is infinite.
_SMALLEST = 1.1754944e-38
#: Label that no row has, where none is left out.
_NO_LABEL = -(2**31)


def meaning_of(op_type: str, options: IpuStrategy) -> Meaning | None:
    """How an operation is made of Paddle's own, if it is one of these."""
    if op_type in _BY_NAME:
        return _BY_NAME[op_type]
    for known in options.custom_ops:
        if known.paddle_op == op_type:
            return _BY_POPART.get((known.domain, known.popart_op))
    return None


def _same(x: Any) -> Any:
    return paddle.assign(x)


def _detached(x: Any) -> Any:
    out = paddle.assign(x)
    out.stop_gradient = True
    return out


def _likelihood(
    x: Any,
    label: Any,
    reduction: int | str = 1,
    ignoreIndex: int | str = "None",
    inputIsLogProbability: bool = False,
) -> Any:
    """Negative logarithm of the probability of each label; attributes as PopART calls them."""
    kind = reduction.lower() if isinstance(reduction, str) else _REDUCTIONS[reduction]
    ignored = _NO_LABEL if ignoreIndex == "None" else int(ignoreIndex)
    rows = paddle.cast(paddle.reshape(x, [-1, x.shape[-1]]), "float32")
    if not inputIsLogProbability:
        rows = paddle.log(paddle.clip(rows, min=_SMALLEST))
    labels = paddle.cast(paddle.reshape(label, [-1]), "int64")
    loss = paddle.nn.functional.nll_loss(rows, labels, ignore_index=ignored, reduction=kind)
    shape = list(label.shape) if kind == "none" else [1]
    return paddle.cast(paddle.reshape(loss, shape), x.dtype)


_BY_NAME: dict[str, Meaning] = {
    "checkpointoutput": _same,
    "identity": _same,
    "detach": _detached,
    "custom_nll_loss": _likelihood,
}
_BY_POPART: dict[tuple[str, str], Meaning] = {
    ("ai.onnx", "Identity"): _same,
    ("ai.graphcore", "Detach"): _detached,
    ("ai.graphcore", "Nll"): _likelihood,
}
