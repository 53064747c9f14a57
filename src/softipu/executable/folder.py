"""The files of a cache: where they are, which modes they have, how they are listed and removed.

It knows names, sizes and times, but not what is in the files. Renames and removals happen under
one lock for the whole folder, held for an instant only.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import CacheUnusable
from . import locks
from .manifest import FORMAT_VERSION
from .writing import DRAFT_SUFFIX

NAME = f"softipu-v{FORMAT_VERSION}"
DAMAGED = "damaged"
SUFFIX, LOCK_SUFFIX = ".softipu", ".lock"
_FOLDER_LOCK = "folder.lock"
_KEY = re.compile(r"[0-9a-f]{64}", re.ASCII)
#: A draft that nobody wrote to for so long belongs to a writer that was killed.
_DEAD_DRAFT_SECONDS = 3600.0


@dataclass(frozen=True)
class Entry:
    key: str
    path: Path
    size: int
    used_at: float  #: seconds since 1970
    damaged: bool = False


@dataclass
class Removed:
    """What a clean-up removed, and how many entries it left because a process holds their lock."""

    entries: int = 0
    size: int = 0
    in_use: int = 0

    def add(self, entry: Entry) -> None:
        self.entries += 1
        self.size += entry.size


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the file system says into an error that names the path and the way out."""
    try:
        yield
    except OSError as error:
        where = error.filename or path
        raise CacheUnusable(f"{where}: {error.strerror or error}.") from error


class Folder:
    """Our folder inside the directory that the user named."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = directory / NAME

    def entry(self, key: str) -> Path:
        return self.path / f"{_checked(key)}{SUFFIX}"

    def lock(self, key: str) -> Path:
        return self.path / f"{_checked(key)}{LOCK_SUFFIX}"

    def prepare(self) -> int:
        """Make the folder; returns the mode for files: the folder's own read and write bits.

        A directory that is shared on purpose, by its mode, gets a folder and files to share. In one
        with the sticky bit, where users may only remove what is theirs, the folder stays ours.
        """
        with explained(self.path):
            if not self.path.is_dir():
                self._make()
            return self.path.stat().st_mode & 0o666 | 0o600

    def _make(self) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise CacheUnusable(f"{self.directory} is a file, not a directory.") from None
        mode = stat.S_IMODE(self.directory.stat().st_mode)
        try:
            self.path.mkdir()
            if not mode & stat.S_ISVTX:
                self.path.chmod(mode & 0o777)
        except FileExistsError:
            if not self.path.is_dir():  # else another process was faster
                raise CacheUnusable(f"{self.path} is a file, not a directory.") from None

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        path = self.path / _FOLDER_LOCK
        mode = self.prepare()
        with explained(path):
            held = locks.acquire(path, mode, waiting=lambda: None)
        assert held is not None
        try:
            yield
        finally:
            locks.release(held)

    # --- looking ------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All entries, most recently used first."""
        return sorted(self._scan(self.path), key=lambda entry: -entry.used_at)

    def damaged(self) -> list[Entry]:
        return list(self._scan(self.path / DAMAGED, damaged=True))

    def _scan(self, folder: Path, *, damaged: bool = False) -> Iterator[Entry]:
        for key in self._keys(folder, SUFFIX):
            path = folder / f"{key}{SUFFIX}"
            with contextlib.suppress(FileNotFoundError):  # gone since it was listed
                found = path.lstat()
                yield Entry(key, path, found.st_size, found.st_mtime, damaged)

    @staticmethod
    def _keys(folder: Path, suffix: str) -> list[str]:
        """Keys of the files with that suffix; whatever else lies there is none of our business."""
        with explained(folder):
            try:
                names = os.listdir(folder)
            except FileNotFoundError:
                return []
        stems = [name[: -len(suffix)] for name in names if name.endswith(suffix)]
        return [stem for stem in stems if _KEY.fullmatch(stem)]

    # --- removing, under the folder's lock ----------------------------------------------------

    def set_aside(self, key: str) -> None:
        """Move an entry to the damaged ones, for people to look at."""
        aside = self.path / DAMAGED
        with contextlib.suppress(FileExistsError):
            aside.mkdir()
            aside.chmod(stat.S_IMODE(self.path.stat().st_mode))
        os.replace(self.entry(key), aside / self.entry(key).name)

    def evict(self, limit: int, keep: str | None = None) -> Removed:
        """Remove damaged entries, then the least recently used, until no more than `limit` stay."""
        removed = Removed()
        oldest_first = [*self.damaged(), *reversed(self.entries())]
        total = sum(entry.size for entry in oldest_first)
        for entry in oldest_first:
            if total <= limit:
                break
            if entry.key == keep and not entry.damaged:
                continue
            if not self._remove(entry):
                removed.in_use += 1
                continue
            removed.add(entry)
            total -= entry.size
        return removed

    def _remove(self, entry: Entry) -> bool:
        """Remove an entry unless a process holds its lock."""
        if entry.damaged:
            entry.path.unlink(missing_ok=True)
            return True
        return self._with_lock(entry.key, lambda: entry.path.unlink(missing_ok=True))

    def _with_lock(self, key: str, deed: Callable[[], None]) -> bool:
        """Do it under the key's lock, then remove the lock too; False if a process holds it."""
        path = self.lock(key)
        held = locks.acquire(path, self.prepare())
        if held is None:
            return False
        try:
            deed()
            path.unlink(missing_ok=True)
        finally:
            locks.release(held)
        return True

    def sweep(self) -> None:
        """Remove what killed writers left: drafts that nobody writes any more."""
        for name in os.listdir(self.path):
            if name.endswith(DRAFT_SUFFIX):
                draft = self.path / name
                with contextlib.suppress(FileNotFoundError):
                    if time.time() - draft.lstat().st_mtime > _DEAD_DRAFT_SECONDS:
                        draft.unlink()

    def sweep_locks(self) -> None:
        """Remove the locks of what is not there, unless a process holds them."""
        present = set(self._keys(self.path, SUFFIX))
        for key in self._keys(self.path, LOCK_SUFFIX):
            if key not in present:
                self._with_lock(key, lambda: None)

    def empty_damaged(self) -> Removed:
        removed = Removed()
        for entry in self.damaged():
            self._remove(entry)
            removed.add(entry)
        return removed


def _checked(key: str) -> str:
    """Keys become file names, so nothing but a hash may pass."""
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise ValueError(f"{key!a} is not a key of a store")
    return key
