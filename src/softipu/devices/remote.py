"""Client of a V-IPU server: the controller's methods over HTTP, with a deadline for each.

Nothing of an answer is believed before its whole shape was checked. Requests go to the server
itself, never through a proxy, and are never repeated: a create that timed out may have happened.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ..errors import (
    AccessDenied,
    InvalidSetting,
    IpuofFileMalformed,
    ServerNonsense,
    ServerTimeout,
    ServerUnreachable,
    from_json,
)
from . import ipuof
from .entities import (
    DEFAULT_AGENT_PORT,
    Agent,
    Cluster,
    PartitionInfo,
    PartitionRequest,
    WrongShape,
    check_agent,
    check_name,
    check_request,
    shown,
)
from .model import Partition
from .wire import exchange, join_address, nonsense

DEFAULT_PORT = 8090
API = "/api/v1"

_ADDRESS = re.compile(
    r"(?:\[([0-9A-Fa-f:.]+(?:%\w+)?)\]|([A-Za-z0-9._-]+))"  # [IPv6 address] or name
    r"(?::([0-9]{1,5}))?"  # port
)

Entity = TypeVar("Entity", Agent, Cluster, PartitionInfo)


def parse_address(text: str) -> tuple[str, int | None]:
    """Host and port (None if absent) of `host`, `host:port`, `[v6]:port` or `http://host:port`."""
    rest = text.strip()
    if "://" in rest:
        scheme, rest = rest.split("://", 1)
        if scheme.lower() != "http":
            raise InvalidSetting(f"{shown(text)}: V-IPU servers of softipu speak http only.")
        rest = rest.removesuffix("/")
    if rest.count(":") > 1 and not rest.startswith("["):
        rest = f"[{rest}]"  # a bare IPv6 address; its colons cannot introduce a port
    found = _ADDRESS.fullmatch(rest)
    if found is None:
        raise InvalidSetting(f"{shown(text)} is not the address of a server.")
    port = None if found[3] is None else int(found[3])
    if port is not None and not 1 <= port <= 65535:
        raise InvalidSetting(f"{shown(text)}: {port} is not a port number from 1 to 65535.")
    return found[1] or found[2], port


class RemoteController:
    """A server's controller. Each call is one request on a connection of its own."""

    def __init__(
        self,
        host: str,
        port: int = DEFAULT_PORT,
        *,
        timeout: float = 120.0,
        access_key: str | None = None,
    ) -> None:
        if access_key is not None and not re.fullmatch(r"[!-~]+", access_key):
            raise InvalidSetting("The access key has blanks or characters outside ASCII.")
        self.host = host
        self.port = port
        self._timeout = timeout
        self._access_key = access_key

    @property
    def address(self) -> str:
        return join_address(self.host, self.port)

    def version(self) -> dict[str, str]:
        """The server's `version`, its `system`, and the address `server` that its files name."""
        body = self._ask("GET", "/version")
        keys = ("version", "system", "server")
        if not isinstance(body, dict) or not all(isinstance(body.get(key), str) for key in keys):
            raise self._nonsense("its answer has no version")
        return {key: body[key] for key in keys}

    def agents(self) -> tuple[Agent, ...]:
        return self._many("/agents", Agent.from_json)

    def agent(self, name: str) -> Agent:
        return self._one("GET", f"/agents/{_checked(name)}", Agent.from_json)

    def add_agent(
        self, name: str, host: str, port: int = DEFAULT_AGENT_PORT, system: str | None = None
    ) -> Agent:
        check_agent(name, host, port)
        body: dict[str, Any] = {"id": name, "host": host, "port": port}
        if system is not None:
            body["system"] = system
        return self._one("POST", "/agents", Agent.from_json, body)

    def remove_agent(self, name: str) -> Agent:
        return self._one("DELETE", f"/agents/{_checked(name)}", Agent.from_json)

    def clusters(self) -> tuple[Cluster, ...]:
        return self._many("/clusters", Cluster.from_json)

    def cluster(self, name: str) -> Cluster:
        return self._one("GET", f"/clusters/{_checked(name)}", Cluster.from_json)

    def create_cluster(self, name: str, agents: Sequence[str]) -> Cluster:
        body = {"id": name, "agents": list(agents)}
        return self._one("POST", "/clusters", Cluster.from_json, body)

    def remove_cluster(self, name: str) -> Cluster:
        return self._one("DELETE", f"/clusters/{_checked(name)}", Cluster.from_json)

    def partitions(self) -> tuple[PartitionInfo, ...]:
        return self._many("/partitions", PartitionInfo.from_json)

    def partition_info(self, name: str) -> PartitionInfo:
        return self._one("GET", f"/partitions/{_checked(name)}", PartitionInfo.from_json)

    def create_partition(self, request: PartitionRequest) -> PartitionInfo:
        check_request(request)  # the same words as from the embedded controller
        return self._one("POST", "/partitions", PartitionInfo.from_json, request.to_json())

    def remove_partition(self, name: str, *, force: bool = False) -> PartitionInfo:
        query = "?force=true" if force else ""
        return self._one("DELETE", f"/partitions/{_checked(name)}{query}", PartitionInfo.from_json)

    def reset_partition(self, name: str, *, force: bool = False) -> PartitionInfo:
        query = "?force=true" if force else ""
        return self._one(
            "POST", f"/partitions/{_checked(name)}/reset{query}", PartitionInfo.from_json
        )

    def ipuof_config(self, name: str, gcd: int = 0) -> dict[str, Any]:
        """The IPUoF configuration of one GCD, known to be readable as such."""
        config = self._ask("GET", f"/partitions/{_checked(name)}/ipuof-config?gcd={gcd:d}")
        self._parsed(config, name)
        checked: dict[str, Any] = config
        return checked

    def partition(self, name: str, gcd: int = 0) -> Partition:
        return self._parsed(self.ipuof_config(name, gcd), name)

    def _parsed(self, config: Any, name: str) -> Partition:
        try:
            found, _ = ipuof.parse(config, where="its answer", name=name, origin=self.address)
        except IpuofFileMalformed as error:
            raise self._nonsense(error.what.rstrip(".")) from None
        if found.name != name or not isinstance(config, dict):
            raise self._nonsense(f"its answer describes partition {shown(found.name)}")
        return found

    # --- one request ---------------------------------------------------------------------

    def _one(
        self, method: str, path: str, decode: Callable[[Any], Entity], body: Any = None
    ) -> Entity:
        return self._decoded(self._ask(method, path, body), decode)

    def _many(self, path: str, decode: Callable[[Any], Entity]) -> tuple[Entity, ...]:
        answer = self._ask("GET", path)
        if not isinstance(answer, list):
            raise self._nonsense("its answer is not a list")
        return tuple(self._decoded(entry, decode) for entry in answer)

    def _decoded(self, raw: Any, decode: Callable[[Any], Entity]) -> Entity:
        try:
            return decode(raw)
        except WrongShape as error:
            raise self._nonsense(f"in its answer, {error}") from None

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        headers = {"Accept": "application/json"}
        if self._access_key is not None:
            headers["Authorization"] = f"Bearer {self._access_key}"
        payload = None
        if body is not None:
            payload = json.dumps(body).encode()
            headers["Content-Type"] = "application/json"
        try:
            status, text = exchange(
                self.host,
                self.port,
                method,
                API + path,
                payload=payload,
                headers=headers,
                timeout=self._timeout,
            )
        except TimeoutError:
            raise ServerTimeout(
                f"The V-IPU server {self.address} did not answer within {self._timeout:g} s."
            ) from None
        try:
            answer = json.loads(text)
        except (ValueError, RecursionError):
            answer = None
        if 200 <= status < 300 and answer is not None:
            return answer
        known = from_json(answer)
        if status >= 400 and known is not None:
            raise known
        if status in (401, 403):
            raise AccessDenied(f"The V-IPU server {self.address} answered {status}.")
        if status == 503:
            raise ServerUnreachable(
                f"The V-IPU server {self.address} is overloaded or about to stop (503).",
                remedy="Try again in a moment.",
            )
        raise self._nonsense(f"it answered {status} with {shown(text[:60].decode('latin-1'))}")

    def _nonsense(self, why: str) -> ServerNonsense:
        return nonsense(self.address, why)


def _checked(name: str) -> str:
    """A name that goes into a path must be one; no server could know another."""
    check_name(name, "V-IPU entity")
    return name
