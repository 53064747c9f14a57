"""Model repositories as directories: which entries there are, and what changed since the last look.

The server could poll by itself, but then it lets nobody load a model, which we must when a backend
process was killed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ..errors import DevicesBusy, ModelControlFailed, RepositoryInvalid, ServerSilent
from . import paths
from .control import Control

CONFIG = "config.pbtxt"
#: Paths in an entry with the time and size of each.
Snapshot = tuple[tuple[str, int, int], ...]


def folders(repository: Path) -> list[Path]:
    """What is meant to be a model, complete or not. Hidden ones are entries in the making."""
    return sorted(
        path for path in repository.iterdir() if path.is_dir() and not path.name.startswith(".")
    )


def entries(repository: Path) -> list[str]:
    """The names of the models in a repository."""
    return [path.name for path in folders(repository) if (path / CONFIG).is_file()]


def snapshot(repositories: Sequence[Path]) -> dict[str, Snapshot]:
    """What each entry looks like now."""
    return {name: _files(path / name) for path in repositories for name in entries(path)}


def _files(folder: Path) -> Snapshot:
    found = []
    for path in sorted(folder.rglob("*")):
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        if path.is_file():
            found.append((str(path.relative_to(folder)), state.st_mtime_ns, state.st_size))
    return tuple(found)


def lacks_ipus(reason: str) -> bool:
    """Whether a model could not be loaded because others hold the IPUs, by the server's words."""
    return f"SIPU-{DevicesBusy.code}" in reason


class Poller:
    """Loads what is new or changed in the repositories, and unloads what is gone.

    What fails for want of IPUs or of the server is done at a later look."""

    def __init__(
        self,
        repositories: Sequence[Path],
        control: Control,
        seconds: float,
        known: dict[str, Snapshot],
    ) -> None:
        self._repositories = repositories
        self._control = control
        self._seconds = seconds
        self._known = known
        self._next = time.monotonic() + seconds
        self._trouble = ""
        #: Names for which something has to be done again, and what was said of that.
        self._waiting: dict[str, str] = {}

    def look(self) -> list[str]:
        """When it is time, brings the server up to date; returns what was done, as lines."""
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + self._seconds
        try:
            now = snapshot(self._repositories)
        except OSError as error:
            # It may be on its way out or in: what is loaded stays until it can be seen again.
            return self._once(f"{error.filename} cannot be read: {error.strerror}; models stay.")
        self._trouble = ""
        gone = [name for name in self._known if name not in now]
        new = [name for name, files in now.items() if self._known.get(name) != files]
        said, self._waiting = self._waiting, {}
        lines = [self._do("unloaded", name) for name in gone]
        lines += [self._do("loaded", name) for name in new]
        before = {name: self._known[name] for name in self._waiting if name in self._known}
        self._known = {n: f for n, f in now.items() if n not in self._waiting} | before
        self._next = time.monotonic() + self._seconds
        return [line for line in lines if line not in said.values()]

    def _once(self, trouble: str) -> list[str]:
        """Said the first time, not at every look."""
        said, self._trouble = self._trouble, trouble
        return [] if said == trouble else [trouble]

    def _do(self, what: str, name: str) -> str:
        try:
            if what == "loaded":
                paths.check_names([name])
            (self._control.load if what == "loaded" else self._control.unload)(name)
        except (ModelControlFailed, RepositoryInvalid) as error:
            line = f"Model {name} could not be {what}: {error.what}"
            if isinstance(error, ServerSilent) or lacks_ipus(error.what):
                self._waiting[name] = line
            return line
        return f"Model {name} was {what}."
