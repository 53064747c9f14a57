"""uvicorn's HTTP protocol with a time limit for request headers, which uvicorn itself has not.

Without one, a client that sends a byte a minute keeps a connection for ever. Bodies have their own
limit in guard.py.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle


class ImpatientProtocol(H11Protocol):
    def __init__(self, header_seconds: float, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_seconds = header_seconds
        self._latest: RequestResponseCycle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.loop.call_later(self._header_seconds, self._look)

    def _look(self) -> None:
        """Close the connection if it has waited for the same request since the last look."""
        if self.transport.is_closing():
            return
        waiting = self.cycle is None or self.cycle.response_complete
        if waiting and self.cycle is self._latest:
            self.transport.close()
            return
        self._latest = self.cycle if waiting else self._latest
        self.loop.call_later(self._header_seconds, self._look)
