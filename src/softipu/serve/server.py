"""A Triton server as a child of this process: started with our backend, watched, ended cleanly.

The server is always in explicit mode, because a model whose process was killed comes back only by
being loaded again; where the user did not ask for that mode, a secret key locks it for others.
A backend process that is killed while it holds a lock of their shared memory takes the server with
it (Triton aborts): then the server is started again.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import math
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import IO

from .. import forksafe
from ..errors import InvalidSetting, ModelControlFailed, ServerDied, ServerNotReady
from . import records
from .control import KEY_HEADER, Control
from .installation import assemble, find
from .ports import Ports, free_ports

_SHARED_MEMORY = Path("/dev/shm")
_LAST_LINES = 15
_POLL_SECONDS = 0.1
#: How long a server may take to end once nothing of it works any more.
_GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1
_RETRY_SECONDS = 15.0
#: How long after the loss of a backend process its server may still fall: requests that wait for
#: the process are refused one after the other, a second each.
_FALL_SECONDS = 60.0
_FOLDER, _LOCK = "softipu-serve-", "lock"


@dataclass(frozen=True)
class Settings:
    """How a server is started."""

    repositories: tuple[Path, ...]
    ports: Ports = field(default_factory=Ports)
    host: str = "127.0.0.1"
    #: Models to load at the start; None for all of the repositories.
    models: tuple[str, ...] | None = None
    #: Whether clients may load and unload models.
    open_control: bool = False
    extra: tuple[str, ...] = ()
    log_file: Path | None = None
    startup_timeout: float = 600.0
    #: How long requests under way may take when the server is told to stop.
    exit_timeout: float = 30.0


class Server:
    """A running server. Use it as a context manager, or call `stop`."""

    def __init__(self, settings: Settings) -> None:
        self._installed = find()
        self.settings = settings
        self.ports = free_ports(settings.host, settings.ports)
        key = None if settings.open_control else secrets.token_hex(16)
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
        self.control = Control(reachable, self.ports.http, key, self._has_ended)
        _remove_abandoned()
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        self._lock = forksafe.opened(lambda: FileIO(self._folder / _LOCK, "w"))
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._region = f"softipu-{secrets.token_hex(8)}-"
        self.instances = self._folder / "instances"
        self.instances.mkdir()
        #: Models that lost a process, and when to load them next.
        self._lost: dict[str, float] = {}
        #: When a process was last seen to be lost.
        self._loss = -math.inf
        #: How often the server fell with one of its backend processes and was started again.
        self.restarts = 0
        #: What it has to load then; None once it is ready.
        self._returning: list[str] | None = None
        #: Held while a server is exchanged for a new one, which none is once it is stopped.
        self._starting = threading.Lock()
        self._stopped = False
        self._log = _log(settings.log_file, self._folder)
        self._log_start = self._log.tell()
        wanted = ("*",) if settings.models is None else settings.models
        try:
            self._backends = assemble(self._installed, self._folder / "backends", self.instances)
            self._process = self._start(wanted)
        except BaseException:
            self._clean()
            raise

    def _start(self, models: Iterable[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(self._installed.binary), *self._arguments(models)],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._installed.environment(),
            # Ctrl-C is for us: we tell the server, once, and wait for what is under way.
            start_new_session=True,
            preexec_fn=_dies_with_parent(),
        )

    def _arguments(self, models: Iterable[str]) -> list[str]:
        settings, ports = self.settings, self.ports
        arguments = [
            *(f"--model-repository={path}" for path in settings.repositories),
            f"--backend-directory={self._backends}",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in models),
            f"--http-port={ports.http}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-port={ports.metrics}",
            *(f"--{kind}-address={settings.host}" for kind in ("http", "grpc", "metrics")),
            # A model that cannot be loaded must not take the others with it.
            "--exit-on-error=false",
            "--strict-readiness=false",
            f"--exit-timeout-secs={max(1, round(settings.exit_timeout))}",
            f"--backend-config=python,shm-region-prefix-name={self._region}",
        ]
        if self.control.key is not None:
            guard = f"model-repository:{KEY_HEADER}={self.control.key}"
            arguments += [f"--http-restricted-api={guard}", f"--grpc-restricted-protocol={guard}"]
        return [*arguments, *settings.extra]

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_returning(self) -> bool:
        """Whether it fell, and its successor is not ready yet."""
        return self._returning is not None

    def check(self) -> None:
        """Raises ServerDied, with the server's last lines, if it has ended for good."""
        with self._starting:
            status = self._process.poll()
            comes_back = self._fell_with_a_backend()
        if status is not None and not comes_back:
            how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
            raise ServerDied(f"The Triton server ended {how}. Its last lines:\n{self.last_lines()}")

    def wait_until_ready(self, stopping: threading.Event | None = None) -> None:
        """Returns once the server answers: by then its models are loaded, or have failed to.

        Also returns when `stopping` is set."""
        end = time.monotonic() + self.settings.startup_timeout
        while not self.control.is_ready():
            self.check()
            if stopping is not None and stopping.is_set():
                return
            if time.monotonic() > end:
                raise self._not_ready()
            time.sleep(_POLL_SECONDS)
        self.check()  # another server may have taken the port and answered in its place

    def _not_ready(self) -> ServerNotReady:
        return ServerNotReady(
            f"The Triton server is not ready after {self.settings.startup_timeout:g} s. "
            f"Its last lines:\n{self.last_lines()}"
        )

    def log(self) -> list[str]:
        """All lines that this server has written."""
        with open(self._log.name, errors="replace") as file:
            file.seek(self._log_start)
            return list(file)

    def last_lines(self) -> str:
        """How the server's log ends; tables left out, wrong options from its beginning."""
        lines = [line.rstrip() for line in self.log() if line.strip() and line[0] not in "|+"]
        if lines and "option" in lines[0]:
            return f"  {lines[0]}"
        return "\n".join(f"  {line[:300]}" for line in lines[-_LAST_LINES:])

    def revive(self) -> list[str]:
        """Loads models again whose backend process was killed; returns their names.

        Raises if one cannot be loaded; it is tried again some time later."""
        with self._starting:
            if self._fell_with_a_backend() and not self._stopped:
                self._start_again()
        if self._returning is not None:
            return self._returned()
        self._note_losses()
        now = time.monotonic()
        due = sorted(name for name, when in self._lost.items() if when <= now)
        for name in due:
            self._lost[name] = now + _RETRY_SECONDS
            try:
                self.control.unload(name)
                self.control.load(name)
            except ModelControlFailed:
                if self._fell_with_a_backend():
                    return []
                raise
            del self._lost[name]
        return due

    def _note_losses(self) -> None:
        for instance, alive in records.instances(self.instances):
            if not alive:
                # The server keeps what belonged to the dead process; the memory need not stay.
                _unlink_region(instance.shared_memory, self._region)
                records.forget(self.instances, instance)
                self._lost[instance.model] = 0.0
                self._loss = time.monotonic()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _fell_with_a_backend(self) -> bool:
        """Whether the server aborted soon after one of its backend processes had been killed.

        One that falls while it comes back would fall again and again."""
        if self._process.poll() != -signal.SIGABRT or self._returning is not None:
            return False
        lost = any(not alive for _, alive in records.instances(self.instances))
        return lost or time.monotonic() - self._loss < _FALL_SECONDS

    def _start_again(self) -> None:
        """With the models that it had, and nothing of what the old server left."""
        had = {instance.model for instance, _ in records.instances(self.instances)}
        self._returning = sorted(had | set(self._lost))
        for pid in _processes_of(self._folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end_backends()
        for instance, _ in records.instances(self.instances):
            records.forget(self.instances, instance)
        self._remove_shared_memory()
        self._lost = {}
        self.restarts += 1
        self._process = self._start(self._returning)
        self._ready_by = time.monotonic() + self.settings.startup_timeout

    def _returned(self) -> list[str]:
        """The models of a server that was started again, once it is ready."""
        assert self._returning is not None
        if not self.control.is_ready():
            if time.monotonic() > self._ready_by:
                raise self._not_ready()
            return []
        ready = {model.name for model in self.control.models() if model.ready}
        back = [name for name in self._returning if name in ready]
        self._lost = dict.fromkeys(set(self._returning) - ready, 0.0)
        self._returning = None
        return back

    def stop(self) -> None:
        """Lets requests under way finish, ends the server and removes all that it left."""
        with self._starting:
            self._stopped = True
        try:
            if self._process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.send_signal(signal.SIGTERM)
                self._wait_for_end()
        finally:
            self._clean()

    def _wait_for_end(self) -> None:
        """A server that lost a backend process never ends by itself: it is not waited for long."""
        end = time.monotonic() + self.settings.exit_timeout + _GRACE_SECONDS
        idle_since = None
        while self._process.poll() is None and time.monotonic() < end:
            if _processes_of(self._folder) != [self._process.pid]:
                idle_since = None
            elif idle_since is None:
                idle_since = time.monotonic()
            elif time.monotonic() - idle_since > _GRACE_SECONDS:
                break
            time.sleep(_POLL_SECONDS)

    def _clean(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.kill()
            process.wait()
        self._end_backends()
        self._log.close()
        self._remove_shared_memory()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    def _remove_shared_memory(self) -> None:
        for path in _SHARED_MEMORY.glob(f"{self._region}*"):
            path.unlink(missing_ok=True)

    def _end_backends(self) -> None:
        """Backend processes see for themselves that their server is gone; they get a moment."""
        end = time.monotonic() + _GRACE_SECONDS
        while alive := _processes_of(self._folder):
            if time.monotonic() > end:
                for pid in alive:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(_POLL_SECONDS)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _dies_with_parent() -> Callable[[], None]:
    """For a child: ends in good order when this process is killed, and could not tell it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def ask() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)

    return ask


def _log(wanted: Path | None, folder: Path) -> IO[bytes]:
    path = folder / "server.log" if wanted is None else wanted
    try:
        return path.open("ab")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise InvalidSetting(f"--log-file {path} cannot be written: {error.strerror}.") from None


def _remove_abandoned() -> None:
    """Folders of servers whose command was killed before it could remove them."""
    for path in Path(tempfile.gettempdir()).glob(f"{_FOLDER}*/{_LOCK}"):
        with contextlib.suppress(OSError), path.open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path.parent, ignore_errors=True)


def _unlink_region(name: str, prefix: str) -> None:
    # The name comes from a file that another process wrote.
    if name.startswith(prefix) and "/" not in name:
        (_SHARED_MEMORY / name).unlink(missing_ok=True)


def _processes_of(folder: Path) -> list[int]:
    """Living processes that were started from a folder of ours: their command lines name it."""
    wanted, found = os.fsencode(folder), []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if wanted in path.read_bytes() and _is_alive(int(path.parent.name)):
                found.append(int(path.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return False
    return state not in ("Z", "X")
