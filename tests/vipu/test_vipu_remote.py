"""The client against servers that are down, slow, or talk nonsense."""

from __future__ import annotations

import contextlib
import json
import socket
import time

import pytest
from vipu_helpers import fake_server, http

from softipu import errors
from softipu.devices.controller import Controller, PartitionRequest
from softipu.devices.remote import RemoteController, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost", ("localhost", None)),
        ("localhost:8091", ("localhost", 8091)),
        ("10.1.2.3:1", ("10.1.2.3", 1)),
        ("[::1]:8090", ("::1", 8090)),
        ("[::1]", ("::1", None)),
        ("fe80::1", ("fe80::1", None)),
        ("http://pod-ctrl:8090", ("pod-ctrl", 8090)),
        ("http://pod-ctrl/", ("pod-ctrl", None)),
        ("HTTP://h", ("h", None)),
    ],
)
def test_addresses_are_understood_in_the_usual_forms(text, expected):
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "https://h", "ftp://h", "h:", "h:0", "h:65536", "h:http", "http://h/x", "a b", "h:1:2x",
     "user@h", "http://", "[::1", "h\r\nX: y"],
)  # fmt: skip
def test_addresses_that_are_none_are_refused(text):
    with pytest.raises(errors.InvalidSetting):
        parse_address(text)


def test_nobody_listens():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        client = RemoteController("127.0.0.1", unused.getsockname()[1], timeout=2)
        with pytest.raises(errors.ServerUnreachable, match="refused"):
            client.partitions()


@pytest.mark.parametrize("host", ["no-such-host.invalid", "x" * 64 + ".invalid", "a..b"])
def test_the_host_is_not_known(host):
    with pytest.raises(errors.ServerUnreachable, match="not known"):
        RemoteController(host, 8090, timeout=2).partitions()


@pytest.mark.alone
def test_a_server_that_accepts_and_sleeps_is_a_time_out():
    with fake_server(lambda connection: time.sleep(30)) as client:
        started = time.monotonic()
        with pytest.raises(errors.ServerTimeout, match="within 1 s"):
            client.partitions()
        assert time.monotonic() - started < 20


