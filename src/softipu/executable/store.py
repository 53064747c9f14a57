"""A cache of containers, found again by a key that is a hash of what they were compiled from.

Any number of processes may share one. It never decides what belongs into a key or a container:
front ends do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import __version__, settings
from ..errors import (
    CacheUnusable,
    ExecutableCorrupt,
    ExecutableForeign,
    ExecutableUnreadable,
    ExecutableVersion,
    SoftIPUError,
)
from . import locks
from .container import Container, is_missing, read
from .folder import DAMAGED, Entry, Folder, Removed, explained
from .manifest import FORMAT_VERSION, Producer
from .writing import Source, write_draft

logger = logging.getLogger(__name__)
#: Metadata and blobs of a container that was just compiled.
Contents = tuple[Mapping[str, Any], Mapping[str, Source]]


class CacheWarning(UserWarning):
    """Something in the cache is not right; the program goes on by compiling again."""


class Store:
    """The cache in `directory`. Making one touches nothing; the first `put` or `lock` does.

    `max_bytes` defaults to SOFTIPU_CACHE_SIZE. With `producer`, only what that front end made in
    that version is found; without, everything is, but nothing can be put.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        max_bytes: int | None = None,
        *,
        producer: Producer | None = None,
    ) -> None:
        try:
            self.directory = Path(directory).expanduser().absolute()
        except RuntimeError:
            raise CacheUnusable(f"{directory}: there is no such user.") from None
        self.max_bytes = settings.get("SOFTIPU_CACHE_SIZE") if max_bytes is None else max_bytes
        self.producer = producer
        self._folder = Folder(self.directory)

    def key(self, *parts: Any) -> str:
        """A key for what the parts describe: bytes, or anything that is JSON (NaN allowed).

        The versions of softipu, of the format and of the producer are part of every key.
        """
        digest = hashlib.sha256()
        producer = None if self.producer is None else [self.producer.name, self.producer.version]
        for part in ([__version__, FORMAT_VERSION, producer], *parts):
            if isinstance(part, (bytes, bytearray, memoryview)):
                kind, data = b"b", memoryview(part)
            else:
                kind, data = b"j", memoryview(_canonical(part))
            digest.update(kind + data.nbytes.to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()

    # --- what programs do ---------------------------------------------------------------------

    def get(self, key: str) -> Container | None:
        """The container under `key`, checked to the last byte, or None.

        A damaged one is moved out of the way with a CacheWarning, so that the caller compiles.
        """
        try:
            container = self._open(key)
        except (ExecutableCorrupt, ExecutableForeign) as error:
            return self._set_aside(key, error)
        except ExecutableVersion as error:
            logger.info("Not used: %s", error.what)
            return None
        if container is not None:
            with contextlib.suppress(OSError):  # a cache that may only be read still serves
                container.touch()
        return container

    def put(self, key: str, meta: Mapping[str, Any], blobs: Mapping[str, Source]) -> Container:
        """Write a container under `key`, then evict until the cache is within its size.

        The new entry stays even if it alone is larger than the cache may be.
        """
        path = self._folder.entry(key)
        if self.producer is None:
            raise ValueError("a store without a producer can only be read")
        mode = self._folder.prepare()
        with explained(path):
            draft = write_draft(path, meta, blobs, self.producer, mode=mode)
            try:
                container = read(draft)
                with self._folder.locked():
                    os.replace(draft, path)
                    container.path = path
                    self._folder.sweep()
                    self._folder.evict(self.max_bytes, keep=key)
            except BaseException:
                draft.unlink(missing_ok=True)
                raise
        return container

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold `key`: of many processes that miss it, one compiles, and the others then hit.

        Threads of one process exclude each other too; the lock is not re-entrant. It ends with the
        process, however that dies. What is locked is never evicted.
        """
        path = self._folder.lock(key)
        mode = self._folder.prepare()

        def waiting() -> None:
            logger.info("Another process compiles %s…; waiting for it.", key[:12])

        with explained(path):
            held = locks.acquire(path, mode, waiting)
        assert held is not None
        try:
            yield
        finally:
            locks.release(held)

    def obtain(self, key: str, make: Callable[[], Contents]) -> tuple[Container, bool]:
        """The container under `key`, and whether it was there: the first process to miss makes it.

        `make` returns metadata and blobs. A hit takes no lock, and so works where nothing can be
        written.
        """
        container = self.get(key)
        if container is not None:
            return container, True
        with self.lock(key):
            container = self.get(key)  # another process may have made it while we waited
            if container is not None:
                return container, True
            return self.put(key, *make()), False

    def reject(self, key: str, error: SoftIPUError) -> None:
        """Move an entry away whose bytes are intact but whose meaning is not, with a warning."""
        gone = contextlib.suppress(FileNotFoundError)  # another process was faster
        with explained(self._folder.entry(key)), self._folder.locked(), gone:
            self._folder.set_aside(key)
        self._warn(error, moved=True)

    # --- what people do -----------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All entries, most recently used first."""
        return self._folder.entries()

    def damaged(self) -> list[Entry]:
        """What was moved out of the way and can be looked at: the newest of each key."""
        return self._folder.damaged()

    def is_locked(self, key: str) -> bool:
        return locks.is_held(self._folder.lock(key))

    def clear(self) -> Removed:
        """Remove everything but the entries that a process holds."""
        return self.prune(0)

    def prune(self, max_bytes: int | None = None) -> Removed:
        """Bring the cache within its size; remove damaged entries, dead drafts and idle locks."""
        if not self._folder.path.is_dir():
            return Removed()
        with explained(self._folder.path), self._folder.locked():
            damaged = self._folder.empty_damaged()
            removed = self._folder.evict(self.max_bytes if max_bytes is None else max_bytes)
            self._folder.sweep()
            self._folder.sweep_locks()
        removed.entries += damaged.entries
        removed.size += damaged.size
        return removed

    # --- how ----------------------------------------------------------------------------------

    def _open(self, key: str) -> Container | None:
        try:
            container = read(self._folder.entry(key), producer=self.producer)
        except ExecutableUnreadable as error:
            if is_missing(error):
                return None
            raise CacheUnusable(error.what) from error
        try:
            container.verify()
        except BaseException:
            container.close()
            raise
        return container

    def _set_aside(self, key: str, error: SoftIPUError) -> Container | None:
        moved = False
        try:
            with self._folder.locked():
                try:
                    return self._open(key)  # somebody may have put a good one there meanwhile
                except ExecutableVersion:
                    return None
                except (ExecutableCorrupt, ExecutableForeign):
                    self._folder.set_aside(key)
                    moved = True
        except (OSError, CacheUnusable) as refusal:
            logger.info("A damaged entry stays: %s", refusal)
        self._warn(error, moved=moved)
        return None

    def _warn(self, error: SoftIPUError, *, moved: bool) -> None:
        what = f"; moved to {self._folder.path / DAMAGED}" if moved else ""
        text = f"Compiling again, since a cached executable is bad{what}. {error.what}"
        warnings.warn(f"{text} ({error.label})", CacheWarning, stacklevel=4)


def _canonical(part: Any) -> bytes:
    """One text per value: equal parts have equal keys, and different ones different keys."""
    _demand_text_keys(part)
    return json.dumps(part, sort_keys=True, separators=(",", ":")).encode()


def _demand_text_keys(part: Any) -> None:
    if isinstance(part, dict):
        for name, value in part.items():
            if not isinstance(name, str):  # JSON would make 1 and "1" the same
                raise TypeError(f"key parts have texts as keys, not {name!r}")
            _demand_text_keys(value)
    elif isinstance(part, (list, tuple)):
        for value in part:
            _demand_text_keys(value)
