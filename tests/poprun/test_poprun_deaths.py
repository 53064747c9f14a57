"""Killed in the middle: whoever dies, all ends in bounded time, and nothing is left behind."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from poprun_helpers import held, marked, running, shared_memory, wait_until

from softipu.vipu.local import LocalController

# What is left in shared memory could be of anybody else.
pytestmark = pytest.mark.alone

#: An instance that holds IPUs and shared memory, waits in a collective and has processes of its own.
WORKER = """
import os, pathlib, subprocess, sys, time
from multiprocessing import shared_memory
import torch, torch.distributed as dist, torch.multiprocessing
from softipu import devices

torch.multiprocessing.set_sharing_strategy("file_system")
lease = devices.attach(2)
block = shared_memory.SharedMemory(create=True, size=1 << 16)
tensor = torch.zeros(1 << 16).share_memory_()
subprocess.Popen(["sleep", "3600"])                           # in its group
subprocess.Popen(["sleep", "3600"], start_new_session=True)   # and out of it
dist.init_process_group("gloo")
rank = dist.get_rank()
pathlib.Path(sys.argv[1], str(rank)).write_text(str(os.getpid()))
if rank == 0:
    time.sleep(3600)                                           # the others wait for it in vain
while True:
    dist.all_reduce(torch.ones(1))
