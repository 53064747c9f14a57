"""Entries of a repository that the server passed over, and why.

It lists models that it tried to load; of entries without a usable configuration its log tells.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import ModelFileMissing, RepositoryInvalid, SoftIPUError
from . import paths
from .exporting import VERSION
from .repository import CONFIG, folders

#: How the server's log speaks of an entry that it does not list, or lists without a reason.
_SAID = re.compile(
    r"(?:Poll failed for model directory|failed to load model) '(?P<name>[^']+)': (?P<why>.*?)\"?$"
)


def reasons(log: Iterable[str]) -> dict[str, str]:
    """What the server's log says of entries, by their names."""
    found = (_SAID.search(line.rstrip()) for line in log)
    return {match["name"]: match["why"] for match in found if match}


def left_out(
    repositories: Sequence[Path],
    wanted: Sequence[str] | None,
    listed: Iterable[str],
    said: dict[str, str],
) -> Iterator[tuple[str, str]]:
    """Models that were to be served (None: all entries) and are not among those `listed`, and
    entries that the server would hang with if a client loaded them; each with the reason in one
    line, as a backend gives it for those that it refuses."""
    places = {path.name: path for one in repositories for path in folders(one)}
    known = set(listed)
    for name in sorted(places) if wanted is None else wanted:
        if name not in known:
            yield name, _one_line(_explained(name, places.get(name), said.get(name)))
    for name in () if wanted is None else sorted(places):
        refused = paths.name_refused(name)
        if refused is not None and (places[name] / CONFIG).is_file():
            yield name, _one_line(refused)


def _one_line(error: SoftIPUError) -> str:
    return f"{error.label}: {error.what} Cause: {error.cause} Way out: {error.remedy}"


def _explained(name: str, place: Path | None, said: str | None) -> SoftIPUError:
    if place is None:
        return RepositoryInvalid(
            f"No repository has an entry {name}.",
            remedy="Check the name, or make the entry with `softipu serve export`.",
        )
    if not (place / CONFIG).is_file():
        return ModelFileMissing(f"{place} has no {CONFIG}.")
    if not any(path.is_dir() and path.name.isdigit() for path in place.iterdir()):
        return ModelFileMissing(f"{place} has no directory {VERSION} with an executable.")
    return RepositoryInvalid(
        f"{place}: {said or 'the server passed it over, and does not say why'}.",
        cause=f"The server cannot use its {CONFIG}.",
        remedy="Correct it, or export the model again with `softipu serve export`.",
    )
