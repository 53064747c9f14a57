"""The V-IPU controller: agents, clusters and partitions in one file, and the rules between them.

Used in-process for the embedded system and behind HTTP by `vipu-server`; it knows neither. Every
change is one transaction, and the database itself refuses an IPU that would be in two partitions.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import arch
from ..errors import AlreadyExists, InUse, InvalidRequest
from . import embedded, ipuof, rows
from .entities import (
    ACTIVE,
    DEFAULT_AGENT_PORT,
    MOST_AGENTS_PER_CLUSTER,
    Agent,
    Cluster,
    Holders,
    PartitionInfo,
    PartitionRequest,
    check_agent,
    check_name,
    check_request,
)
from .model import Ipu, Partition
from .placement import as_partition, choose_cluster, free_block, slots
from .store import Store

if TYPE_CHECKING:
    from sqlite3 import Connection

__all__ = ["Agent", "Cluster", "Controller", "Holders", "PartitionInfo", "PartitionRequest"]


def nobody(ipus: tuple[Ipu, ...]) -> list[str]:
    return []


class Controller:
    """State and rules over one file. Threads may share an object, processes the file."""

    def __init__(self, path: Path, *, system: str | None = None, read_only: bool = False) -> None:
        """Open the file, or make it for `system`. With `read_only` nothing is made or changed."""
        self.path = path
        self._system = arch.system(system).name if system is not None else None
        self._store = Store(
            path,
            application_id=rows.APPLICATION_ID,
            version=rows.VERSION,
            schema=rows.SCHEMA,
            seed=self._seed,
            read_only=read_only,
        )
        try:
            self._check_system()
        except BaseException:
            self.close()
            raise

    def _check_system(self) -> None:
        found = self.system
        if self._system not in (None, found):
            raise InvalidRequest(
                f"{self.path} belongs to a {found}, not to a {self._system}.",
                cause="The file was made for another system.",
                remedy=f"Start with --system {found}, or use another file.",
            )

    def close(self) -> None:
        self._store.close()

    def _seed(self, connection: Connection) -> None:
        if self._system is None:
            raise InvalidRequest(
                f"{self.path} does not exist, and no system to make it for was given."
            )
        rows.set_system(connection, self._system)
        names = []
        for machine in embedded.machines(self._system):
            agent = f"ag{machine.number}"
            rows.insert_agent(
                connection,
                Agent(agent, machine.host, DEFAULT_AGENT_PORT, self._system, machine.size),
            )
            names.append(agent)
        rows.insert_cluster(connection, Cluster(f"c{arch.system(self._system).ipus}", tuple(names)))

    @property
    def system(self) -> str:
        """The system that the file was made for."""
        with self._store.read() as connection:
            return rows.system(connection)

    # --- agents --------------------------------------------------------------------------

    def agents(self) -> tuple[Agent, ...]:
        with self._store.read() as connection:
            return rows.agents(connection)

    def agent(self, name: str) -> Agent:
        with self._store.read() as connection:
            return rows.agent(connection, name)

    def add_agent(
        self, name: str, host: str, port: int = DEFAULT_AGENT_PORT, system: str | None = None
    ) -> Agent:
        """Add one more IPU-Machine, of the controller's own system unless another is named."""
        check_agent(name, host, port)
        described = arch.system(self.system if system is None else system)
        new = Agent(name, host, port, described.name, described.ipus_per_machine)
        with self._store.write() as connection:
            known = rows.agents(connection)
            if any(agent.id == name for agent in known):
                raise AlreadyExists(f"Agent {name} exists already.")
            for agent in known:
                if rows.host_key(agent.host) == rows.host_key(host):
                    raise AlreadyExists(f"Agent {agent.id} has the host {agent.host} already.")
            rows.insert_agent(connection, new)
        return new

    def remove_agent(self, name: str) -> Agent:
        with self._store.write() as connection:
            agent = rows.agent(connection, name)
            users = [cluster.id for cluster in rows.clusters(connection) if name in cluster.agents]
            if users:
                raise InUse(
                    f"Agent {name} is part of {_listed('cluster', users)}.",
                    remedy="Remove the cluster first (`vipu-admin remove cluster NAME`).",
                )
            rows.delete_agent(connection, name)
        return agent

    # --- clusters ------------------------------------------------------------------------

    def clusters(self) -> tuple[Cluster, ...]:
        with self._store.read() as connection:
            return rows.clusters(connection)

    def cluster(self, name: str) -> Cluster:
        with self._store.read() as connection:
            return rows.cluster(connection, name)

    def create_cluster(self, name: str, agents: Sequence[str]) -> Cluster:
        check_name(name, "cluster")
        if not 1 <= len(agents) <= MOST_AGENTS_PER_CLUSTER or len(set(agents)) != len(agents):
            raise InvalidRequest(
                f"A cluster needs 1 to {MOST_AGENTS_PER_CLUSTER} agents, each named once."
            )
        new = Cluster(name, tuple(agents))
        with self._store.write() as connection:
            if any(cluster.id == name for cluster in rows.clusters(connection)):
                raise AlreadyExists(f"Cluster {name} exists already.")
            systems = {rows.agent(connection, agent).system for agent in agents}
            if len(systems) > 1:
                raise InvalidRequest(
                    f"The agents belong to different systems ({', '.join(sorted(systems))}); "
                    "their IPUs cannot work together."
                )
            rows.insert_cluster(connection, new)
        return new

    def remove_cluster(self, name: str) -> Cluster:
        with self._store.write() as connection:
            cluster = rows.cluster(connection, name)
            users = [info.id for info in rows.partitions(connection) if info.cluster == name]
            if users:
                raise InUse(
                    f"Cluster {name} has {_listed('partition', users)}.",
                    remedy="Remove the partitions first (`vipu remove partition NAME`).",
                )
            rows.delete_cluster(connection, name)
        return cluster

    # --- partitions ----------------------------------------------------------------------

    def partitions(self) -> tuple[PartitionInfo, ...]:
        with self._store.read() as connection:
            return rows.partitions(connection)

    def partition_info(self, name: str) -> PartitionInfo:
        with self._store.read() as connection:
            return rows.partition(connection, name)

    def create_partition(self, request: PartitionRequest) -> PartitionInfo:
        sync_type = check_request(request)
        with self._store.write() as connection:
            existing = rows.partitions(connection)
            if any(info.id == request.id for info in existing):
                raise AlreadyExists(f"Partition {request.id} exists already.")
            cluster = choose_cluster(rows.clusters(connection), request.cluster)
            ipus = slots(cluster, rows.agents(connection))
            info = PartitionInfo(
                id=request.id,
                cluster=cluster.id,
                size=request.size,
                reconfigurable=request.reconfigurable,
                num_gcds=request.num_gcds,
                gcd_sync_replicas=request.gcd_sync_replicas,
                sync_type=sync_type,
                state=ACTIVE,
                created=time.time(),
                ipus=free_block(request, cluster, ipus, existing),
            )
            rows.insert_partition(connection, info)
        return info

    def remove_partition(
        self, name: str, *, force: bool = False, holders: Holders = nobody
    ) -> PartitionInfo:
        """Free the IPUs for other partitions. Programs that hold some keep what they hold."""
        with self._store.write() as connection:
            info = rows.partition(connection, name)
            if not force:
                _refuse_if_held(info, holders)
            rows.delete_partition(connection, name)
        return info

    def reset_partition(
        self, name: str, *, force: bool = False, holders: Holders = nobody
    ) -> PartitionInfo:
        """Bring the partition back to its first state; software IPUs have no links to train."""
        with self._store.write() as connection:
            info = rows.partition(connection, name)
            if not force:
                _refuse_if_held(info, holders)
            rows.set_state(connection, name, ACTIVE)
            return rows.partition(connection, name)

    def partition(
        self, name: str, gcd: int | None = None, *, origin: str = "embedded"
    ) -> Partition:
        """The partition as programs see it: all of it, or one graph compile domain."""
        return as_partition(self.partition_info(name), gcd, origin=origin)

    def ipuof_config(self, name: str, gcd: int = 0, server: str | None = None) -> dict[str, Any]:
        return ipuof.build(self.partition(name, gcd, origin=server or "embedded"), server=server)


def _refuse_if_held(info: PartitionInfo, holders: Holders) -> None:
    found = holders(as_partition(info, None, origin="controller").ipus)
    if found:
        raise InUse(
            f"Partition {info.id} is in use by {'; '.join(found)}.",
            remedy="End these programs first, or add --force to go ahead all the same.",
        )


def _listed(kind: str, names: Sequence[str]) -> str:
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}"