"""


@pytest.fixture
def crowd(tmp_path: Path):
    """Four instances at work, with a partition of their own."""
    script = tmp_path / "worker.py"
    script.write_text(WORKER)
    places = tmp_path / "pids"
    places.mkdir()
    mark = f"mark-{os.getpid()}-{time.monotonic_ns()}"
    before = shared_memory()
    words = ["--num-instances=4", "--num-replicas=8", "--vipu-partition=crowd", "--tag-output"]
    with running(*words, sys.executable, script, places, mark=mark) as poprun:
        wait_until(lambda: poprun.poll() is not None or len(list(places.glob("*"))) == 4)
        if poprun.poll() is not None:
            pytest.fail(f"it ended by itself: {poprun.communicate()}")
        wait_until(lambda: all(path.read_text() for path in places.glob("*")))
        assert [info.id for info in LocalController().partitions()] == ["crowd"]
        assert held() == 8
        poprun.pids = {int(path.name): int(path.read_text()) for path in places.glob("*")}
        poprun.mark = mark
        poprun.before = before
        yield poprun


def assert_nothing_is_left(poprun) -> None:
    wait_until(lambda: not marked(poprun.mark), 30)
    assert LocalController().partitions() == ()
    assert held() == 0
    left = {name for name in shared_memory() - poprun.before if name.startswith(("psm_", "torch_"))}
    assert left == set()


def test_one_of_four_killed_ends_all_and_is_named(crowd):
    begin = time.monotonic()
    os.kill(crowd.pids[2], signal.SIGKILL)
    _, err = crowd.communicate(timeout=30)
    assert time.monotonic() - begin < 30
    assert crowd.returncode == 137
    assert (
        f"Instance 2 on host localhost (pid {crowd.pids[2]}) was killed by SIGKILL (signal 9); "
        "the other 3 were ended." in err
    )
    assert "SIPU-7109" in err
    assert_nothing_is_left(crowd)


def test_poprun_killed_leaves_no_orphans(crowd):
    crowd.kill()
    crowd.wait()
    assert wait_until(lambda: not marked(crowd.mark), 60) < 60
    assert_nothing_is_left(crowd)


def agent_of(poprun) -> int:
    found = [
        pid
        for pid in marked(poprun.mark)
        if b"softipu.poprun.agent" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    assert len(found) == 1
    return found[0]


def test_an_agent_killed_takes_its_instances_along(crowd):
    pids = list(crowd.pids.values())
    os.kill(agent_of(crowd), signal.SIGKILL)
    _, err = crowd.communicate(timeout=60)
    assert crowd.returncode == 1
    assert "The connection to host localhost is lost" in err
    for pid in pids:
        assert not Path(f"/proc/{pid}/fd/0").exists()
    assert marked(crowd.mark) == []
    assert LocalController().partitions() == ()
    assert held() == 0
    assert not {name for name in shared_memory() - crowd.before if name.startswith("torch_")}


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
def test_a_signal_to_poprun_ends_all_in_order(crowd, number, status):
    crowd.send_signal(number)
    crowd.communicate(timeout=60)
    assert crowd.returncode == status
    assert_nothing_is_left(crowd)


STUBBORN = """
import os, pathlib, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, signal.SIG_IGN)
pathlib.Path(sys.argv[1], os.environ["RANK"]).touch()
time.sleep(3600)
"""


def stubborn(tmp_path: Path, *words: object, mark: str):
    script = tmp_path / "stubborn.py"
    script.write_text(STUBBORN)
    return running(
        "--num-instances=2", "--num-replicas=2", *words, sys.executable, script, tmp_path, mark=mark
    )


def test_a_second_ctrl_c_does_not_wait(tmp_path):
    with stubborn(tmp_path, "-v", "--stop-grace=3000", mark=f"cc-{os.getpid()}") as poprun:
        wait_until(lambda: len(list(tmp_path.glob("[01]"))) == 2)
        poprun.send_signal(signal.SIGINT)
        # Two that come at once would be one signal.
        assert any("SIGINT came" in line for line in poprun.stderr)
        time.sleep(1.0)
        assert poprun.poll() is None
        poprun.send_signal(signal.SIGINT)
        poprun.communicate(timeout=60)
        assert poprun.returncode == 130
        assert marked(f"cc-{os.getpid()}") == []


def test_nobody_reads_the_output_any_more(tmp_path):
    mark = f"pipe-{os.getpid()}"
    code = "import itertools\nfor n in itertools.count(): print('y' * 100)"
    words = ["--num-instances=2", "--num-replicas=2", sys.executable, "-c", code]
    with running(*words, mark=mark) as poprun:
        assert poprun.stdout.readline() == "y" * 100 + "\n"
        poprun.stdout.close()
        poprun.stdout = None
        poprun.wait(60)
        assert poprun.returncode == 141
        wait_until(lambda: not marked(mark), 30)


def test_a_slow_reader_gets_all_of_it(tmp_path):
    code = "import sys\nfor n in range(40000): print(f'{n:050d}')"
    words = ["--num-instances=2", "--num-replicas=2", sys.executable, "-c", code]
    with running(*words, mark=f"slow-{os.getpid()}") as poprun:
        time.sleep(12)  # much longer than it takes to fill every pipe
        out, _ = poprun.communicate(timeout=120)
        assert poprun.returncode == 0
        assert len(out.splitlines()) == 80000


ENDLESS = (
    "import itertools, os, pathlib, sys, time\n"
    "pathlib.Path(sys.argv[1], os.environ['RANK']).touch()\n"
    "if os.environ['RANK'] == sys.argv[2]:\n"
    "    time.sleep(5)\n"
    "    sys.exit(7)\n"
    "for n in itertools.count(): print('y' * 1000)\n"
)


def printing(tmp_path: Path, mark: str, mortal: int = -1):
    """Two instances that print without end, unless one is mortal; nobody reads."""
    words = ["--num-instances=2", "--num-replicas=2", "--stop-grace=1", "--tag-output"]
    return running(*words, sys.executable, "-c", ENDLESS, tmp_path, mortal, mark=mark)


def test_a_signal_ends_all_though_nobody_reads_and_little_is_kept_for_him(tmp_path):
    mark = f"stuck-{os.getpid()}"
    with printing(tmp_path, mark) as poprun:
        wait_until(lambda: len(list(tmp_path.glob("[01]"))) == 2)
        time.sleep(8)
        status = Path(f"/proc/{poprun.pid}/status").read_text()
        kilobytes = int(status.split("VmHWM:")[1].split()[0])
        assert kilobytes < 200_000, "all that was printed waits there"
        poprun.send_signal(signal.SIGTERM)
        poprun.wait(30)
        assert poprun.returncode == 143
        assert "Nobody read the output: " in poprun.stderr.read()
        wait_until(lambda: not marked(mark), 30)


def test_a_death_ends_all_others_though_nobody_reads(tmp_path):
    mark = f"unread-{os.getpid()}"
    with printing(tmp_path, mark, mortal=1) as poprun:
        wait_until(lambda: len(list(tmp_path.glob("[01]"))) == 2)
        # poprun itself waits for its reader, and nobody else is left.
        wait_until(lambda: marked(mark) == [poprun.pid], 60)
        out, err = poprun.communicate(timeout=60)
        assert poprun.returncode == 7
        assert "Instance 1 on host localhost" in err
        assert set(out.splitlines()[:-1]) == {"[1,0]<stdout>:" + "y" * 1000}


def test_signals_for_users_are_handed_on(tmp_path):
    code = (
        "import os, pathlib, signal, sys\n"
        "def note(*_): print('got it', os.environ['RANK'], flush=True); sys.exit()\n"
        "signal.signal(signal.SIGUSR1, note)\n"
        "pathlib.Path(sys.argv[1], os.environ['RANK']).touch()\n"
        "while True: signal.pause()"
    )
    words = ["--num-instances=2", "--num-replicas=2", sys.executable, "-c", code, tmp_path]
    with running(*words, mark=f"usr-{os.getpid()}") as poprun:
        wait_until(lambda: len(list(tmp_path.glob("[01]"))) == 2)
        poprun.send_signal(signal.SIGUSR1)
        out, _ = poprun.communicate(timeout=60)
        assert poprun.returncode == 0
        assert sorted(out.splitlines()) == ["got it 0", "got it 1"]


def test_an_instance_that_never_joins_is_not_waited_for_in_vain(tmp_path):
    code = (
        "import datetime, os, time, torch.distributed as dist\n"
        "if os.environ['RANK'] == '1': time.sleep(3600)\n"
        "dist.init_process_group('gloo', timeout=datetime.timedelta(seconds=3))\n"
    )
    words = ["--num-instances=2", "--num-replicas=2", sys.executable, "-c", code]
    with running(*words, mark=f"join-{os.getpid()}") as poprun:
        _, err = poprun.communicate(timeout=120)
        assert poprun.returncode == 1
        assert "Instance 0 on host localhost" in err
        wait_until(lambda: not marked(f"join-{os.getpid()}"), 30)
