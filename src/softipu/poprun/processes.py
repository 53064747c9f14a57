"""The instances of one host as processes, started by PyTorch's elastic launcher.

Their output comes through pipes, cut into whole lines. Each is the leader of a process group of its
own, which is signalled as a whole.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..devices import process
from ..errors import LauncherMissing
from .protocol import LARGEST_PIECE

STDOUT, STDERR = 1, 2
_PIECES_IN_A_PIPE = 32
_SHIM = Path(__file__).with_name("instance.py")


@dataclass(frozen=True)
class Command:
    """One instance to start."""

    index: int
    words: tuple[str, ...]
    environment: dict[str, str]
    cpus: tuple[int, ...] | None = None


@dataclass
class Stream:
    """What an instance prints on one of its outputs, until lines are whole."""

    descriptor: int
    instance: int
    number: int
    _rest: bytes = b""

    def read(self) -> tuple[bytes, bool]:
        """Whole lines that came, and whether there may be more at once."""
        try:
            data = os.read(self.descriptor, LARGEST_PIECE)
        except BlockingIOError:
            return b"", False
        if not data:
            return b"", False
        text = self._rest + data
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if end == 0 and len(text) >= LARGEST_PIECE:
            end = len(text)
        self._rest = text[end:]
        return text[:end], True

    def rest(self) -> bytes:
        """What stands behind the last line, once nothing can follow any more."""
        left, self._rest = self._rest, b""
        return left


@dataclass
class Running:
    """A started instance."""

    index: int
    pid: int
    start_ticks: int
    handle: Any  #: torch's SubprocessHandler
    pidfd: int
    streams: list[Stream] = field(default_factory=list)

    def ended(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it runs."""
        code: int | None = self.handle.proc.poll()
        return code

    def signal(self, number: signal.Signals) -> None:
        """To the whole group; it may outlive its leader."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def elastic() -> Any:
    """PyTorch's module that starts processes; imported late, as it takes a second."""
    try:
        from torch.distributed.elastic import multiprocessing
    except ImportError as error:
        raise LauncherMissing(f"PyTorch cannot be imported: {error}.") from None
    return multiprocessing


def start(commands: Sequence[Command]) -> list[Running]:
    """Start all instances; each begins with `instance.py`, which then becomes the program."""
    launcher = elastic()
    pipes = {(at, number): os.pipe() for at in range(len(commands)) for number in (STDOUT, STDERR)}
    # The launcher would make SIGTERM an exception in whatever the agent does just then.
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "SIGUSR2"
    try:
        context = launcher.start_processes(
            name="poprun",
            entrypoint=sys.executable,
            args={at: _arguments(command) for at, command in enumerate(commands)},
            envs={at: dict(command.environment) for at, command in enumerate(commands)},
            logs_specs=_pipes_for(launcher, pipes),
        )
    finally:
        for _, write_end in pipes.values():
            os.close(write_end)
    running = []
    for at, command in enumerate(commands):
        handle = context.subprocess_handlers[at]
        pid = handle.proc.pid
        streams = []
        for number in (STDOUT, STDERR):
            read_end = pipes[at, number][0]
            os.set_blocking(read_end, False)
            streams.append(Stream(read_end, command.index, number))
        ticks = process.start_ticks(pid) or 0
        running.append(Running(command.index, pid, ticks, handle, os.pidfd_open(pid), streams))
    return running


def _arguments(command: Command) -> tuple[str, ...]:
    cpus = "-" if command.cpus is None else ",".join(map(str, command.cpus))
    return ("-I", "-S", str(_SHIM), str(os.getpid()), cpus, *command.words)


def _pipes_for(launcher: Any, pipes: dict[tuple[int, int], tuple[int, int]]) -> Any:
    """Tells the launcher to write into our pipes where it would write into files."""

    class Pipes(launcher.LogsSpecs):  # type: ignore[misc]
        def reify(self, envs: dict[int, dict[str, str]]) -> Any:
            return launcher.LogsDest(
                stdouts={at: f"/dev/fd/{pipes[at, STDOUT][1]}" for at in envs},
                stderrs={at: f"/dev/fd/{pipes[at, STDERR][1]}" for at in envs},
                error_files=dict.fromkeys(envs, os.devnull),
            )

        @property
        def root_log_dir(self) -> str:
            return os.devnull

    return Pipes()


def drain(stream: Stream) -> Iterator[bytes]:
    """All that is left in a pipe; more than it holds would come from a writer that still lives."""
    for _ in range(_PIECES_IN_A_PIPE):
        text, more = stream.read()
        if not more:
            break
        if text:
            yield text
    if left := stream.rest():
        yield left
