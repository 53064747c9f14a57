"""`softipu dashboard`: options, the socket, the printed address. Serving is in `server`.

That is imported only once there is something to serve, so `--help` and errors come at once.
"""

from __future__ import annotations

import argparse
import errno
import ipaddress
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ...errors import InvalidSetting, PortInUse, UnsafeBind, UsageError
from .. import cli

DEFAULT_PORT = 8484
SHORTEST_KEY = 8
LONGEST_HISTORY = 24 * 60


def parser() -> cli.Parser:
    result = cli.Parser(
        prog="softipu dashboard",
        version=True,
        description="Serve a live web page of the IPUs, their partitions and processes.",
        epilog="Power and temperature are modelled, not measured. End it with Ctrl-C.",
    )
    result.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: %(default)s)"
    )
    result.add_argument(
        "--port",
        type=_port,
        default=DEFAULT_PORT,
        help="port to listen on, 0 for any free one (default: %(default)s)",
    )
    key = result.add_mutually_exclusive_group()
    key.add_argument(
        "--access-key",
        metavar="KEY",
        help="key that viewers must have; needed unless only this machine can connect",
    )
    key.add_argument(
        "--access-key-file",
        metavar="FILE",
        help="the same, from a file: other users can see command lines",
    )
    result.add_argument(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="SECONDS",
        help="time between two updates, at least 0.2 (default: %(default)s)",
    )
    result.add_argument(
        "--history",
        type=_history,
        default=10.0,
        metavar="MINUTES",
        help="how far the plots reach back (default: %(default)s)",
    )
    result.add_argument("--open", action="store_true", help="open the page in a web browser")
    return result


def main(argv: Sequence[str] | None = None) -> int:
    options = parser().parse_args(argv)
    key = _access_key(options.access_key, options.access_key_file)
    loopback = is_loopback(options.host, options.port)
    if key is None and not loopback:
        raise UnsafeBind(
            f"Other machines could see the dashboard on {options.host}.",
            remedy="Give --access-key KEY or --access-key-file FILE, or listen on 127.0.0.1.",
        )
    with bound(options.host, options.port) as listener:
        port = int(listener.getsockname()[1])
        url = address(options.host, port, key)

        def ready() -> None:
            print(f"Dashboard: {url}", flush=True)
            if options.open:
                threading.Thread(target=_open, args=(url,), daemon=True).start()

        from . import server

        server.serve(
            server.Options(
                host=options.host,
                port=port,
                access_key=key,
                loopback_only=loopback,
                interval=options.interval,
                history=options.history,
            ),
            listener,
            ready,
        )
    return 0


def address(host: str, port: int, key: str | None) -> str:
    """The page's address as a person opens it."""
    try:
        parsed = ipaddress.ip_address(host)
        if parsed.is_unspecified:
            host = socket.gethostname()
        elif parsed.version == 6:
            host = f"[{host}]"
    except ValueError:
        pass  # a name
    return f"http://{host}:{port}/" + (f"?key={quote(key, safe='')}" if key else "")


def is_loopback(host: str, port: int) -> bool:
    """Whether only this machine can connect to a server on `host`."""
    found = _resolve(host, port)
    return all(ipaddress.ip_address(where[0]).is_loopback for _, where in found)


def bound(host: str, port: int) -> socket.socket:
    """A socket that accepts connections from now on."""
    family, where = _resolve(host, port)[0]
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
        listener.listen(128)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"Port {port} of {host} is taken.") from None
        raise InvalidSetting(
            f"The dashboard cannot listen on {host}, port {port}: {error.strerror}.",
            cause="The address is not one of this machine's, or the port needs more rights.",
            remedy="Choose another --host, or a --port above 1023.",
        ) from None
    listener.set_inheritable(False)
    return listener


def _resolve(host: str, port: int) -> list[tuple[int, tuple[str, int]]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidSetting(
            f"The host {host!r} cannot be found.",
            cause="It is neither an address nor a name that this machine knows.",
            remedy="Give --host an address of this machine, for example 127.0.0.1.",
        ) from None
    # "localhost" may mean an IPv6 address too, which many machines cannot listen on.
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    return [(family, where) for family, _, _, _, where in found]  # type: ignore[misc]


def _access_key(key: str | None, path: str | None) -> str | None:
    if path is not None:
        try:
            key = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"The access key cannot be read from {path}: {error}.",
                cause="The file does not exist, is not text, or is not yours to read.",
            ) from None
    if key is None:
        return None
    if len(key) < SHORTEST_KEY or not key.isprintable() or not key.isascii() or " " in key:
        raise UsageError(
            "The access key is not usable.",
            cause=f"It needs at least {SHORTEST_KEY} visible ASCII characters.",
            remedy="Make one with: openssl rand -hex 16",
        )
    return key


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port number from 0 to 65535")
    return int(text)


def _interval(text: str) -> float:
    return _number(text, 0.2, 60.0, "seconds")


def _history(text: str) -> float:
    return _number(text, 1.0, LONGEST_HISTORY, "minutes")


def _number(text: str, least: float, most: float, unit: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not least <= value <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is not {least:g} to {most:g} {unit}")
    return value
