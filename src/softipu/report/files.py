"""The files of a report: written whole or not at all, found again, read with every byte doubted.

`profile.pop` has the name that scripts for real IPUs open; in it is our own versioned JSON, the
same as in `profile.json`.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import is_dataclass
from pathlib import Path

from .. import __version__
from ..errors import (
    ProfileForeign,
    ProfileMissing,
    ProfileUnreadable,
    ReportUnwritable,
    SoftIPUError,
)
from ..machine.reading import estimate_from_json
from ..machine.result import FORMAT, Estimate

PROFILE = "profile.pop"
DATA = "profile.json"
PAGE = "report.html"
TRACE = "trace.json"
COMPARISON = "comparison.html"
#: Where scripts look besides the directory itself.
PROGRAMS = ("training", "evaluation", "inference")

_SQLITE = b"SQLite format 3\x00"


def profile_text(estimate: Estimate) -> str:
    """`Estimate.to_json` as text, without the copies that it makes of 10,000 steps."""
    head = {"producer": f"softipu {__version__}", "format": FORMAT, "fits": estimate.fits}
    try:
        return json.dumps(
            head | vars(estimate), allow_nan=False, separators=(",", ":"), default=_as_json
        )
    except ValueError as error:
        raise ReportUnwritable(
            f"The estimate of {estimate.name!r} holds a number that is not finite.",
            cause="The machine model divided by nothing, as it may for an empty program.",
            remedy="Report the model as a bug of softipu.",
        ) from error


def _as_json(value: object) -> object:
    if is_dataclass(value):
        return vars(value)
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} in an estimate")


def write_files(directory: str | os.PathLike[str], texts: Mapping[str, str]) -> dict[str, Path]:
    """Write each file beside its place and rename it there: readers see the old one or the new."""
    folder = Path(directory)
    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            written[name] = folder / name
            _replace(folder / name, text.encode())
    except OSError as error:
        where = folder if error.filename is None else error.filename
        raise ReportUnwritable(f"{where}: {error.strerror or error}.") from error
    return written


def _replace(path: Path, content: bytes) -> None:
    draft = path.with_name(f".{path.name}-{os.getpid()}-{os.urandom(4).hex()}.draft")
    try:
        with open(draft, "xb") as stream:
            stream.write(content)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def find(path: str | os.PathLike[str]) -> list[Path]:
    """The profiles at a path: the file itself, or those of a directory that a run wrote to."""
    place = Path(path)
    if place.is_file():
        return [place]
    if not place.is_dir():
        raise ProfileMissing(f"{place}: there is no such file or directory.")
    for folders in ([place], _of_programs(place)):
        found = [profile for folder in folders if (profile := _in(folder)) is not None]
        if found:
            return found
    raise ProfileMissing(f"{place} holds no {PROFILE}.")


def _of_programs(place: Path) -> list[Path]:
    """Folders of programs, numbered where there are several of a kind, in their order; then those
    that are called as users named their models."""
    found: list[tuple[int, str, int, Path]] = []
    for folder in place.iterdir():
        if not folder.is_dir():
            continue
        kind, _, number = folder.name.rpartition("_")
        if not kind or not number.isdecimal():
            kind, number = folder.name, "1"
        known = PROGRAMS.index(kind) if kind in PROGRAMS else len(PROGRAMS)
        found.append((known, kind, int(number), folder))
    return [folder for *_, folder in sorted(found)]


def _in(folder: Path) -> Path | None:
    return next((folder / name for name in (PROFILE, DATA) if (folder / name).is_file()), None)


def find_one(path: str | os.PathLike[str]) -> Path:
    found = find(path)
    if len(found) > 1:
        names = ", ".join(str(one.parent) for one in found)
        raise ProfileMissing(
            f"{path} holds {len(found)} profiles.",
            cause="A comparison is between two of them.",
            remedy=f"Name one: {names}.",
        )
    return found[0]


def read(path: str | os.PathLike[str]) -> Estimate:
    """The estimate in a file that we wrote. A profile of the real tools is refused as such."""
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError as error:
        raise ProfileMissing(f"{path}: there is no such file.") from error
    except OSError as error:
        raise ProfileUnreadable(
            f"{path}: {error.strerror or error}.", remedy="Name a file that you may read."
        ) from error
    if content.startswith(_SQLITE):
        raise ProfileForeign(f"{path} is a database, as Graphcore's tools write it.")
    try:
        data = json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        if content[:1].isspace() or content[:1] in (b"{", b"["):
            raise ProfileUnreadable(f"{path} is no whole JSON text.") from error
        raise ProfileForeign(
            f"{path} is no profile of softipu.",
            cause="It is not JSON: it may come from Graphcore's own tools, or be something else.",
        ) from error
    try:
        return estimate_from_json(data)
    except SoftIPUError as error:
        raise type(error)(f"{path}: {error.what}", cause=error.cause, remedy=error.remedy) from None
