"""`poptorch.ipu_print_tensor`: prints a tensor, and its gradient, each time the graph runs."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch import Tensor

from . import _context
from ._errors import createPoptorchError
from ._ops_control import branch_condition
from ._ops_library import declare
from ._ops_print_text import FLOAT_FORMATS, Layout, render

_LAYOUT_NAMES = tuple(Layout.__dataclass_fields__)


def _print(
    tensor: Tensor, title: str, print_gradient: bool, when: Tensor | None, *layout: Any
) -> Tensor:
    if when is None or bool(when):
        text = render(tensor, Layout(*layout))
        sys.stderr.write(f"{title}: {text}\n" if title else f"{text}\n")
        sys.stderr.flush()
    return tensor.clone()


def _like_input(tensor: Tensor, *_options: Any) -> Tensor:
    return torch.empty_like(tensor)


print_tensor = declare(
    "ipu_print_tensor",
    "(Tensor tensor, str title, bool print_gradient, Tensor? when, int summarise_threshold, "
    "int edge_items, int max_line_width, int digits, str float_format, str separator, "
    "str open_bracket, str close_bracket) -> Tensor",
    _print,
    _like_input,
)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _tensor, ctx.title, ctx.print_gradient, when, *ctx.layout = inputs
    ctx.has_condition = when is not None
    ctx.save_for_backward(*(() if when is None else (when,)))


def _print_gradient(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    if ctx.print_gradient:
        when = ctx.saved_tensors[0] if ctx.has_condition else None
        title = f"{ctx.title}_gradient" if ctx.title else "gradient"
        gradient = print_tensor(gradient, title, False, when, *ctx.layout)
    return (gradient, *(None for _ in range(3 + len(ctx.layout))))


print_tensor.register_autograd(_print_gradient, setup_context=_remember)


def ipu_print_tensor(
    tensor: Tensor,
    title: str = "",
    print_gradient: bool = True,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 80,
    digits: int = 4,
    float_format: str = "auto",
    separator: str = ", ",
    open_bracket: str = "(",
    close_bracket: str = ")",
) -> Tensor:
    """`tensor`, printed on standard error whenever a captured model computes the result.

    Use the result in place of the tensor: an unused one need not be computed, so need not print.
    The gradient is printed as "TITLE_gradient" in the backward pass unless `print_gradient` is
    False. The options from `summarise_threshold` on say how the numbers are laid out; 0 turns
    summaries, line breaks or alignment off.
    """
    if not isinstance(tensor, Tensor):
        raise createPoptorchError(
            f"ipu print tensor must take a torch.tensor argument. {type(tensor)} is not supported."
        )
    if float_format not in FLOAT_FORMATS:
        raise createPoptorchError(
            f"ipu_print_tensor: float_format {float_format!r} is not one of "
            f"{', '.join(FLOAT_FORMATS)}."
        )
    layout = Layout(
        summarise_threshold,
        edge_items,
        max_line_width,
        digits,
        float_format,
        separator,
        open_bracket,
        close_bracket,
    )
    if _context.current() is None:
        return tensor
    values = [getattr(layout, name) for name in _LAYOUT_NAMES]
    result: Tensor = print_tensor(tensor, title, bool(print_gradient), branch_condition(), *values)
    return result
