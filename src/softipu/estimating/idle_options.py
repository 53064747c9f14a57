"""Options of Poplar's engine that have no effect here: each is named once in a process.

Real Poplar refuses names that it does not have. Which these are can't be known here, so a run only
warns; a name that is nearly one of those that count gets it as a hint.
"""

from __future__ import annotations

import difflib
import json
import logging
import threading
from collections.abc import Iterator, Mapping

from softipu import settings

_VARIABLE = "POPLAR_ENGINE_OPTIONS"
#: What counts: whether and where there is a report.
USED = (
    "autoReport.all", "autoReport.directory", "autoReport.outputGraphProfile",
    "autoReport.outputExecutionProfile",
)  # fmt: skip
#: Parts of real reports that ours have not got; to leave one out is what happens.
_MISSING = frozenset(
    ("autoReport.outputDebugInfo", "autoReport.outputLoweredVars",
     "autoReport.outputSerializedGraph", "autoReport.outputArchive")
)  # fmt: skip
_PREFIX = "autoreport"

_told: set[str] = set()
_lock = threading.Lock()


def warn(of_program: Mapping[str, object] | None, log: logging.Logger) -> None:
    """One warning for all that are new, of the program's own and of the environment's."""
    said = news(of_program)
    if said:
        log.warning("%s", said)


def news(of_program: Mapping[str, object] | None) -> str:
    """What such a warning says; empty where all is known."""
    found = list(_idle(of_program or {}))
    with _lock:
        new = [text for text in dict.fromkeys(found) if text not in _told]
        _told.update(new)
    return f"Engine options without effect on a software IPU: {', '.join(new)}." if new else ""


def _idle(of_program: Mapping[str, object]) -> Iterator[str]:
    text = settings.get(_VARIABLE) or "{}"
    try:
        outside = json.loads(text)
    except ValueError:
        outside = None
    if not isinstance(outside, dict):  # an error where the place of a report depends on it
        yield f"all of {_VARIABLE}, which is no JSON object"
        outside = {}
    for key, value in {**of_program, **outside}.items():
        name = str(key)
        off = name in _MISSING and str(value).lower() in ("false", "0")
        if name not in USED and not off:
            yield name + _meant(name)


def _meant(name: str) -> str:
    if name in _MISSING or not name.lower().startswith(_PREFIX):
        return ""
    known = {used[len(_PREFIX) + 1 :].lower(): used for used in USED}
    close = difflib.get_close_matches(name[len(_PREFIX) :].lstrip(".").lower(), known, n=1)
    return f" (did you mean {known[close[0]]}?)" if close else ""
