"""An agent alone: orders by hand, and every way in which its poprun can go away."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from poprun_helpers import PATIENCE, environment, marked, wait_until

from softipu.poprun import remains
from softipu.poprun.protocol import Decoder, encode


class Agent:
    """The process, and our side of its pipes."""

    def __init__(self, mark: str) -> None:
        self.mark = mark
        self.process = subprocess.Popen(
            [sys.executable, "-m", "softipu.poprun.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(POPRUN_TEST_MARK=mark),
            bufsize=0,
        )
        self._decoder = Decoder()
        self._got: list = []
        self.printed = b""

    def send(self, message: dict) -> None:
        self.process.stdin.write(encode(message))

    def expect(self, kind: str):
        """The next message of a kind; what instances print is kept."""
        while True:
            while self._got:
                message, payload = self._got.pop(0)
                if "out" in message:
                    self.printed += payload
                if kind in message:
                    return message[kind]
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise AssertionError(f"no {kind}: {self.process.stderr.read().decode()}")
            self._got += self._decoder.feed(data)

    def begin(self, *program: str, count: int = 1, **more) -> dict:
        """Order, store and start, as poprun does it."""
        self.send({"order": order(*program, count=count, **more)})
        hello = self.expect("hello")
        self.send({"store": {"address": "127.0.0.1", "bind": "127.0.0.1", "port": 0}})
        port = self.expect("store")
        self.send({"go": {"address": "127.0.0.1", "port": port, "own": ""}})
        return hello

    def wait(self, seconds: float = PATIENCE) -> int:
        return self.process.wait(seconds)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            stream.close()
        for pid in marked(self.mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def order(*program: str, count: int = 1, **more) -> dict:
    return {
        "program": list(program),
        "directory": os.getcwd(),
        "unset": [],
        "instances": [{"index": n, "environment": {"RANK": str(n)}} for n in range(count)],
        "numa": False,
        "networks": [],
        "remote": False,
        "silence": 1e9,
        "grace": 1.0,
        **more,
    }


@pytest.fixture
def agent() -> Iterator[Agent]:
    made = Agent(f"agent-{os.getpid()}-{time.monotonic_ns()}")
    yield made
    made.close()


SLEEP = (sys.executable, "-c", "import time; print('here', flush=True); time.sleep(3600)")


def test_it_starts_hands_on_and_says_how_it_ended(agent):
    hello = agent.begin("sh", "-c", "echo out; echo err >&2; exit $((RANK + 4))", count=2)
    assert hello["name"] == socket.gethostname()
    started = agent.expect("started")
    assert sorted(started) == ["0", "1"]
    ends = sorted([agent.expect("ended"), agent.expect("ended")])
    assert ends == [[0, 4], [1, 5]]
    agent.send({"stop": {}})
    agent.expect("bye")
    assert sorted(agent.printed.split()) == [b"err", b"err", b"out", b"out"]
    assert agent.wait() == 0


def test_a_signal_is_a_negative_code(agent):
    agent.begin("sh", "-c", "kill -KILL $$")
    assert agent.expect("ended") == [0, -9]


def test_of_two_that_end_at_once_the_killed_one_comes_first(agent, tmp_path):
    """It is the cause, and the other one its victim; poprun names the first that it hears of."""
    wait = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    agent.begin("sh", "-c", f"{wait}; test $RANK = 1 && kill -KILL $$; exit 1", count=2)
    pids = [pid for pid, _ in agent.expect("started").values()]
    agent.process.send_signal(signal.SIGSTOP)
    (tmp_path / "go").touch()
    wait_until(lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in pids))
    agent.process.send_signal(signal.SIGCONT)
    assert [agent.expect("ended"), agent.expect("ended")] == [[1, -9], [0, 1]]


def test_it_stays_for_the_others_until_it_is_told(agent):
    agent.begin("true")
    agent.expect("ended")
    agent.expect("beat")  # the store may still be needed elsewhere
    assert agent.process.poll() is None
    agent.send({"stop": {}})
    agent.expect("bye")
    assert agent.wait() == 0


def test_the_end_of_its_input_is_the_end_of_all(agent):
    agent.begin(*SLEEP, count=2)
    agent.expect("started")
    agent.process.stdin.close()
    assert agent.wait() == 1
    assert marked(agent.mark) == []


def test_the_end_before_the_first_order_is_just_the_end(agent):
    agent.process.stdin.close()
    assert agent.wait() == 1


def test_nonsense_for_orders_is_the_end(agent):
    agent.process.stdin.write(b"GET / HTTP/1.1\r\n\r\n")
    assert agent.wait() == 1


def test_silence_is_the_end(agent):
    agent.begin(*SLEEP, silence=6.0)
    agent.expect("started")
    assert agent.wait() == 1  # its input is still open
    assert marked(agent.mark) == []


def test_signs_of_life_keep_it_alive(agent):
    agent.begin(*SLEEP, silence=8.0)
    agent.expect("started")
    for _ in range(20):
        agent.send({"beat": True})
        time.sleep(0.5)
    assert agent.process.poll() is None


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_the_agent_ends_its_instances(agent, number):
    agent.begin(*SLEEP)
    agent.expect("started")
    agent.process.send_signal(number)
    assert agent.expect("ended") == [0, -15]
    agent.expect("bye")
    wait_until(lambda: marked(agent.mark) == [])


def test_a_kill_of_the_agent_takes_instances_along(agent):
    agent.begin(*SLEEP, count=2)
    pids = [pid for pid, _ in agent.expect("started").values()]
    while agent.printed.count(b"here") < 2:
        agent.expect("out")
    agent.process.kill()
    wait_until(lambda: not any(Path(f"/proc/{pid}/fd/0").exists() for pid in pids), 30)


def test_stop_before_the_start_starts_nothing(agent):
    agent.send({"order": order(*SLEEP)})
    agent.expect("hello")
    agent.send({"stop": {}})
    agent.expect("bye")
    assert agent.wait() == 0


def test_orders_that_cannot_be_obeyed_are_refused(agent):
    agent.send({"order": order("no-such-program")})
    refused = agent.expect("refused")
    assert refused["code"] == "SIPU-7110"
    assert agent.wait() == 1


def test_a_missing_directory_is_refused(agent):
    agent.send({"order": order("true", directory="/no/such/place")})
    assert "/no/such/place" in agent.expect("refused")["what"]


def test_a_port_that_is_taken_is_chosen_again(agent):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        agent.send({"order": order("true")})
        agent.expect("hello")
        agent.send({"store": {"address": "127.0.0.1", "bind": "127.0.0.1", "port": port}})
        assert f"Port {port} is taken" in agent.expect("note")
        assert agent.expect("store") != port


def test_an_address_of_another_host_cannot_be_listened_on(agent):
    agent.send({"order": order("true")})
    agent.expect("hello")
    agent.send({"store": {"address": "192.0.2.1", "bind": "192.0.2.1", "port": 0}})
    assert agent.expect("refused")["code"] == "SIPU-7115"


def test_variables_that_must_not_be_inherited_are_gone():
    os.environ["FOREIGN"] = "x"
    made = Agent(f"unset-{os.getpid()}")
    try:
        made.begin("sh", "-c", "echo [$FOREIGN] [$RANK]", unset=["FOREIGN"])
        made.expect("ended")
        assert made.printed == b"[] [0]\n"
    finally:
        del os.environ["FOREIGN"]
        made.close()


def test_instances_cannot_read_orders_nor_write_messages(agent):
    agent.begin("sh", "-c", "cat; ls -l /proc/self/fd | wc -l; echo '{\"bye\":true}'")
    agent.expect("ended")
    lines = agent.printed.splitlines()
    assert int(lines[0]) <= 6  # heading, three streams, the directory itself, and no more
    assert lines[1] == b'{"bye":true}'


# --- what instances leave ---------------------------------------------------------------------


def test_descendants_are_found_however_deep(start):
    chain = start("import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 60 & sleep 60'])")
    wait_until(lambda: len(remains.descendants(chain.pid)) == 3)
    assert chain.pid not in remains.descendants(chain.pid)
    assert chain.pid in remains.descendants(os.getpid())
    for pid in remains.descendants(chain.pid):
        with contextlib.suppress(ProcessLookupError):  # ends by itself once the others are gone
            os.kill(pid, signal.SIGKILL)


LEAVER = """
import os, signal, sys, time
from softipu.poprun import remains
remains.adopt_orphans()
if os.fork() == 0:                     # a child that leaves a stubborn process behind
    if os.fork() == 0:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(0.5)
left = remains.descendants(os.getpid())
seen = set()
remains.end_descendants(0.2, float(sys.argv[1]), seen)
print(len(left), seen == left, len(remains.descendants(os.getpid())))
"""


@pytest.mark.parametrize("grace", ["0.3", "0.001"])
def test_even_a_process_that_left_its_session_and_ignores_sigterm_is_ended(start, grace):
    """The shorter grace is over before it is looked at, as any is on a busy machine."""
    out, _ = start(LEAVER, grace).communicate(timeout=60)
    assert out == "1 True 0\n"


def test_only_files_of_our_own_processes_are_removed(tmp_path):
    for name in ("torch_11_123_0", "torch_12_5_1", "psm_ab", "torch_x_1_1", "torch_11_1_1.keep"):
        (tmp_path / name).write_text("")
    assert sorted(remains.remove_shared_memory({11}, tmp_path)) == ["torch_11_123_0"]
    assert len(list(tmp_path.glob("*_*"))) == 4
    assert remains.remove_shared_memory({11}, tmp_path / "none") == []
