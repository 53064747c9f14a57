"""A Triton server as a child of this process: started with our backend, watched, ended cleanly.

The server is always in explicit mode, because a model whose process was killed comes back only by
being loaded again; where the user did not ask for that mode, a secret key locks it for others.
A server that crashes is started again with the models it had, unless it does so again and again: a
backend process that is killed while it holds a lock of their shared memory takes Triton with it.
"""

from __future__ import annotations

import contextlib
import fcntl
import secrets
import shutil
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import IO

from .. import forksafe
from ..errors import InvalidSetting, ModelControlFailed, ServerDied, ServerNotReady
from . import leftovers, paths, records
from .control import KEY_HEADER, Control
from .installation import assemble, find
from .loaded import Loaded
from .ports import Ports, addresses, free_ports, reachable
from .repository import entries

_LAST_LINES = 15
_POLL_SECONDS = 0.1
#: How long a server may take to end once nothing of it works any more.
_GRACE_SECONDS = 3.0
_RETRY_SECONDS = 15.0
#: Ends that are a fault of the server or its models; SIGKILL is somebody's wish.
_CRASHES = (signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
#: A server that crashes more often than this within so many seconds is given up.
_MOST_RESTARTS, _RESTARTS_SECONDS = 3, 600.0


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
        host = reachable(settings.host)
        self.control = Control(host, self.ports.http, key, self._has_ended)
        leftovers.remove_abandoned()
        found = [name for path in settings.repositories for name in entries(path)]
        paths.check_names(found if settings.models is None else settings.models)
        self._folder = paths.temporary_folder(leftovers.FOLDER)
        self._lock = forksafe.opened(lambda: FileIO(self._folder / leftovers.LOCK, "w"))
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        self._region = f"softipu-{secrets.token_hex(8)}-"
        self.instances = self._folder / "instances"
        self.instances.mkdir()
        #: Models that lost a process, and when to load them next.
        self._lost: dict[str, float] = {}
        #: What it has loaded, lost models included.
        self._loaded = Loaded(self.control, configured=settings.open_control)
        #: When it crashed and was started again, the last few times.
        self._restarts: deque[float] = deque(maxlen=_MOST_RESTARTS)
        #: How often that was in all.
        self.restarts = 0
        #: What it has to load then; None once it is ready.
        self._returning: list[str] | None = None
        self._was_ready = False
        #: Held while a server is exchanged for a new one, which none is once it is stopped.
        self._starting = threading.Lock()
        self._stopped = False
        self._log = _log(settings.log_file, self._folder)
        self._log_start = self._log.tell()
        #: What is loaded at the first start.
        self._wanted = ("*",) if settings.models is None else settings.models
        try:
            self._repositories = paths.plain(settings.repositories, self._folder)
            self._backends = assemble(self._installed, self._folder / "backends", self.instances)
            self._process = self._start(self._wanted)
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
            preexec_fn=leftovers.dies_with_parent(),
        )

    def _arguments(self, models: Iterable[str]) -> list[str]:
        settings, ports = self.settings, self.ports
        arguments = [
            *(f"--model-repository={path}" for path in self._repositories),
            f"--backend-directory={self._backends}",
            "--model-control-mode=explicit",
            *(f"--load-model={name}" for name in models),
            f"--http-port={ports.http}",
            f"--grpc-port={ports.grpc}",
            f"--metrics-port={ports.metrics}",
            *(f"--{kind}-address={where}" for kind, where in addresses(settings.host).items()),
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
            if status is None or self._comes_back():
                return
            how = f"by signal {-status}" if status < 0 else f"with exit code {status}"
            if -status in _CRASHES:
                how += f", after {_MOST_RESTARTS} restarts in {_RESTARTS_SECONDS / 60:g} minutes"
        raise ServerDied(f"The Triton server ended {how}. Its last lines:\n{self.last_lines()}")

    def wait_until_ready(self, stopping: threading.Event | None = None) -> None:
        """Returns once the server answers: by then its models are loaded, or have failed to.

        Also returns when `stopping` is set."""
        end = time.monotonic() + self.settings.startup_timeout
        while not self.control.is_ready():
            self._recover()
            self.check()
            if stopping is not None and stopping.is_set():
                return
            if time.monotonic() > end:
                raise self._not_ready()
            time.sleep(_POLL_SECONDS)
        self.check()  # another server may have taken the port and answered in its place
        self._was_ready = True
        self._loaded.look(())

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

        Raises if one cannot be loaded; it is tried again some time later, while it has an entry."""
        self._recover()
        if self._returning is not None:
            return self._returned()
        self._note_losses()
        now = time.monotonic()
        due = sorted(name for name, when in self._lost.items() if when <= now)
        for name in due:
            self._lost[name] = now + _RETRY_SECONDS
            try:
                self.control.unload(name)
                self._wait_for_leases(name)
                self._loaded.load(name)
            except ModelControlFailed:
                if self._comes_back():
                    return []
                if not self._may_have_entry(name):
                    del self._lost[name]  # said this once, there is nothing to try again
                raise
            del self._lost[name]
        self._loaded.look(self._lost)
        return due

    def _may_have_entry(self, model: str) -> bool:
        """A repository that is gone as a whole may come back with its models."""
        repositories = self.settings.repositories
        return any((path / model).is_dir() or not path.is_dir() for path in repositories)

    def _wait_for_leases(self, model: str) -> None:
        """The server says early that a model is unloaded: its other processes still hold IPUs,
        which may be all there are, and the model needs them again."""
        end = time.monotonic() + self.settings.exit_timeout
        while time.monotonic() < end and not self._stopped and not self._has_ended():
            found = records.instances(self.instances)
            if not any(alive and instance.model == model for instance, alive in found):
                return
            time.sleep(_POLL_SECONDS)

    def _note_losses(self) -> None:
        for instance, alive in records.instances(self.instances):
            if not alive:
                # The server keeps what belonged to the dead process; the memory need not stay.
                leftovers.unlink_region(instance.shared_memory, self._region)
                records.forget(self.instances, instance)
                self._lost[instance.model] = 0.0

    def _has_ended(self) -> bool:
        return self._process.poll() is not None

    def _comes_back(self) -> bool:
        """Whether the server crashed, and not too often."""
        status = self._process.poll()
        if status is None or -status not in _CRASHES or self._stopped:
            return False
        often = len(self._restarts) == _MOST_RESTARTS
        return not often or time.monotonic() - self._restarts[0] > _RESTARTS_SECONDS

    def _recover(self) -> None:
        with self._starting:
            if self._comes_back():
                self._start_again()

    def _start_again(self) -> None:
        """With the models that it had, and nothing of what the old server left."""
        models: Iterable[str] = self._wanted
        if self._was_ready:
            had = {instance.model for instance, _ in records.instances(self.instances)}
            had |= self._loaded.names | set(self._lost) | set(self._returning or ())
            models = self._returning = sorted(had)
        leftovers.end_processes(self._folder, 0.0)
        for instance, _ in records.instances(self.instances):
            records.forget(self.instances, instance)
        leftovers.unlink_regions(self._region)
        self._lost = {}
        self.restarts += 1
        self._restarts.append(time.monotonic())
        self._process = self._start(models)
        self._ready_by = time.monotonic() + self.settings.startup_timeout

    def _returned(self) -> list[str]:
        """The models of a server that was started again, once it is ready."""
        assert self._returning is not None
        if not self.control.is_ready():
            if time.monotonic() > self._ready_by:
                raise self._not_ready()
            return []
        try:
            failed = self._loaded.restore(self._ready())
            back = self._ready() - set(failed)
        except ModelControlFailed:
            if self._comes_back():
                return []
            raise
        self._lost = dict.fromkeys({*self._returning, *failed} - back, 0.0)
        self._returning = None
        return sorted(back)

    def _ready(self) -> set[str]:
        return {model.name for model in self.control.models() if model.ready}

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
            if leftovers.processes_of(self._folder) != [self._process.pid]:
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
        # Backend processes see for themselves that their server is gone; they get a moment.
        leftovers.end_processes(self._folder, _GRACE_SECONDS)
        self._log.close()
        leftovers.unlink_regions(self._region)
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _log(wanted: Path | None, folder: Path) -> IO[bytes]:
    path = folder / "server.log" if wanted is None else wanted
    try:
        return path.open("ab")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise InvalidSetting(f"--log-file {path} cannot be written: {error.strerror}.") from None
