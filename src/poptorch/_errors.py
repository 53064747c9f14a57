"""The exceptions that PopTorch programs catch, carrying softipu's codes, causes and ways out.

`softipu.errors` has the table of failures (20xx are ours); `failure` turns a row of it into the
`poptorch.Error` that user code expects.
"""

from __future__ import annotations

from typing import Any

from softipu.errors import SoftIPUError


class Error(RuntimeError):
    """What poptorch raises. `type`, `message` and `location` are PopTorch's own attributes."""

    def __init__(self, text: str = "", **attributes: Any) -> None:
        super().__init__(text)
        self.type: str = attributes.get("type", "poptorch_py_error")
        self.message: str = attributes.get("message", text)
        self.location: str = attributes.get("location", "")
        self.code: str = attributes.get("code", "SIPU-2000")


class RecoverableError(Error):
    """The device needs attention, named by `recovery_action`; the program may then go on."""

    def __init__(self, text: str = "", **attributes: Any) -> None:
        super().__init__(text, **attributes)
        self.recovery_action: str = attributes.get("recovery_action", "")


class UnrecoverableError(Error):
    """The device or the runtime is lost to this process."""


def createPoptorchError(msg: str, *, cause: str = "", remedy: str = "") -> Error:
    """An `Error` with PopTorch's own wording, for messages that users match.

    `cause` and `remedy` follow on lines of their own; `message` stays as PopTorch has it."""
    lines = [f"'poptorch_py_error': {msg}"]
    lines += [f"  Cause: {cause}"] if cause else []
    lines += [f"  Way out: {remedy}"] if remedy else []
    return Error("\n".join(lines), message=msg)


def failure(
    kind: type[SoftIPUError], what: str, *, cause: str | None = None, remedy: str | None = None
) -> Error:
    """The `Error` for a row of `softipu.errors`: what happened, why, and the way out."""
    row = kind(what, cause=cause, remedy=remedy)
    reason = f"  Cause: {row.cause}\n  Way out: {row.remedy}\n  ({row.label})"
    text = f"'poptorch_py_error': {what}\n{reason}"
    return Error(text, message=what, code=row.label)
