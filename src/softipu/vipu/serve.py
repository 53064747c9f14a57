"""The command `vipu-server`: a V-IPU controller that listens on a port until it is told to stop.

Reachable from this machine only, unless an access key protects it. Nothing is kept in memory: a
killed server goes on where it was.
"""

from __future__ import annotations

import contextlib
import functools
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import arch, settings
from ..devices import usage
from ..devices.controller import Controller
from ..devices.home import Home
from ..devices.remote import DEFAULT_PORT, parse_address
from ..devices.wire import join_address
from ..tools import cli, serving

if TYPE_CHECKING:
    import argparse

_LEVELS = ("critical", "error", "warning", "info", "debug")
_KEEP_ALIVE_SECONDS = 5
_HEADER_SECONDS = 5.0
_LARGEST_HEADERS = 16 << 10
_MOST_CONNECTIONS = 1024


def make_parser() -> cli.Parser:
    parser = cli.Parser(prog="vipu-server", description=__doc__, version=True)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port",
        type=cli.port_or_any,
        default=DEFAULT_PORT,
        help="port; 0 takes a free one (%(default)s)",
    )
    parser.add_argument("--system", help="system to serve (default: SOFTIPU_SYSTEM, bow-pod16)")
    parser.add_argument(
        "--state",
        type=Path,
        metavar="FILE",
        help="where agents, clusters and partitions are kept "
        "(default: vipu/server-SYSTEM.sqlite in the state directory)",
    )
    parser.add_argument(
        "--access-key-file",
        type=Path,
        metavar="FILE",
        help="file whose one line every request must give as its key "
        "(default: SOFTIPU_VIPU_ACCESS_KEY)",
    )
    parser.add_argument(
        "--advertise", metavar="HOST", help="name of this server in the IPUoF files it gives out"
    )
    parser.add_argument("--log-level", choices=_LEVELS, default="warning", help="(%(default)s)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(argv)
    access_key = serving.access_key(
        options.access_key_file, settings.get("SOFTIPU_VIPU_ACCESS_KEY")
    )
    home = Home()
    holders = functools.partial(usage.holders, home)
    with (
        serving.listen(
            options.host, options.port, key=access_key, backlog=_MOST_CONNECTIONS
        ) as listener,
        contextlib.closing(_open(home, options.system, options.state)) as controller,
    ):
        _serve(options, controller, listener, access_key, holders)
    return 0


def _open(home: Home, system: str | None, path: Path | None) -> Controller:
    """A state file that exists knows its system; the option is only needed to make one."""
    default = arch.system(system or settings.get("SOFTIPU_SYSTEM")).name
    if path is None:
        home.prepare()
        return Controller(home.controllers / f"server-{default}.sqlite", system=default)
    return Controller(path, system=system if path.exists() else default)


def _advertised(options: argparse.Namespace, listener: socket.socket) -> tuple[str, int]:
    port = listener.getsockname()[1]
    if options.advertise is not None:
        name, given = parse_address(options.advertise)
        return name, given or port
    return serving.public_name(listener), port


def _serve(
    options: argparse.Namespace,
    controller: Controller,
    listener: socket.socket,
    access_key: str | None,
    holders: Any,
) -> None:
    import uvicorn

    from .impatient import ImpatientProtocol
    from .server import make_app

    name, port = _advertised(options, listener)
    app = make_app(
        controller,
        access_key=access_key,
        advertised=join_address(name, port),
        holders=holders,
        listening_on=None if access_key else options.host,
    )
    config = uvicorn.Config(
        app,
        http=functools.partial(ImpatientProtocol, _HEADER_SECONDS),  # type: ignore[arg-type]
        ws="none",
        lifespan="off",
        log_level=options.log_level,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=_LARGEST_HEADERS,
    )
    ipus = sum(agent.ipus for agent in controller.agents())
    greeting = (
        f"vipu-server: {controller.system} with {ipus} IPUs at "
        f"http://{join_address(*listener.getsockname()[:2])}, state in {controller.path}"
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(greeting, flush=True)

    with serving.signals_end_quietly():
        Server(config).run(sockets=[listener])


entry = cli.run(main)

if __name__ == "__main__":
    entry()
