"""What clients get from a real server: values, types, batches, shared memory, errors of their own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
import tritonclient.grpc as grpc
import tritonclient.utils.shared_memory as shm
from serve_support import Layer, Running, eventually, holders, samples, serving
from tritonclient.utils import InferenceServerException, np_to_triton_dtype


@pytest.fixture(scope="module")
def server(models: tuple[Path, dict[str, Layer]], tmp_path_factory) -> Iterator[Running]:
    with serving(models[0], tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Running) -> Iterator[grpc.InferenceServerClient]:
    with grpc.InferenceServerClient(f"127.0.0.1:{server.grpc}") as made:
        yield made


def as_input(name: str, values: np.ndarray, kind: str) -> grpc.InferInput:
    result = grpc.InferInput(name, list(values.shape), kind)
    result.set_data_from_numpy(values)
    return result


def expected(module: Layer, tensor: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return module(tensor)


def test_all_models_of_the_repository_are_served(server: Running) -> None:
    assert server.models == ["joined", "many", "twice"]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_any_number_of_samples_gets_its_values(server, models, count: int) -> None:
    """A whole execution is eight samples, a micro-batch two."""
    tensor = samples(count, start=count)
    torch.testing.assert_close(
        server.values("joined", tensor), expected(models[1]["joined"], tensor)
    )


def test_tensors_of_all_sorts_come_back_by_grpc(client) -> None:
    x, y = samples(2, start=7).numpy(), np.array([[5], [-7]], dtype=np.int32)
    answer = client.infer("many", [as_input("input_0", x, "FP32"), as_input("input_1", y, "INT32")])
    half, whole, flag, number = (answer.as_numpy(f"output_{i}") for i in range(4))
    assert half.dtype == np.float16
    np.testing.assert_array_equal(half, (x * 2).astype(np.float16))
    np.testing.assert_array_equal(whole, y + 1)
    np.testing.assert_array_equal(flag, (x.sum(1) > 10).reshape(flag.shape))
    np.testing.assert_allclose(number, x.sum(1).reshape(2, 1))


def test_only_the_outputs_that_were_asked_for_come_back(client) -> None:
    x, y = samples(1).numpy(), np.array([[5]], dtype=np.int32)
    inputs = [as_input("input_0", x, "FP32"), as_input("input_1", y, "INT32")]
    answer = client.infer("many", inputs, outputs=[grpc.InferRequestedOutput("output_1")])
    assert answer.as_numpy("output_0") is None
    np.testing.assert_array_equal(answer.as_numpy("output_1"), y + 1)


def test_values_pass_through_system_shared_memory(client, models) -> None:
    tensor = samples(4, start=30)
    right = expected(models[1]["joined"], tensor).numpy()
    regions = [
        shm.create_shared_memory_region(f"softipu-test-{kind}", f"/softipu-test-{kind}", size)
        for kind, size in (("in", tensor.numpy().nbytes), ("out", right.nbytes))
    ]
    try:
        shm.set_shared_memory_region(regions[0], [tensor.numpy()])
        for kind, size in (("in", tensor.numpy().nbytes), ("out", right.nbytes)):
            client.register_system_shared_memory(kind, f"/softipu-test-{kind}", size)
        given = grpc.InferInput("input_0", list(tensor.shape), "FP32")
        given.set_shared_memory("in", tensor.numpy().nbytes)
        wanted = grpc.InferRequestedOutput("output_0")
        wanted.set_shared_memory("out", right.nbytes)
        client.infer("joined", [given], outputs=[wanted])
        found = shm.get_contents_as_numpy(regions[1], np.float32, right.shape)
        np.testing.assert_allclose(found, right, rtol=1e-6)
    finally:
        client.unregister_system_shared_memory()
        for region in regions:
            shm.destroy_shared_memory_region(region)


def test_asynchronous_requests_are_all_answered_rightly(client, models) -> None:
    answers: dict[int, object] = {}
    done = threading.Semaphore(0)

    def keep(index: int, result: object, error: object) -> None:
        answers[index] = error or result.as_numpy("output_0")  # type: ignore[attr-defined]
        done.release()

    tensors = [samples(1 + index % 3, start=index) for index in range(24)]
    for index, tensor in enumerate(tensors):
        client.async_infer(
            "twice" if tensor.shape[0] == 1 else "joined",
            [as_input("input_0", tensor.numpy(), "FP32")],
            callback=lambda result, error, index=index: keep(index, result, error),
        )
    for _ in tensors:
        assert done.acquire(timeout=60)
    for index, tensor in enumerate(tensors):
        module = models[1]["twice" if tensor.shape[0] == 1 else "joined"]
        np.testing.assert_allclose(answers[index], expected(module, tensor), rtol=1e-5, atol=1e-6)


def test_requests_that_meet_are_joined_and_keep_their_own_values(server, models) -> None:
    before = counts(server, "joined")
    tensors = [samples(1 + index % 3, start=100 + index) for index in range(40)]
    with ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda tensor: server.values("joined", tensor), tensors))
    for tensor, values in zip(tensors, found, strict=True):
        torch.testing.assert_close(values, expected(models[1]["joined"], tensor))
    inferences, executions = (
        after - start for after, start in zip(counts(server, "joined"), before, strict=True)
    )
    assert inferences == sum(len(tensor) for tensor in tensors)
    assert executions < len(tensors)


def counts(server: Running, model: str) -> tuple[int, int]:
    """Samples so far, and executions. The server counts some only after it has answered."""

    def now() -> tuple[int, int]:
        row = server.ask("GET", f"/v2/models/{model}/stats")[1]["model_stats"][0]
        return int(row["inference_count"]), int(row["execution_count"])

    looks = [now()]

    def stands_still() -> bool:
        time.sleep(0.3)
        looks.append(now())
        return looks[-1] == looks[-2]

    eventually(stands_still)
    return looks[-1]


def test_each_instance_is_a_process_with_an_ipu_that_gc_monitor_shows(server) -> None:
    assert len(server.backend_processes("twice/")) == 2
    holding = holders(Path(server.environment["SOFTIPU_HOME"]))
    assert holding == set(server.backend_processes())
    assert len(holding) == 4


def test_metrics_count_requests(server) -> None:
    server.values("twice", samples(1))
    text = server.ask("GET", "/metrics", port=server.metrics)[1]
    assert 'nv_inference_request_success{model="twice",version="1"}' in text


@pytest.mark.parametrize(
    ("changes", "count", "says"),
    [
        ({"datatype": "INT32", "data": [1, 2, 3, 4]}, 1, "INT32"),
        ({"shape": [1, 5], "data": [1.0] * 5}, 1, "[-1,4]"),
        ({"shape": [4]}, 1, "batch"),
        ({"name": "inputs"}, 1, "'inputs'"),
        ({}, 9, "batch-size must be <= 8"),
        ({"data": [1.0]}, 1, "data"),
    ],
    ids=["type", "shape", "no batch", "name", "too many samples", "too few numbers"],
)
def test_a_wrong_request_is_an_error_of_its_sender_only(server, models, changes, count, says):
    status, body = server.infer("joined", samples(count), **changes)
    assert status in (400, 500)  # the server's own choice
    assert says in body["error"]
    tensor = samples(2)
    torch.testing.assert_close(
        server.values("joined", tensor), expected(models[1]["joined"], tensor)
    )


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (np.ones((1, 4), dtype=np.int32), "data-type is 'INT32'"),
        (np.ones((1, 5), dtype=np.float32), r"\[-1,4\]"),
        (np.ones((9, 4), dtype=np.float32), "batch-size must be <= 8"),
    ],
    ids=["type", "shape", "too many samples"],
)
def test_a_wrong_request_by_grpc_is_an_error_of_its_sender_only(client, models, values, says):
    kind = np_to_triton_dtype(values.dtype)
    with pytest.raises(InferenceServerException, match=says):
        client.infer("joined", [as_input("input_0", values, kind)])
    assert_right(client, models)


def assert_right(client: grpc.InferenceServerClient, models: tuple[Path, dict[str, Layer]]) -> None:
    tensor = samples(2)
    answer = client.infer("joined", [as_input("input_0", tensor.numpy(), "FP32")])
    right = expected(models[1]["joined"], tensor)
    np.testing.assert_allclose(answer.as_numpy("output_0"), right, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "size", "said"),
    [("FP32", 16, "Expected 32, got 16"), ("FP32", 32, "region: .one"), ("INT32", 16, "INT32")],
    ids=["too few bytes", "beyond the region", "type"],
)
def test_a_wrong_request_by_shared_memory_is_an_error_of_its_sender_only(
    client, models, kind: str, size: int, said: str
) -> None:
    """The region has room for one sample, and the request is one of two."""
    region = shm.create_shared_memory_region("one", "/softipu-test-one", 16)
    try:
        shm.set_shared_memory_region(region, [samples(1).numpy()])
        client.register_system_shared_memory("one", "/softipu-test-one", 16)
        given = grpc.InferInput("input_0", [2, 4], kind)
        given.set_shared_memory("one", size)
        with pytest.raises(InferenceServerException, match=said):
            client.infer("joined", [given])
    finally:
        client.unregister_system_shared_memory()
        shm.destroy_shared_memory_region(region)
    assert_right(client, models)


def test_an_unknown_model_is_an_error(server) -> None:
    status, body = server.infer("nothing", samples(1))
    assert status >= 400
    assert "nothing" in body["error"]


def test_clients_that_vanish_leave_the_server_unharmed(server, models) -> None:
    for sent in (
        b"POST /v2/models/joined/infer HTTP/1.1\r\nContent-Length: 500\r\n\r\n{",
        b"\0" * 64,
    ):
        with socket.create_connection(("127.0.0.1", server.http)) as lost:
            lost.sendall(sent)
    whole = b'{"inputs":[{"name":"input_0","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
    head = f"POST /v2/models/joined/infer HTTP/1.1\r\nContent-Length: {len(whole)}\r\n\r\n"
    for _ in range(20):  # gone before the answer comes
        with socket.create_connection(("127.0.0.1", server.http)) as lost:
            lost.sendall(head.encode() + whole)
    tensor = samples(3)
    torch.testing.assert_close(
        server.values("joined", tensor), expected(models[1]["joined"], tensor)
    )


def test_clients_may_not_load_or_unload_models_unless_the_mode_says_so(server) -> None:
    for what in ("load", "unload"):
        status, body = server.ask("POST", f"/v2/repository/models/twice/{what}", {})
        assert status == 403
        assert "restricted" in body["error"]
    assert server.is_served("twice")
