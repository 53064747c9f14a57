"""What `poprun --version` prints."""

from __future__ import annotations

import importlib.metadata
import json
import platform

from .. import __version__

_PARTS = ("torch", "tensorflow", "paddlepaddle", "numpy")


def text(form: str) -> str:
    if form == "text":
        return f"poprun (softipu) {__version__}"
    found = {"poprun": __version__, "popdist": __version__, "python": platform.python_version()}
    for name in _PARTS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    if form == "full-json":
        return json.dumps(found, indent=2)
    return "\n".join(f"{name}: {version}" for name, version in found.items())
