"""Hands the gradients that capture layers saw to the optimiser of a training step."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

from tensorflow.python.ipu.eager.backprop import GradientCaptureContext

from ..delegation import applying


@contextlib.contextmanager
def handed_to(optimizer: Any) -> Iterator[None]:
    """Around one training step, inside the function that is traced (maybe more than once).

    `apply_gradients` of an optimiser that knows `captured_grads` gets them; others train as usual.
    """
    original = optimizer.apply_gradients
    with GradientCaptureContext() as context:

        def apply_gradients(grads_and_vars: Any, **arguments: Any) -> Any:
            captured = context.captured_gradients
            if captured and _is_known_to(optimizer):
                arguments["captured_grads"] = captured
            # Optimisers of users may know nothing of `name`, which is None unless they set it.
            given = {name: value for name, value in arguments.items() if value is not None}
            return original(grads_and_vars, **given)

        try:
            with applying(optimizer, apply_gradients):
                yield
        finally:
            _ = context.captured_gradients  # ends the context, also in a step without training


def _is_known_to(optimizer: Any) -> bool:
    known = getattr(optimizer, "supports_captured_grads", None)
    if known is not None:
        return bool(known)
    return "captured_grads" in inspect.signature(type(optimizer).apply_gradients).parameters
