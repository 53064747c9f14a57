"""Files of options: one `name=value` on each line, written by --export-config."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from ..errors import PoprunConfigInvalid
from .options import BY_NAME, OPTIONS

#: What is about files and output of this one call is not part of a configuration.
_NOT_KEPT = (
    "version", "version-format", "import-config", "export-config", "overwrite-config", "dry-run",
    "vv",
)  # fmt: skip


def read(path: str) -> list[str]:
    """The options of a file as words of a command line."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not text"
        raise PoprunConfigInvalid(f"{path} cannot be read: {reason}.") from None
    words = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            words += _words(stripped, f"{path}, line {number}")
    return words


def _words(line: str, where: str) -> list[str]:
    name, equals, value = (part.strip() for part in line.partition("="))
    row = BY_NAME.get(name)
    if not equals or row is None or row.name in _NOT_KEPT:
        raise PoprunConfigInvalid(f"{where}: {line[:80]!a} is not an option that files may have.")
    if row.kind == "count":
        if value not in ("0", "1", "2"):
            raise PoprunConfigInvalid(f"{where}: {name} is 0, 1 or 2, not {value!a}.")
        return ["-" + "v" * int(value)] if value != "0" else []
    try:
        row.parse(value)
    except ValueError as error:
        raise PoprunConfigInvalid(f"{where}: {name}={value!a}: {error}.") from None
    return [f"--{row.name}={value}"]


def write(path: str, options: argparse.Namespace, *, overwrite: bool) -> None:
    """Write all options that are set, whole or not at all."""
    target = Path(path)
    if target.exists() and not overwrite:
        raise PoprunConfigInvalid(
            f"{path} exists already.",
            cause="An exported configuration replaces a file only when told so.",
            remedy="Choose another name, or add --overwrite-config=yes.",
        )
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text("".join(f"{line}\n" for line in lines(options)), encoding="utf-8")
        os.replace(draft, target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise PoprunConfigInvalid(f"{path} cannot be written: {error.strerror}.") from None


def lines(options: argparse.Namespace) -> list[str]:
    found = []
    for row in OPTIONS:
        value = getattr(options, row.key)
        if row.name in _NOT_KEPT or value in (None, ""):
            continue
        for one in value if row.kind == "repeated" else (value,):
            found.append(f"{row.name}={_shown(row.kind, one, options)}")
    return found


def _shown(kind: str, value: Any, options: argparse.Namespace) -> str:
    if kind == "count":
        return str(options.verbosity)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if "\n" in str(value):
        return " ".join(str(value).split())
    return str(value)