@pytest.mark.alone
@pytest.mark.parametrize("part", ["status line", "headers", "body", "chunks"])
def test_a_server_that_trickles_is_a_time_out_all_the_same(part):
    starts = {
        "status line": b"",
        "headers": b"HTTP/1.1 200 OK\r\n",
        "body": b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n",
        "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    }
    drops = {"status line": b"H", "headers": b"A: b\r\n", "body": b" ", "chunks": b"1\r\n \r\n"}

    def trickle(connection: socket.socket) -> None:
        connection.sendall(starts[part])
        for _ in range(1000):
            connection.sendall(drops[part])
            time.sleep(0.05)

    with fake_server(trickle) as client:
        started = time.monotonic()
        with pytest.raises((errors.ServerTimeout, errors.ServerNonsense)) as caught:
            client.partitions()
        assert time.monotonic() - started < 20
        if part in ("headers", "body", "chunks"):
            assert isinstance(caught.value, errors.ServerTimeout)


PARTITION = {
    "id": "p", "cluster": "c", "size": 1, "reconfigurable": True, "num_gcds": 1,
    "gcd_sync_replicas": 1, "sync_type": "c2-compatible", "state": "ACTIVE", "created": 1.0,
    "ipus": [{"host": "h", "device_id": 0, "system": "pod16"}],
}  # fmt: skip


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"220 mail.example ESMTP\r\n",
        b"\x00\xff" * 500,
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n[]",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70000 + b"\r\n\r\n[]",
        http(b"<html><body>It works!</body></html>"),
        http(b"[]", "404 Not Found"),
        http(b"oops", "500 Internal Server Error"),
        http(b"", "302 Found"),
        http(b'{"code": "SIPU-9999", "what": "a", "cause": "b", "remedy": "c"}', "409 Conflict"),
        http(b'{"code": 1, "what": "a"}', "409 Conflict"),
        http(b'[{"id": "p', length=500),
        http(b"[", length=1),
        http(b"[]", length=500),
        http(b"{}"),
        http(b"null"),
        http(b"[null]"),
        http(b"[{}]"),
        http(b"[" * 100_000),
        http(b"\xff\xfe\x00"),
        http(json.dumps([PARTITION | {"size": 2}]).encode()),
        http(json.dumps([PARTITION | {"size": "1"}]).encode()),
        http(json.dumps([PARTITION | {"num_gcds": 0}]).encode()),
        http(json.dumps([PARTITION | {"created": "now"}]).encode()),
        http(json.dumps([PARTITION | {"id": "a\x1b[31m"}]).encode()),
        http(json.dumps([PARTITION | {"ipus": [7]}]).encode()),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_nonsense_is_recognised(raw):
    def answer(connection: socket.socket) -> None:
        connection.sendall(raw)

    with (
        fake_server(answer) as client,
        pytest.raises((errors.ServerNonsense, errors.ServerUnreachable)) as caught,
    ):
        client.partitions()
    if raw:
        assert isinstance(caught.value, errors.ServerNonsense)
    assert "\x1b" not in str(caught.value)


def test_a_good_answer_is_believed():
    with fake_server(
        lambda connection: connection.sendall(http(json.dumps([PARTITION]).encode()))
    ) as client:
        assert client.partitions()[0].ipus == (("h", 0, "pod16"),)


@pytest.mark.parametrize("chunked", [False, True])
def test_an_endless_answer_is_cut_off(chunked):
    def flood(connection: socket.socket) -> None:
        if chunked:
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        else:
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        block = b"10000\r\n" + b" " * 65536 + b"\r\n" if chunked else b" " * 65536
        with contextlib.suppress(OSError):
            for _ in range(400):
                connection.sendall(block)

    with fake_server(flood) as client:
        patient = RemoteController(client.host, client.port, timeout=20)
        with pytest.raises(errors.ServerNonsense, match="larger than 8 MiB"):
            patient.partitions()


def test_errors_of_the_server_arrive_as_themselves():
    error = errors.NoFreeIpus("no room", cause="full", remedy="wait")
    raw = http(json.dumps(error.to_json()).encode(), "409 Conflict")
    with fake_server(lambda connection: connection.sendall(raw)) as client:
        with pytest.raises(errors.NoFreeIpus) as caught:
            client.create_partition(PartitionRequest("p", 1))
        assert caught.value.to_json() == error.to_json()


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("401 Unauthorized", errors.AccessDenied),
        ("403 Forbidden", errors.AccessDenied),
        ("503 Service Unavailable", errors.ServerUnreachable),
    ],
)
def test_statuses_of_proxies_and_busy_servers(status, kind):
    def answer(connection: socket.socket) -> None:
        connection.sendall(http(b"no", status))

    with fake_server(answer) as client, pytest.raises(kind):
        client.partitions()


def test_an_ipuof_answer_about_another_partition_is_nonsense(controller: Controller):
    controller.create_partition(PartitionRequest("p", 1))
    config = json.dumps(controller.ipuof_config("p")).encode()
    with fake_server(lambda connection: connection.sendall(http(config))) as client:
        assert client.ipuof_config("p")["devices"]
        with pytest.raises(errors.ServerNonsense, match="describes partition 'p'"):
            client.ipuof_config("q")


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"devices": [{}], "attributes": {}}'])
def test_an_ipuof_answer_that_programs_could_not_use_is_nonsense(body):
    def answer(connection: socket.socket) -> None:
        connection.sendall(http(body))

    with fake_server(answer) as client, pytest.raises(errors.ServerNonsense):
        client.partition("p")


def test_bad_requests_are_refused_before_they_are_sent():
    client = RemoteController("127.0.0.1", 1)
    with pytest.raises(errors.InvalidRequest):
        client.partition_info("../../etc/passwd")
    with pytest.raises(errors.InvalidIpuCount):
        client.create_partition(PartitionRequest("p", 3))
    with pytest.raises(errors.InvalidSetting):
        RemoteController("127.0.0.1", 1, access_key="a\r\nb")


def test_proxies_of_the_environment_are_not_used(monkeypatch, server):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert server.client().partitions() == ()
