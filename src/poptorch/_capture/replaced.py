"""Functions of torch that need another form to be captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from softipu.errors import CaptureUnsupported

from .. import _context
from .._errors import createPoptorchError, failure
from .._ops_ctc_loss import ctc_loss
from .explain import this_line


def _bincount(
    input: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """Counts into a fixed number of bins: a graph's shapes can't depend on values."""
    if minlength == 0:
        raise createPoptorchError(
            "Bincount `minlength` must be specified and must be a constant. On the IPU MK2 "
            "platform the minimum length is also the maximum length",
            remedy="Pass minlength=N, where all values are below N.",
        )
    ones = torch.ones_like(input) if weights is None else weights
    bins = torch.zeros(minlength, dtype=ones.dtype)
    return bins.scatter_add(0, input.to(torch.int64), ones)


def _random_(
    tensor: torch.Tensor, low: int = 0, high: int | None = None, *, generator: Any = None
) -> torch.Tensor:
    """The overloads `from` and `to` of random_ have names that generated code can't spell."""
    if high is None:
        low, high = 0, low or 2**31 - 1
    return tensor.copy_(torch.randint(low, high, tensor.shape, generator=generator))


def _one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    if num_classes < 0:
        raise createPoptorchError(
            "OneHot num classes must be specified and must be constant.",
            cause="The shape of the result would depend on the values in the tensor.",
            remedy="Pass num_classes=N.",
        )
    return torch.nn.functional.one_hot(tensor, num_classes)


def _view(tensor: torch.Tensor, *shape: Any, **named: Any) -> torch.Tensor:
    """Tensors on an IPU have no strides: what is no view in the captured layout is a copy."""
    try:
        return tensor.view(*shape, **named)
    except (RuntimeError, ValueError):
        if "dtype" in named or isinstance(shape[0] if shape else None, torch.dtype):
            raise
        copied = tensor.reshape(*shape, *named.values())
        capture = _context.current()
        assert capture is not None
        line = this_line(capture.options)
        capture.copies.append((_context.unwrapped(copied), _context.unwrapped(tensor), line))
        return copied


def _view_as(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    return _view(tensor, other.shape)


#: Where functions have classes or indices for which torch insists on 64 bits, and by which name.
INDEXED: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("cross_entropy", "nll_loss", "nll_loss_nd"), (1, "target")),
    **dict.fromkeys(("multi_margin_loss", "multilabel_margin_loss"), (1, "target")),
    **dict.fromkeys(("index_copy", "index_copy_", "index_fill", "index_fill_"), (2, "index")),
    "one_hot": (0, "tensor"),
    "take": (1, "index"),
    "take_along_dim": (1, "indices"),
}
_NARROW = (torch.int32, torch.int16, torch.int8, torch.uint8)
_WIDE = (torch.int32, torch.int64)


def with_wide_indices(
    name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of one of these functions, where IPUs have 32 bits or fewer."""
    place, keyword = INDEXED[name]
    if keyword in kwargs:
        return args, {**kwargs, keyword: _widened(kwargs[keyword])}
    return (*args[:place], *map(_widened, args[place : place + 1]), *args[place + 1 :]), kwargs


def _widened(value: Any) -> Any:
    narrow = isinstance(value, torch.Tensor) and value.dtype in _NARROW
    return value.to(torch.int64) if narrow else value


#: Where these functions, or functions of these names, have indices that must have 32 or 64 bits.
LOOKUPS: dict[Any, tuple[int, str]] = {
    **dict.fromkeys(("gather", "index_select", "scatter", "scatter_"), (2, "index")),
    **dict.fromkeys(("scatter_add", "scatter_add_"), (2, "index")),
    **dict.fromkeys(("scatter_reduce", "scatter_reduce_"), (2, "index")),
    torch.nn.functional.embedding: (0, "input"),
    torch.nn.functional.embedding_bag: (0, "input"),
    torch.embedding: (1, "indices"),
    torch.embedding_bag: (1, "indices"),
}


def require_wide_indices(
    func: Any, place: tuple[int, str], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Indices of few bits are refused where they stand, not by what computes with them."""
    position, keyword = place
    index = kwargs.get(keyword, args[position] if position < len(args) else None)
    if not isinstance(index, torch.Tensor) or index.dtype in _WIDE or not index.numel():
        return
    raise failure(
        CaptureUnsupported,
        f"{func.__name__}() was given indices of type {index.dtype}.",
        cause="PyTorch looks up by indices of type int32 and int64 only, for an IPU too.",
        remedy=f"Convert them: {keyword}.to(torch.int32)",
    )


#: Which argument of these functions asks for sparse gradients.
SPARSE: dict[Any, int] = {
    torch.nn.functional.embedding: 6,
    torch.nn.functional.embedding_bag: 7,
    torch.embedding: 4,
    torch.embedding_bag: 5,
}


def with_dense_gradients(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """IPUs have no sparse tensors: the same gradient is a dense one there."""
    place = SPARSE[func]
    dense = (*args[:place], *(False for _ in args[place : place + 1]), *args[place + 1 :])
    return dense, {**kwargs, "sparse": False} if "sparse" in kwargs else kwargs


#: Functions, by their names, and what stands for them.
REPLACED: dict[str, Callable[..., Any]] = {
    "bincount": _bincount,
    "ctc_loss": ctc_loss,
    "one_hot": _one_hot,
    "random_": _random_,
    "view": _view,
    "view_as": _view_as,
}
