"""Names of upstream's compiled module that Python code uses directly."""

from __future__ import annotations

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
]
