"""One HTTP request with one deadline for all of it, however slowly the other side sends.

Plain HTTP/1.1 over the standard library, without proxies, redirects or repetition. What the answer
means is the caller's business.
"""

from __future__ import annotations

import io
import time
from typing import TYPE_CHECKING, Any

from ..errors import ServerNonsense, ServerUnreachable

if TYPE_CHECKING:
    import socket
    from http.client import HTTPResponse

LARGEST_ANSWER = 8 << 20


def join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def nonsense(address: str, why: str) -> ServerNonsense:
    return ServerNonsense(f"The answer of {address} is not a V-IPU server's: {why}.")


def exchange(
    host: str,
    port: int,
    method: str,
    path: str,
    *,
    payload: bytes | None,
    headers: dict[str, str],
    timeout: float,
) -> tuple[int, bytes]:
    """Status and body. TimeoutError after `timeout` seconds, whatever was received by then."""
    import http.client

    address = join_address(host, port)
    deadline = time.monotonic() + timeout
    with _connect(host, port, deadline) as plain:
        connection = http.client.HTTPConnection(host, port)
        connection.sock = _DeadlineSocket(plain, deadline)
        try:
            connection.request(method, path, payload, {**headers, "Connection": "close"})
            response = connection.getresponse()
            try:
                return response.status, _read(response, address)
            finally:
                response.close()
        except TimeoutError:
            raise
        except http.client.RemoteDisconnected as error:
            raise _cut_off(address, error) from error
        except http.client.HTTPException as error:
            why = f"what it sent is not HTTP ({type(error).__name__})"
            raise nonsense(address, why) from error
        except OSError as error:
            raise _cut_off(address, error) from error


def _read(response: HTTPResponse, address: str) -> bytes:
    text = response.read(LARGEST_ANSWER + 1)
    if len(text) > LARGEST_ANSWER:
        raise nonsense(address, f"it is larger than {LARGEST_ANSWER >> 20} MiB")
    if response.length:  # http.client does not complain about this when given an amount to read
        raise nonsense(address, f"it ended {response.length} bytes too early")
    return text


def _connect(host: str, port: int, deadline: float) -> socket.socket:
    import socket

    address = join_address(host, port)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ServerUnreachable(
            f"The host name of the V-IPU server {address} is not known: {reason}."
        ) from None
    problem = "no address"
    for family, kind, protocol, _, place in found:
        plain = socket.socket(family, kind, protocol)
        try:
            plain.settimeout(max(0.001, deadline - time.monotonic()))
            plain.connect(place)
        except TimeoutError:
            plain.close()
            problem = "it did not accept the connection in time"
        except OSError as error:
            plain.close()
            problem = error.strerror or str(error)
        else:
            return plain
    raise ServerUnreachable(f"The V-IPU server {address} cannot be reached: {problem}.")


def _cut_off(address: str, error: Exception) -> ServerUnreachable:
    return ServerUnreachable(
        f"The V-IPU server {address} closed the connection without an answer ({error}).",
        cause="It was stopped or killed meanwhile; whether it acted is not known.",
        remedy="Look with `vipu list partitions` when it is back.",
    )


class _DeadlineSocket:
    """The part of a socket that http.client uses; each call gets the time that is left."""

    def __init__(self, plain: socket.socket, deadline: float) -> None:
        self._plain = plain
        self._deadline = deadline

    def armed(self) -> socket.socket:
        remaining = self._deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError("deadline")
        self._plain.settimeout(remaining)
        return self._plain

    def sendall(self, data: bytes) -> None:
        self.armed().sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """http.client closes before it reads; the real socket is closed by whoever opened it."""


class _Reader(io.RawIOBase):
    def __init__(self, source: _DeadlineSocket) -> None:
        self._source = source

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        return self._source.armed().recv_into(buffer)
