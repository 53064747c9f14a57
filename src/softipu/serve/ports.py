"""Where a server listens: the ports asked for, or free ones; a port that is taken is an error."""

from __future__ import annotations

import errno
import socket
from dataclasses import dataclass

from ..errors import InvalidSetting, PortInUse


@dataclass(frozen=True)
class Ports:
    """Where the server listens; 0 takes any free port."""

    http: int = 8000
    grpc: int = 8001
    metrics: int = 8002


def chosen_port(host: str, port: int, option: str) -> int:
    """The port, if nothing listens there; for 0 a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise PortInUse(
                    f"Port {port} of {host} is taken ({option}).",
                    remedy=f"Choose another with {option} (0 takes any free one), or end the other "
                    "program.",
                ) from None
            raise InvalidSetting(
                f"Port {port} of {host} cannot be listened on: {error.strerror}.",
                cause="The address is not one of this machine's, or the port needs more rights.",
                remedy=f"Choose another --host, or {option} above 1023.",
            ) from None
        number: int = probe.getsockname()[1]
        return number


def free_ports(host: str, wanted: Ports) -> Ports:
    """All three, each of them free or chosen."""
    rows = [("--http-port", wanted.http), ("--grpc-port", wanted.grpc)]
    rows.append(("--metrics-port", wanted.metrics))
    chosen: list[int] = []
    for option, port in rows:
        number = chosen_port(host, port, option)
        while port == 0 and number in chosen:
            number = chosen_port(host, 0, option)
        if number in chosen:
            raise PortInUse(f"{option} {number} is also that of another service.")
        chosen.append(number)
    return Ports(*chosen)


def addresses(host: str) -> dict[str, str]:
    """What the server must be told of where each of its services listens: HTTP takes numbers only,
    and listens elsewhere with a name."""
    if ":" in host:
        return {"http": f"ipv6:{host}", "grpc": f"[{host}]", "metrics": f"ipv6:{host}"}
    return dict.fromkeys(("http", "grpc", "metrics"), socket.gethostbyname(host))


def reachable(host: str) -> str:
    """An address at which a server of this machine, listening there, is found."""
    number = host if ":" in host else socket.gethostbyname(host)
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(number, number)
