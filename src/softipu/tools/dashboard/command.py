"""`softipu dashboard`: options, the socket, the printed address. Serving is in `server`.

That is imported only once there is something to serve, so `--help` and errors come at once.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ...devices.wire import join_address
from .. import cli, serving

DEFAULT_PORT = 8484
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
        type=cli.port_or_any,
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
        type=Path,
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
    key = serving.access_key(options.access_key_file, options.access_key)
    with serving.listen(options.host, options.port, key=key) as listener:
        port = int(listener.getsockname()[1])
        url = address(serving.public_name(listener), port, key)

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
                loopback_only=serving.is_local(listener),
                interval=options.interval,
                history=options.history,
            ),
            listener,
            ready,
        )
    return 0


def address(host: str, port: int, key: str | None) -> str:
    """The page's address as a person opens it."""
    return f"http://{join_address(host, port)}/" + (f"?key={quote(key, safe='')}" if key else "")


def _open(url: str) -> None:
    import webbrowser

    webbrowser.open(url)


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
