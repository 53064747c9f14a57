"""The state directory: found, made, checked and written to. Nothing else touches its path.

A marker file tells our directory from others, so that a wrong SOFTIPU_HOME can never be filled
with lock files. Readers create nothing; writers replace files whole or not at all.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .. import __version__, settings
from ..errors import (
    SoftIPUError,
    StateForeign,
    StateFormat,
    StateFull,
    StateReadOnly,
    StateUnusable,
)

FORMAT = 1
MARKER = "softipu-state.json"
_TEMPORARY = ".softipu-"
LARGEST_RECORD = 1 << 20


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what the file system says into an error that names the path and the way out."""
    try:
        yield
    except OSError as error:
        kind: type[SoftIPUError] = StateUnusable
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            kind = StateReadOnly
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            kind = StateFull
        raise kind(f"{path}: {error.strerror or error}.") from error


class Home:
    """One state directory. Cheap to make; `prepare` before the first write."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = default_path() if path is None else path
        self._prepared = False
        self._file_mode = 0o600
        self._owner: tuple[int, int] | None = None

    @property
    def ipus(self) -> Path:
        return self.path / "ipus"

    @property
    def controllers(self) -> Path:
        return self.path / "vipu"

    def exists(self) -> bool:
        """Whether there is state to read; a directory that is not ours is an error."""
        with explained(self.path):
            try:
                entries = self._entries()
            except FileNotFoundError:
                return False
            except NotADirectoryError:
                raise StateForeign(f"{self.path} is a file, not a directory.") from None
            # Asked for after the list was read: another process may be preparing the directory, and
            # a list read meanwhile can hold what it made last and lack the marker, made first.
            marked = MARKER in entries or (entries and (self.path / MARKER).exists())
        if marked:
            self._check_marker()
            return True
        if entries:
            raise StateForeign(f"{self.path} has files in it, but none of softipu's.")
        return False

    def prepare(self) -> None:
        """Make the directory, private to the user unless it exists with wider permissions."""
        if self._prepared:
            return
        with explained(self.path):
            exists = self.exists()
            if not exists:
                self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.stat()
            mode = stat.S_IMODE(found.st_mode)
            self._owner = rightful_owner(found)
            # A directory shared on purpose (group or world may write) gets files to share.
            self._file_mode = 0o600 | (mode & 0o066 if mode & 0o022 else 0)
            if not exists:
                # Several threads and processes may be the first at once, each with its own draft.
                self.write_json(
                    self.path / MARKER,
                    {"format": FORMAT, "made_by": f"softipu {__version__}"},
                    temporary=f"{MARKER}.{os.getpid()}.{threading.get_ident()}",
                )
            for folder in (self.ipus, self.controllers):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir()
                    folder.chmod(mode)
                    if self._owner is not None:
                        os.chown(folder, *self._owner)
        self._prepared = True

    def _entries(self) -> list[str]:
        return [name for name in os.listdir(self.path) if not name.startswith(_TEMPORARY)]

    def _check_marker(self) -> None:
        with explained(self.path / MARKER):
            text = read_plain_file(self.path / MARKER, LARGEST_RECORD)  # unreadable is not damaged
        marker = _decoded(text)
        if not isinstance(marker, dict) or marker.get("format") != FORMAT:
            raise StateFormat(
                f"{self.path / MARKER} does not say format {FORMAT}, the one this softipu knows."
            )

    def make_lock(self, path: Path) -> None:
        """Make a lock file, unless somebody else just did; it is never removed."""
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, self._file_mode)
        except FileExistsError:
            if path.is_symlink():  # to nowhere: we must not make a file there
                raise OSError(errno.ELOOP, "not a plain file") from None
            return
        try:
            self._adjust(descriptor)
        finally:
            os.close(descriptor)

    def _adjust(self, descriptor: int) -> None:
        """A new file gets the directory's permissions and, if root made it, its owner."""
        if self._file_mode != 0o600:
            os.fchmod(descriptor, self._file_mode)
        if self._owner is not None:
            os.fchown(descriptor, *self._owner)

    def write_json(self, path: Path, body: dict[str, Any], temporary: str | None = None) -> None:
        """Replace a file whole: readers see the old text or the new one, never a part.

        The temporary file's name is fixed, as only the holder of a lock writes beside it: what a
        killed writer leaves is overwritten by the next one.
        """
        draft = path.with_name(f"{_TEMPORARY}{temporary or path.name}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with open(os.open(draft, flags, self._file_mode), "w") as stream:
                self._adjust(stream.fileno())
                stream.write(json.dumps(body))
            os.replace(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise


def rightful_owner(directory: os.stat_result) -> tuple[int, int] | None:
    """Whom files that root makes must go to, if not to root.

    In a container, or by sudo, root works in users' directories: files left with root would lock
    the user out of his own IPUs.
    """
    if os.geteuid() != 0 or directory.st_uid == 0:
        return None
    return directory.st_uid, directory.st_gid


def default_path() -> Path:
    configured = settings.get("SOFTIPU_HOME")
    if configured is not None:
        return settings.expanded("SOFTIPU_HOME").absolute()
    base = settings.get("XDG_STATE_HOME")
    if base and os.path.isabs(base):
        return Path(base) / "softipu"
    user = user_home()
    if user is None:
        raise StateUnusable(
            "There is no home directory to keep state in.",
            cause="HOME is not set, and the system does not know this user.",
            remedy="Set SOFTIPU_HOME (or HOME) to a directory of yours.",
        )
    return user / ".local" / "state" / "softipu"


def user_home() -> Path | None:
    try:
        return Path.home()
    except RuntimeError:
        return None


def read_json(path: Path | str) -> Any:
    """The decoded file, or None where it is missing, damaged or not ours to read."""
    try:
        return _decoded(read_plain_file(path, LARGEST_RECORD))
    except OSError:
        return None


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_plain_file(path: Path | str, most: int) -> bytes:
    """Up to `most` bytes of a regular file; a pipe or device would block, and is refused."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a plain file")
        parts = []
        while most > 0:
            part = os.read(descriptor, min(most, 1 << 16))
            if not part:
                break
            parts.append(part)
            most -= len(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)
