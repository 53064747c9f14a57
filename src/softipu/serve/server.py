"""A Triton server as a child of this process: started with our backend, watched, ended cleanly.

The server is always in explicit mode, because a model whose process was killed comes back only by
being loaded again; where the user did not ask for that mode, a secret key locks it for others.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import IO

from .. import forksafe
from ..errors import InvalidSetting, PortInUse, ServerDied, ServerNotReady
from . import records
from .control import KEY_HEADER, Control
from .installation import assemble, find

_SHARED_MEMORY = Path("/dev/shm")
_LAST_LINES = 15
_POLL_SECONDS = 0.1
#: How long a server may take to end once nothing of it works any more.
_GRACE_SECONDS = 3.0
_PR_SET_PDEATHSIG = 1
_RETRY_SECONDS = 15.0
_FOLDER, _LOCK = "softipu-serve-", "lock"


@dataclass(frozen=True)
class Ports:
    """Where the server listens; 0 takes any free port."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002


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


def chosen_port(host: str, port: int, option: str) -> int:
    """The port, if nothing listens there; for 0 a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"Port {port} of {host} is taken ({option}).",
                    remedy=f"Choose another with {option} (0 takes any free one), or end the other "
                    "program.",
                ) from None
            raise InvalidSetting(
                f"Port {port} of {host} cannot be listened on: {error.strerror}.",
                cause="The address is not one of this machine's, or the port needs more rights.",
                remedy=f"Choose another --host, or {option} above 1023.",
            ) from None
        number: int = probe.getsockname()[1]
        return number


class Server:
    """A running server. Use it as a context manager, or call `stop`."""

    def __init__(self, settings: Settings) -> None:
        found = find()
        self.settings = settings
        self.ports = _free_ports(settings)
        key = None if settings.open_control else secrets.token_hex(16)
        reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)
        self.control = Control(reachable, self.ports.http, key)
        _remove_abandoned()
        self._folder = Path(tempfile.mkdtemp(prefix=_FOLDER))
        self._lock = forksafe.opened(lambda: FileIO(self._folder / _LOCK, "w"))
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._region = f"softipu-{secrets.token_hex(8)}-"
        self.instances = self._folder / "instances"
        self.instances.mkdir()
        #: Models that lost a process, and when to load them next.
        self._lost: dict[str, float] = {}
        self._log = _log(settings.log_file, self._folder)
        self._log_start = self._log.tell()
        try:
            backends = assemble(found, self._folder / "backends", self.instances)
            self._process = subprocess.Popen(
                [str(found.binary), *self._arguments(backends)],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=found.environment(),
                # Ctrl-C is for us: we tell the server, once, and wait for what is under way.
                start_new_session=True,
                preexec_fn=_dies_with_parent(),
            )
        except BaseException:
            self._clean()
            raise

    def _arguments(self, backends: Path) -> list[str]:
        settings, ports = self.settings, self.ports
        wanted = ("*",) if settings.models is None else settings.models
        arguments = [
            *(f"--model-repository={path}" for path in settings.repositories),
            f"--backend-directory={backends}",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in wanted),
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

    def check(self) -> None:
        """Raises ServerDied, with the server's last lines, if it has ended."""
        status = self._process.poll()
        if status is not None:
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
                raise ServerNotReady(
                    f"The Triton server is not ready after {self.settings.startup_timeout:g} s. "
                    f"Its last lines:\n{self.last_lines()}"
                )
            time.sleep(_POLL_SECONDS)
        self.check()  # another server may have taken the port and answered in its place

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
        for instance, alive in records.instances(self.instances):
            if not alive:
                # The server keeps what belonged to the dead process; the memory need not stay.
                _unlink_region(instance.shared_memory, self._region)
                records.forget(self.instances, instance)
                self._lost[instance.model] = 0.0
        now = time.monotonic()
        due = sorted(name for name, when in self._lost.items() if when <= now)
        for name in due:
            self._lost[name] = now + _RETRY_SECONDS
            self.control.unload(name)
            self.control.load(name)
            del self._lost[name]
        return due

    def stop(self) -> None:
        """Lets requests under way finish, ends the server and removes all that it left."""
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
        for path in _SHARED_MEMORY.glob(f"{self._region}*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

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


def _free_ports(settings: Settings) -> Ports:
    wanted = settings.ports
    rows = [("--http-port", wanted.http), ("--grpc-port", wanted.grpc)]
    rows.append(("--metrics-port", wanted.metrics))
    chosen: list[int] = []
    for option, port in rows:
        number = chosen_port(settings.host, port, option)
        while port == 0 and number in chosen:
            number = chosen_port(settings.host, 0, option)
        if number in chosen:
            raise PortInUse(f"{option} {number} is also that of another service.")
        chosen.append(number)
    return Ports(*chosen)


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
