"""What every request passes before the application sees it: host name, access key, size, time.

A plain ASGI layer, so that a refused body is never read whole. It knows nothing about partitions.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from ..errors import AccessDenied, InvalidRequest, RequestTooLarge, SoftIPUError
from ..tools import serving

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LARGEST_BODY = 64 << 10
BODY_SECONDS = 10.0
#: Needs no key: whether the server lives is no secret, and probes have no keys.
OPEN_PATHS = ("/health",)


class _Refused(Exception):
    def __init__(self, status: int, error: SoftIPUError, *headers: tuple[bytes, bytes]) -> None:
        super().__init__(error.what)
        self.status = status
        self.error = error
        self.headers = headers


@dataclass(frozen=True)
class Guard:
    """Wraps an application. Without a key any caller is let in, and only under our own names.

    `listening_on` None accepts any Host header: who has the key may call the server as he likes.
    """

    app: App
    access_key: str | None = None
    listening_on: str | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # a WebSocket: nothing here speaks it, and returning refuses it
        headers = {name.lower(): value for name, value in scope["headers"]}
        try:
            self._check_host(headers)
            self._check_key(scope["path"], headers)
            body = await _whole_body(headers, receive)
        except _Refused as refused:
            await _answer(send, refused)
            return
        if body is not None:
            await self.app(scope, _replay(body, receive), send)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        """A web page that points its own host name at this machine must not get through."""
        if self.listening_on is None:
            return
        name = serving.host_name(headers.get(b"host", b"").decode("latin-1"))
        if not serving.is_own_name(name, listening_on=self.listening_on):
            raise _Refused(
                421,
                InvalidRequest(
                    f"This server is not known as {name[:80]!a}.",
                    cause="Without an access key the server answers to its own names only.",
                    remedy=f"Use localhost, 127.0.0.1 or {self.listening_on}.",
                ),
            )

    def _check_key(self, path: str, headers: dict[bytes, bytes]) -> None:
        if self.access_key is None or path in OPEN_PATHS:
            return
        given = headers.get(b"authorization", b"").decode("latin-1")
        if not serving.has_bearer(given, self.access_key.encode()):
            raise _Refused(
                401,
                AccessDenied("The request has no access key, or a wrong one."),
                (b"www-authenticate", b"Bearer"),
            )


async def _whole_body(headers: dict[bytes, bytes], receive: Receive) -> bytes | None:
    """The body, or None if the client went away while it was being read."""
    announced = headers.get(b"content-length", b"0")
    if not announced.isdigit() or int(announced) > LARGEST_BODY:
        raise _too_large()
    try:
        return await asyncio.wait_for(_collect(receive), BODY_SECONDS)
    except (TimeoutError, asyncio.TimeoutError):
        error = InvalidRequest(
            f"The body of the request did not arrive within {BODY_SECONDS:g} s.",
            cause="The client is too slow, or waits for something itself.",
            remedy="Send the whole request at once.",
        )
        raise _Refused(408, error) from None


async def _collect(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if len(body) > LARGEST_BODY:  # chunked bodies announce no length
            raise _too_large()
        if not message.get("more_body", False):
            return bytes(body)


def _too_large() -> _Refused:
    error = RequestTooLarge(f"The body of the request is larger than {LARGEST_BODY >> 10} KiB.")
    return _Refused(413, error)


def _replay(body: bytes, receive: Receive) -> Receive:
    pending: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return pending.pop() if pending else await receive()

    return replayed


async def _answer(send: Send, refused: _Refused) -> None:
    text = json.dumps(refused.error.to_json()).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),  # what was not read must not be taken for the next request
        *refused.headers,
    ]
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": text})
