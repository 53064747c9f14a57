"""Straight from GPU to GPU: NCCL, for instances that have a GPU each.

NCCL waits for others inside the driver, where neither Ctrl-C nor our look at the other instances
gets a turn. So what may wait runs in a thread, and is asked for again and again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from .aside import Aside
from .environment import Instance
from .rendezvous import distributed

if TYPE_CHECKING:
    import torch

#: By default torch ends the whole process when NCCL is stuck; we say which instance was lost.
_TORCH_STAYS_CALM = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0"}
_BUSY_SECONDS = 0.002
_NAP_SECONDS = 0.0002


def place_of(device: torch.device) -> bytes:
    """Names a GPU among those of all hosts; nothing for tensors in a host's memory."""
    if device.type != "cuda":
        return b""
    import torch

    return str(torch.cuda.get_device_properties(device).uuid).encode()


def apart(places: Sequence[bytes]) -> bool:
    """Whether each instance has a GPU of its own: NCCL refuses two on one."""
    return all(places) and len(set(places)) == len(places)


class GpuLinks:
    """The connections between the GPUs of all instances."""

    def __init__(self, store: Any, instance: Instance, timeout: float) -> None:
        for name, value in _TORCH_STAYS_CALM.items():
            os.environ.setdefault(name, value)
        dist = distributed()
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=timeout)
        self._nccl = dist.ProcessGroupNCCL(
            dist.PrefixStore("gpus", store), instance.index, instance.count, options
        )

    def connect(self, device: torch.device) -> Connecting:
        """Makes the connections, which NCCL does with its first collective."""
        import torch

        def first() -> None:
            # Threads start on the first GPU, whatever the others are on.
            with torch.cuda.device(device):
                self._nccl.allreduce([torch.zeros(1, device=device)]).wait()
                torch.cuda.current_stream().synchronize()

        return Connecting(first)

    def all_reduce(self, tensor: torch.Tensor, options: Any) -> OnGpu:
        return OnGpu(self._nccl.allreduce([tensor], options))

    def close(self) -> None:
        """Ends the connections, when nothing is under way."""
        self._nccl.shutdown()

    def abort(self) -> None:
        """Ends what is still waiting for an instance that will not answer."""
        self._nccl.abort()


class Connecting:
    """Work in a thread, with the two questions that torch's own work answers."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._aside = Aside(run)

    def is_completed(self) -> bool:
        return self._aside.ended(0.0)

    def wait(self, patience: timedelta) -> None:
        if not self._aside.ended(patience.total_seconds()):
            raise RuntimeError("the GPUs are still being connected")
        self._aside.result()


class OnGpu:
    """A collective on GPUs. torch's own `wait` returns at once and lets the GPU wait."""

    def __init__(self, work: Any) -> None:
        self._work = work

    def is_completed(self) -> bool:
        return bool(self._work.is_completed())

    def wait(self, patience: timedelta) -> None:
        started = time.monotonic()
        while not self._work.is_completed():
            passed = time.monotonic() - started
            if passed > patience.total_seconds():
                raise RuntimeError("the GPUs are not done yet")
            time.sleep(0 if passed < _BUSY_SECONDS else _NAP_SECONDS)
        # What comes next on this stream reads what NCCL wrote on its own; also raises its errors.
        self._work.wait()
