"""What we ask of a running server, over HTTP: is it ready, which models has it, load and unload.

The standard library suffices: programs that send requests use `tritonclient`.
"""

from __future__ import annotations

import http.client
import json
import re
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from ..errors import ModelControlFailed, ServerSilent

#: Guards the repository's API, by a secret of this process, where users did not ask for it.
KEY_HEADER = "softipu-control-key"
#: Where the server begins to list places in Python code.
_AT = "\n\nAt:"
#: What names that the server can take may have, see `paths`.
_AS_THEY_ARE = "+@:,=%"
#: How often it is looked whether a server that does not answer is still there.
_LOOK_SECONDS = 0.5


def _in_path(model: str) -> str:
    """The server takes names as they stand in a path, and decodes nothing."""
    return quote(model, safe=_AS_THEY_ARE)


@dataclass(frozen=True)
class ModelState:
    name: str
    version: str
    state: str
    reason: str

    @property
    def ready(self) -> bool:
        return self.state == "READY"


def readable(model: str, reason: str) -> str:
    """A reason without the places in our code and the classes that it came through."""
    first = reason.partition(_AT)[0].strip()
    return re.sub(rf"^Internal: TritonModelException: (?:{re.escape(model)}: )?", "", first)


@dataclass(frozen=True)
class Control:
    """A server's HTTP address, and the key to its repository's API if that is locked."""

    host: str
    port: int
    key: str | None = None
    #: Whether the server has ended. Its backend processes may hold its connections open after that.
    ended: Callable[[], bool] = lambda: False

    def is_ready(self) -> bool:
        try:
            return self._ask("GET", "/v2/health/ready", timeout=2)[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def models(self) -> list[ModelState]:
        """All models of the repositories that were ever asked for."""
        body = self._checked("POST", "/v2/repository/index", {})
        return [
            ModelState(
                row["name"],
                row.get("version", ""),
                row.get("state", ""),
                readable(row["name"], row.get("reason", "")),
            )
            for row in body
        ]

    def load(self, model: str, config: Any = None) -> None:
        """With the configuration in the model's folder, or one that wins over it."""
        body = {} if config is None else {"parameters": {"config": json.dumps(config)}}
        self._checked("POST", f"/v2/repository/models/{_in_path(model)}/load", body)

    def config(self, model: str) -> Any:
        """The configuration that a model has, whether from its folder or from who loaded it."""
        return self._checked("GET", f"/v2/models/{_in_path(model)}/config", None)

    def unload(self, model: str) -> None:
        self._checked("POST", f"/v2/repository/models/{_in_path(model)}/unload", {})

    def infer(self, model: str, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """The outputs of a request in JSON, by name."""
        path = f"/v2/models/{_in_path(model)}/infer"
        body = self._checked("POST", path, {"inputs": inputs})
        return {row["name"]: row for row in body["outputs"]}

    def _checked(self, method: str, path: str, body: Any) -> Any:
        try:
            status, answer = self._ask(method, path, body)
        except (OSError, http.client.HTTPException) as error:
            raise ServerSilent(f"{path}: the server does not answer ({error}).") from None
        if status != 200:
            said = answer.get("error", answer) if isinstance(answer, dict) else answer
            raise ModelControlFailed(f"{path}: {str(said).partition(_AT)[0].strip()}")
        return answer

    def _ask(
        self, method: str, path: str, body: Any = None, timeout: float = 600
    ) -> tuple[int, Any]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        try:
            headers = {KEY_HEADER: self.key} if self.key else {}
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, headers)
            self._wait_for_answer(connection.sock, timeout)
            answer = connection.getresponse()
            content = answer.read()
            try:
                return answer.status, json.loads(content) if content else None
            except ValueError:
                return answer.status, content.decode(errors="replace")
        finally:
            connection.close()

    def _wait_for_answer(self, connection: socket.socket, seconds: float) -> None:
        end = time.monotonic() + seconds
        while not select.select([connection], [], [], _LOOK_SECONDS)[0]:
            if self.ended():
                raise ConnectionResetError("it has ended")
            if time.monotonic() > end:
                raise TimeoutError("timed out")
