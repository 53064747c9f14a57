"""Two hosts as network namespaces: a run over the wire, and the wire cut in the middle."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from poprun_helpers import PATIENCE, command, environment, marked, wait_until

TOOLS = ("ip", "sshd", "ssh", "ssh-keygen")


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "network namespaces need root"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [name for name in TOOLS if shutil.which(name, path=path) is None]
    if missing:
        return f"{', '.join(missing)} not installed (apt install iproute2 openssh-server)"
    probe = subprocess.run(["ip", "netns", "add", f"probe-{os.getpid()}"], capture_output=True)
    if probe.returncode:
        return f"no network namespace can be made: {probe.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "delete", f"probe-{os.getpid()}"], check=True)
    return None


pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


def do(*words: object) -> str:
    return subprocess.run(list(map(str, words)), check=True, capture_output=True, text=True).stdout


class Hosts:
    """Two namespaces with a wire between them, and an sshd in the second."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        number = os.getpid() % 200 + 1
        self.names = [f"poprun-{os.getpid()}-{letter}" for letter in "ab"]
        self.addresses = [f"10.213.{number}.1", f"10.213.{number}.2"]
        self.wires = [f"pr{os.getpid() % 100000}{letter}" for letter in "ab"]
        self.sshd: subprocess.Popen[bytes] | None = None

    def build(self) -> None:
        for name in self.names:
            do("ip", "netns", "add", name)
        do("ip", "link", "add", self.wires[0], "type", "veth", "peer", "name", self.wires[1])
        for name, wire, address in zip(self.names, self.wires, self.addresses, strict=True):
            do("ip", "link", "set", wire, "netns", name)
            do("ip", "-n", name, "address", "add", f"{address}/24", "dev", wire)
            do("ip", "-n", name, "link", "set", "lo", "up")
            do("ip", "-n", name, "link", "set", wire, "up")
        self._start_sshd()

    def _start_sshd(self) -> None:
        for name in ("host_key", "user_key"):
            do("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
        keys = self.folder / "authorized_keys"
        keys.write_text((self.folder / "user_key.pub").read_text())
        keys.chmod(0o600)
        Path("/run/sshd").mkdir(exist_ok=True)
        sshd = shutil.which("sshd", path="/usr/sbin:/sbin:/usr/bin")
        settings = {
            "HostKey": self.folder / "host_key",
            "AuthorizedKeysFile": keys,
            "StrictModes": "no",
            "UsePAM": "no",
            "PermitRootLogin": "yes",
            "PasswordAuthentication": "no",
            "PidFile": "none",
            "ListenAddress": self.addresses[1],
            # Shells would read the user's start-up files, and be killed in the middle of them.
            "SetEnv": f"HOME={self.folder}",
        }
        config = self.folder / "sshd_config"
        config.write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
        self.sshd = subprocess.Popen(
            ["ip", "netns", "exec", self.names[1], sshd, "-D", "-f", config],
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: self._ssh_works())

    def _ssh_works(self) -> bool:
        words = ["ssh", *self.ssh_options, "-oBatchMode=yes", self.addresses[1], "true"]
        ran = subprocess.run(["ip", "netns", "exec", self.names[0], *words], capture_output=True)
        return ran.returncode == 0

    @property
    def ssh_options(self) -> list[str]:
        return [
            "-F", "none", "-i", str(self.folder / "user_key"), "-oStrictHostKeyChecking=no",
            "-oUserKnownHostsFile=/dev/null", "-oLogLevel=ERROR", "-oIdentitiesOnly=yes",
        ]  # fmt: skip

    def poprun(self, *words: object, hosts: str | None = None) -> list[str]:
        """The command line, in the first namespace; instances run in both."""
        passed = "-x SOFTIPU_HOME -x HOME -x POPRUN_TEST_MARK"
        shell = f"--mca plm_rsh_args '{' '.join(self.ssh_options)}'"
        return [
            "ip", "netns", "exec", self.names[0],
            *command(
                f"--host={hosts or ','.join(self.addresses)}", "--num-instances=2",
                "--num-replicas=2", "--tag-output", f"--mpi-global-args={shell} {passed}", *words,
            ),
        ]  # fmt: skip

    def agents(self) -> list[str]:
        """Agents that still live in the second namespace."""
        found = []
        for pid in do("ip", "netns", "pids", self.names[1]).split():
            with contextlib.suppress(OSError):
                if b"softipu.poprun.agent" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def cut(self) -> None:
        do("ip", "-n", self.names[0], "link", "set", self.wires[0], "down")

    def close(self) -> None:
        if self.sshd is not None:
            self.sshd.kill()
            self.sshd.wait()
        for name in self.names:
            with contextlib.suppress(subprocess.CalledProcessError):
                for pid in do("ip", "netns", "pids", name).split():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)
                do("ip", "netns", "delete", name)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    folder = tmp_path / "ssh"
    folder.mkdir(mode=0o700)
    made = Hosts(folder)
    try:
        made.build()
        yield made
    finally:
        made.close()


