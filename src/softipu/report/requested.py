"""Whether a program wants a report, and where: engine options, the environment, `softipu run`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path

from .. import settings
from ..errors import InvalidSetting

VARIABLE = "POPLAR_ENGINE_OPTIONS"
_ALL = "autoReport.all"
#: Any of them makes a profile; each is as `autoReport.all` says unless it is set itself.
_PARTS = ("autoReport.outputGraphProfile", "autoReport.outputExecutionProfile")
_WORDS = {"true": True, "1": True, "false": False, "0": False}

_lock = threading.Lock()
#: How many programs of this process have a folder, by directory and kind.
_folders: dict[tuple[Path, str], int] = {}


def destination(engine_options: Mapping[str, object] | None = None) -> Path | None:
    """The directory that is asked for, or None.

    `engine_options` are the program's own; those in POPLAR_ENGINE_OPTIONS win, and `softipu run
    --profile DIR` wins over both.
    """
    from_command = settings.get("SOFTIPU_PROFILE_DIR")
    if from_command:
        return Path(from_command)
    options = {**(engine_options or {}), **_from_environment()}
    everything = _flag(options, _ALL, False)
    if not any(_flag(options, part, everything) for part in _PARTS):
        return None
    return Path(str(options.get("autoReport.directory") or "."))


def folder_of_its_own(directory: Path, kind: str) -> Path:
    """A folder for one program of this process: `inference`, and `inference_2` for the next."""
    with _lock:
        number = _folders[directory, kind] = _folders.get((directory, kind), 0) + 1
    return directory / (kind if number == 1 else f"{kind}_{number}")


def _from_environment() -> dict[str, object]:
    text = settings.get(VARIABLE) or "{}"
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidSetting(f"{VARIABLE}={text!r} is not JSON: {error}.") from None
    if not isinstance(found, dict):
        raise InvalidSetting(f"{VARIABLE}={text!r} is not a JSON object.")
    return found


def _flag(options: Mapping[str, object], name: str, otherwise: bool) -> bool:
    if name not in options:
        return otherwise
    word = str(options[name]).lower()
    if word not in _WORDS:
        raise InvalidSetting(f"The engine option {name} is {options[name]!r}, not true or false.")
    return _WORDS[word]
