"""Messages between poprun and its agents: a line of JSON, and after it the bytes it announces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

Message = dict[str, Any]

#: More than any order is; keeps noise of a login shell from being read for ever.
LARGEST_LINE = 1 << 24
#: Output goes in pieces: a longer line is cut, so that no instance can fill the memory.
LARGEST_PIECE = 1 << 16
#: An agent that sent this much output waits until poprun says that it printed some of it. So what
#: poprun cannot print waits in the instances' own pipes, and other messages are never held up.
MOST_UNTAKEN = 1 << 20
#: How much poprun prints before it says so.
TAKEN_BYTES = MOST_UNTAKEN // 8
#: Between two signs of life.
BEAT_SECONDS = 2.0


class Garbled(ValueError):
    """Bytes that no agent or poprun of ours sent."""


def encode(message: Message, payload: bytes = b"") -> bytes:
    if payload:
        message = message | {"bytes": len(payload)}
    return json.dumps(message, separators=(",", ":")).encode() + b"\n" + payload


class Decoder:
    """Bytes as they come, messages when they are whole."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[Message, bytes]]:
        self._buffer += data
        while (found := self._next()) is not None:
            yield found

    def _next(self) -> tuple[Message, bytes] | None:
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > LARGEST_LINE:
                raise Garbled("a line without end")
            return None
        try:
            message = json.loads(self._buffer[:end])
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise Garbled(bytes(self._buffer[: min(end, 200)]).decode("utf-8", "replace"))
        size = message.get("bytes", 0)
        if type(size) is not int or not 0 <= size <= LARGEST_LINE:
            raise Garbled(f"{size!r} bytes announced")
        if len(self._buffer) < end + 1 + size:
            return None
        payload = bytes(self._buffer[end + 1 : end + 1 + size])
        del self._buffer[: end + 1 + size]
        message.pop("bytes", None)
        return message, payload
