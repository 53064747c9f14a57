"""Serving compiled models on a Triton server: repository entries, the backend, the server.

Nothing here is imported before it is used: the command must start fast, and inside the server the
backend must not pull in what only the command needs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def export(
    poptorch_model: Any,
    example_inputs: Any,
    directory: str | os.PathLike[str],
    name: str,
    **options: Any,
) -> Path:
    """Writes a repository entry for a PopTorch inference model; see `exporting.export`."""
    from . import exporting

    return exporting.export(poptorch_model, example_inputs, directory, name, **options)


__all__ = ["export"]
