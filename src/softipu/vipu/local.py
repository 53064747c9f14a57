"""The embedded system as `vipu` sees it: the same methods as a server has, without one.

Looking creates nothing. While nobody has created a partition, programs get the whole system, and
that is shown as the partition they see.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from .. import __version__, arch, settings
from ..devices import ipuof, usage
from ..devices.controller import Controller
from ..devices.embedded import EMBEDDED, whole_system
from ..devices.entities import (
    ACTIVE,
    DEFAULT_AGENT_PORT,
    Agent,
    Cluster,
    PartitionInfo,
    PartitionRequest,
    check_request,
)
from ..devices.home import Home
from ..devices.model import DEFAULT_PARTITION
from ..errors import UnknownPartition


class LocalController:
    """Opens the file for each call, for reading where that is enough."""

    address = EMBEDDED

    def __init__(self, home: Home | None = None) -> None:
        self._home = home or Home()
        self._system = arch.system(settings.get("SOFTIPU_SYSTEM")).name
        self._path = self._home.controllers / f"{self._system}.sqlite"

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Controller]:
        self._home.exists()  # refuses a directory that is not ours
        controller = Controller(self._path, system=self._system, read_only=True)
        with contextlib.closing(controller):
            yield controller

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Controller]:
        self._home.prepare()
        with contextlib.closing(Controller(self._path, system=self._system)) as controller:
            yield controller

    def version(self) -> dict[str, str]:
        return {"version": __version__, "system": self._system, "server": EMBEDDED}

    def agents(self) -> tuple[Agent, ...]:
        with self._reading() as controller:
            return controller.agents()

    def agent(self, name: str) -> Agent:
        with self._reading() as controller:
            return controller.agent(name)

    def add_agent(
        self, name: str, host: str, port: int = DEFAULT_AGENT_PORT, system: str | None = None
    ) -> Agent:
        with self._writing() as controller:
            return controller.add_agent(name, host, port, system)

    def remove_agent(self, name: str) -> Agent:
        with self._writing() as controller:
            return controller.remove_agent(name)

    def clusters(self) -> tuple[Cluster, ...]:
        with self._reading() as controller:
            return controller.clusters()

    def cluster(self, name: str) -> Cluster:
        with self._reading() as controller:
            return controller.cluster(name)

    def create_cluster(self, name: str, agents: Sequence[str]) -> Cluster:
        with self._writing() as controller:
            return controller.create_cluster(name, agents)

    def remove_cluster(self, name: str) -> Cluster:
        with self._writing() as controller:
            return controller.remove_cluster(name)

    def partitions(self) -> tuple[PartitionInfo, ...]:
        with self._reading() as controller:
            return controller.partitions()

    def partition_info(self, name: str) -> PartitionInfo:
        with self._reading() as controller:
            if name == DEFAULT_PARTITION and not controller.partitions():
                return self.implicit()
            return controller.partition_info(name)

    def create_partition(self, request: PartitionRequest) -> PartitionInfo:
        check_request(request)  # before the state directory is made for it
        with self._writing() as controller:
            return controller.create_partition(request)

    def remove_partition(self, name: str, *, force: bool = False) -> PartitionInfo:
        if self.partition_info(name) == self.implicit():
            raise UnknownPartition(
                f"{name} is not a partition that was created.",
                cause="While there is none, it stands for the whole system.",
                remedy="`vipu create partition NAME --size N` makes one, and hides it.",
            )
        with self._writing() as controller:
            return controller.remove_partition(name, force=force, holders=self._holders)

    def reset_partition(self, name: str, *, force: bool = False) -> PartitionInfo:
        if self.partition_info(name) == self.implicit():
            return self.implicit()
        with self._writing() as controller:
            return controller.reset_partition(name, force=force, holders=self._holders)

    def ipuof_config(self, name: str, gcd: int = 0) -> dict[str, Any]:
        with self._reading() as controller:
            if name == DEFAULT_PARTITION and not controller.partitions() and gcd == 0:
                return ipuof.build(whole_system(self._system))
            return controller.ipuof_config(name, gcd)

    @property
    def _holders(self) -> Any:
        return functools.partial(usage.holders, self._home)

    def implicit(self) -> PartitionInfo:
        """The whole system, as the partition that programs see while none was created."""
        whole = whole_system(self._system)
        return PartitionInfo(
            id=whole.name,
            cluster=f"c{len(whole.ipus)}",
            size=len(whole.ipus),
            reconfigurable=whole.reconfigurable,
            num_gcds=1,
            gcd_sync_replicas=whole.num_replicas,
            sync_type=whole.sync_type,
            state=ACTIVE,
            created=0.0,
            ipus=tuple((ipu.host, ipu.device_id, self._system) for ipu in whole.ipus),
        )
