"""Real and fake V-IPU servers for tests, on loopback only."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from softipu.devices.entities import PartitionInfo
from softipu.devices.remote import RemoteController

with warnings.catch_warnings():  # starlette would like another client library; httpx serves
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient as TestClient

TestClient.__test__ = False  # type: ignore[attr-defined]  # pytest would collect it by its name
SOURCE = Path(__file__).parents[2] / "src"


def environment(**extra: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(SOURCE)} | extra


def vipu(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    """The command as a process of its own, as operators run it."""
    return subprocess.run(
        [sys.executable, "-m", "softipu.vipu.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(**extra),
        check=False,
    )


class RunningServer:
    """A `vipu-server` process; leaves its state behind when it is killed."""

    def __init__(self, *arguments: str, port: int = 0, **extra: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "softipu.vipu.serve", "--port", str(port), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(**extra),
        )
        assert self.process.stdout is not None
        self.greeting = self.process.stdout.readline()
        if "http://" not in self.greeting:
            self.close()
            raise AssertionError(f"the server did not start: {self.error_text}")
        address = self.greeting.split("http://")[1].split(",")[0]
        self.port = int(address.rsplit(":", 1)[1])

    def client(self, **options: object) -> RemoteController:
        return RemoteController("127.0.0.1", self.port, timeout=20, **options)  # type: ignore

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        _, self.error_text = self.process.communicate(timeout=60)


@contextlib.contextmanager
def fake_server(answer: Callable[[socket.socket], None]) -> Iterator[RemoteController]:
    """Accepts connections, reads the head of each request, and lets `answer` do its worst."""
    listener = socket.create_server(("127.0.0.1", 0))
    stopping = threading.Event()

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(20)
            received = b""
            while b"\r\n\r\n" not in received:
                received += connection.recv(4096) or b"\r\n\r\n"
            answer(connection)
            # A body that nobody read would turn the close into a reset, and lose the answer.
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(4096):
                pass

    def accept() -> None:
        while not stopping.is_set():
            with contextlib.suppress(OSError):
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield RemoteController("127.0.0.1", listener.getsockname()[1], timeout=1.0)
    finally:
        stopping.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def http(body: bytes, status: str = "200 OK", length: int | None = None) -> bytes:
    announced = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {announced}"
    return head.encode() + b"\r\n\r\n" + body


def assert_sound(infos: tuple[PartitionInfo, ...], order: list[tuple[str, int]]) -> None:
    """Every partition is a complete, aligned run of the cluster, and none shares an IPU."""
    seen: set[tuple[str, int]] = set()
    for info in infos:
        ipus = [(host, device_id) for host, device_id, _ in info.ipus]
        start = order.index(ipus[0])
        assert start % info.size == 0
        assert ipus == order[start : start + info.size]
        assert not seen & set(ipus), f"{info.id} shares IPUs with another partition"
        seen |= set(ipus)


def pod_order(subnet: str = "198.19.16", machines: int = 4) -> list[tuple[str, int]]:
    return [(f"{subnet}.{n + 1}", ipu) for n in range(machines) for ipu in (3, 2, 1, 0)]
