"""Whether a directory named on the command line can be written to, before anything is computed."""

from __future__ import annotations

import tempfile
from pathlib import Path

from ..errors import ReportUnwritable


def prove_writable(option: str, folder: Path) -> None:
    """Reports are written when a program was compiled: too late to learn that they can't be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(b"\0")
    except OSError as error:
        raise ReportUnwritable(f"{option} {folder}: {error.strerror or error}.") from error
