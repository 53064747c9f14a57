"""poprun with a V-IPU server, and agents that do not behave: bounded in time, with a reason."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from poprun_helpers import environment, marked, poprun, running, wait_until

from softipu import __version__
from softipu.devices.remote import RemoteController

KEY = "a-key-for-tests"


class Server:
    """A `vipu-server` with an access key, as a process of its own."""

    def __init__(self, folder: Path) -> None:
        key = folder / "key"
        key.write_text(KEY)
        key.chmod(0o600)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "softipu.vipu.serve", "--port", "0", "--access-key-file", key],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        greeting = self.process.stdout.readline()
        assert "http://" in greeting, self.process.stderr.read()
        self.port = int(greeting.split("http://")[1].split(",")[0].rsplit(":", 1)[1])
        self.client = RemoteController("127.0.0.1", self.port, timeout=60, access_key=KEY)

    @property
    def words(self) -> list[str]:
        return ["--vipu-server-host=127.0.0.1", f"--vipu-server-port={self.port}"]

    def names(self) -> list[str]:
        return [info.id for info in self.client.partitions()]

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server(tmp_path)
    yield made
    made.close()


ATTACH = (
    "from softipu import devices\n"
    "with devices.attach(2) as lease:\n"
    "    print(lease.partition.origin if hasattr(lease, 'partition') else '-',"
    " devices.active_partition().origin, devices.active_partition().name)"
)


def test_a_partition_on_a_server_is_created_used_and_removed(server):
    ran = poprun(
        *server.words, "--vipu-partition=far", "--num-instances=2", "--num-replicas=4", "-vv",
        sys.executable, "-c", ATTACH, SOFTIPU_VIPU_ACCESS_KEY=KEY,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count(f"127.0.0.1:{server.port} far") == 2
    for line in (
        f"V-IPU server address picked up from option: 127.0.0.1:{server.port}",
        f"Connecting to 127.0.0.1:{server.port}",
        "Created partition far of 4 IPUs",
        "Removed partition far",
    ):
        assert line in ran.stderr
    assert server.names() == []


def test_a_key_that_is_missing_is_said_to_be(server):
    ran = poprun(*server.words, "--vipu-partition=far", "true")
    assert ran.returncode == 1
    assert "SIPU-1407" in ran.stderr


def test_a_server_without_partitions_says_how_to_get_one(server):
    ran = poprun(*server.words, "true", SOFTIPU_VIPU_ACCESS_KEY=KEY)
    assert ran.returncode == 1
    assert "has no partition" in ran.stderr
    assert "--vipu-partition" in ran.stderr


def test_poprun_killed_has_its_partition_removed_from_the_server(server, tmp_path):
    mark = f"server-{os.getpid()}"
    words = [*server.words, "--vipu-partition=far", "--num-replicas=2"]
    program = ["sh", "-c", f"touch {tmp_path}/runs; sleep 3600"]
    with running(*words, *program, mark=mark, SOFTIPU_VIPU_ACCESS_KEY=KEY) as process:
        wait_until(lambda: (tmp_path / "runs").exists() or process.poll() is not None)
        assert server.names() == ["far"]
        process.kill()
        wait_until(lambda: server.names() == [], 60)
        wait_until(lambda: not marked(mark), 30)


def test_a_server_that_dies_during_the_run_leaves_an_error_at_its_end(server, tmp_path):
    mark = f"dying-{os.getpid()}"
    words = [*server.words, "--vipu-partition=far", "--vipu-server-timeout=5"]
    program = [
        "sh",
        "-c",
        f"touch {tmp_path}/runs; while [ ! -e {tmp_path}/end ]; do sleep 0.1; done",
    ]
    with running(*words, *program, mark=mark, SOFTIPU_VIPU_ACCESS_KEY=KEY) as process:
        wait_until(lambda: (tmp_path / "runs").exists() or process.poll() is not None)
        server.process.kill()
        (tmp_path / "end").touch()
        _, err = process.communicate(timeout=90)
        assert process.returncode == 1
        assert "SIPU-7113" in err
        assert "far" in err


def test_a_server_that_never_answers_is_given_up_on():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        begin = time.monotonic()
        ran = poprun(
            "--vipu-server-host=127.0.0.1", f"--vipu-server-port={port}", "--vipu-server-timeout=2",
            "--vipu-partition=p", "true",
        )  # fmt: skip
        assert ran.returncode == 1
        assert "did not answer within 2 s" in ran.stderr
        assert time.monotonic() - begin < 60


def test_the_server_of_the_environment_is_asked_once(server):
    ran = poprun(
        "--vipu-partition=far", "-v", "true", SOFTIPU_VIPU_ACCESS_KEY=KEY,
        IPUOF_VIPU_API_HOST="127.0.0.1", IPUOF_VIPU_API_PORT=str(server.port),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert "picked up from 'vipu'" in ran.stderr


# --- agents that do not behave, started in place of ssh ---------------------------------------


@pytest.fixture
def shell(tmp_path: Path):
    """Makes a program that stands for ssh; its text gets what an agent says first as HELLO."""

    def make(text: str, version: str = __version__) -> str:
        hello = {"pid": 1, "name": "x", "version": version, "address": "", "nodes": 1}
        path = tmp_path / "reach"
        body = text.replace("HELLO", json.dumps(json.dumps({"hello": hello})))
        path.write_text(f"#!{sys.executable}\nimport sys, time\n{body}\n")
        path.chmod(0o755)
        return f"--mpi-global-args=--mca plm_rsh_agent {path}"

    return make


def lines(*words: str) -> str:
    return "\n".join(words)


def test_an_agent_that_never_speaks_is_given_up_on(shell):
    ran = poprun("--host=mute", shell("time.sleep(3600)"), "--start-timeout=3", "true")
    assert ran.returncode == 1
    assert "Host mute did not get ready within 3 s" in ran.stderr


def test_an_agent_that_ends_at_once_is_an_error_with_its_words(shell):
    text = lines("print('python3: not found', file=sys.stderr)", "sys.exit(127)")
    ran = poprun("--host=bare", shell(text), "true")
    assert ran.returncode == 1
    assert "No agent could be started on host bare: python3: not found" in ran.stderr


def test_an_agent_that_falls_silent_is_lost(shell):
    text = lines("print(HELLO, flush=True)", "time.sleep(3600)")
    ran = poprun("--host=quiet", shell(text), "--host-timeout=3", "--stop-grace=1", "true")
    assert ran.returncode == 1
    assert "The connection to host quiet is lost: nothing came from there for 3 s" in ran.stderr


def test_an_agent_that_falls_silent_is_lost_however_much_another_prints(shell):
    text = lines(
        "print(HELLO, flush=True)",
        "if sys.argv[1] == 'quiet': time.sleep(3600)",
        "import json",
        "head = json.dumps({'out': [0, 1], 'bytes': 6})",
        "while True: print(head + '\\nagain', flush=True); time.sleep(0.01)",
    )
    words = ["--host=loud,quiet", "--num-replicas=2", "--host-timeout=3", "--start-timeout=60"]
    ran = poprun(*words, shell(text), "--stop-grace=1", "true")
    assert ran.returncode == 1
    assert "The connection to host quiet is lost: nothing came from there for 3 s" in ran.stderr
    assert ran.stdout.startswith("again\n")


def test_an_agent_that_talks_nonsense_is_lost(shell):
    text = lines("print(HELLO, flush=True)", "print('and now for something', flush=True)")
    ran = poprun("--host=odd", shell(text), "--stop-grace=1", "true")
    assert ran.returncode == 1
    assert "The connection to host odd is lost" in ran.stderr
    assert "and now for something" in ran.stderr


def test_another_version_of_softipu_is_refused(shell):
    text = lines("print(HELLO, flush=True)", "sys.stdin.read()")
    ran = poprun("--host=old", shell(text, version="0.0.1"), "--stop-grace=1", "true")
    assert ran.returncode == 1
    assert f"Host old has softipu 0.0.1, this host {__version__}" in ran.stderr


def test_a_store_that_is_never_opened_is_not_waited_for(shell):
    beats = "import json\nwhile True: print(json.dumps({'beat': True}), flush=True); time.sleep(1)"
    text = lines("print(HELLO, flush=True)", beats)
    ran = poprun("--host=slow", shell(text), "--start-timeout=5", "--stop-grace=1", "true")
    assert ran.returncode == 1
    assert "slow" in ran.stderr
    assert "did not get ready within 5 s" in ran.stderr


def test_a_shell_that_is_not_there_is_named():
    ran = poprun("--host=h", "--mpi-global-args=--mca plm_rsh_agent /no/such/ssh", "true")
    assert ran.returncode == 1
    assert "Host h: /no/such/ssh cannot be started" in ran.stderr


def test_an_interrupt_while_hosts_are_awaited_ends_it(shell, tmp_path):
    words = ["--host=mute", shell(f"open('{tmp_path}/up', 'w').close(); time.sleep(3600)"), "true"]
    with running(*words, mark=f"early-{os.getpid()}") as process:
        wait_until(lambda: (tmp_path / "up").exists())
        threading.Timer(0.5, process.send_signal, [signal.SIGINT]).start()
        process.communicate(timeout=60)
        assert process.returncode == 130
        wait_until(lambda: not marked(f"early-{os.getpid()}"), 30)
