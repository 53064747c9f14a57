"""The commands `vipu` and `vipu-admin`: create, get, list, remove and reset what a controller has.

One tree of commands for both, on a server or on the embedded system. Output is written only when
the whole answer is there and checked.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .. import devices
from ..devices import ipuof
from ..devices.embedded import EMBEDDED
from ..devices.entities import PartitionInfo, PartitionRequest
from ..devices.placement import as_partition
from ..devices.remote import RemoteController
from ..errors import NotOnSoftwareIpu, SoftIPUError
from ..tools.cli import run
from . import conf, tables
from .connect import Controller, connect
from .options import make_parser

Options = argparse.Namespace


def main(argv: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(argv)
    if options.server_version:
        text = _server_version(connect(options))
    elif options.command is None:
        parser.error("a command is expected: create, get, list, remove or reset")
    elif options.command in _HARDWARE_ONLY:
        raise NotOnSoftwareIpu(
            f"{parser.prog} {options.command}: not on a software IPU.",
            cause="There is one user, and no network of IPU-Machines to search.",
            remedy=_HARDWARE_ONLY[options.command],
        )
    else:
        text = _COMMANDS[options.command](connect(options), options)
    sys.stdout.write(text)
    return 0


def _note(text: str | None) -> None:
    if text is not None:
        print(f"vipu: {text}", file=sys.stderr)


def _as_json(body: Any) -> str:
    return json.dumps(body, indent=2) + "\n"


def _wants_json(options: Options) -> bool:
    return bool(options.json or options.showjson)


def _done(options: Options, entity: Any) -> str:
    if _wants_json(options):
        return _as_json(entity.to_json())
    return f"{options.command} ({entity.id}): success.\n"


def _server_version(controller: Controller) -> str:
    return f"version: {controller.version()['version']}\nhost: {controller.address}\n"


# --- partitions ------------------------------------------------------------------------------


def _create_partition(controller: Controller, options: Options) -> str:
    info = controller.create_partition(
        PartitionRequest(
            id=options.id,
            size=options.size,
            cluster=options.cluster,
            reconfigurable=options.reconfigurable,
            num_gcds=options.num_gcds,
            gcd_sync_replicas=options.gcd_sync_replicas,
            index=options.index,
            sync_type=options.sync_type,
        )
    )
    if isinstance(controller, RemoteController) and not options.no_ipuof_config:
        try:
            _note(conf.write(info.id, controller.ipuof_config(info.id)))
        except SoftIPUError as error:
            # The partition is there; that matters more than the file, which can be had later.
            _note(f"warning: no IPUoF file was written: {error.what}")
    return _done(options, info)


def _get_partition(controller: Controller, options: Options) -> str:
    if options.ipuof_configs:
        return ipuof.dumps(controller.ipuof_config(options.id, options.gcd or 0))
    info = controller.partition_info(options.id)
    as_partition(info, options.gcd, origin="")  # says which GCDs there are if not this one
    if _wants_json(options):
        return _as_json(info.to_json())
    return tables.partition_list(info, options.gcd)


def _list_partitions(controller: Controller, options: Options) -> str:
    infos = controller.partitions()
    if not infos and not isinstance(controller, RemoteController):
        _note(f"no partition was created. {_what_programs_see()}")
    if options.showjson:
        return _as_json([tables.old_partition(info) for info in infos])
    if options.json:
        return _as_json([info.to_json() for info in infos])
    return tables.partition_table(infos)


def _what_programs_see() -> str:
    """Files and variables may give programs something else than this controller's partitions."""
    try:
        active = devices.active_partition()
    except SoftIPUError as error:
        return f"Programs here see none: {error.what}"
    kind = "the whole system" if active.origin == EMBEDDED else f"what {active.origin} describes"
    return f"Programs here see {kind} ({len(active.ipus)} IPUs) as partition {active.name}."


def _remove_partition(controller: Controller, options: Options) -> str:
    server = None
    if isinstance(controller, RemoteController):
        server = controller.version()["server"]
    info = controller.remove_partition(options.id, force=options.force)
    if server is not None:
        _note(conf.remove(info.id, server))
    return _done(options, info)


def _reset_partition(controller: Controller, options: Options) -> str:
    info: PartitionInfo = controller.reset_partition(options.id, force=options.force)
    return _done(options, info)


# --- agents, clusters, allocations -----------------------------------------------------------


def _create_agent(controller: Controller, options: Options) -> str:
    agent = controller.add_agent(options.id, options.host, options.port, options.system)
    return _done(options, agent)


def _get_agent(controller: Controller, options: Options) -> str:
    agent = controller.agent(options.id)
    return _as_json(agent.to_json()) if _wants_json(options) else tables.agent_list(agent)


def _list_agents(controller: Controller, options: Options) -> str:
    agents = controller.agents()
    if _wants_json(options):
        return _as_json([agent.to_json() for agent in agents])
    return tables.agent_table(agents)


def _remove_agent(controller: Controller, options: Options) -> str:
    return _done(options, controller.remove_agent(options.id))


def _list_attributes(controller: Controller, options: Options) -> str:
    agents = controller.agents()
    if _wants_json(options):
        return _as_json(tables.attributes(agents))
    return tables.attribute_table(agents)


def _create_cluster(controller: Controller, options: Options) -> str:
    names = [name for name in options.agents.replace(",", " ").split() if name]
    return _done(options, controller.create_cluster(options.id, names))


def _heading(options: Options) -> str:
    return "Allocation ID" if options.command.endswith("allocation") else "Cluster ID"


def _get_cluster(controller: Controller, options: Options) -> str:
    cluster = controller.cluster(options.id)
    if _wants_json(options):
        return _as_json(cluster.to_json())
    rows = [(_heading(options), cluster.id), ("Agents", " ".join(cluster.agents))]
    return tables.pairs(rows)


def _list_clusters(controller: Controller, options: Options) -> str:
    clusters = controller.clusters()
    if options.showjson:
        agents = controller.agents()
        return _as_json([tables.old_cluster(cluster, agents) for cluster in clusters])
    if options.json:
        return _as_json([cluster.to_json() for cluster in clusters])
    return tables.cluster_table(clusters, _heading(options))


def _remove_cluster(controller: Controller, options: Options) -> str:
    return _done(options, controller.remove_cluster(options.id))


_COMMANDS: dict[str, Callable[[Controller, Options], str]] = {
    "create partition": _create_partition,
    "create agent": _create_agent,
    "create cluster": _create_cluster,
    "get partition": _get_partition,
    "get agent": _get_agent,
    "get cluster": _get_cluster,
    "get allocation": _get_cluster,
    "list partition": _list_partitions,
    "list agent": _list_agents,
    "list cluster": _list_clusters,
    "list allocation": _list_clusters,
    "list ipu-attrs": _list_attributes,
    "remove partition": _remove_partition,
    "remove agent": _remove_agent,
    "remove cluster": _remove_cluster,
    "reset partition": _reset_partition,
}

#: Commands of the real tool that have no meaning here, with what to do instead.
_HARDWARE_ONLY = {
    "create user": "Give access keys to the server: `vipu-server --access-key-file FILE`.",
    "discover agent": "Add agents by name: `vipu-admin create agent ID --host H`.",
}

entry = run(main)

if __name__ == "__main__":
    entry()
