"""Keeps what lives on the device out of the caller's inference mode.

Tensors made under `torch.inference_mode()` can't be changed outside of it, and weights, optimiser
state and buffers of a model stay while callers come and go.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def outside_inference_mode(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function, run as if its caller were not in inference mode."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        if not torch.is_inference_mode_enabled():
            return function(*args, **kwargs)
        with torch.inference_mode(False):
            return function(*args, **kwargs)

    return call
