"""How benchmarks end when they do not end by themselves: timeouts, signals, leftovers."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from runner_kit import Kit, codes, verdicts

#: Starts a child in a process group of its own, notes all ids, ignores being asked to end.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"], preexec_fn=os.setpgrp)
print("m=1", flush=True)
open("pids", "w").write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def pids(kit: Kit) -> list[int]:
    """The processes of STUBBORN, once they run."""
    deadline = time.monotonic() + 30
    path = kit.folder / "pids"
    while not (path.exists() and path.read_text().endswith("\n")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [int(word) for word in path.read_text().split()]


def is_running(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text[text.rindex(")") + 2] not in "ZX"


@pytest.mark.parametrize(("own", "given"), [(1, 500), (500, 1), (1, None)])
def test_the_smaller_timeout_counts(kit, own, given):
    kit.spec(f"a_gen: {{cmd: sleep 600, timeout: {own}}}\nb_gen: {{cmd: echo}}")
    ran = kit.benchmark(*([] if given is None else ["--timeout", str(given)]))
    assert ran.status == 1
    assert codes(kit) == {"a_gen": ["SIPU-6059"], "b_gen": []}
    assert "Timeout (1)" in (kit.logs / "a_gen" / "stderr").read_text()
    assert "Timeout (1)" in ran.err


def test_a_hanging_benchmark_is_ended_with_all_that_it_started(kit):
    (kit.folder / "hang.py").write_text(STUBBORN)
    kit.spec("a_gen: {cmd: python3 hang.py, timeout: 2}")
    assert kit.benchmark().status == 1
    assert [pid for pid in pids(kit) if is_running(pid)] == []
    assert (kit.logs / "a_gen" / "stdout").read_text() == "m=1\n"


def test_what_a_benchmark_leaves_behind_is_ended_too(kit):
    (kit.folder / "leave.py").write_text(
        "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid)\n"
    )
    kit.spec("a_gen: {cmd: python3 leave.py}")
    assert kit.benchmark().status == 0
    assert not is_running(int((kit.logs / "a_gen" / "stdout").read_text()))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_stops_the_run_and_keeps_the_results_so_far(kit, number, status):
    (kit.folder / "hang.py").write_text(STUBBORN)
    kit.spec("""
        a_gen: {cmd: python3 train.py}
        b_gen: {cmd: python3 hang.py}
        c_gen: {cmd: touch never}
        """)
    process = kit.start()
    try:
        running = pids(kit)
        process.send_signal(number)
        time.sleep(0.5)
        process.send_signal(number)  # impatience changes nothing
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == status
    assert verdicts(out) == ["PASSED a_gen::a_gen", "FAILED b_gen::b_gen"]
    assert codes(kit) == {"a_gen": [], "b_gen": ["SIPU-6065"]}
    assert [pid for pid in running if is_running(pid)] == []
    assert not (kit.folder / "never").exists()
    assert "Traceback" not in err


def test_results_are_on_disk_before_the_run_ends(kit):
    (kit.folder / "hang.py").write_text(STUBBORN)
    kit.spec("a_gen: {cmd: python3 train.py}\nb_gen: {cmd: python3 hang.py}")
    process = kit.start()
    try:
        running = pids(kit)
        process.kill()
        process.communicate()
    finally:
        for pid in running:
            os.kill(pid, signal.SIGKILL)
    assert codes(kit) == {"a_gen": []}
