"""Starts and ends the process that loads data ahead of the program, and keeps it from outliving it.

What the process does is in `_data_worker`; here is only how it comes to life, how the data set
gets there, and what happens when either side dies.
"""

from __future__ import annotations

import ctypes
import io
import multiprocessing
import os
import pickle
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import forkserver
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any, NoReturn

import torch

from softipu.devices.process import Identity, here, is_alive

from ._errors import Error, createPoptorchError
from .enums import SharingStrategy

_START_METHODS = {
    SharingStrategy.SharedMemory: "spawn",
    SharingStrategy.FileSystem: "spawn",
    SharingStrategy.Fork: "fork",
    SharingStrategy.ForkServer: "forkserver",
}
_LOOK_EVERY = 0.5  #: seconds between a worker's looks at its parent
_GRACE = 3.0  #: seconds that a worker gets to clean up before it is killed
_PR_SET_PDEATHSIG = 1
REMEDY = (
    "Define the classes and functions of the data set at the top level of an importable module, "
    'start the program under `if __name__ == "__main__":`, or choose '
    "sharing_strategy=poptorch.SharingStrategy.Fork, which needs neither."
)


def context_for(strategy: SharingStrategy) -> Any:
    """The multiprocessing context that starts processes the way this strategy wants."""
    method = _START_METHODS[SharingStrategy(strategy)]
    context = torch.multiprocessing.get_context(method)
    server: Any = forkserver._forkserver
    if method == "forkserver" and server._preload_modules == ["__main__"]:
        # The server imports us once; else each worker would, which takes seconds.
        context.set_forkserver_preload(["__main__", "poptorch"])
    return context


class Parcel:
    """A data set on its way to a worker; opened there, so that a failure can be reported."""

    def __init__(self, content: Any) -> None:
        self._content = content
        self._pickled: bytes | None = None
        self._pickler: Any = None

    def __reduce__(self) -> Any:
        buffer = io.BytesIO()
        # Kept, for it keeps what it pickled: memory of tensors that were made on the way is sent
        # as an open file, which would be closed with them before the process starts.
        self._pickler = ForkingPickler(buffer, pickle.HIGHEST_PROTOCOL)
        try:
            self._pickler.dump(self._content)
        except Exception as error:
            raise _unpicklable(self._content, error) from error
        return _arrived, (buffer.getvalue(),)

    def open(self) -> Any:
        """The data set, in the worker."""
        if self._pickled is not None:
            self._content = _unpickled(io.BytesIO(self._pickled))
            self._pickled = None
        return self._content

    def discard(self) -> None:
        """The worker has opened the parcel, or never will."""
        self._content = self._pickler = None


def _arrived(pickled: bytes) -> Parcel:
    parcel = Parcel(None)
    parcel._pickled = pickled
    return parcel


class FileParcel(Parcel):
    """The same through a file, for data that does not fit into shared memory."""

    def __init__(self, content: Any) -> None:
        super().__init__(content)
        self._folder = tempfile.TemporaryDirectory(prefix="poptorch-")
        self._path = Path(self._folder.name) / "dataset.pickle"
        try:
            with self._path.open("wb") as file:
                pickle.dump(content, file, pickle.HIGHEST_PROTOCOL)
        except Exception as error:
            self.discard()
            raise _unpicklable(content, error) from error

    def __reduce__(self) -> Any:
        return _FileArrived, (self._path,)

    def discard(self) -> None:
        super().discard()
        self._folder.cleanup()


@dataclass
class _FileArrived:
    path: Path

    def open(self) -> Any:
        with self.path.open("rb") as file:
            return _unpickled(file)


def _unpicklable(content: Any, error: Exception) -> Error:
    return createPoptorchError(
        f"The data set ({type(content).__name__}) can't be sent to the worker process: it can't "
        f"be pickled ({type(error).__name__}: {error}).\n  Way out: {REMEDY}"
    )


def _unpickled(file: IO[bytes]) -> Any:
    try:
        return pickle.load(file)
    except Exception as error:
        raise createPoptorchError(
            f"The data set can't be unpickled in the worker process ({type(error).__name__}: "
            f"{error}).\n  Way out: {REMEDY}"
        ) from error


