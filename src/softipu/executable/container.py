"""The container file: a header, a manifest, then blobs of bytes. Reading and checking it.

Nothing in a container is ever unpickled, imported, decompressed or extracted to a path. The file
is read, not mapped: a file that shrinks under a mapping kills the process.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import struct
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

from .. import __version__
from ..errors import (
    ExecutableCorrupt,
    ExecutableForeign,
    ExecutableUnreadable,
    ExecutableVersion,
)
from .manifest import FORMAT_VERSION, LARGEST_MANIFEST, Blob, Malformed, Manifest, Producer, decode

#: As in PNG: a copy that mangles line ends or the eighth bit shows in the first bytes.
MAGIC = b"\x89softipu-exe\r\n\x1a\n"
#: Magic, format version, zero, length of the manifest, SHA-256 of the manifest.
HEADER = struct.Struct("<16sIIQ32s")
ALIGNMENT = 64
_CHUNK = 1 << 20


def padding(size: int) -> int:
    """Zero bytes that bring what ends at `size` to the next boundary."""
    return -size % ALIGNMENT


def layout(manifest_size: int, blobs: Sequence[Blob]) -> tuple[dict[str, int], int]:
    """Where each blob begins, and the size of the whole file.

    Offsets follow from sizes: a file cannot claim blobs that overlap or lie outside of it.
    """
    offsets = {}
    end = HEADER.size + manifest_size
    for blob in blobs:
        end += padding(end)
        offsets[blob.name] = end
        end += blob.size
    return offsets, end


class Container:
    """An open container. Blobs are read on demand and checked every time.

    It keeps its file open, so it stays readable when a cache evicts or replaces the file; it closes
    when it is dropped, at the end of a `with` block, or by `close`. Threads may share it.
    """

    def __init__(self, path: Path, descriptor: int, manifest: Manifest, manifest_size: int) -> None:
        self.path = path
        self._descriptor = descriptor
        self._manifest = manifest
        self._offsets, self.size = layout(manifest_size, manifest.blobs)
        self._close = weakref.finalize(self, os.close, descriptor)

    @property
    def producer(self) -> Producer:
        return self._manifest.producer

    @property
    def softipu_version(self) -> str:
        """The version of softipu that wrote the file."""
        return self._manifest.softipu_version

    @property
    def meta(self) -> dict[str, Any]:
        """The producer's metadata. As trustworthy as whoever wrote the file."""
        return self._manifest.meta

    @property
    def blobs(self) -> Mapping[str, Blob]:
        return MappingProxyType({blob.name: blob for blob in self._manifest.blobs})

    def __contains__(self, name: object) -> bool:
        return name in self._offsets

    def blob(self, name: str) -> bytes:
        """The bytes of a blob, checked; a blob that should be there and is not is corruption."""
        row = self.blobs.get(name)
        if row is None:
            raise ExecutableCorrupt(f"{self.path} has no part named {name!a}.")
        data = b"".join(self._chunks(row, max(row.size, 1)))
        self._compare(row, len(data), hashlib.sha256(data).hexdigest())
        return data

    def verify(self) -> None:
        """Check every blob without keeping it; ExecutableCorrupt names the first bad one."""
        for row in self._manifest.blobs:
            size, digest = 0, hashlib.sha256()
            for chunk in self._chunks(row, _CHUNK):
                size += len(chunk)
                digest.update(chunk)
            self._compare(row, size, digest.hexdigest())

    def _chunks(self, row: Blob, most: int) -> Iterator[bytes]:
        offset, end = self._offsets[row.name], self._offsets[row.name] + row.size
        while offset < end:
            if not self._close.alive:
                raise ValueError("the container is closed")
            chunk = _read_at(self.path, self._descriptor, min(most, end - offset), offset)
            if not chunk:
                return
            offset += len(chunk)
            yield chunk

    def _compare(self, row: Blob, size: int, digest: str) -> None:
        if size != row.size or digest != row.sha256:
            raise ExecutableCorrupt(f"{self.path}: the part {row.name} is not what was written.")

    @property
    def closed(self) -> bool:
        return not self._close.alive

    def touch(self) -> None:
        """Mark the file as used now; OSError where that is not allowed."""
        os.utime(self._descriptor)

    def close(self) -> None:
        self._close()

    def __enter__(self) -> Container:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def read(path: str | os.PathLike[str], *, producer: Producer | None = None) -> Container:
    """Open a container and check everything but the blobs, which are checked when they are read.

    With `producer`, a container of another front end is foreign, and one of the same front end in
    another version is an ExecutableVersion.
    """
    path = Path(path)
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ExecutableUnreadable(f"{path}: {_reason(error)}.") from error
    try:
        manifest, manifest_size = _read_manifest(path, descriptor)
        if producer is not None:
            _check_producer(path, manifest, producer)
        return Container(path, descriptor, manifest, manifest_size)
    except BaseException:
        os.close(descriptor)
        raise


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def _read_at(path: Path, descriptor: int, size: int, offset: int) -> bytes:
    try:
        return os.pread(descriptor, size, offset)
    except OSError as error:
        raise ExecutableUnreadable(f"{path}: {_reason(error)}.") from error


