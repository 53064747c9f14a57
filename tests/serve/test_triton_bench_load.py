"""Client processes against a real server: every value compared, nothing lost, processes killed."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from serve_support import SHARED_MEMORY, Layer, add_layer, eventually, samples

from softipu.errors import BenchClientFailed, ServedValuesWrong
from softipu.serve.bench_clients import Clients, check
from softipu.serve.bench_load import lines, load
from softipu.serve.bench_server import HOST, Served, next_free_port, served
from softipu.serve.bench_traffic import Requests, RequestType, Traffic, Turn
from softipu.serve.ports import chosen_port

# The ports that it looks for are the same for all, and memory is measured.
pytestmark = pytest.mark.alone

BOTH = pytest.mark.parametrize("request_type", list(RequestType))


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("home")
        patch.setenv("SOFTIPU_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def module(home: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Layer]:
    folder = tmp_path_factory.mktemp("bench-repository")
    return folder, add_layer(folder, "layer")


@pytest.fixture(scope="module")
def running(module: tuple[Path, Layer]) -> Iterator[Served]:
    with served(module[0], "layer") as found:
        yield found


@pytest.fixture
def requests(module: tuple[Path, Layer]) -> Requests:
    inputs = samples(12).reshape(6, 2, 4)
    with torch.no_grad():
        expected = module[1](inputs)
    return Requests(inputs.numpy(), expected.numpy(), 1e-5)


def traffic(running: Served, request_type: RequestType = RequestType.SYNC, **how) -> Traffic:
    return Traffic(running.address, "layer", request_type, **how)


@BOTH
@pytest.mark.parametrize("shared_memory", [False, True])
def test_all_answers_arrive_and_are_right(running, requests, request_type, shared_memory) -> None:
    with Clients(2, traffic(running, request_type, shared_memory=shared_memory), requests) as two:
        records = two.take(Turn(requests=70))  # more than are under way at once
        again = two.take(Turn(requests=3))
    check([*records, *again], requests.tolerance)
    assert [len(record.ends) for record in records] == [70, 70]
    assert all(e > s for record in records for s, e in zip(record.starts, record.ends, strict=True))


@BOTH
@pytest.mark.parametrize("shared_memory", [False, True])
def test_one_wrong_answer_is_seen(running, requests, request_type, shared_memory) -> None:
    expected = requests.expected.copy()
    expected[3, 1, 2] += 1e-3 * np.abs(expected[3]).max()
    doubted = Requests(requests.inputs, expected, requests.tolerance)
    with Clients(1, traffic(running, request_type, shared_memory=shared_memory), doubted) as one:
        [record] = one.take(Turn(requests=12))
    assert record.wrong == 2
    with pytest.raises(ServedValuesWrong, match="2 of 12 answers are wrong"):
        check([record], doubted.tolerance)


def test_exchanged_answers_are_seen(running, requests) -> None:
    exchanged = Requests(requests.inputs, requests.expected[::-1].copy(), requests.tolerance)
    with Clients(1, traffic(running, shared_memory=True), exchanged) as one:
        [record] = one.take(Turn(requests=6))
    assert record.wrong == 6


def test_errors_of_the_server_are_counted_by_their_message(running, requests) -> None:
    with Clients(1, Traffic(running.address, "nothing"), requests) as one:
        [record] = one.take(Turn(requests=2))
    assert list(record.refused.values()) == [2]
    with pytest.raises(BenchClientFailed, match="2 of 2 requests got an error: .*nothing"):
        check([record], requests.tolerance)


def test_a_client_that_cannot_begin_is_an_error_with_its_words(requests) -> None:
    nobody = Traffic(f"{HOST}:{chosen_port(HOST, 0, '--grpc-port')}", "layer", shared_memory=True)
    with pytest.raises(BenchClientFailed, match="Client 0 ended with exit code 1; it said"):
        Clients(1, nobody, requests)
    assert not list(SHARED_MEMORY.glob("softipu-bench-*"))


def test_a_killed_client_is_an_error_and_leaves_no_shared_memory(running, requests) -> None:
    clients = Clients(2, traffic(running, shared_memory=True), requests)
    name = clients._name
    assert list(SHARED_MEMORY.glob(f"{name}*"))
    clients._processes[1].kill()
    clients._processes[1].wait()
    with pytest.raises(BenchClientFailed, match="Client 1 ended with exit code -9"):
        clients.take(Turn(requests=1))
    clients.close()
    assert not list(SHARED_MEMORY.glob(f"{name}*"))


def test_a_port_that_is_taken_is_passed_over() -> None:
    with socket.socket() as holder:
        holder.bind((HOST, next_free_port(20000)))
        holder.listen(1)
        taken = holder.getsockname()[1]
        assert next_free_port(taken) > taken


def test_load_loses_nothing_and_memory_stays(running, requests) -> None:
    report = load(
        running, traffic(running, shared_memory=True), requests,
        clients=8, seconds=4, warm_seconds=2,
    )  # fmt: skip
    assert report.sent == report.answered > 8
    assert (report.wrong, report.lost, report.refused) == (0, 0, {})
    assert report.growth.shared_memory == 0
    assert report.before.shared_memory > 0
    assert report.growth.memory < 20 * 2**20
    text = "\n".join(lines(report))
    assert "0 wrong, 0 lost, 0 errors" in text
    assert "memory of the server's processes" in text


# The server takes a second to refuse each batch that waits for a dead process.
@pytest.mark.parametrize(("request_type", "count"), [(RequestType.SYNC, 4), (RequestType.ASYNC, 1)])
def test_a_backend_process_killed_under_load_comes_back(
    running, requests, request_type, count
) -> None:
    """Requests in between get an error; none hangs, and none gets a wrong answer."""
    [victim] = running.backend_processes()
    before = len(running.revived)
    done = threading.Event()

    def kill() -> None:
        time.sleep(1)
        os.kill(victim, signal.SIGKILL)
        done.set()

    killer = threading.Thread(target=kill)
    how = traffic(running, request_type, shared_memory=True, timeout=60)
    with Clients(count, how, requests) as clients:
        killer.start()
        records = clients.take(Turn(seconds=3))
        killer.join()
        assert done.is_set()
        eventually(lambda: len(running.revived) > before)
        after = clients.take(Turn(requests=20))
    assert sum(record.wrong for record in records) == 0
    assert sum(record.lost for record in records) == 0
    refused = sum(sum(record.refused.values()) for record in records)
    answered = sum(len(record.ends) for record in records)
    assert refused > 0
    assert answered > 0
    assert answered + refused == sum(record.sent for record in records)
    check(after, requests.tolerance)
    assert running.backend_processes() != [victim]
    assert running.trouble is None
