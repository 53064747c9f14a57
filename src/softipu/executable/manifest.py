"""What a container says about itself: who made it, free metadata, its blobs with their checksums.

Pure data with its JSON form. Reading is strict: whatever `encode` would not have written is
refused, so that nothing behind it has to expect surprises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .. import __version__

FORMAT = "softipu-executable"
FORMAT_VERSION = 1
LARGEST_MANIFEST = 16 << 20
MOST_BLOBS = 10_000
_LARGEST_BLOB = 1 << 50
_KEYS = {"format", "format_version", "softipu_version", "producer", "meta", "blobs"}
#: Words joined by slashes. No name can be absolute, hidden or climb out of a folder.
_BLOB_NAME = re.compile(r"[A-Za-z0-9_][\w.+-]{0,99}(/[A-Za-z0-9_][\w.+-]{0,99}){0,7}", re.ASCII)
_PRODUCER_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)


class Malformed(ValueError):
    """The text is no manifest; says why. Never leaves this package."""


@dataclass(frozen=True)
class Producer:
    """A front end, and the version of what it puts into containers (not of the front end)."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name} format {self.version}"


@dataclass(frozen=True)
class Blob:
    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    producer: Producer
    meta: dict[str, Any]
    blobs: tuple[Blob, ...]
    softipu_version: str = __version__


def encode(manifest: Manifest) -> bytes:
    """The manifest as JSON; TypeError or ValueError where it holds what no manifest may."""
    body = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "softipu_version": manifest.softipu_version,
        "producer": {"name": manifest.producer.name, "version": manifest.producer.version},
        "meta": manifest.meta,
        "blobs": [
            {"name": blob.name, "size": blob.size, "sha256": blob.sha256} for blob in manifest.blobs
        ],
    }
    text = json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    decode(text)  # what we could not read again must not be written
    return text


def decode(text: bytes) -> Manifest:
    if len(text) > LARGEST_MANIFEST:
        raise Malformed(f"the manifest is larger than {LARGEST_MANIFEST} bytes")
    try:
        body = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except Malformed:
        raise
    except (ValueError, RecursionError):
        raise Malformed("the manifest is not JSON") from None
    if not isinstance(body, dict) or set(body) != _KEYS:
        raise Malformed("the manifest lacks keys or has unknown ones")
    if (body["format"], body["format_version"]) != (FORMAT, FORMAT_VERSION):
        raise Malformed("the manifest contradicts the header")
    if not isinstance(body["softipu_version"], str) or not isinstance(body["meta"], dict):
        raise Malformed("the manifest has values of the wrong type")
    return Manifest(
        producer=_producer(body["producer"]),
        meta=body["meta"],
        blobs=_blobs(body["blobs"]),
        softipu_version=_printable(body["softipu_version"]),
    )


def _producer(body: Any) -> Producer:
    if not isinstance(body, dict) or set(body) != {"name", "version"}:
        raise Malformed("the producer is not a name and a version")
    name, version = body["name"], body["version"]
    if not isinstance(name, str) or not _PRODUCER_NAME.fullmatch(name):
        raise Malformed(f"{str(name)[:60]!a} is not the name of a front end")
    if not _is_size(version):
        raise Malformed("the producer's version is not a whole number")
    return Producer(name, version)


def _blobs(body: Any) -> tuple[Blob, ...]:
    if not isinstance(body, list) or len(body) > MOST_BLOBS:
        raise Malformed(f"the blobs are not a list of at most {MOST_BLOBS}")
    found = [_blob(one) for one in body]
    if len({blob.name for blob in found}) != len(found):
        raise Malformed("two blobs have the same name")
    return tuple(found)


def _blob(body: Any) -> Blob:
    if not isinstance(body, dict) or set(body) != {"name", "size", "sha256"}:
        raise Malformed("a blob is not a name, a size and a checksum")
    name, size, digest = body["name"], body["size"], body["sha256"]
    if not isinstance(name, str) or not _BLOB_NAME.fullmatch(name):
        raise Malformed(f"{str(name)[:60]!a} is not a name that a blob may have")
    if not _is_size(size):
        raise Malformed(f"blob {name} has no plausible size")
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise Malformed(f"blob {name} has no SHA-256 checksum")
    return Blob(name, size, digest)


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST_BLOB


def _printable(text: str) -> str:
    """Versions end up in messages on a terminal."""
    if len(text) > 60 or not text.isprintable():
        raise Malformed("the version of softipu is not a short text")
    return text


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise Malformed("the manifest gives a key twice")
    return result


def _no_constant(name: str) -> Any:
    raise Malformed(f"the manifest holds {name}, which is not JSON")
