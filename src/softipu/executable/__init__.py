"""Executables: compiled programs as files, and a cache of them. What is in them, front ends know.

`write` and `read` are for files that users name; `Store` is the cache. docs/executables.md has the
file format.
"""

from .container import Container, read
from .folder import Entry, Removed
from .manifest import FORMAT_VERSION, Blob, Producer
from .store import CacheWarning, Store
from .writing import Source, write

__all__ = [
    "FORMAT_VERSION",
    "Blob",
    "CacheWarning",
    "Container",
    "Entry",
    "Producer",
    "Removed",
    "Source",
    "Store",
    "read",
    "write",
]
