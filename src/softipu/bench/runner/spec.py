"""Spec files: which files are meant, what entries they hold, which of them are to run.

Entries stay raw here: an entry that is wrong must not keep the others from running.
"""

from __future__ import annotations

import difflib
import glob
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...errors import BenchDependency, BenchmarkUnknown, SpecMalformed, SpecMissing

SUFFIXES = (".yml", ".yaml")
_WILDCARDS = frozenset("*?[")


@dataclass(frozen=True)
class Entry:
    name: str
    spec: Path
    body: dict[str, Any]

    @property
    def is_template(self) -> bool:
        """Entries that only lend their keys to others are told by their names."""
        return "options" in self.name

    @property
    def is_convergence_test(self) -> bool:
        return "_conv" in self.name


def find_specs(patterns: Iterable[str]) -> list[Path]:
    """The files that paths, directories and wildcards mean, each once, in the order given."""
    found: dict[Path, None] = {}
    for pattern in patterns:
        found.update(dict.fromkeys(_matching(pattern)))
    return list(found)


def _matching(pattern: str) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        path = path / "*"
    elif path.exists():
        return [path.resolve()]
    elif not _WILDCARDS & set(pattern):
        raise SpecMissing(f"There is no spec file {pattern!r}.")
    names = sorted(glob.glob(str(path), recursive=True))
    # A wildcard catches scripts and data as well, which nobody meant.
    files = [Path(name).resolve() for name in names if name.endswith(SUFFIXES)]
    if not files:
        raise SpecMissing(f"No file {' or '.join(SUFFIXES)} matches {pattern!r}.")
    return files


def load_entries(paths: Iterable[Path]) -> list[Entry]:
    """All entries of the files. One name in two files stays two benchmarks."""
    return [entry for path in paths for entry in _entries(path)]


def _entries(path: Path) -> list[Entry]:
    body = read_yaml(path)
    if body is None:
        raise SpecMalformed(f"{path} is empty.")
    if not isinstance(body, dict):
        raise SpecMalformed(f"{path} holds a {type(body).__name__}, not a mapping of benchmarks.")
    for name, entry in body.items():
        if not isinstance(entry, dict):
            kind = type(entry).__name__
            raise SpecMalformed(f"{path}: {name!r} is a {kind}, not a mapping with a `cmd`.")
    return [Entry(str(name), path, entry) for name, entry in body.items()]


def read_yaml(path: Path) -> Any:
    """The file's contents; a key given twice is an error, since one of them would be lost."""
    try:
        import yaml  # only here: the rest of softipu does without it
    except ImportError:
        raise BenchDependency("Reading spec files needs PyYAML, which is not installed.") from None

    class Loader(yaml.SafeLoader):  # type: ignore[misc]
        # Before merge keys are resolved: overriding a merged key is what they are for.
        def compose_mapping_node(self, anchor: Any) -> Any:
            node = super().compose_mapping_node(anchor)
            seen = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in seen and key.value != "<<":
                    raise yaml.MarkedYAMLError(
                        problem=f"the key {key.value!r} is given twice",
                        problem_mark=key.start_mark,
                    )
                seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
            return node

    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=Loader)  # a SafeLoader
    except OSError as error:
        raise SpecMissing(f"{path} can't be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise SpecMalformed(f"{path} is not UTF-8 text: {error.reason}.") from None
    except yaml.YAMLError as error:
        raise SpecMalformed(f"{path} is not valid YAML: {_one_line(error)}.") from None
    except (RecursionError, ValueError) as error:
        raise SpecMalformed(f"{path} is not valid YAML: {error}.") from None


def _one_line(error: Exception) -> str:
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    mark = getattr(error, "problem_mark", None)
    return f"{problem} (line {mark.line + 1}, column {mark.column + 1})" if mark else str(problem)


def select(
    entries: Sequence[Entry], names: Sequence[str] | None, *, include_convergence: bool = False
) -> list[Entry]:
    """The benchmarks to run: those named, in that order, or all but convergence tests."""
    benchmarks = [entry for entry in entries if not entry.is_template]
    everyday = [one for one in benchmarks if include_convergence or not one.is_convergence_test]
    if names is None:
        chosen = everyday
    else:
        chosen = [entry for name in names for entry in _named(name, benchmarks, everyday)]
    if not chosen:
        raise BenchmarkUnknown(
            "No benchmark is left to run.",
            cause=f"Of {len(benchmarks)} benchmarks in the spec files, none was selected.",
            remedy="Add --include-convergence for names with '_conv', or name one.",
        )
    # Wildcards may overlap; an entry is known by its place, since two files may share names.
    return list({(entry.spec, entry.name): entry for entry in chosen}.values())


def _named(name: str, benchmarks: Sequence[Entry], everyday: Sequence[Entry]) -> list[Entry]:
    exact = [entry for entry in benchmarks if entry.name == name]
    found = exact or [entry for entry in everyday if fnmatchcase(entry.name, name)]
    if not found:
        close = difflib.get_close_matches(name, [entry.name for entry in benchmarks], n=3)
        hint = f" Nearest: {', '.join(close)}." if close else ""
        raise BenchmarkUnknown(f"No spec file has a benchmark {name!r}.{hint}")
    return found
