"""The REST interface: statuses, limits, keys, and a process that is told to listen."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from vipu_helpers import RunningServer, TestClient, environment

from softipu import __version__, errors
from softipu.devices.controller import Controller
from softipu.vipu import guard
from softipu.vipu.server import make_app

PARTITIONS = "/api/v1/partitions"


@pytest.fixture
def client(controller: Controller) -> TestClient:
    return TestClient(make_app(controller, advertised="pod-ctrl:8090"))


def problem(response: Any, status: int) -> errors.SoftIPUError:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = errors.from_json(response.json())
    assert error is not None
    return error


# --- what it does ----------------------------------------------------------------------------


def test_the_life_of_a_partition(client: TestClient):
    created = client.post(PARTITIONS, json={"id": "p1", "size": 4, "num_gcds": 2})
    assert created.status_code == 201
    assert created.json()["cluster"] == "c16"
    assert client.get(PARTITIONS).json() == [created.json()]
    assert client.get(f"{PARTITIONS}/p1").json() == created.json()
    assert client.post(f"{PARTITIONS}/p1/reset").json() == created.json()
    config = client.get(f"{PARTITIONS}/p1/ipuof-config?gcd=1").json()
    assert config["attributes"]["softipu Server"] == "pod-ctrl:8090"
    assert [device["device_id"] for device in config["devices"]] == [1, 0]
    assert client.delete(f"{PARTITIONS}/p1?force=true").json() == created.json()
    assert client.get(PARTITIONS).json() == []


def test_version_agents_clusters_and_allocations(client: TestClient):
    version = client.get("/api/v1/version").json()
    assert version == {
        "version": __version__, "api": 1, "system": "bow-pod16", "server": "pod-ctrl:8090",
    }  # fmt: skip
    assert len(client.get("/api/v1/agents").json()) == 4
    added = client.post("/api/v1/agents", json={"id": "x", "host": "10.0.0.1"})
    assert added.json() == {
        "id": "x", "host": "10.0.0.1", "port": 8080, "system": "bow-pod16", "ipus": 4,
    }  # fmt: skip
    assert client.post("/api/v1/clusters", json={"id": "cx", "agents": ["x"]}).status_code == 201
    assert client.get("/api/v1/allocations").json() == client.get("/api/v1/clusters").json()
    assert client.delete("/api/v1/clusters/cx").status_code == 200
    assert client.delete("/api/v1/agents/x").json() == added.json()
    assert client.get("/health").json() == {"status": "ok"}


# --- what it refuses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ({"id": "p", "size": 32}, 409, errors.NotEnoughIpus),
        ({"id": "taken", "size": 1}, 409, errors.AlreadyExists),
        ({"id": "p", "size": 16}, 409, errors.NoFreeIpus),
        ({"id": "p", "size": 2, "num_gcds": 4}, 409, errors.InvalidRequest),
        ({"id": "p", "size": 1, "cluster": "nope"}, 404, errors.UnknownEntity),
        ({"id": "p", "size": 3}, 422, errors.InvalidRequest),
        ({"id": "p", "size": "4"}, 422, errors.InvalidRequest),
        ({"id": "p", "size": True}, 422, errors.InvalidRequest),
        ({"id": "p", "size": 10**400}, 422, errors.InvalidRequest),
        ({"id": "p", "size": 1, "siz": 1}, 422, errors.InvalidRequest),
        ({"id": "p", "size": 1, "reconfigurable": 1}, 422, errors.InvalidRequest),
        ({"id": "p", "size": 1, "sync_type": "odd"}, 422, errors.InvalidRequest),
        ({"id": "../p", "size": 1}, 422, errors.InvalidRequest),
        ({"id": "\ud800", "size": 1}, 422, errors.InvalidRequest),
        ({"size": 1}, 422, errors.InvalidRequest),
        ([], 422, errors.InvalidRequest),
        (None, 422, errors.InvalidRequest),
    ],
)
def test_wrong_requests_get_a_status_and_an_explanation(client, body, status, kind):
    assert client.post(PARTITIONS, json={"id": "taken", "size": 1}).status_code == 201
    response = client.post(
        PARTITIONS, content=json.dumps(body), headers={"content-type": "application/json"}
    )
    assert type(problem(response, status)) is kind
    assert len(client.get(PARTITIONS).json()) == 1


def test_whole_numbers_may_be_written_with_a_point(client):
    raw = {"content-type": "application/json"}
    made = client.post(PARTITIONS, content=b'{"id": "p", "size": 4.0, "index": 1.0}', headers=raw)
    assert made.json()["ipus"][0]["host"] == "198.19.16.2"


@pytest.mark.parametrize(
    "content", [b"{", b"", b"\xff", b'{"id": "p", "size": NaN}', b"[" * 60_000, b"1" * 5000]
)
def test_what_is_not_json_is_refused(client, content):
    raw = {"content-type": "application/json"}
    response = client.post(PARTITIONS, content=content, headers=raw)
    assert response.status_code in (400, 422)
    problem(response, response.status_code)


def test_other_content_types_are_refused(client):
    """Pages elsewhere can send forms and plain text without asking; they must not get through."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        response = client.post(
            PARTITIONS, content=b'{"id": "p", "size": 1}', headers={"content-type": kind}
        )
        problem(response, 422)
    assert client.get(PARTITIONS).json() == []


