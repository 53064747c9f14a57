"""A client process: sends requests, compares every answer, notes how long each took.

`python -m softipu.serve.bench_client FOLDER NAME` reads its orders from FOLDER and from standard
input, a turn per line, and prints what it saw in each turn. It must not need torch: clients share
the cores with the server.
"""

from __future__ import annotations

import importlib
import json
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .bench_traffic import INPUT, OUTPUT, READY, Record, Requests, RequestType, Traffic, Turn, read

if TYPE_CHECKING:
    from .bench_traffic import Array

#: Asynchronous requests of one client under way at once.
OUTSTANDING = 32
#: After an error, so that a model that is being loaded again is not drowned in requests.
_PAUSE_SECONDS = 0.05
#: How much later than its own limit an asynchronous request may say that it failed.
_GRACE_SECONDS = 30.0
_UNKNOWN_REGION = "Unable to find shared memory region"


def deviation(found: Array, expected: Array) -> float:
    """The largest difference, as a part of the largest expected number."""
    if found.shape != expected.shape:
        return float("inf")
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(found.astype(np.float64) - expected).max()) / scale


class Client:
    """A connection, and requests that are ready to be sent again and again."""

    def __init__(self, traffic: Traffic, requests: Requests, name: str) -> None:
        self._traffic = traffic
        self._requests = requests
        # The client's package has no types.
        self._grpc = importlib.import_module("tritonclient.grpc")
        self._failure = importlib.import_module("tritonclient.utils").InferenceServerException
        self._client = self._grpc.InferenceServerClient(traffic.address)
        self._slots = OUTSTANDING if traffic.request_type is RequestType.ASYNC else 1
        self._offset = sum(name.encode())
        self._regions: list[Any] = []
        kind = importlib.import_module("tritonclient.utils").np_to_triton_dtype
        self._inputs = [
            self._grpc.InferInput(INPUT, list(one.shape), kind(one.dtype))
            for one in requests.inputs
        ]
        self._outputs = [self._grpc.InferRequestedOutput(OUTPUT) for _ in range(self._slots)]
        if traffic.shared_memory:
            self._share(name)
        else:
            for given, values in zip(self._inputs, requests.inputs, strict=True):
                given.set_data_from_numpy(values)

    def _share(self, name: str) -> None:
        """Inputs lie in shared memory from now on; each slot has room for an answer."""
        inputs, expected = self._requests.inputs, self._requests.expected
        given = self._region(f"{name}-in", inputs.nbytes)
        self._shm.set_shared_memory_region(given, [inputs])
        for index, one in enumerate(self._inputs):
            size = inputs[0].nbytes
            one.set_shared_memory(f"{name}-in", size, offset=index * size)
        size = expected[0].nbytes
        self._answers = self._region(f"{name}-out", self._slots * size)
        for slot, wanted in enumerate(self._outputs):
            wanted.set_shared_memory(f"{name}-out", size, offset=slot * size)

    def _region(self, name: str, size: int) -> Any:
        self._shm = importlib.import_module("tritonclient.utils.shared_memory")
        region = self._shm.create_shared_memory_region(name, f"/{name}", size)
        self._regions.append((name, region, size))
        self._register()
        return region

    def _register(self) -> None:
        """Tells the server of all regions that it does not know, as one that was started anew."""
        known = self._client.get_system_shared_memory_status().regions
        for name, _, size in self._regions:
            if name not in known:
                self._client.register_system_shared_memory(name, f"/{name}", size)

    def take(self, turn: Turn) -> Record:
        """Sends requests for a turn; returns when the last one has its answer."""
        record = Record()
        if self._traffic.request_type is RequestType.SYNC:
            self._one_by_one(turn, record)
        else:
            self._many_at_once(turn, record)
        return record

    def _one_by_one(self, turn: Turn, record: Record) -> None:
        for number in turn.numbers():
            choice = self._choice(number)
            record.sent += 1
            start = time.monotonic()
            try:
                result = self._send(self._client.infer, choice, 0)
            except self._failure as error:
                self._note(record, error)
                continue
            self._compare(record, choice, 0, result, start, time.monotonic())

    def _many_at_once(self, turn: Turn, record: Record) -> None:
        done: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        idle = list(range(self._slots))

        def arrived(choice: int, slot: int, start: float, result: Any, error: Any) -> None:
            done.put((choice, slot, start, time.monotonic(), result, error))

        for number in turn.numbers():
            if not idle and not self._collect(done, idle, record):
                break
            choice, slot = self._choice(number), idle.pop()
            record.sent += 1
            callback = partial(arrived, choice, slot, time.monotonic())
            self._send(self._client.async_infer, choice, slot, callback=callback)
        while len(idle) < self._slots and self._collect(done, idle, record):
            pass
        record.lost += self._slots - len(idle)

    def _collect(
        self, done: queue.SimpleQueue[tuple[Any, ...]], idle: list[int], record: Record
    ) -> bool:
        """Takes one answer; False if none comes any more."""
        try:
            choice, slot, start, end, result, error = done.get(
                timeout=self._traffic.timeout + _GRACE_SECONDS
            )
        except queue.Empty:
            return False
        if error is None:
            self._compare(record, choice, slot, result, start, end)
        else:
            self._note(record, error)
        idle.append(slot)
        return True

    def _choice(self, number: int) -> int:
        # Clients begin with different requests, so that answers of another client are noticed.
        return (number + self._offset) % len(self._inputs)

    def _send(self, method: Callable[..., Any], choice: int, slot: int, **rest: Any) -> Any:
        return method(
            self._traffic.model, [self._inputs[choice]], outputs=[self._outputs[slot]],
            client_timeout=self._traffic.timeout, **rest,
        )  # fmt: skip

    def _compare(
        self, record: Record, choice: int, slot: int, result: Any, start: float, end: float
    ) -> None:
        expected = self._requests.expected[choice]
        if self._traffic.shared_memory:
            found = self._shm.get_contents_as_numpy(
                self._answers, expected.dtype, expected.shape, slot * expected.nbytes
            )
        else:
            found = result.as_numpy(OUTPUT)
        record.answered(start, end, deviation(found, expected), self._requests.tolerance)

    def _note(self, record: Record, error: Any) -> None:
        if "DEADLINE_EXCEEDED" in str(error.status()):
            record.lost += 1
        else:
            record.failed(str(error.message()))
        time.sleep(_PAUSE_SECONDS)
        if _UNKNOWN_REGION in str(error.message()):
            self._register()

    def close(self) -> None:
        for name, region, _ in self._regions:
            try:
                self._client.unregister_system_shared_memory(name)
            except self._failure as error:  # The server may be gone, and the memory need not stay.
                print(f"{name}: {error.message()}", file=sys.stderr)
            self._shm.destroy_shared_memory_region(region)
        self._client.close()


def main() -> int:
    traffic, requests = read(Path(sys.argv[1]))
    client = Client(traffic, requests, sys.argv[2])
    try:
        print(READY, flush=True)
        for line in sys.stdin:
            print(json.dumps(asdict(client.take(Turn(**json.loads(line))))), flush=True)
    finally:
        client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
