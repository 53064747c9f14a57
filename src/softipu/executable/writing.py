"""Writing containers: whole or not at all, in one pass over the blobs.

Readers see the old file or the new one. What a killed writer leaves is a draft with a name of its
own, which no reader takes for a container.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import ExecutableUnwritable
from .container import HEADER, MAGIC, padding
from .manifest import FORMAT_VERSION, Blob, Manifest, Producer, encode

#: A blob: bytes in memory, or the path of a file that holds them.
Source = bytes | bytearray | memoryview | Path
DRAFT_SUFFIX = ".softipu-draft"
_CHUNK = 1 << 20


def write(
    path: str | os.PathLike[str],
    meta: Mapping[str, Any],
    blobs: Mapping[str, Source],
    *,
    producer: Producer,
) -> None:
    """Write a container to `path`, replacing what is there. ExecutableUnwritable says why not.

    `meta` must be JSON (no NaN); it comes back as JSON has it: tuples as lists, keys as texts.
    """
    try:
        target = Path(os.path.realpath(path))  # as any writer would, go through a symbolic link
        if target.exists() and not target.is_file():
            raise ExecutableUnwritable(f"{path} exists and is not a plain file.")
        draft = write_draft(target, meta, blobs, producer)
        try:
            os.replace(draft, target)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        where = path if error.filename is None else error.filename
        raise ExecutableUnwritable(f"{where}: {error.strerror or error}.") from error


def write_draft(
    target: Path,
    meta: Mapping[str, Any],
    blobs: Mapping[str, Source],
    producer: Producer,
    *,
    mode: int | None = None,
) -> Path:
    """Write a container beside `target`, to the disk, for the caller to rename to it.

    Without a mode, the umask decides. Raises OSError; nothing is left behind then.
    """
    unfinished = Manifest(
        producer, dict(meta), tuple(Blob(name, _size(blobs[name]), "0" * 64) for name in blobs)
    )
    room = encode(unfinished)  # checksums are not known yet, but how long they are is
    draft = target.with_name(f".{os.getpid()}-{os.urandom(8).hex()}{DRAFT_SUFFIX}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        with open(os.open(draft, flags, 0o666 if mode is None else mode), "wb") as stream:
            if mode is not None:
                os.fchmod(stream.fileno(), mode)
            finished = _write_blobs(stream, blobs, unfinished, len(room))
            text = encode(finished)
            head = (MAGIC, FORMAT_VERSION, 0, len(text), hashlib.sha256(text).digest())
            stream.seek(0)
            stream.write(HEADER.pack(*head) + text)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
    return draft


def _write_blobs(
    stream: BinaryIO, blobs: Mapping[str, Source], manifest: Manifest, room: int
) -> Manifest:
    finished = []
    end = HEADER.size + room
    stream.seek(end)
    for row in manifest.blobs:
        stream.write(bytes(padding(end)))
        size, digest = 0, hashlib.sha256()
        for chunk in _chunks(blobs[row.name]):
            size += len(chunk)
            digest.update(chunk)
            stream.write(chunk)
        if size != row.size:
            raise OSError(f"blob {row.name} changed its size while it was written")
        end = stream.tell()
        finished.append(replace(row, sha256=digest.hexdigest()))
    return replace(manifest, blobs=tuple(finished))


def _size(source: Source) -> int:
    if not isinstance(source, Path):
        return memoryview(source).nbytes
    found = source.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{source} is not a plain file")
    return found.st_size


def _chunks(source: Source) -> Iterator[bytes | memoryview]:
    if not isinstance(source, Path):
        view = memoryview(source)
        yield view.cast("B") if view.nbytes else b""
        return
    with source.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            yield chunk
