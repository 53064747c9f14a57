"""A SQLite file that many threads and processes share, with every failure in our own words.

The file is born complete (built aside, then linked into place), so nobody ever sees a half-made
one. What the tables mean is the caller's business; readers can work without writing anything.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DatabaseDamaged, SoftIPUError, StateFull, StateReadOnly, StateUnusable
from .home import explained, rightful_owner

if TYPE_CHECKING:
    from sqlite3 import Connection

#: Longer than any queue of transactions that we have seen; they take milliseconds.
BUSY_SECONDS = 30.0
_READ_ATTEMPTS = 50

# Primary result codes of SQLite (sqlite3.h); Python names them from 3.11 only.
_BUSY, _LOCKED, _READONLY, _FULL, _CANTOPEN = 5, 6, 8, 13, 14
_DAMAGED = (1, 11, 24, 26)  #: 1: tables that are missing, text that is no text
_CODE_OF_MESSAGE = {
    "database is locked": _BUSY,
    "database table is locked": _LOCKED,
    "attempt to write a readonly database": _READONLY,
    "database or disk is full": _FULL,
    "unable to open database file": _CANTOPEN,
    "database disk image is malformed": 11,
    "file is not a database": 26,
}


class Store:
    """One database file of a given kind (application id), format (version) and schema."""

    def __init__(
        self,
        path: Path,
        *,
        application_id: int,
        version: int,
        schema: Sequence[str],
        seed: Callable[[Connection], None],
        read_only: bool = False,
    ) -> None:
        self.path = path
        self._application_id = application_id
        self._version = version
        self._schema = schema
        self._seed = seed
        self._read_only = read_only
        self._idle: list[Connection] = []
        self._owner: tuple[int, int, int] | None = None  #: process and file of the connections
        self._pool_lock = threading.Lock()
        self._write_lock = threading.Lock()

    # --- transactions --------------------------------------------------------------------

    @contextlib.contextmanager
    def read(self) -> Iterator[Connection]:
        """A consistent view of all tables."""
        with self._translated():
            if self._read_only:
                with contextlib.closing(self._copy()) as connection:
                    yield connection
                return
            with self._borrowed() as connection, _transaction(connection, "BEGIN"):
                yield connection

    @contextlib.contextmanager
    def write(self) -> Iterator[Connection]:
        """One change: on disk when this returns, undone if the body raises."""
        if self._read_only:
            raise StateReadOnly(f"{self.path} was opened for reading only.")
        # Threads of this process queue here, so only other processes meet SQLite's busy handler.
        with (
            self._translated(),
            self._write_lock,
            self._borrowed() as connection,
            _transaction(connection, "BEGIN IMMEDIATE"),
        ):
            yield connection

    def close(self) -> None:
        with self._pool_lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    # --- connections ---------------------------------------------------------------------

    @contextlib.contextmanager
    def _borrowed(self) -> Iterator[Connection]:
        connection, owner = self._take()
        healthy = False
        try:
            yield connection
            healthy = True
        except SoftIPUError:  # a refused request says nothing about the connection
            healthy = not connection.in_transaction
            raise
        finally:
            with self._pool_lock:
                healthy = healthy and self._owner == owner
                if healthy:
                    self._idle.append(connection)
            if not healthy:
                connection.close()

    def _take(self) -> tuple[Connection, tuple[int, int, int]]:
        owner = self._current_owner()
        with self._pool_lock:
            if self._owner != owner:
                # The file was moved away under us: old connections would write to the old one.
                # After a fork they belong to the parent, whose locks closing them would drop.
                stale, self._idle = self._idle, []
                forked = self._owner is not None and self._owner[0] != owner[0]
                for connection in stale:
                    _leaked.append(connection) if forked else connection.close()
                self._owner = owner
            if self._idle:
                return self._idle.pop(), owner
        return self._open(f"{self.path.absolute().as_uri()}?mode=rw"), owner

    def _current_owner(self) -> tuple[int, int, int]:
        with explained(self.path):
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                self._create()
                status = os.stat(self.path)
        if not stat.S_ISREG(status.st_mode):
            raise DatabaseDamaged(f"{self.path} is not a file.")
        return os.getpid(), status.st_dev, status.st_ino

    def _open(self, uri: str) -> Connection:
        import sqlite3

        connection = sqlite3.connect(
            uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS, check_same_thread=False
        )
        try:
            self._check(connection)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != self._application_id:
            raise DatabaseDamaged(f"{self.path} is empty, or a database of another program.")
        if version > self._version:
            raise DatabaseDamaged(
                f"{self.path} has format {version}; this softipu knows up to {self._version}.",
                cause="The file was made by a newer softipu.",
                remedy="Upgrade softipu, or move the file aside and create the partitions again.",
            )
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if version < 1 or verdict != "ok":
            raise DatabaseDamaged(f"{self.path} is damaged: {verdict}.")

    def _create(self) -> None:
        """Build the file aside and link it into place; who comes second uses the first's."""
        folder = self.path.parent.stat()
        mode = stat.S_IMODE(folder.st_mode)
        aside = self.path.with_name(f".softipu-{self.path.name}.{secrets.token_hex(8)}")
        descriptor = os.open(aside, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            # A directory that others may write is shared on purpose; SQLite's own files follow.
            os.fchmod(descriptor, 0o600 | (mode & 0o066 if mode & 0o022 else 0))
            owner = rightful_owner(folder)
            if owner is not None:
                os.fchown(descriptor, *owner)
            os.close(descriptor)
            with contextlib.closing(self._fresh(str(aside))):
                pass
            with contextlib.suppress(FileExistsError):
                os.link(aside, self.path)
            _sync_directory(self.path.parent)
        finally:
            for leftover in (aside, Path(f"{aside}-wal"), Path(f"{aside}-shm")):
                leftover.unlink(missing_ok=True)

    def _fresh(self, name: str) -> Connection:
        import sqlite3

        connection = sqlite3.connect(name, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            with _transaction(connection, "BEGIN IMMEDIATE"):
                for statement in self._schema:
                    connection.execute(statement)
                self._seed(connection)
                connection.execute(f"PRAGMA application_id = {self._application_id}")
                connection.execute(f"PRAGMA user_version = {self._version}")
        except BaseException:
            connection.close()
            raise
        return connection

    # --- reading without a trace ---------------------------------------------------------

    def _copy(self) -> Connection:
        """The tables in memory, taken without creating or changing a file where that can be."""
        import sqlite3

        for _ in range(_READ_ATTEMPTS):
            before = self._stamp()
            if before is None:
                return self._fresh(":memory:")  # nobody wrote yet: what the first writer will find
            if before[-1]:
                break  # somebody is writing, or was killed: changes wait in the write-ahead log
            try:
                copy = self._duplicate(f"{self.path.absolute().as_uri()}?immutable=1")
            except (sqlite3.DatabaseError, DatabaseDamaged):
                if self._stamp() == before:
                    raise
                continue
            if self._stamp() == before:
                return copy
            copy.close()
        try:
            return self._duplicate(f"{self.path.absolute().as_uri()}?mode=ro")
        except sqlite3.OperationalError as error:
            if _code(error) not in (_READONLY, _CANTOPEN):
                raise
        # A read-only directory with a log in it: SQLite must write there to read it. A copy works.
        with tempfile.TemporaryDirectory(prefix="softipu-") as folder:
            for suffix in ("", "-wal"):
                shutil.copyfile(f"{self.path}{suffix}", f"{folder}/copy{suffix}")
            return self._duplicate(f"{Path(folder, 'copy').as_uri()}?mode=rw")

    def _stamp(self) -> tuple[int, ...] | None:
        """Changes when the file does; the last number is the size of the write-ahead log."""
        with explained(self.path):
            try:
                status = os.stat(self.path)
            except FileNotFoundError:
                return None
            if not stat.S_ISREG(status.st_mode):
                raise DatabaseDamaged(f"{self.path} is not a file.")
            try:
                log = os.stat(f"{self.path}-wal").st_size
            except FileNotFoundError:
                log = 0
        return status.st_ino, status.st_size, status.st_mtime_ns, log

    def _duplicate(self, uri: str) -> Connection:
        import sqlite3

        with contextlib.closing(self._open(uri)) as source:
            copy = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            try:
                source.backup(copy)
            except BaseException:
                copy.close()
                raise
        return copy

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        import sqlite3

        try:
            yield
        except sqlite3.Error as error:
            raise _in_our_words(self.path, error) from error


#: Connections of a parent process, kept from being closed by the garbage collector.
_leaked: list[Connection] = []


@contextlib.contextmanager
def _transaction(connection: Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back by itself after some errors
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


def _sync_directory(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _code(error: Exception) -> int:
    code = getattr(error, "sqlite_errorcode", None)
    return _CODE_OF_MESSAGE.get(str(error), 1) if code is None else int(code) & 0xFF


def _in_our_words(path: Path, error: Exception) -> SoftIPUError:
    code, what = _code(error), f"{path}: {error}."
    if code == _FULL:
        return StateFull(what)
    if code in (_READONLY, _CANTOPEN):
        return StateReadOnly(what)
    if code in (_BUSY, _LOCKED):
        return StateUnusable(
            what,
            cause=f"Another process has kept the file locked for {BUSY_SECONDS:.0f} seconds.",
            remedy="Find it (`fuser` shows who has the file open), end it, and try again.",
        )
    if code in _DAMAGED or type(error).__name__ != "OperationalError":
        return DatabaseDamaged(what)
    return StateUnusable(what)
