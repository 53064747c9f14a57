"""Raises each kind of native error on demand, so that programs can test how they handle them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ._errors import Error, RecoverableError, UnrecoverableError


class TestErrorType(enum.Enum):
    """The failures that the native layers of PopTorch can report."""

    __test__ = False  # not a test case, whatever pytest thinks of the name

    Poptorch = 0
    Popart = 1
    PopartInternal = 2
    Poplibs = 3
    PoplarUnrecoverable = 4
    PoplarUnknown = 5
    PoplarRecoverableFullReset = 6
    PoplarLinkError = 7


@dataclass(frozen=True)
class _Kind:
    name: str
    message: str
    error: type[Error] = Error
    recovery_action: str = ""


_KINDS = {
    TestErrorType.Poptorch: _Kind("poptorch_cpp_error", "test error"),
    TestErrorType.Popart: _Kind("popart_exception", "test error"),
    TestErrorType.PopartInternal: _Kind("popart_internal_exception", "test error"),
    TestErrorType.Poplibs: _Kind("poplibs_exception", "test error"),
    TestErrorType.PoplarUnrecoverable: _Kind(
        "poplar_unrecoverable_runtime_error", "test error", UnrecoverableError
    ),
    TestErrorType.PoplarUnknown: _Kind("poplar_unknown_runtime_error", "test error"),
    TestErrorType.PoplarRecoverableFullReset: _Kind(
        "poplar_recoverable_runtime_error", "test error", RecoverableError, "FULL_RESET"
    ),
    TestErrorType.PoplarLinkError: _Kind(
        "poplar_link_error", "test error. Output from the linker: -lfoo not found"
    ),
}


def _throwTestError(error_type: TestErrorType) -> None:
    """Raises the error, with the places it passed as its location."""
    kind = _KINDS[error_type]
    places = ("poptorch_throwTestError::bottomLevel", "poptorch_throwTestError::topLevel")
    location = "\n".join(f"[{number}] {place}" for number, place in enumerate(places))
    text = f"'{kind.name}': {kind.message}\nError raised in:\n{location}"
    raise kind.error(
        text,
        type=kind.name,
        message=kind.message,
        location=location,
        recovery_action=kind.recovery_action,
    )
