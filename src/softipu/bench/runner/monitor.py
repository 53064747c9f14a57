"""Watching the IPUs while a benchmark runs: a line of `gc-monitor --json` every few seconds."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from ...errors import ProgramMissing

PERIOD_SECONDS = 5.0
FILE_NAME = "ipu-monitor.jsonl"
logger = logging.getLogger("examples_utils")


@contextmanager
def watching(directory: Path, environment: Mapping[str, str]) -> Iterator[None]:
    """Within it, what the IPUs do is written to ipu-monitor.jsonl."""
    program = shutil.which("gc-monitor", path=environment.get("PATH"))
    if program is None:
        raise ProgramMissing("--gc-monitor: there is no gc-monitor on PATH.")
    done = threading.Event()
    arguments = (program, dict(environment), directory / FILE_NAME, done)
    thread = threading.Thread(target=_watch, args=arguments, name="gc-monitor", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _watch(program: str, environment: dict[str, str], path: Path, done: threading.Event) -> None:
    with path.open("w", encoding="utf-8", buffering=1) as file:
        while True:
            try:
                file.write(json.dumps(_look(program, environment)) + "\n")
            except (OSError, ValueError, subprocess.SubprocessError) as error:
                logger.error("gc-monitor failed, the IPUs are watched no longer: %s", error)
                return
            if done.wait(PERIOD_SECONDS):
                return


def _look(program: str, environment: dict[str, str]) -> dict[str, object]:
    stamp = datetime.now().strftime("%Y-%m-%d-%H.%M.%S.%f")
    answer = subprocess.run(
        [program, "--json"], capture_output=True, check=True, env=environment, timeout=60
    )
    return {"timestamp": stamp, **json.loads(answer.stdout)}
