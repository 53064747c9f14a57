"""All instances computing together: collectives on tensors and arrays, with bounded waiting.

One group for the process, started at its first use. A peer that dies, hangs or ends early is an
error that names it; after that, and after `finalize`, the group is gone for good.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from .. import settings
from ..errors import (
    InstanceLate,
    InstanceLost,
    InstancesDisagree,
    NoGroup,
    PopdistMisuse,
    RendezvousFailed,
    SoftIPUError,
)
from . import environment, gpus, rendezvous
from .aside import Aside
from .liveness import Departure, Pulse

if TYPE_CHECKING:
    import numpy as np
    import torch

Reduction = Literal["sum", "min", "max", "product"]
_SLICE = timedelta(seconds=1)
#: How long instance 0 stays at the end at most, until the others have seen that it goes.
_LINGER_SECONDS = 8.0
#: Large tensors are reduced in pieces: while one waits for the network, another is added up.
_PIECE_ELEMENTS = 1_000_000
#: Types that gloo can compute with; it would find out about others when all wait for each other.
_REDUCIBLE = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64")


class Group:
    """The connections between all instances of this program."""

    def __init__(self, instance: environment.Instance) -> None:
        self.instance = instance
        self.index = instance.index
        self.count = instance.count
        #: Seconds spent in collectives so far, most of it waiting for others.
        self.waited = 0.0
        self._pid = os.getpid()
        self._failure: SoftIPUError | None = None
        self._closed = False
        self._timeout = float(settings.get("SOFTIPU_INSTANCES_TIMEOUT"))
        self._silence = float(settings.get("SOFTIPU_INSTANCES_SILENCE"))
        meeting = rendezvous.meet(instance)
        self._store = meeting.store
        self._pulse = Pulse(
            meeting.second,
            self.index,
            self.count,
            launcher_holds=instance.launcher_listens,
            cut=meeting.line.cut,
        )
        self._gpus: gpus.GpuLinks | None = None
        attempt = Aside(lambda: rendezvous.connect(meeting.store, instance, self._timeout))
        try:
            self._gloo = self._connected(attempt)
        except BaseException:
            self._pulse.leave("could not connect to the others")
            rendezvous.give_up(attempt, meeting.line)
            self._pulse.stop()
            raise

    def _connected(self, attempt: Aside[Any]) -> Any:
        """The connections to all others, unless one of them is lost in the meantime."""
        while not attempt.ended(_SLICE.total_seconds()):
            departure = self._pulse.departed(self._silence)
            if departure is not None:
                raise RendezvousFailed(
                    f"{departure}; instance {self.index} waits for it.",
                    cause="Not all instances could be connected to each other.",
                    remedy="Look at the output of that instance.",
                )
        return attempt.result()

    # --- collectives on tensors -----------------------------------------------------------------

    def meet_on(self, device: torch.device) -> None:
        """All instances say where their tensors lie. If that is a GPU for each, then reductions
        go straight from GPU to GPU from now on."""
        if not gpus.apart(self.all_gather_bytes(gpus.place_of(device))) or self._gpus is not None:
            return
        links = self._gpus = gpus.GpuLinks(self._store, self.instance, self._timeout)
        self._do("connecting GPUs", lambda: [links.connect(device)])

    def all_reduce(self, tensor: torch.Tensor, reduction: Reduction = "sum") -> None:
        """The tensor becomes the sum (or so) over all instances, bit for bit the same in all."""
        import torch

        if str(tensor.dtype).removeprefix("torch.") not in _REDUCIBLE:
            raise PopdistMisuse(
                f"Tensors of {tensor.dtype} cannot be reduced between instances.",
                cause=f"There is arithmetic for {', '.join(_REDUCIBLE)} only.",
                remedy="Convert the tensor first; broadcast and gather take every type.",
            )
        dist = rendezvous.distributed()
        options = dist.AllreduceOptions()
        options.reduceOp = getattr(dist.ReduceOp, reduction.upper())
        if tensor.is_cuda and self._gpus is not None and tensor.is_contiguous():
            links = self._gpus
            self._do("all_reduce", lambda: [links.all_reduce(tensor, options)])
            return
        with _on_host(tensor) as held:
            pieces = torch.split(held.view(-1), _PIECE_ELEMENTS)
            self._do("all_reduce", lambda: [self._gloo.allreduce([p], options) for p in pieces])

    def broadcast(self, tensor: torch.Tensor, root: int = 0) -> None:
        """The tensor becomes that of instance `root`."""
        dist = rendezvous.distributed()
        options = dist.BroadcastOptions()
        options.rootRank = self._known(root)
        options.rootTensor = 0
        with _on_host(tensor) as held:
            self._do("broadcast", lambda: [self._gloo.broadcast([_bytes(held)], options)])

    def all_gather(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all instances, in order; all have the same shape and type."""
        import torch

        own = tensor.contiguous()
        found = [torch.empty_like(own) for _ in range(self.count)]
        places = [_bytes(one) for one in found]
        self._do("all_gather", lambda: [self._gloo.allgather([places], [_bytes(own)])])
        return found

    def all_gather_ragged(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """The same for tensors that differ in the size of their first dimension."""
        import torch

        rows = [int(size) for size in self.all_gather(torch.tensor(tensor.shape[0]))]
        padded = tensor.new_zeros((max(rows), *tensor.shape[1:]))
        padded[: tensor.shape[0]] = tensor
        if padded.numel() == 0:
            return [padded[:size] for size in rows]
        return [part[:size] for part, size in zip(self.all_gather(padded), rows, strict=True)]

    def barrier(self) -> None:
        """Returns when all instances have come here."""
        import torch

        self.all_reduce(torch.zeros(1))

    # --- collectives on other things ------------------------------------------------------------

    def all_reduce_array(self, array: np.ndarray[Any, Any], reduction: Reduction = "sum") -> None:
        """`all_reduce` for a writable, contiguous numpy array, without a copy."""
        import torch

        self.all_reduce(torch.from_numpy(array), reduction)

    def broadcast_array(self, array: np.ndarray[Any, Any], root: int = 0) -> None:
        """`broadcast` for a writable, contiguous numpy array, without a copy."""
        import torch

        self.broadcast(torch.from_numpy(array), root)

    def broadcast_bytes(self, content: bytes, root: int = 0) -> bytes:
        """The bytes of instance `root`; what others give is ignored."""
        import torch

        size = torch.tensor(len(content))
        self.broadcast(size, root)
        own = content if self.index == root else bytes(int(size))
        if not own:
            return b""
        buffer = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        self.broadcast(buffer, root)
        return buffer.numpy().tobytes()

    def all_gather_bytes(self, content: bytes) -> list[bytes]:
        """The bytes of all instances, in order."""
        import torch

        own = torch.frombuffer(bytearray(content), dtype=torch.uint8) if content else None
        parts = self.all_gather_ragged(torch.empty(0, dtype=torch.uint8) if own is None else own)
        return [part.numpy().tobytes() for part in parts]

    def agree(self, what: str, content: bytes) -> None:
        """Raises in all instances unless all give the same bytes."""
        found = self.all_gather_bytes(content)
        for index, other in enumerate(found):
            if other != found[0]:
                raise InstancesDisagree(f"Instances 0 and {index} have different {what}.")

    # --- waiting, and what can go wrong ---------------------------------------------------------

    def lost(self) -> SoftIPUError | None:
        """What happened to another instance, for those that wait outside of collectives."""
        if self._failure is not None or self._closed:
            return self._failure or NoGroup("The connection of the instances was ended.")
        departure = self._pulse.departed(self._silence)
        if departure is None:
            return None
        self._pulse.leave(departure.story, blamed=departure.instance)
        return self._failed(InstanceLost(f"{departure}."))

    def _known(self, index: int) -> int:
        if not 0 <= index < self.count:
            raise InstancesDisagree(
                f"There is no instance {index}: they are numbered from 0 to {self.count - 1}."
            )
        return index

    def _do(self, name: str, begin: Callable[[], list[Any]]) -> None:
        self._check()
        started = time.monotonic()
        works = begin()  # what fails here is this instance's own mistake, such as a wrong type
        try:
            for work in works:
                self._wait(name, work, started)
        except RuntimeError as error:
            self._fail(name, error, started)
        finally:
            self.waited += time.monotonic() - started
            for work in works:
                if not work.is_completed():
                    self._abandon(work, name)

    def _wait(self, name: str, work: Any, started: float) -> None:
        """In slices: between them others are looked at, and Ctrl-C gets its turn."""
        self._pulse.forget()
        while True:
            try:
                work.wait(_SLICE)
                return
            except RuntimeError:
                if work.is_completed():
                    raise
            departure = self._pulse.departed(self._silence)
            if departure is not None:
                self._lose(name, departure)
            if time.monotonic() - started > self._timeout:
                raise self._late(name)

    def _late(self, name: str) -> SoftIPUError:
        return self._failed(
            InstanceLate(
                f"Instance {self.index} waited {self._timeout:g} s in {name} for the "
                "others, all of which live."
            )
        )

    def _fail(self, name: str, error: RuntimeError, started: float) -> None:
        """A connection broke. Who caused it?"""
        departure = self._pulse.just_died(self._silence)
        if departure is not None:
            self._lose(name, departure, error)
        if time.monotonic() - started > self._timeout:
            raise self._late(name) from error  # the library's own clock was read before ours
        first = (str(error).splitlines() or [""])[0]
        raise self._failed(
            InstancesDisagree(f"{name} failed in instance {self.index}, all others live: {first}")
        ) from error

    def _lose(self, name: str, departure: Departure, error: Exception | None = None) -> None:
        self._pulse.leave(departure.story, blamed=departure.instance)
        raise self._failed(
            InstanceLost(f"{departure}; instance {self.index} waits for it in {name}.")
        ) from error

    def _failed(self, error: SoftIPUError) -> SoftIPUError:
        self._failure = error
        return error

    def _abandon(self, work: Any, name: str) -> None:
        """Leaves a collective that has not ended, as after Ctrl-C; there can be no other one."""
        if self._gpus is not None:
            self._gpus.abort()
        for thing in (work, self._gloo):
            _keep(thing)  # its destructor would wait for a peer that may never answer
        if self._failure is None:
            self._failed(InstanceLost(f"Instance {self.index} broke off {name}."))
            self._pulse.leave(f"broke off {name}")

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise NoGroup(f"This is a child of instance {self.index}, which can't speak for it.")
        if self._failure is not None:
            raise NoGroup(
                f"The instances lost each other before: {self._failure.what}",
                cause=self._failure.cause,
                remedy=self._failure.remedy,
            )
        if self._closed:
            raise NoGroup("The connection of the instances was ended.")

    # --- the end --------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends this instance's part, in bounded time whatever the others do."""
        if self._pid != os.getpid():
            # A child made by fork has none of the threads that the destructors wait for.
            for thing in (self._gloo, self._store):
                _keep(thing)
            return
        if self._closed:
            return
        self._closed = True
        if self._failure is None:
            self._pulse.leave("has ended")
        self._linger()
        self._pulse.stop()
        if self._failure is None:
            self._gloo = None
            if self._gpus is not None:
                self._gpus.close()

    def _linger(self) -> None:
        """Instance 0 may hold the store, in which the others look for what happened; it goes
        once they have noticed, which takes long where the machine is busy."""
        if self.index != 0 or self.instance.launcher_listens:
            return
        deadline = time.monotonic() + _LINGER_SECONDS
        while time.monotonic() < deadline and not self._pulse.everyone_left():
            time.sleep(0.05)


def _keep(thing: Any) -> None:
    """Its destructor never runs."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


@contextmanager
def _on_host(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """The tensor as gloo takes it: what lies on a GPU makes the way over the host's memory."""
    if tensor.device.type == "cpu" and tensor.is_contiguous():
        yield tensor
        return
    held = tensor.cpu().contiguous()
    yield held
    tensor.copy_(held)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory of a contiguous tensor as gloo moves it, whatever its type."""
    import torch

    return tensor.view(-1).view(torch.uint8)


_lock = threading.Lock()
_group: Group | None = None


def current() -> Group:
    """The group of this process; it starts when first asked for."""
    global _group
    with _lock:
        if _group is None:
            _group = Group(environment.read())
            atexit.register(finalize)
        return _group


def is_started() -> bool:
    return _group is not None and not _group._closed


def finalize() -> None:
    """Ends the group, if there is one. It can't be started again."""
    if _group is not None:
        _group.close()
