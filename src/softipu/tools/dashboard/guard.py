"""Who may see the dashboard: host names, the access key, and the headers that bind the browser.

An ASGI wrapper around the whole app, so that no route can be forgotten. It knows nothing of IPUs.
"""

from __future__ import annotations

import hashlib
import hmac
import html
import json
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs

from ...errors import AccessDenied, InvalidRequest, SoftIPUError
from .. import serving

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

#: Nothing but our own files, no inline code, no frames: a page that a hostile name cannot bend.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
]


class Guard:
    def __init__(
        self, app: App, *, key: str | None, port: int, loopback_only: bool, host: str
    ) -> None:
        self._app = app
        self._key = key.encode() if key is not None else None
        self._loopback_only = loopback_only
        self._host = host
        # Cookies are shared by all ports of a host, and two dashboards may run there.
        self._cookie = f"softipu_dashboard_{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if not self._host_allowed(headers.get(b"host", "")):
            error: SoftIPUError = InvalidRequest(
                "The dashboard was asked for under a host name that is not this machine's.",
                cause="Another site may have pointed its name here to read this page.",
                remedy="Open the address that `softipu dashboard` printed.",
            )
            await self._refuse(scope, _with_headers(send, []), 421, error)
            return
        cookie: list[tuple[bytes, bytes]] = []
        if self._key is not None and not self._has_cookie(headers.get(b"cookie", "")):
            if not self._has_key(scope, headers):
                denied = AccessDenied(
                    "This dashboard demands its access key.",
                    cause="The address was opened without the key, or with a wrong one.",
                    remedy="Open the address that `softipu dashboard` printed, with its ?key=…",
                )
                await self._refuse(scope, _with_headers(send, []), 401, denied)
                return
            value = f"{self._cookie}={self._token()}; Path=/; HttpOnly; SameSite=Strict"
            cookie = [(b"set-cookie", value.encode())]
        await self._app(scope, receive, _with_headers(send, cookie))

    def _host_allowed(self, header: str) -> bool:
        if not self._loopback_only:
            return True  # other machines know this one by names we cannot know; they have the key
        return serving.is_own_name(serving.host_name(header), listening_on=self._host)

    def _token(self) -> str:
        """What the cookie holds: it opens the page, but does not reveal the key."""
        assert self._key is not None
        return hmac.new(self._key, b"softipu dashboard cookie", hashlib.sha256).hexdigest()

    def _has_cookie(self, header: str) -> bool:
        try:
            morsel = SimpleCookie(header).get(self._cookie)
        except CookieError:
            return False
        return morsel is not None and serving.same(morsel.value.encode(), self._token().encode())

    def _has_key(self, scope: Scope, headers: dict[bytes, str]) -> bool:
        assert self._key is not None
        if serving.has_bearer(headers.get(b"authorization", ""), self._key):
            return True
        query = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=16)
        return any(serving.same(given.encode(), self._key) for given in query.get("key", [])[:1])

    async def _refuse(self, scope: Scope, send: Send, status: int, error: SoftIPUError) -> None:
        if scope["path"].startswith("/api/"):
            kind, body = "application/json", json.dumps(error.to_json())
        else:
            kind, body = "text/html; charset=utf-8", _page(error)
        headers = [(b"content-type", kind.encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})


def _with_headers(send: Send, extra: list[tuple[bytes, bytes]]) -> Send:
    async def wrapped(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), *HEADERS, *extra]
        await send(message)

    return wrapped


def _page(error: SoftIPUError) -> str:
    what, cause, remedy = (html.escape(text) for text in (error.what, error.cause, error.remedy))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>softipu dashboard</title>'
        f"<h1>{error.label}</h1><p>{what}</p><p>Cause: {cause}</p><p>Way out: {remedy}</p></html>"
    )
