"""popdist.poptorch: PopTorch's options for one of poprun's instances."""

from __future__ import annotations

from typing import Any

import poptorch
from poptorch.options import _DistributedOptions
from softipu import instances, settings

from . import _demand_ipus, isPopdistEnvSet


class _Fixed(_DistributedOptions):
    """Which process this is was decided by poprun."""

    def configureProcessId(self, process_id: int, num_processes: int | None = None) -> Any:
        """Not to be called: poprun has the say."""
        raise _fixed("Distributed.configureProcessId")

    def setEnvVarNames(self, var_num_processes: str, var_process_id: str) -> Any:
        """Not to be called: poprun has the say."""
        raise _fixed("Distributed.setEnvVarNames")

    def disable(self) -> Any:
        """Not to be called: poprun has the say."""
        raise _fixed("Distributed.disable")


class Options(poptorch.Options):
    """`poptorch.Options` with the replicas, the process and the cache that poprun decided on.

    A program that poprun did not start is one instance with one replica."""

    def __init__(self, ipus_per_replica: int | None = None) -> None:
        if ipus_per_replica is not None and isPopdistEnvSet():
            _demand_ipus(ipus_per_replica)
        super().__init__()
        instance = instances.read()
        self.set(replication_factor=instance.local_replicas)
        self.Distributed.configureProcessId(instance.index, instance.count)
        self.Distributed.__class__ = _Fixed
        cache = settings.get("POPDIST_EXECUTABLE_CACHE_PATH")
        if cache:
            self.enableExecutableCaching(cache)

    def replicationFactor(self, replication_factor: int) -> Options:
        """Not to be called: poprun has the say."""
        raise _fixed("replicationFactor")

    def useIpuId(self, ipu_id: int) -> Options:
        """Not to be called: instances would take each other's IPUs."""
        raise _fixed("useIpuId")


def _fixed(setter: str) -> RuntimeError:
    return RuntimeError(
        f"Cannot call `{setter}` with popdist.poptorch.Options: poprun decides on replicas, "
        "processes and their IPUs (--num-replicas, --num-instances)."
    )
