"""The dashboard's HTTP side: the page, its files, the API, and a uvicorn that ends cleanly.

`create_app` wires the routes to a Feed; `serve` runs it on a socket that is bound already. What is
in a snapshot is decided elsewhere.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import uvicorn
from fastapi import FastAPI, Response
from fastapi.responses import StreamingResponse

from ...devices import Home
from .. import serving
from .feed import Feed
from .guard import App, Guard
from .snapshot import encode

STATIC = Path(__file__).with_name("static")
#: Stated here, since the system's own table of types may be wrong and browsers then refuse scripts.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
#: More open connections than any crowd of viewers needs; a flood gets 503 instead of our memory.
MOST_CONNECTIONS = 256


@dataclass(frozen=True)
class Options:
    host: str = "127.0.0.1"
    port: int = 8484
    access_key: str | None = None
    loopback_only: bool = True
    interval: float = 1.0
    history: float = 10.0  #: minutes


def create_app(options: Options, feed: Feed | None = None, home: Home | None = None) -> App:
    """The ASGI app. It starts its feed, or the given one, when the server starts."""
    source = feed or Feed(home, interval=options.interval, minutes=options.history)
    files = {path.name: path for path in STATIC.iterdir() if path.suffix in TYPES}

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        source.start()
        yield
        source.close()

    # The generated API pages load scripts from elsewhere, which our policy forbids.
    app = FastAPI(lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)

    def file(name: str) -> Response:
        path = files.get(name)
        if path is None:
            return Response("No such file.\n", status_code=404, media_type="text/plain")
        return Response(path.read_bytes(), media_type=TYPES[path.suffix])

    @app.get("/")
    def page() -> Response:
        return file("index.html")

    @app.get("/static/{name}")
    def static(name: str) -> Response:
        return file(name)

    @app.get("/api/snapshot")
    async def snapshot() -> Response:
        return Response(await source.current(), media_type="application/json")

    @app.get("/api/history")
    async def history() -> Response:
        return Response(encode(source.history.to_json()), media_type="application/json")

    @app.get("/api/stream")
    async def stream() -> StreamingResponse:
        return StreamingResponse(_events(source), media_type="text/event-stream")

    return Guard(
        app,
        key=options.access_key,
        port=options.port,
        loopback_only=options.loopback_only,
        host=options.host,
    )


async def _events(source: Feed) -> AsyncIterator[bytes]:
    """Server-sent events: `snapshot` when there is a new one, else `waiting` with the reason."""
    async for frame in source.frames():
        if frame is None:
            yield b"event: waiting\ndata: " + source.waiting() + b"\n\n"
        else:
            yield b"event: snapshot\ndata: " + frame.body + b"\n\n"


class Server(uvicorn.Server):
    """A uvicorn that says when it is ready, and ends its endless streams when told to stop."""

    def __init__(self, config: uvicorn.Config, feed: Feed, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._feed = feed
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._feed.close()
        super().handle_exit(sig, frame)


def serve(
    options: Options, listener: socket.socket, ready: Callable[[], None], home: Home | None = None
) -> None:
    """Serve until SIGINT or SIGTERM; returns normally after either."""
    feed = Feed(home, interval=options.interval, minutes=options.history)
    config = uvicorn.Config(
        create_app(options, feed),
        log_level="warning",
        access_log=False,
        server_header=False,
        ws="none",
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=2,
    )
    with serving.signals_end_quietly():
        Server(config, feed, ready).run(sockets=[listener])
