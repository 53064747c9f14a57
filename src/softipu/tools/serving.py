"""What the servers of softipu share: where they may listen, who may ask, how they end.

`vipu-server` and the dashboard differ in what they serve; they must not differ in how safe that is.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import ipaddress
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InvalidSetting, PortInUse, UnsafeBind

SHORTEST_KEY = 8


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[Any, ...]]:
    """The address to listen on: IPv4 first, as names may mean an IPv6 one that is not there."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):
        raise InvalidSetting(
            f"--host {host!r} is not an address of this machine.",
            cause="It is neither an address nor a name that this machine knows.",
            remedy="Give --host an address of this machine, for example 127.0.0.1.",
        ) from None
    family, _, _, _, place = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return family, place


def is_local(listener: socket.socket) -> bool:
    """Whether only this machine can connect to a socket."""
    return _address(listener).is_loopback


def _address(listener: socket.socket) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(listener.getsockname()[0].split("%")[0])


def listen(host: str, port: int, *, key: str | None, backlog: int = 128) -> socket.socket:
    """A socket that accepts connections from now on; only from this machine, without a key."""
    family, place = _resolve(host, port)
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        if key is None and not is_local(listener):
            raise UnsafeBind(
                f"--host {host} can be reached from other machines, and no access key is set."
            )
        listener.listen(backlog)
    except UnsafeBind:
        listener.close()
        raise
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(f"Port {port} of {host} is taken.") from None
        raise InvalidSetting(
            f"Port {port} of {host} cannot be listened on: {error.strerror}.",
            cause="The address is not one of this machine's, or the port needs more rights.",
            remedy="Choose another --host, or a --port above 1023.",
        ) from None
    return listener


def public_name(listener: socket.socket) -> str:
    """What other programs call the place where a socket listens."""
    host: str = listener.getsockname()[0]
    return socket.gethostname() if _address(listener).is_unspecified else host


def access_key(path: Path | None, otherwise: str | None = None) -> str | None:
    """The key in a file, else the given one; None if there is neither."""
    key = otherwise
    if path is not None:
        try:
            key = path.read_text(encoding="ascii").strip()
            shared = path.stat().st_mode & 0o077
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not plain text"
            raise InvalidSetting(f"--access-key-file {path} cannot be read: {reason}.") from None
        if shared:
            print(f"softipu: warning: other users may read {path}.", file=sys.stderr)
    if key is not None and not re.fullmatch(rf"[!-~]{{{SHORTEST_KEY},}}", key):
        raise InvalidSetting(
            "The access key cannot be used.",
            cause=f"A key has at least {SHORTEST_KEY} ASCII characters, and no blanks.",
            remedy="Make one with `openssl rand -hex 16 > FILE` and give --access-key-file FILE.",
        )
    return key


def same(given: bytes, expected: bytes) -> bool:
    """Compare secrets in a time that tells neither content nor length."""
    return hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(expected).digest())


def has_bearer(header: str, key: bytes) -> bool:
    """Whether an Authorization header carries the key."""
    scheme, _, given = header.partition(" ")
    return scheme.lower() == "bearer" and same(given.strip().encode("latin-1"), key)


def host_name(header: str) -> str:
    """A Host header without its port. Any port will do: tunnels give a server other ones."""
    lowered = header.lower()
    found = re.fullmatch(r"(\[[^\]]*\]|[^:]*)(:\d*)?", lowered)
    return found[1] if found else ""


def is_own_name(name: str, *, listening_on: str) -> bool:
    """Whether a host name means this machine: a web page may point a name of its own here."""
    if name in ("localhost", listening_on.lower()):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


@contextlib.contextmanager
def signals_end_quietly() -> Iterator[None]:
    """uvicorn raises the signals it got once more after its end: to be told to stop is no error."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    wanted = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(one, lambda *_: None) for one in wanted]
    try:
        yield
    finally:
        for one, handler in zip(wanted, before, strict=True):
            signal.signal(one, handler)
