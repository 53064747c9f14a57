"""The command line of `vipu` and `vipu-admin`: verbs, entities and options, not what they do.

Options that choose the server may stand anywhere, as with the real tool.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .. import settings
from ..devices.entities import DEFAULT_AGENT_PORT, SYNC_TYPES
from ..errors import InvalidSetting
from ..tools import cli
from ..tools.cli import Parser
from .connect import SYSTEM_CONFIG

Add = Callable[[Parser], None]


def _host(text: str) -> str:
    """An empty one comes from an unset variable in a script, and must not mean another system."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the host is empty")
    return text


def _seconds(text: str) -> float:
    try:
        return float(settings.SETTINGS["IPUOF_VIPU_API_TIMEOUT"].parse(text))
    except InvalidSetting:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0") from None


def _shared(parser: Parser, *, default: Any = argparse.SUPPRESS) -> None:
    group = parser.add_argument_group("server and output")

    def add(*names: str, **rest: Any) -> None:
        group.add_argument(*names, default=default, **rest)

    add(
        "-H",
        "--api-host",
        type=_host,
        metavar="HOST",
        help="server: host, host:port or http://host:port; `embedded` for the system without one",
    )
    add("--api-port", type=cli.port, metavar="PORT", help="port of the server (8090)")
    add(
        "--api-access-key",
        metavar="KEY",
        help="key of the server (others may see it in the process list: better set "
        "SOFTIPU_VIPU_ACCESS_KEY)",
    )
    add("--api-user-id", metavar="ID", help="accepted for old scripts; sent nowhere")
    add("--config", type=Path, metavar="FILE", help=f"configuration file ({SYSTEM_CONFIG})")
    add("--timeout", type=_seconds, metavar="S", help="seconds to wait for an answer (120)")
    add("--json", action="store_const", const=True, help="print JSON")
    add(
        "--showjson",
        action="store_const",
        const=True,
        help="print JSON; `list partitions` and `list clusters` in the form of the old vipu-cli",
    )


def make_parser() -> Parser:
    name = Path(sys.argv[0]).name
    parser = Parser(
        prog=name if name in ("vipu", "vipu-admin") else "vipu",
        description="Create, look at and remove partitions of virtual IPUs. Without a server, "
        "this works on the embedded system that programs of this user see.",
        version=True,
    )
    _shared(parser, default=None)
    parser.add_argument(
        "--server-version", action="store_true", help="print version and address of the server"
    )
    parser.set_defaults(command=None)
    verbs = parser.add_subparsers(metavar="COMMAND")
    for verb, (help_text, entities) in _TREE.items():
        aliases = ["delete"] if verb == "remove" else []
        branch = verbs.add_parser(verb, aliases=aliases, help=help_text, description=help_text)
        _shared(branch)
        kinds = branch.add_subparsers(metavar="ENTITY", required=True, dest="entity")
        for kind, (about, arguments) in entities.items():
            plural = [] if kind in ("ipu-attrs", "user") else [f"{kind}s"]
            leaf = kinds.add_parser(kind, aliases=plural, help=about, description=about)
            _shared(leaf)
            arguments(leaf)
            leaf.set_defaults(command=f"{verb} {kind}")
    return parser


def _nothing(parser: Parser) -> None:
    pass


def _id(parser: Parser) -> None:
    parser.add_argument("id", metavar="ID")


def _id_and_force(parser: Parser) -> None:
    _id(parser)
    parser.add_argument("--force", action="store_true", help="even if programs hold its IPUs")


def _create_partition(parser: Parser) -> None:
    _id(parser)
    add = parser.add_argument
    add("--size", type=int, required=True, metavar="N", help="IPUs: a power of two")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--cluster", metavar="C", help="cluster to take them from")
    where.add_argument("--allocation", metavar="A", dest="cluster", help="the same")
    add("--reconfigurable", action="store_true", help="programs may attach to parts of it")
    gcds = parser.add_mutually_exclusive_group()
    for option in ("--num-gcds", "--gcds"):
        gcds.add_argument(
            option, type=int, default=1, metavar="N", dest="num_gcds",
            help="graph compile domains (1)",
        )  # fmt: skip
    add("--gcd-sync-replicas", type=int, default=1, metavar="N", help="replicas that sync (1)")
    add("--index", type=int, metavar="I", help="take the I-th place of this size in the cluster")
    add("--sync-type", metavar="T", help=" or ".join(SYNC_TYPES))
    add("--no-ipuof-config", action="store_true",
        help="with a server: do not write ~/.ipuof.conf.d/ID.conf")  # fmt: skip


def _get_partition(parser: Parser) -> None:
    _id(parser)
    parser.add_argument("--gcd", type=int, metavar="K", help="one graph compile domain only")
    parser.add_argument(
        "--ipuof-configs", "--ipu-configs", action="store_true", dest="ipuof_configs",
        help="print the IPUoF configuration that programs read",
    )  # fmt: skip


def _create_agent(parser: Parser) -> None:
    _id(parser)
    parser.add_argument("--host", required=True, metavar="H", help="address of the IPU-Machine")
    parser.add_argument("--port", type=cli.port, default=DEFAULT_AGENT_PORT, metavar="P")
    parser.add_argument("--system", help="system whose machine it imitates (the controller's own)")


def _create_cluster(parser: Parser) -> None:
    _id(parser)
    parser.add_argument("--agents", required=True, metavar="A,B", help="agents in their order")


def _anything(parser: Parser) -> None:
    parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--allocations", help=argparse.SUPPRESS)


_TREE: dict[str, tuple[str, dict[str, tuple[str, Add]]]] = {
    "create": (
        "create a partition, agent or cluster",
        {
            "partition": ("create a partition", _create_partition),
            "agent": ("add an IPU-Machine", _create_agent),
            "cluster": ("join agents to a cluster", _create_cluster),
            "user": ("(not on a software IPU)", _anything),
        },
    ),
    "get": (
        "show one partition, agent, cluster or allocation",
        {
            "partition": ("show a partition, or its IPUoF configuration", _get_partition),
            "agent": ("show an agent", _id),
            "cluster": ("show a cluster", _id),
            "allocation": ("show an allocation", _id),
        },
    ),
    "list": (
        "list partitions, agents, clusters, allocations or attributes of IPUs",
        {
            "partition": ("list partitions", _nothing),
            "agent": ("list agents", _nothing),
            "cluster": ("list clusters", _nothing),
            "allocation": ("list allocations; each cluster is one", _nothing),
            "ipu-attrs": ("list attributes of every IPU", _nothing),
        },
    ),
    "remove": (
        "remove a partition, agent or cluster",
        {
            "partition": ("remove a partition", _id_and_force),
            "agent": ("remove an agent", _id),
            "cluster": ("remove a cluster", _id),
        },
    ),
    "reset": ("reset a partition", {"partition": ("reset a partition", _id_and_force)}),
    "discover": ("(not on a software IPU)", {"agent": ("(not on a software IPU)", _anything)}),
}
