"""The IPUoF file that `vipu create partition` leaves in ~/.ipuof.conf.d, and takes away again.

Only files that name the same server and partition are ever replaced or removed: what a user or
another server put there stays.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

from ..devices import ipuof
from ..errors import SoftIPUError


def path_of(partition: str) -> Path:
    return Path.home() / ".ipuof.conf.d" / f"{partition}.conf"


def write(partition: str, config: dict[str, Any]) -> str:
    """Write the file whole or not at all; gives a sentence about what was done."""
    path = path_of(partition)
    if path.exists() and not _is_ours(path, partition, _server_of(config)):
        return f"{path} describes something else and was left alone."
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(ipuof.dumps(config))
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        return f"warning: {path} could not be written: {error.strerror}."
    return f"IPUoF configuration written to {path}."


def remove(partition: str, server: str) -> str | None:
    """Remove the file if it is about this partition of this server."""
    path = path_of(partition)
    if not path.exists() or not _is_ours(path, partition, server):
        return None
    try:
        path.unlink()
    except OSError as error:
        return f"warning: {path} could not be removed: {error.strerror}."
    return f"{path} removed."


def _server_of(config: dict[str, Any]) -> str | None:
    server = config["attributes"].get(ipuof.ATTRIBUTE_SERVER)
    return server if isinstance(server, str) else None


def _is_ours(path: Path, partition: str, server: str | None) -> bool:
    try:
        found, attributes = ipuof.read(path)
    except SoftIPUError:
        return False
    return found.name == partition and attributes.get(ipuof.ATTRIBUTE_SERVER) == server
