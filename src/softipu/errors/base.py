"""What all errors have in common: a code, what happened, the cause, the way out."""

from __future__ import annotations

from typing import Any, ClassVar


class SoftIPUError(Exception):
    """Base of all softipu errors. `what` says what happened; the class knows the usual rest."""

    code: ClassVar[int] = 1000
    cause: str = "An error that no more specific class describes."
    remedy: str = "Run `softipu doctor` and attach its zip to a bug report."
    registry: ClassVar[dict[int, type[SoftIPUError]]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "code" in cls.__dict__:
            if cls.code in cls.registry:
                raise TypeError(f"error code {cls.code} is used twice")
            cls.registry[cls.code] = cls

    def __init__(self, what: str, *, cause: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what)
        self.what = what
        if cause is not None:
            self.cause = cause
        if remedy is not None:
            self.remedy = remedy

    @property
    def label(self) -> str:
        """The code as people quote it, for example SIPU-1203."""
        return f"SIPU-{self.code}"

    def __str__(self) -> str:
        return f"{self.label}: {self.what}\n  Cause: {self.cause}\n  Way out: {self.remedy}"

    def to_json(self) -> dict[str, str]:
        return {
            "code": self.label,
            "what": self.what,
            "cause": self.cause,
            "remedy": self.remedy,
        }


def from_json(body: Any) -> SoftIPUError | None:
    """Rebuild an error that a server sent, or None when `body` is not one of ours."""
    if not isinstance(body, dict):
        return None
    parts = [body.get(key) for key in ("code", "what", "cause", "remedy")]
    if not all(isinstance(part, str) for part in parts):
        return None
    label, what, cause, remedy = (str(part) for part in parts)
    number = label.removeprefix("SIPU-")
    known: dict[int, type[SoftIPUError]] = {SoftIPUError.code: SoftIPUError}
    known |= SoftIPUError.registry
    kind = known.get(int(number)) if number.isdigit() else None
    return kind(what, cause=cause, remedy=remedy) if kind else None
