"""How `vipu` prints: tables whose columns grow with their content, two-column lists, old JSON.

Scripts cut these at `|`, so names stand in the same column at any width. Pure text; no output here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from typing import Any

from .. import arch
from ..devices.embedded import virtual_ipu
from ..devices.entities import Agent, Cluster, PartitionInfo
from ..tools.attributes import clock_text

Row = Sequence[object]


def table(
    header: Row, rows: Iterable[Row], *, least: Sequence[int] = (), ruled: bool = False
) -> str:
    """Header, rule, rows, rule; `least` are smallest widths, `ruled` adds a rule on top."""
    lines = [[str(cell) for cell in row] for row in (header, *rows)]
    widths = [max(len(line[n]) for line in lines) for n in range(len(header))]
    for n, width in enumerate(least):
        widths[n] = max(widths[n], width)
    texts = [
        " | ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        for line in lines
    ]
    rule = "-" * (len(texts[0]) + 2)
    body = [f" {text}".rstrip() for text in texts]
    parts = [body[0], rule, *body[1:], *([rule] if body[1:] else [])]
    return "\n".join([rule, *parts] if ruled else parts) + "\n"


def pairs(rows: Iterable[tuple[str, object]]) -> str:
    listed = list(rows)
    width = max(len(name) for name, _ in listed)
    rule = "-" * (width + 3 + max(len(str(value)) for _, value in listed) + 2)
    lines = [f" {name:<{width}} | {value}".rstrip() for name, value in listed]
    return "\n".join([rule, *lines, rule]) + "\n"


def partition_table(infos: Sequence[PartitionInfo]) -> str:
    header = (
        "Partition", "Cluster", "ILDs", "GW Routing", "ILD Routing", "Size", "GCDs", "State",
    )  # fmt: skip
    rows = [
        (info.id, info.cluster, info.ilds, "DEFAULT", info.routing, info.size, info.num_gcds,
         info.state)
        for info in infos
    ]  # fmt: skip
    return table(header, rows, least=(11, 8))


def partition_list(info: PartitionInfo, gcd: int | None) -> str:
    each = info.size // info.num_gcds
    created = "-"
    if info.created:
        moment = datetime.fromtimestamp(info.created, timezone.utc)
        created = moment.strftime("%Y-%m-%d %H:%M:%S UTC")
    head = pairs(
        [
            ("Partition ID", info.id),
            ("Cluster ID", info.cluster),
            ("State", info.state),
            ("Size", info.size),
            ("Reconfigurable", "yes" if info.reconfigurable else "no"),
            ("GCDs", info.num_gcds),
            ("IPUs per GCD", each),
            ("GCD sync replicas", info.gcd_sync_replicas),
            ("Sync type", info.sync_type),
            ("ILDs", info.ilds),
            ("ILD routing", info.routing),
            ("Created", created),
        ]
    )
    rows = [
        (number // each, number % each, host, device_id)
        for number, (host, device_id, _) in enumerate(info.ipus)
        if gcd in (None, number // each)
    ]
    return head + table(("GCD", "ID", "Host", "IPU"), rows)


def agent_table(agents: Sequence[Agent]) -> str:
    rows = [(agent.id, agent.host, agent.port, agent.system, agent.ipus) for agent in agents]
    return table(("Agent", "Host", "Port", "System", "IPUs"), rows, least=(10,))


def agent_list(agent: Agent) -> str:
    system = arch.system(agent.system)
    serial = virtual_ipu(agent.host, 0, agent.system, 0)
    head = pairs(
        [
            ("Agent ID", agent.id),
            ("Host", agent.host),
            ("Port", agent.port),
            ("Status", "Up"),
            ("Platform", f"softipu ({agent.system})"),
            ("Board type", system.board_type),
            ("Board serial number", serial.serial),
            ("GWSW Version", serial.software_version),
            ("Num of IPUs", agent.ipus),
        ]
    )
    rows = [
        (device_id, system.chip.architecture, system.chip.tiles, clock_text(serial))
        for device_id in range(agent.ipus)
    ]
    return head + table(("IPU", "Architecture", "Num Tiles", "Clock"), rows)


def cluster_table(clusters: Sequence[Cluster], heading: str) -> str:
    rows = [(cluster.id, " ".join(cluster.agents)) for cluster in clusters]
    return table((heading, "Agents"), rows, ruled=True)


def attributes(agents: Sequence[Agent]) -> list[dict[str, Any]]:
    """One entry for each IPU, in the order of `vipu list ipu-attrs`."""
    found = []
    for agent in agents:
        chip = arch.system(agent.system).chip
        for device_id in range(agent.ipus):
            ipu = virtual_ipu(agent.host, device_id, agent.system, device_id)
            values = {
                "board ipu index": str(device_id),
                "board serial number": ipu.serial,
                "board type": ipu.board_type,
                "chip": chip.name,
                "clock": clock_text(ipu),
                "tiles": str(chip.tiles),
            }
            found.append({"agent": agent.id, "ipu": device_id, "attributes": values})
    return found


def attribute_table(agents: Sequence[Agent]) -> str:
    rows: list[Row] = []
    shown = ""
    for entry in attributes(agents):
        agent, ipu = entry["agent"], entry["ipu"]
        for name, value in entry["attributes"].items():
            rows.append((agent if agent != shown else "", ipu, name, value))
            shown, ipu = agent, ""
    return table(("Agent", "IPU", "Attribute", "Value"), rows, least=(10, 3, 33))


def old_partition(info: PartitionInfo) -> dict[str, Any]:
    """The form that `vipu-cli --showjson list partition` had."""
    spec = {
        "ipus": [device_id for _, device_id, _ in info.ipus],
        "num_gcds": info.num_gcds,
        "num_replicas": info.gcd_sync_replicas,
    }
    return {"partition": {"id": info.id, "spec": spec}}


def old_cluster(cluster: Cluster, agents: Sequence[Agent]) -> dict[str, Any]:
    """The form that `vipu-cli --showjson list cluster` had."""
    count = sum(agent.ipus for agent in agents if agent.id in cluster.agents)
    domains = [
        {"ipus": list(range(start, min(start + 64, count)))} for start in range(0, count, 64)
    ]
    return {"id": cluster.id, "spec": {"ipu_link_domains": domains}}
