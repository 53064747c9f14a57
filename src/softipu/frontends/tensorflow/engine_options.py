"""Options of Poplar's engine, from the configuration and POPLAR_ENGINE_OPTIONS.

There is no such engine here. Names that it would refuse are refused, and with autoReport.all a
directory with framework.json says which framework, configuration and machine a program ran with.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tensorflow.python.framework import errors_impl as tf_errors
from tensorflow.python.framework import versions
from tensorflow.python.platform import tf_logging

from softipu import settings
from softipu.errors import InvalidSetting

_VARIABLE = "POPLAR_ENGINE_OPTIONS"
_GROUPS = (
    "autoReport.", "debug.", "exchange.", "memory.", "opt.", "prng.", "profiler.",
    "streamCallbacks.", "target.",
)  # fmt: skip


def merged(from_program: Mapping[str, str]) -> dict[str, str]:
    """The options that count; those in the environment win."""
    text = settings.get(_VARIABLE) or "{}"
    try:
        from_environment = json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidSetting(f"{_VARIABLE}={text!r} is not JSON: {error}.") from None
    if not isinstance(from_environment, dict):
        raise InvalidSetting(f"{_VARIABLE}={text!r} is not a JSON object.")
    return {**from_program, **{str(k): str(v) for k, v in from_environment.items()}}


def check(options: Mapping[str, str]) -> None:
    """An error for a name that the engine does not have; a warning for those that it only has."""
    from softipu.estimating import idle_options  # imports more than all programs need

    for name in options:
        if not name.startswith(_GROUPS):
            raise tf_errors.InternalError(
                None,
                None,
                f"[Poplar][Build graph] invalid_option: Unrecognised option '{name}'. Engine "
                f"options begin with {', '.join(_GROUPS)}.",
            )
    said = idle_options.news(options)
    if said:
        tf_logging.warning(said)


def write_report(options: Mapping[str, str], config: Any) -> Path | None:
    """Writes framework.json where the options ask for reports, and returns its directory."""
    if options.get("autoReport.all", "false").lower() not in ("true", "1"):
        return None
    name = f"tf_report_{time.strftime('%Y-%m-%d_%H-%M-%S')}_{os.getpid()}"
    directory = Path(options.get("autoReport.directory", ".")) / name
    directory.mkdir(parents=True, exist_ok=True)
    contents = {
        "Framework": "TensorFlow on softipu",
        "TensorFlow version": versions.__version__,
        "IPU configuration": {} if config is None else config.to_dict(),
        "Engine options": dict(options),
        "System Information": {
            "Operating system": platform.system(),
            "Operating system version": platform.release(),
            "Machine": platform.machine(),
            "Number of total cpus": os.cpu_count(),
        },
    }
    (directory / "framework.json").write_text(json.dumps(contents, indent=1), encoding="utf-8")
    return directory
