"""The tables of the V-IPU controller: their schema, and entities in and out of them.

Only SQL lives here, within transactions that the controller opens. Rules are the controller's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from ..errors import DatabaseDamaged, SoftIPUError, UnknownEntity, UnknownPartition
from .entities import Agent, Cluster, PartitionInfo, WrongShape, shown

if TYPE_CHECKING:
    from sqlite3 import Connection

Entity = TypeVar("Entity", Agent, Cluster, PartitionInfo)

APPLICATION_ID = 0x53495055  # "SIPU": tells our files from other SQLite databases
VERSION = 1
SCHEMA = (
    "CREATE TABLE facts (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE agents (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " host TEXT NOT NULL, host_key TEXT NOT NULL UNIQUE, port INTEGER NOT NULL,"
    " system TEXT NOT NULL, ipus INTEGER NOT NULL)",
    "CREATE TABLE clusters (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE)",
    "CREATE TABLE members (cluster TEXT NOT NULL REFERENCES clusters(id) ON DELETE CASCADE,"
    " position INTEGER NOT NULL, agent TEXT NOT NULL REFERENCES agents(id),"
    " PRIMARY KEY (cluster, position), UNIQUE (cluster, agent))",
    "CREATE TABLE partitions (number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
    " cluster TEXT NOT NULL REFERENCES clusters(id), size INTEGER NOT NULL,"
    " reconfigurable INTEGER NOT NULL, num_gcds INTEGER NOT NULL,"
    " gcd_sync_replicas INTEGER NOT NULL, sync_type TEXT NOT NULL, state TEXT NOT NULL,"
    " created REAL NOT NULL)",
    # The last line is the promise of the whole file: no IPU in two partitions.
    "CREATE TABLE partition_ipus (partition TEXT NOT NULL"
    " REFERENCES partitions(id) ON DELETE CASCADE, position INTEGER NOT NULL,"
    " host TEXT NOT NULL, device_id INTEGER NOT NULL, system TEXT NOT NULL,"
    " PRIMARY KEY (partition, position), UNIQUE (host, device_id))",
)


def host_key(host: str) -> str:
    """Equal for hosts whose IPUs would share lock files."""
    return host.replace(":", "_").lower()


def set_system(connection: Connection, name: str) -> None:
    connection.execute("INSERT INTO facts VALUES ('system', ?)", (name,))


def system(connection: Connection) -> str:
    row = connection.execute("SELECT value FROM facts WHERE key = 'system'").fetchone()
    if row is None:
        raise DatabaseDamaged("The database does not say which system it is for.")
    return str(row[0])


def _named(known: tuple[Entity, ...], name: str, kind: str, error: type[SoftIPUError]) -> Entity:
    for found in known:
        if found.id == name:
            return found
    listed = ", ".join(found.id for found in known) or "none"
    raise error(f"{kind} {shown(name)} does not exist (there are: {listed}).")


def agents(connection: Connection) -> tuple[Agent, ...]:
    rows = connection.execute("SELECT id, host, port, system, ipus FROM agents ORDER BY number")
    return tuple(Agent(*row) for row in rows)


def agent(connection: Connection, name: str) -> Agent:
    return _named(agents(connection), name, "Agent", UnknownEntity)


def insert_agent(connection: Connection, new: Agent) -> None:
    connection.execute(
        "INSERT INTO agents (id, host, host_key, port, system, ipus) VALUES (?, ?, ?, ?, ?, ?)",
        (new.id, new.host, host_key(new.host), new.port, new.system, new.ipus),
    )


def delete_agent(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM agents WHERE id = ?", (name,))


def clusters(connection: Connection) -> tuple[Cluster, ...]:
    members: dict[str, list[str]] = {}
    for (name,) in connection.execute("SELECT id FROM clusters ORDER BY number"):
        members[name] = []
    for name, member in connection.execute(
        "SELECT cluster, agent FROM members ORDER BY cluster, position"
    ):
        members[name].append(member)
    return tuple(Cluster(name, tuple(found)) for name, found in members.items())


def cluster(connection: Connection, name: str) -> Cluster:
    return _named(clusters(connection), name, "Cluster", UnknownEntity)


def insert_cluster(connection: Connection, new: Cluster) -> None:
    connection.execute("INSERT INTO clusters (id) VALUES (?)", (new.id,))
    connection.executemany(
        "INSERT INTO members (cluster, position, agent) VALUES (?, ?, ?)",
        [(new.id, position, member) for position, member in enumerate(new.agents)],
    )


def delete_cluster(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM clusters WHERE id = ?", (name,))


def partitions(connection: Connection) -> tuple[PartitionInfo, ...]:
    ipus: dict[str, list[dict[str, object]]] = {}
    for name, host, device_id, system_name in connection.execute(
        "SELECT partition, host, device_id, system FROM partition_ipus ORDER BY partition, position"
    ):
        entry = {"host": host, "device_id": device_id, "system": system_name}
        ipus.setdefault(name, []).append(entry)
    return tuple(
        _checked(
            {
                "id": row[0],
                "cluster": row[1],
                "size": row[2],
                "reconfigurable": bool(row[3]),
                "num_gcds": row[4],
                "gcd_sync_replicas": row[5],
                "sync_type": row[6],
                "state": row[7],
                "created": row[8],
                "ipus": ipus.get(row[0], []),
            }
        )
        for row in connection.execute(
            "SELECT id, cluster, size, reconfigurable, num_gcds, gcd_sync_replicas, sync_type,"
            " state, created FROM partitions ORDER BY number"
        )
    )


def _checked(body: dict[str, object]) -> PartitionInfo:
    """A file can be a sound database and still hold what we never wrote."""
    try:
        return PartitionInfo.from_json(body)
    except WrongShape as error:
        raise DatabaseDamaged(f"The row of partition {body['id']!r} is damaged: {error}.") from None


def partition(connection: Connection, name: str) -> PartitionInfo:
    return _named(partitions(connection), name, "Partition", UnknownPartition)


def insert_partition(connection: Connection, new: PartitionInfo) -> None:
    connection.execute(
        "INSERT INTO partitions (id, cluster, size, reconfigurable, num_gcds, gcd_sync_replicas,"
        " sync_type, state, created) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            new.id, new.cluster, new.size, int(new.reconfigurable), new.num_gcds,
            new.gcd_sync_replicas, new.sync_type, new.state, new.created,
        ),
    )  # fmt: skip
    connection.executemany(
        "INSERT INTO partition_ipus (partition, position, host, device_id, system)"
        " VALUES (?, ?, ?, ?, ?)",
        [(new.id, position, *slot) for position, slot in enumerate(new.ipus)],
    )


def delete_partition(connection: Connection, name: str) -> None:
    connection.execute("DELETE FROM partitions WHERE id = ?", (name,))


def set_state(connection: Connection, name: str, state: str) -> None:
    connection.execute("UPDATE partitions SET state = ? WHERE id = ?", (state, name))
