"""Names of upstream's compiled module that Python code uses directly."""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from softipu.errors import CompiledHalfNotThere

from ._context import isRunningOnIpu as isCompilingWithDispatcher
from ._errors import Error, RecoverableError, UnrecoverableError
from ._options_validate import _validateOptions
from ._test_errors import TestErrorType, _throwTestError

__all__ = [
    "Error",
    "RecoverableError",
    "TestErrorType",
    "UnrecoverableError",
    "_throwTestError",
    "_validateOptions",
    "isCompilingWithDispatcher",
    "propagateInputShapes",
]


def propagateInputShapes(graph: Any) -> None:
    """Fill in the shapes of a TorchScript graph, in place, from the types of its inputs."""
    torch._C._jit_pass_propagate_shapes_on_graph(graph)


def __getattr__(name: str) -> NoReturn:
    """What else upstream's module has drives its compiler; an AttributeError says so."""
    if name.startswith("__"):  # what Python itself asks modules for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise CompiledHalfNotThere(f"poptorch.poptorch_core.{name} is not there.")
