"""Paths that a Triton server can take: its Python backend hands them to a shell without quotes."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ..errors import InvalidSetting, RepositoryInvalid

_PLAIN = re.compile(r"[A-Za-z0-9_./+@:,=%-]+")
_CAUSE = "Triton's Python backend hands paths to a shell without quotes, and hangs with this one."
_WORDS = "letters without accents, digits and . _ -"


def temporary_folder(prefix: str) -> Path:
    """A new folder where the server finds what is made for it."""
    parent = tempfile.gettempdir()
    if not _PLAIN.fullmatch(parent):
        raise InvalidSetting(
            f"The server cannot use the directory for temporary files, {parent!r}.",
            cause=_CAUSE,
            remedy=f"Set TMPDIR to a directory whose path has only {_WORDS}.",
        )
    return Path(tempfile.mkdtemp(prefix=prefix))


def plain(repositories: Iterable[Path], folder: Path) -> list[Path]:
    """The repositories as the server gets to know them: by links in `folder` where need be."""
    found = []
    for number, path in enumerate(repositories):
        shown = path
        if not _PLAIN.fullmatch(str(path)):
            shown = folder / f"repository-{number}"
            shown.symlink_to(path, target_is_directory=True)
        found.append(shown)
    return found


def check_names(models: Iterable[str]) -> None:
    """Raises if one of these models has a name that the server hangs with."""
    for error in map(name_refused, models):
        if error is not None:
            raise error


def name_refused(model: str) -> RepositoryInvalid | None:
    """What is wrong with a model's name, if the server hangs with it."""
    if _PLAIN.fullmatch(model):
        return None
    return RepositoryInvalid(
        f"The server cannot load a model of the name {model!r}.",
        cause=_CAUSE,
        remedy=f"Rename its directory; use only {_WORDS}.",
    )
