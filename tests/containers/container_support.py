"""Engines that tests can trust: a program named docker that writes down what it was asked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CALL = "import sys; from softipu.tools import gc_docker; gc_docker.{name}_entry()"
SOURCE = Path(__file__).parents[2] / "src"

#: Behaves as $FAKE_ENGINE says; has one image, `here`, and can pull another, `far`.
FAKE = r"""#!/bin/bash
PATH=/usr/bin:/bin
printf '%s\n' "$*" >> "$FAKE_LOG"
case $FAKE_ENGINE in
down)
    echo "Cannot connect to the Docker daemon at unix:///nowhere. Is the docker daemon running?" >&2
    exit 1 ;;
hang) sleep 1000 & wait ;;
esac
has() { [ "$1" = here ] || [ -e "$FAKE_LOG.$1" ]; }
case $1 in
version) echo 28.0 ;;
image)
    image=${!#}
    has "$image" || { echo "No such image: $image" >&2; exit 1; }
    echo "$FAKE_USER" ;;
pull)
    [ "$FAKE_ENGINE" != slow ] || { sleep 1000 & wait; }
    [ "$2" = far ] || { echo "pull access denied for $2" >&2; exit 1; }
    echo "Pulled $2"
    touch "$FAKE_LOG.far" ;;
run)
    printf 'ran'; printf ' [%s]' "$@"; echo
    exit "${FAKE_STATUS:-0}" ;;
*) exit 64 ;;
esac
"""


class Fake:
    """A directory for PATH with an engine in it, and what was asked of it."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.environment = {"FAKE_LOG": str(self.log), "FAKE_ENGINE": "ok", "FAKE_USER": ""}
        folder.mkdir()
        (folder / name).write_text(FAKE)
        (folder / name).chmod(0o755)

    def questions(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def run_tool(
    name: str, *arguments: str, path: Path | str | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """gc-docker or gc-podman as a process of its own, with the engine in the folder `path`."""
    search = os.environ["PATH"] if path is None else str(path)
    return subprocess.run(
        [sys.executable, "-c", CALL.format(name=name), *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE), "PATH": search} | variables,
        timeout=240,
    )