@pytest.mark.parametrize(
    "path", ["/", "/api", "/api/v1", "/api/v1/partitions/", "/docs", "/redoc", "/x"]
)
def test_unknown_paths_are_404(client, path):
    problem(client.get(path), 404)


def test_unknown_methods_are_405_and_say_what_is_allowed(client):
    response = client.put(PARTITIONS, json={})
    problem(response, 405)
    assert response.headers["allow"] == "GET, POST"
    assert client.post(f"{PARTITIONS}/p").headers["allow"] == "DELETE, GET"
    assert client.delete("/health").headers["allow"] == "GET"


@pytest.mark.parametrize(
    "query", ["?froce=true", "?force=maybe", "?force=1", "?force=true&force=false", "?force="]
)
def test_misspelt_parameters_remove_nothing(client, query):
    client.post(PARTITIONS, json={"id": "p", "size": 1})
    problem(client.delete(f"{PARTITIONS}/p{query}"), 422)
    assert len(client.get(PARTITIONS).json()) == 1


@pytest.mark.parametrize(("gcd", "status"), [("1", 404), ("-1", 422), ("x", 422), ("9" * 99, 422)])
def test_a_gcd_that_is_not_there(client, gcd, status):
    client.post(PARTITIONS, json={"id": "p", "size": 1})
    problem(client.get(f"{PARTITIONS}/p/ipuof-config?gcd={gcd}"), status)


def test_a_partition_that_programs_hold_stays(controller):
    client = TestClient(make_app(controller, holders=lambda ipus: ["pid 7 (train.py)"]))
    client.post(PARTITIONS, json={"id": "p", "size": 1})
    for method, path in (("POST", f"{PARTITIONS}/p/reset"), ("DELETE", f"{PARTITIONS}/p")):
        assert "pid 7" in problem(client.request(method, path), 409).what
        assert client.request(method, f"{path}?force=true").status_code == 200


def test_failures_of_the_server_are_answers_too(controller, monkeypatch):
    client = TestClient(make_app(controller), raise_server_exceptions=False)
    for status, kind in (
        (500, errors.DatabaseDamaged),
        (503, errors.StateReadOnly),
        (503, errors.StateUnusable),
        (507, errors.StateFull),
    ):

        def fail(kind: type[errors.SoftIPUError] = kind) -> None:
            raise kind("x.sqlite")

        monkeypatch.setattr(controller, "partitions", fail)
        assert type(problem(client.get(PARTITIONS), status)) is kind

    def crash() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(controller, "partitions", crash)
    assert "ZeroDivisionError" in problem(client.get(PARTITIONS), 500).what


# --- keys, hosts, sizes ----------------------------------------------------------------------


def test_with_a_key_every_path_but_health_needs_it(controller):
    client = TestClient(make_app(controller, access_key="s3cret-key"))
    for path in (PARTITIONS, "/api/v1/version", "/openapi.json", "/nope"):
        for given in (
            None,
            "Bearer wrong",
            "Bearer ",
            "Bearer s3cret-ke",
            "Basic s3cret-key",
            "s3cret-key",
        ):
            headers = {} if given is None else {"authorization": given}
            response = client.get(path, headers=headers)
            assert type(problem(response, 401)) is errors.AccessDenied
            assert response.headers["www-authenticate"] == "Bearer"
    assert client.get("/health").status_code == 200
    assert client.get(PARTITIONS, headers={"authorization": "Bearer s3cret-key"}).json() == []
    assert client.get(PARTITIONS, headers={"authorization": "bearer s3cret-key"}).json() == []


def test_without_a_key_only_its_own_names_are_answered(controller):
    client = TestClient(make_app(controller, listening_on="127.0.0.1"))
    for host in ("localhost", "LOCALHOST:8090", "[::1]:8090"):
        assert client.get(PARTITIONS, headers={"host": host}).status_code == 200
    for host in ("evil.example", "localhost.evil.example", "evil.example:8090", ""):
        problem(client.get(PARTITIONS, headers={"host": host}), 421)


def test_large_bodies_are_refused_whether_announced_or_not(client):
    raw = {"content-type": "application/json"}
    big = b" " * (guard.LARGEST_BODY + 1)
    assert (
        type(problem(client.post(PARTITIONS, content=big, headers=raw), 413))
        is errors.RequestTooLarge
    )
    problem(client.post(PARTITIONS, content=iter([big[:40_000]] * 3), headers=raw), 413)
    fits = b'{"id": "p", "size": 1}'.ljust(guard.LARGEST_BODY)
    assert client.post(PARTITIONS, content=fits, headers=raw).status_code == 201


# --- the process -----------------------------------------------------------------------------


