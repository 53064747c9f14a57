"""PopTorch on software IPUs: the API of PopTorch 3.4 on stock PyTorch.

Public names only; every one of them is documented where it is defined.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

import torch

from softipu import SDK_VERSION

# Upstream sets it so that forked data loader workers are safe; scripts look at it.
os.environ.setdefault("RDMAV_FORK_SAFE", "1")

from . import _impl, _logging, _weights, optim, poptorch_core, profiling, testing
from ._arg_parsers import (
    ICustomArgParser,
    registerCustomArgParser,
    registerGeometricCustomArgParsers,
)
from ._async_data import AsynchronousDataAccessor
from ._context import isRunningOnIpu
from ._dataloader import DataLoader
from ._errors import Error, RecoverableError, UnrecoverableError, createPoptorchError
from ._executables import importPoptorchMetadataFromFile, load_executable
from ._executor import PoplarExecutor, registerPostCompileHook, registerPreCompileHook
from ._hardware import ipuHardwareIsAvailable, ipuHardwareVersion
from ._logging import logger, setLogLevel
from ._printing import module_repr, print
from .enums import *
from .ops import *
from .options import *
from .options import Options

__version__ = SDK_VERSION


@atexit.register
def poptorchAtExit() -> None:
    """Releases what the process still holds; runs by itself at exit."""
    _impl.at_exit()


def trainingModel(
    model: Any,
    options: Options | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> PoplarExecutor:
    """The model for training on IPUs: each call is forward, backward and update.

    The module itself is wrapped, so that looking at its weights fetches them from the device;
    `destroy()` unwraps it.
    """
    if isinstance(model, PoplarExecutor):
        model = model._user_model
    if _weights.is_wrapped(model):
        raise RuntimeError(
            "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on "
            "the model to unwrap before wrapping again."
        )
    copied = _weights.shallow_copy(model)
    return PoplarExecutor(copied, options, True, __version__, optimizer=optimizer, user_model=model)


def inferenceModel(model: Any, options: Options | None = None) -> PoplarExecutor:
    """The model for inference on IPUs."""
    if isinstance(model, PoplarExecutor):
        model = model._user_model
    copied = _weights.shallow_copy(model)
    return PoplarExecutor(copied, options, False, __version__, user_model=model)


def load(filename: str, edit_opts_fn: Callable[[Options], None] | None = None) -> PoplarExecutor:
    """The executor that `compileAndExport` or `save` wrote; no code in the file is run."""
    return load_executable(filename, edit_opts_fn, __version__)
