"""The command `vipu-server`: a V-IPU controller that listens on a port until it is told to stop.

Reachable from this machine only, unless an access key protects it. Nothing is kept in memory: a
killed server goes on where it was.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import ipaddress
import re
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import arch, settings
from ..devices import usage
from ..devices.controller import Controller
from ..devices.home import Home
from ..devices.remote import DEFAULT_PORT, parse_address
from ..devices.wire import join_address
from ..errors import InvalidSetting, PortInUse, UnsafeBind
from ..tools.cli import Parser, run

if TYPE_CHECKING:
    import argparse

_LEVELS = ("critical", "error", "warning", "info", "debug")
_KEEP_ALIVE_SECONDS = 5
_HEADER_SECONDS = 5.0
_LARGEST_HEADERS = 16 << 10
_MOST_CONNECTIONS = 1024
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})


def make_parser() -> Parser:
    parser = Parser(prog="vipu-server", description=__doc__, version=True)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help="port; 0 takes a free one (%(default)s)"
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


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise ValueError(text)
    return int(text)


_port.__name__ = "port number"  # argparse names the type in its message


def main(argv: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(argv)
    access_key = _access_key(options.access_key_file)
    place = _resolve(options.host, options.port)
    if not _is_loopback(place[1][0]) and access_key is None:
        raise UnsafeBind(
            f"--host {options.host} can be reached from other machines, and no access key is set."
        )
    home = Home()
    system = arch.system(options.system or settings.get("SOFTIPU_SYSTEM")).name
    path = options.state
    if path is None:
        home.prepare()
        path = home.controllers / f"server-{system}.sqlite"
    wanted = system if options.system or options.state is None else None
    controller = _open(path, wanted, system)
    with contextlib.closing(controller), _listen(place, options) as listener:
        _serve(options, controller, listener, access_key, functools.partial(usage.holders, home))
    return 0


def _open(path: Path, wanted: str | None, default: str) -> Controller:
    """A state file that exists knows its system; the option is only needed to make one."""
    return Controller(path, system=wanted if path.exists() else default)


def _access_key(path: Path | None) -> str | None:
    key: str | None = settings.get("SOFTIPU_VIPU_ACCESS_KEY")
    if path is not None:
        try:
            key = path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not plain text"
            raise InvalidSetting(f"--access-key-file {path} cannot be read: {reason}.") from None
        if path.stat().st_mode & 0o077:
            print(f"vipu-server: warning: others may read {path}.", file=sys.stderr)
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        raise InvalidSetting(
            "The access key is empty, or has blanks or characters outside ASCII.",
            remedy="Make one with `openssl rand -hex 16 > FILE` and give --access-key-file FILE.",
        )
    return key


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The address to bind: IPv4 where a name has both."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidSetting(f"--host {host!r} is not an address of this machine.") from None
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, address


def _is_loopback(address: str) -> bool:
    return ipaddress.ip_address(address.split("%")[0]).is_loopback


def _listen(
    place: tuple[socket.AddressFamily, tuple[Any, ...]], options: argparse.Namespace
) -> socket.socket:
    family, address = place
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_MOST_CONNECTIONS)
    except OSError as error:
        listener.close()
        where = join_address(options.host, options.port)
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"{where} is taken.") from None
        raise InvalidSetting(
            f"{where} cannot be listened on: {error.strerror}.",
            cause="The address is not of this machine, or the port is reserved.",
            remedy="Choose another --host or --port (ports below 1024 need privileges).",
        ) from None
    return listener


def _advertised(options: argparse.Namespace, listener: socket.socket) -> tuple[str, int]:
    host, port = listener.getsockname()[:2]
    if options.advertise is not None:
        name, given = parse_address(options.advertise)
        return name, given or port
    if ipaddress.ip_address(host.split("%")[0]).is_unspecified:
        return socket.gethostname(), port
    return host, port


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
    own = f"[{name}]" if ":" in name else name
    app = make_app(
        controller,
        access_key=access_key,
        advertised=join_address(name, port),
        holders=holders,
        hosts=None if access_key else _LOOPBACK_NAMES | {own.lower(), options.host.lower()},
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
    # uvicorn stops on these signals, and repeats them afterwards: a wanted stop is no failure.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            print(greeting, flush=True)

    Server(config).run(sockets=[listener])


entry = run(main)

if __name__ == "__main__":
    entry()