def talk(port: int, data: bytes, seconds: float = 5.0) -> bytes:
    """Send raw bytes; what came back until the server closed, or the time was up."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=seconds) as connection:
        connection.sendall(data)
        try:
            while block := connection.recv(65536):
                received += block
        except (TimeoutError, ConnectionResetError):
            pass
    return received


def test_a_huge_body_is_refused_before_it_is_sent(server: RunningServer):
    head = b"POST /api/v1/partitions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n"
    assert talk(server.port, head).startswith(b"HTTP/1.1 413")
    chunk = b"8000\r\n" + b"x" * 0x8000 + b"\r\n"
    head = (
        b"POST /api/v1/partitions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    assert talk(server.port, head + chunk * 3).startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /api/v1/partitions HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nA: "
        + b"x" * 40_000
        + b"\r\n\r\n",
        b"GET /" + b"x" * 40_000 + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde",
    ],
)
def test_malformed_requests_are_refused_and_the_server_lives_on(server, data):
    answer = talk(server.port, data)
    assert answer == b"" or re.match(rb"HTTP/1.1 4\d\d", answer)
    assert server.client().partitions() == ()


def test_slow_senders_are_cut_off_and_others_served(server: RunningServer):
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
    try:
        for connection in slow:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost:")
        assert server.client().partitions() == ()
        deadline = time.monotonic() + 15
        for connection in slow:
            connection.settimeout(max(0.1, deadline - time.monotonic()))
            assert connection.recv(100) == b"", "the server waited too long for headers"
    finally:
        for connection in slow:
            connection.close()


def test_a_body_that_never_comes_is_a_408(controller, monkeypatch):
    monkeypatch.setattr(guard, "BODY_SECONDS", 0.2)
    import asyncio

    sent: list[dict[str, Any]] = []

    async def never() -> Any:
        await asyncio.sleep(30)

    async def send(message: Any) -> None:
        sent.append(dict(message))

    scope = {"type": "http", "method": "POST", "path": PARTITIONS, "headers": []}
    asyncio.run(make_app(controller)(scope, never, send))
    assert sent[0]["status"] == 408


def serve(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "softipu.vipu.serve", *arguments],
        capture_output=True, text=True, timeout=30, env=environment(**extra), check=False,
    )  # fmt: skip


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_served_only_with_a_key(host):
    done = serve("--host", host, "--port", "0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "SIPU-1412" in done.stderr


def test_a_key_file_protects_a_server_for_others(tmp_path: Path):
    key_file = tmp_path / "key"
    key_file.write_text("s3cret-key\n")
    key_file.chmod(0o600)
    running = RunningServer(
        "--host", "0.0.0.0", "--access-key-file", str(key_file), "--advertise", "pod-ctrl"
    )
    try:
        with pytest.raises(errors.AccessDenied):
            running.client().partitions()
        with pytest.raises(errors.AccessDenied):
            running.client(access_key="other").partitions()
        version = running.client(access_key="s3cret-key").version()
        assert version["server"] == f"pod-ctrl:{running.port}"
    finally:
        running.close()
    assert "s3cret" not in running.greeting + running.error_text


@pytest.mark.parametrize("content", ["", "two words", "ü"])
def test_keys_that_cannot_be_sent_are_refused(tmp_path: Path, content):
    (tmp_path / "key").write_text(content, encoding="utf-8")
    done = serve("--access-key-file", str(tmp_path / "key"), "--port", "0")
    assert done.returncode == 1
    assert "SIPU-1101" in done.stderr


def test_wrong_starts_are_explained(server: RunningServer, tmp_path: Path):
    (tmp_path / "bad.sqlite").write_text("hello " * 2000)
    for arguments, code in (
        (["--port", str(server.port)], "SIPU-1502"),
        (["--port", "0", "--host", "192.0.2.1", "--access-key-file", "/dev/null"], "SIPU-1101"),
        (["--port", "0", "--host", "no-such-host.invalid"], "SIPU-1101"),
        (["--port", "0", "--system", "pod5"], "SIPU-1002"),
        (["--port", "0", "--state", str(tmp_path / "bad.sqlite")], "SIPU-1306"),
        (["--port", "0", "--state", str(tmp_path / "no" / "where")], "SIPU-1305"),
        (["--port", "0", "--access-key-file", str(tmp_path / "none")], "SIPU-1101"),
    ):
        done = serve(*arguments)
        assert done.returncode == 1, arguments
        assert code in done.stderr, done.stderr
        assert done.stdout == ""
    assert serve("--port", "http").returncode == 2


def test_a_state_file_knows_its_system(tmp_path: Path):
    state_file = tmp_path / "pod64.sqlite"
    RunningServer("--system", "bow-pod64", "--state", str(state_file)).close()
    again = RunningServer("--state", str(state_file))
    assert again.client().version()["system"] == "bow-pod64"
    again.close()
    done = serve("--port", "0", "--system", "pod16", "--state", str(state_file))
    assert done.returncode == 1
    assert "bow-pod64" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_stops_when_told_to_and_loses_nothing(number):
    from softipu.devices.controller import PartitionRequest

    running = RunningServer()
    running.client().create_partition(PartitionRequest("p", 4))
    running.process.send_signal(number)
    running.close()
    assert running.process.returncode == 0
    assert running.error_text == ""
    again = RunningServer()
    assert [info.id for info in again.client().partitions()] == ["p"]
    again.close()