def _read_manifest(path: Path, descriptor: int) -> tuple[Manifest, int]:
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        raise ExecutableForeign(f"{path} is not a plain file.")
    manifest_size, digest = _read_header(path, descriptor)
    text = _read_at(path, descriptor, manifest_size, HEADER.size)
    if len(text) != manifest_size or hashlib.sha256(text).digest() != digest:
        raise ExecutableCorrupt(f"{path}: the manifest is not what was written.")
    try:
        manifest = decode(text)
    except Malformed as error:
        raise ExecutableCorrupt(f"{path}: {error}.") from None
    offsets, size = layout(manifest_size, manifest.blobs)
    if found.st_size != size:
        raise ExecutableCorrupt(f"{path} has {found.st_size} bytes instead of {size}.")
    end = HEADER.size + manifest_size
    for blob in manifest.blobs:
        gap = padding(end)
        if gap and _read_at(path, descriptor, gap, end) != bytes(gap):
            raise ExecutableCorrupt(f"{path}: there is something before the part {blob.name}.")
        end = offsets[blob.name] + blob.size
    return manifest, manifest_size


def _read_header(path: Path, descriptor: int) -> tuple[int, bytes]:
    header = _read_at(path, descriptor, HEADER.size, 0)
    if not header or not MAGIC.startswith(header[: len(MAGIC)]):
        raise ExecutableForeign(f"{path} is not an executable of softipu.")
    if len(header) < HEADER.size:
        raise ExecutableCorrupt(f"{path} was cut off after {len(header)} bytes.")
    _, version, zero, manifest_size, digest = HEADER.unpack(header)
    if version != FORMAT_VERSION:
        raise ExecutableVersion(
            f"{path} has container format {version}; softipu {__version__} knows format "
            f"{FORMAT_VERSION}."
        )
    if zero != 0 or manifest_size > LARGEST_MANIFEST:
        raise ExecutableCorrupt(f"{path}: the header is not what was written.")
    return manifest_size, digest


def _check_producer(path: Path, manifest: Manifest, wanted: Producer) -> None:
    found = manifest.producer
    if found.name != wanted.name:
        raise ExecutableForeign(f"{path} was made by {found.name}, not by {wanted.name}.")
    if found.version != wanted.version:
        raise ExecutableVersion(
            f"{path} has {found} (softipu {manifest.softipu_version}); "
            f"softipu {__version__} knows {wanted}."
        )


def is_missing(error: ExecutableUnreadable) -> bool:
    """Whether the file is simply not there, which for a cache is no error."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ENOENT, errno.ENOTDIR)