REDUCE = """
import os, pathlib, sys, time, torch, torch.distributed as dist
dist.init_process_group("gloo")
value = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(value)
print("sum", value.item(), "at", os.environ["MASTER_ADDR"], "by", os.environ["GLOO_SOCKET_IFNAME"])
sys.stdout.flush()
while len(sys.argv) > 1:
    pathlib.Path(sys.argv[1], str(dist.get_rank())).write_text(str(os.getpid()))
    dist.all_reduce(value)
    time.sleep(0.05)
dist.destroy_process_group()  # without it, torch's own threads abort some ends of a process
"""


def test_instances_on_two_hosts_compute_together(hosts, tmp_path):
    script = tmp_path / "reduce.py"
    script.write_text(REDUCE)
    ran = subprocess.run(
        hosts.poprun("-v", sys.executable, script),
        capture_output=True, text=True, timeout=PATIENCE, env=environment(),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    first, second = hosts.wires
    assert sorted(ran.stdout.splitlines()) == [
        f"[1,0]<stdout>:sum 3.0 at {hosts.addresses[0]} by {first}",
        f"[1,1]<stdout>:sum 3.0 at {hosts.addresses[0]} by {second}",
    ]
    assert f"Instance 1 runs on {hosts.addresses[1]} (PID " in ran.stderr


def test_a_failure_on_another_host_is_named_and_its_code_comes_back(hosts):
    ran = subprocess.run(
        hosts.poprun("sh", "-c", "test $RANK = 0 && sleep 3600; kill -SEGV $$"),
        capture_output=True, text=True, timeout=PATIENCE, env=environment(),
    )  # fmt: skip
    assert ran.returncode == 139
    assert f"Instance 1 on host {hosts.addresses[1]} (pid " in ran.stderr
    assert "killed by SIGSEGV" in ran.stderr
    assert "SIPU-7116" in ran.stderr


@contextlib.contextmanager
def at_work(hosts: Hosts, tmp_path: Path, *words: object) -> Iterator[subprocess.Popen[str]]:
    """A run on both hosts, in the middle of its collectives."""
    script, places = tmp_path / "reduce.py", tmp_path / "pids"
    script.write_text(REDUCE)
    places.mkdir()
    process = subprocess.Popen(
        hosts.poprun("--host-timeout=10", *words, sys.executable, script, places),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=environment(POPRUN_TEST_MARK=str(tmp_path)),
    )  # fmt: skip
    try:
        wait_until(lambda: process.poll() is not None or len(list(places.glob("*"))) == 2)
        if process.poll() is not None:
            pytest.fail(f"it ended by itself: {process.communicate()}")
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_wire_cut_in_the_middle_ends_both_sides_and_names_the_host(hosts, tmp_path):
    with at_work(hosts, tmp_path) as process:
        hosts.cut()
        begin = time.monotonic()
        _, err = process.communicate(timeout=90)
        assert process.returncode == 1
        assert f"The connection to host {hosts.addresses[1]} is lost" in err
        assert "SIPU-7107" in err
        # The other side cannot be told, and ends by itself.
        wait_until(lambda: not marked(str(tmp_path)) and not hosts.agents(), 90)
        assert time.monotonic() - begin < 120


def test_poprun_killed_ends_instances_on_other_hosts_too(hosts, tmp_path):
    with at_work(hosts, tmp_path) as process:
        assert len(marked(str(tmp_path))) >= 4
        assert hosts.agents()
        for pid in marked(str(tmp_path)):
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2:3] == [b"softipu.poprun"]:
                os.kill(pid, signal.SIGKILL)
        process.wait(30)
        wait_until(lambda: not marked(str(tmp_path)) and not hosts.agents(), 90)


def test_a_network_that_is_named_is_used_and_one_that_is_not_there_is_an_error(hosts):
    network = hosts.addresses[0].rpartition(".")[0] + ".0/24"
    words = ["sh", "-c", "echo $MASTER_ADDR"]
    options = {"capture_output": True, "text": True, "timeout": PATIENCE, "env": environment()}
    ran = subprocess.run(hosts.poprun(f"--host-subnet={network}", *words), **options)
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == [
        f"[1,{n}]<stdout>:{hosts.addresses[0]}" for n in (0, 1)
    ]
    ran = subprocess.run(hosts.poprun("--host-subnet=172.30.0.0/16", *words), **options)
    assert ran.returncode == 1
    assert "SIPU-7114" in ran.stderr
    assert "172.30.0.0/16" in ran.stderr


def test_a_host_that_refuses_the_key_is_an_error_with_its_reason(hosts):
    (hosts.folder / "authorized_keys").write_text("")
    ran = subprocess.run(
        hosts.poprun("true"), capture_output=True, text=True, timeout=PATIENCE, env=environment()
    )
    assert ran.returncode == 1
    assert f"No agent could be started on host {hosts.addresses[1]}" in ran.stderr
    assert "Permission denied" in ran.stderr