def start(context: Any, main: Callable[..., None], arguments: tuple[Any, ...]) -> BaseProcess:
    """Start the worker process."""
    # Not daemonic: Python forbids daemons to have the children that a DataLoader's workers are.
    process: BaseProcess = context.Process(
        target=main, args=arguments, name="poptorch-data", daemon=False
    )
    try:
        process.start()
    except (EOFError, ConnectionError) as error:
        raise createPoptorchError(
            "AsynchronousDataAccessor worker thread failed to start: the fork server ended "
            f"({type(error).__name__}); what it printed says why.\n  Way out: {REMEDY}"
        ) from error
    return process


def end(process: BaseProcess) -> None:
    """Make the worker exit: politely, then by force."""
    if process.exitcode is None:
        process.terminate()
        process.join(_GRACE)
    if process.exitcode is None:
        process.kill()
        process.join()
    process.close()


def obituary(process: BaseProcess) -> str:
    """How a worker died, in words."""
    process.join(1)
    code = process.exitcode
    if code is None:
        return "closed its pipes without a word"
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"exited with code {code}"


# --- inside the worker ---------------------------------------------------------------------------


def settle_in(parent: Identity, start_method: str | None) -> None:
    """What a worker does first: it lives as long as its parent wants, and its children as it.

    They are started with the parent's method, as they would be without us in between.
    """
    multiprocessing.set_start_method(start_method, force=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer.
    signal.signal(signal.SIGTERM, leave)
    _bind_children()
    threading.Thread(target=_watch, args=(parent,), name="watch", daemon=True).start()


def leave(*_: Any) -> NoReturn:
    """End this worker, in order: it says goodbye to its children, and nothing interrupts it."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise SystemExit(0)


def _watch(parent: Identity) -> None:
    """Wait for the parent's death, then leave, even if a data set never returns."""
    ours = multiprocessing.parent_process()
    sentinels = [] if ours is None else [ours.sentinel]
    # The sentinel is quick, but processes that the parent forked since may hold it open.
    while not wait(sentinels, _LOOK_EVERY) and is_alive(parent):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(1)
    os._exit(1)


def _bind_children() -> None:
    """Let the kernel kill this process's children when it dies, were it by SIGKILL."""
    libc = ctypes.CDLL(None)
    main_thread = threading.get_ident()

    def in_child() -> None:
        if signal.getsignal(signal.SIGTERM) is leave:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        # The kernel watches the forking thread, not its process: only the main one is as old.
        if threading.get_ident() == main_thread:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)

    os.register_at_fork(after_in_child=in_child)


def bind_workers(dataset: Any) -> None:
    """The same for a DataLoader's workers where they are not forked from this process."""
    if isinstance(dataset, torch.utils.data.DataLoader) and dataset.num_workers > 0:
        context = dataset.multiprocessing_context or multiprocessing
        if context.get_start_method() != "fork":
            dataset.worker_init_fn = _BoundWorker(here(), dataset.worker_init_fn)


@dataclass(frozen=True)
class _BoundWorker:
    """A `worker_init_fn` that ends its process with the one that wanted it, then does its work."""

    wanted_by: Identity
    initialise: Callable[[int], None] | None

    def __call__(self, number: int) -> None:
        threading.Thread(target=self._watch, name="watch", daemon=True).start()
        if self.initialise is not None:
            self.initialise(number)

    def _watch(self) -> None:
        while is_alive(self.wanted_by):
            time.sleep(_LOOK_EVERY)
        os._exit(1)


# --- random numbers ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Randomness:
    """The state of torch's random numbers, so that a worker draws what the program would."""

    torch_state: bytes
    seed: int

    @classmethod
    def here(cls) -> Randomness:
        state = torch.get_rng_state()
        copy = torch.Generator()
        copy.set_state(state)
        seed = int(torch.empty((), dtype=torch.int64).random_(generator=copy).item())
        return cls(bytes(state.tolist()), seed)

    def adopt(self) -> None:
        torch.set_rng_state(torch.tensor(list(self.torch_state), dtype=torch.uint8))
        random.seed(self.seed)
        numpy = sys.modules.get("numpy")
        if numpy is not None:
            numpy.random.seed(self.seed % 2**32)
