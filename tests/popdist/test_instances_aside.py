"""Calls that can be left, and connections that are cut to bring them back."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from softipu.instances.aside import Aside, Line


def test_what_ends_gives_its_value_or_its_error() -> None:
    assert Aside(lambda: 5).result() == 5
    with pytest.raises(ZeroDivisionError):
        Aside(lambda: 1 // 0).result()


def test_what_does_not_end_can_be_left() -> None:
    answer = threading.Event()
    work = Aside(answer.wait)
    assert not work.ended(0.05)
    answer.set()
    assert work.ended(30)
    assert work.result() is True


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that takes every connection and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        yield silent.getsockname()[1]


@pytest.mark.parametrize("settled", [True, False])
def test_a_cut_brings_back_whoever_waits_for_an_answer(port: int, settled: bool) -> None:
    line = Line(port)
    with socket.create_connection(("127.0.0.1", port)) as ours:
        if settled:
            line.settle()
        work = Aside(lambda: ours.recv(1))
        assert not work.ended(0.05)
        line.cut()
        assert work.ended(30)
        assert work.result() == b""


def test_connections_of_others_to_the_same_port_stay(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as earlier:
        line = Line(port)
        with socket.create_connection(("127.0.0.1", port)):
            line.settle()
            with socket.create_connection(("127.0.0.1", port)) as later:
                line.cut()
                for other in (earlier, later):
                    assert other.send(b"x") == 1
                    other.settimeout(0.05)
                    with pytest.raises(TimeoutError):
                        other.recv(1)
