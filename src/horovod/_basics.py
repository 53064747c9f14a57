"""What all frameworks' modules of horovod share: who this process is, and the order of calls."""

from __future__ import annotations

import socket

from softipu import instances
from softipu.errors import HorovodMisuse
from softipu.instances import group

_on = False
_local: tuple[int, int] | None = None


def init(comm: object = None, process_sets: object = None) -> None:
    """Connects all instances; each of them must call it."""
    global _on
    if comm is not None or process_sets is not None:
        raise HorovodMisuse(
            "hvd.init() takes no part of the processes: all instances belong to it."
        )
    if instances.read().count > 1:
        group.current()
    _on = True


def shutdown() -> None:
    """No further calls from this process; the connection stays for PopTorch."""
    global _on
    _on = False


def is_initialized() -> bool:
    """Whether init was called, and shutdown was not."""
    return _on


def rank() -> int:
    """Which instance this is."""
    return _instance().index


def size() -> int:
    """How many instances there are."""
    return _instance().count


def local_rank() -> int:
    """Which instance of its host this is."""
    _instance()
    return _on_this_host()[0]


def local_size() -> int:
    """How many instances its host has."""
    _instance()
    return _on_this_host()[1]


def cross_rank() -> int:
    """Which of the hosts this instance is on."""
    return rank() // local_size()


def cross_size() -> int:
    """How many hosts there are."""
    return max(size() // local_size(), 1)


def is_homogeneous() -> bool:
    """Whether all hosts have the same number of instances."""
    return size() % local_size() == 0


def together() -> group.Group | None:
    """The group to speak to; None for one instance alone."""
    return group.current() if _instance().count > 1 else None


def _instance() -> instances.Instance:
    if not _on:
        raise HorovodMisuse("Horovod has not been initialized; use hvd.init().")
    return instances.read()


def _on_this_host() -> tuple[int, int]:
    """From the variables if they say so, else by asking all others where they are."""
    global _local
    instance = instances.read()
    if instance.local_count is not None:
        return instance.local_index, instance.local_count
    if _local is None:
        everyone = together()
        name = socket.gethostname().encode()
        names = [name] if everyone is None else everyone.all_gather_bytes(name)
        _local = names[: instance.index].count(name), names.count(name)
    return _local


def mpi_built() -> bool:
    """False: no MPI is used."""
    return False


def gloo_built() -> bool:
    """True: instances are connected by gloo."""
    return True


def nccl_built() -> int:
    """0: tensors of hvd calls travel over the host."""
    return 0


mpi_enabled, gloo_enabled = mpi_built, gloo_built
mpi_threads_supported = cuda_built = rocm_built = ddl_built = ccl_built = mpi_built
