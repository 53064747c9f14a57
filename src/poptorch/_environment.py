"""Environment variables that PopTorch's compiled half reads: those that count, and those that
can't.

The IPU Model's version decides about the chip of estimates; variables about files and log lines
that only the real compiler has are named once, so that nobody waits for what will not come.
"""

from __future__ import annotations

from softipu import settings
from softipu.errors import InvalidSetting

from ._errors import failure
from ._logging import warnOnce

VERSION = "POPTORCH_IPU_MODEL_VERSION"
#: The chip that a version of the IPU Model is a model of.
MODEL_CHIPS = {"ipu1": "mk1", "ipu2": "mk2", "ipu21": "c600"}
#: What has no effect here, and why.
_NO_PROTO = (
    "there is no PopART and so no model in its format to write; PoplarExecutor.getTensorNames() "
    "and `softipu report` show what a model was compiled to"
)
IGNORED = {
    "POPTORCH_EXPORT_PROTO_FILE": _NO_PROTO,
    "POPTORCH_EXPORT_PROTO_AS_BINARY": _NO_PROTO,
    "POPTORCH_MAX_GRAPH_LEN": "no line of the log prints a graph that it could cut short",
}


def model_chip() -> str | None:
    """The chip that the IPU Model stands for, None where the environment does not say."""
    version = settings.get(VERSION)
    if version is None:
        return None
    if version not in MODEL_CHIPS:
        raise failure(
            InvalidSetting,
            "Invalid IPU model version. Valid versions: ipu1, ipu2, ipu21.",
            cause=f"{VERSION} is {version!r}.",
            remedy=f"Set {VERSION} to one of these, or unset it to model the chip of "
            "SOFTIPU_SYSTEM.",
        )
    return MODEL_CHIPS[version]


def warn_about_ignored() -> None:
    """Name each variable that is set in vain, once in a process."""
    for name, why in IGNORED.items():
        if settings.is_set(name):
            warnOnce(name, "%s has no effect on a software IPU: %s.", name, why)
