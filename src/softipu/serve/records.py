"""Who serves what: one locked file per instance of a model, written by the backend process.

An instance that ends in good order removes its file. A file that nobody locks any more is that of a
process that was killed, of which the Triton server says nothing.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict, dataclass
from io import FileIO
from pathlib import Path

from .. import forksafe

SUFFIX = ".instance"


@dataclass(frozen=True)
class Instance:
    model: str
    version: str
    name: str
    pid: int
    #: The file in /dev/shm through which the server talks to the process.
    shared_memory: str


class Record:
    """The file of this process, locked for as long as the process lives."""

    def __init__(self, folder: Path, instance: Instance) -> None:
        self._path = folder / f"{instance.pid}{SUFFIX}"
        self._file = forksafe.opened(lambda: FileIO(self._path, "w"))
        # Locked before it says anything: an empty file is nobody's.
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self._file.write(json.dumps(asdict(instance)).encode())

    def close(self) -> None:
        self._path.unlink(missing_ok=True)
        self._file.close()


def instances(folder: Path) -> list[tuple[Instance, bool]]:
    """All instances that have a file, and whether each is alive."""
    result = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            with path.open() as file:
                text = file.read()
                alive = _locked(file.fileno())
        except FileNotFoundError:
            continue
        # One that ended in good order while we looked is gone, and none that was killed.
        if text and (alive or path.exists()):
            result.append((Instance(**json.loads(text)), alive))
    return result


def forget(folder: Path, instance: Instance) -> None:
    """Removes the file of an instance that was killed."""
    (folder / f"{instance.pid}{SUFFIX}").unlink(missing_ok=True)


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def own_shared_memory() -> str:
    """The name of the server's shared memory for this process, from its own command line."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    return os.fsdecode(words[2]) if len(words) > 2 else ""
