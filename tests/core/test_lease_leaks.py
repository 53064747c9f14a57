"""Ways in which a lease could outlive its holder, each of which once did."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
import time

import pytest

from softipu import devices
from softipu.devices import lease as lease_module
from softipu.devices import usage
from softipu.devices.home import Home
from softipu.errors import InvalidIpuCount, InvalidRequest, LeaseClosed, NoSuchDevice


def held_ids() -> list[int]:
    return [status.ipu.id for status in devices.status() if status.held]


def test_forks_while_other_threads_attach_take_nothing_along(start):
    """The parent dies with its leases; what a child had inherited would now keep IPUs held."""
    parent = start(
        """
import os, signal, threading, time
from softipu import devices
home, partition = devices.Home(), devices.active_partition()
def churn():
    while True:
        with devices.attach(1, timeout=5, partition=partition, home=home):
            pass
for _ in range(4):
    threading.Thread(target=churn, daemon=True).start()
children = []
for _ in range(300):
    child = os.fork()
    if child == 0:
        os.close(1)
        time.sleep(60)
        os._exit(0)
    children.append(child)
print(*children, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    )
    children = [int(word) for word in parent.stdout.read().split()]
    parent.wait()
    try:
        assert len(children) == 300
        assert held_ids() == []
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


def test_a_lease_that_nobody_refers_to_is_released():
    lease = devices.attach(2)
    assert held_ids() == [0, 1]
    del lease
    gc.collect()
    assert held_ids() == []


def test_a_dropped_lease_does_not_live_on_in_a_forked_child(start):
    parent = start(
        """
import gc, os, time
from softipu import devices
lease = devices.attach(2)
child = os.fork()
if child == 0:
    del lease
    gc.collect()
    time.sleep(60)
print(child, flush=True)
os.read(0, 1)
os._exit(0)
"""
    )
    child = int(parent.stdout.readline())
    try:
        time.sleep(0.2)
        assert held_ids() == [0, 1], "the child's garbage collection must not free them"
        parent.stdin.write("\n")
        parent.stdin.flush()
        parent.wait()
        assert held_ids() == []
    finally:
        os.kill(child, signal.SIGKILL)


def test_ctrl_c_at_any_moment_leaves_nothing_held(start):
    worker = start(
        """
import os, signal, sys
from softipu import devices
from softipu.devices.home import Home
home, partition = Home(), devices.active_partition()
armed, interrupts = False, 0

def interrupt(*_):
    global armed, interrupts
    if armed:  # only within the `try` below
        armed = False
        interrupts += 1
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
print("ready", flush=True)
while interrupts < 150:
    try:
        while interrupts < 150:
            armed = True
            with devices.attach(2, partition=partition, home=home):
                pass
    except KeyboardInterrupt:
        pass
armed = False
signal.signal(signal.SIGINT, signal.SIG_IGN)
held = [s.ipu.id for s in devices.status(partition, home) if s.held]
opened = [os.path.realpath(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")]
print(held, sum(path.endswith(".lock") for path in opened), flush=True)
"""
    )
    assert worker.stdout.readline() == "ready\n"
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.append(worker.stdout.readline()))
    reader.start()
    deadline = time.monotonic() + 60
    while reader.is_alive() and time.monotonic() < deadline:
        worker.send_signal(signal.SIGINT)
        time.sleep(0.003 + 0.002 * os.urandom(1)[0] / 255)
    reader.join(5)
    held, descriptors = lines[0].rsplit(maxsplit=1)
    assert held == "[]"
    assert int(descriptors) == 0


def test_release_frees_at_once_even_while_children_are_being_started():
    for _ in range(40):
        lease = devices.attach(2)
        child = os.posix_spawn("/bin/sleep", ["sleep", "5"], os.environ)
        try:
            lease.release()
            assert held_ids() == []
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_records_are_gone_before_the_locks_are(monkeypatch):
    """In the other order, the next holder's record could be removed."""
    lease = devices.attach(2)
    paths = [usage.record_path(Home(), ipu) for ipu in lease.device.ipus]
    real = lease_module.fcntl.flock
    seen = []

    def watching(lock, operation):
        if operation == lease_module.fcntl.LOCK_UN:
            seen.append([path.exists() for path in paths])
        return real(lock, operation)

    monkeypatch.setattr(lease_module.fcntl, "flock", watching)
    lease.release()
    assert seen
    assert not any(any(existing) for existing in seen)


def test_a_record_from_an_earlier_boot_is_not_believed():
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        body = json.loads(path.read_text())
        path.write_text(json.dumps(body | {"boot_id": "another"}))
        assert devices.status()[0].record is None
        path.write_text(json.dumps(body | {"boot_id": "another", "host": "elsewhere"}))
        assert devices.status()[0].record is not None


def test_a_holder_in_the_middle_of_attaching_is_looked_at_twice(monkeypatch):
    """The record appears between the first look and the second."""
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        text = path.read_text()
        path.unlink()
        monkeypatch.setattr(usage.time, "sleep", lambda _: path.write_text(text))
        assert devices.status()[0].record == lease.record


@pytest.mark.parametrize(
    "change",
    [
        {"executable": "a\nb"},
        {"executable": "x" * 9999},
        {"executable": "\ud800"},
        {"executable": 3},
        {"memory_bytes": -5},
        {"memory_bytes": 2**70},
        {"memory_bytes": 1.5},
    ],
)
def test_a_description_that_readers_would_refuse_is_refused(change):
    with devices.attach(1) as lease:
        with pytest.raises(InvalidRequest):
            lease.describe(**change)
        assert devices.status()[0].record == lease.record


@pytest.mark.parametrize("command", ["a\nb", "x" * 5000, "\x1b[2J"])
def test_a_command_that_readers_would_refuse_is_refused_and_holds_nothing(command):
    with pytest.raises(InvalidRequest):
        devices.attach(1, command=command)
    assert held_ids() == []


@pytest.mark.parametrize(
    "amounts",
    [
        {"busy_seconds": -1.0},
        {"busy_seconds": float("nan")},
        {"busy_seconds": float("inf")},
        {"cycles": -3},
        {"cycles": 2**80},
        {"cycles": 1.5},
    ],
)
def test_counters_that_readers_would_refuse_are_refused(amounts):
    with devices.attach(1) as lease:
        with pytest.raises(InvalidRequest):
            lease.telemetry.add(**amounts)
        lease.telemetry.add(cycles=1)
        lease.telemetry.flush()
        assert devices.status()[0].counters.cycles == 1


def test_wrong_types_are_errors_of_ours():
    for count in (2.0, "2", True):
        with pytest.raises(InvalidIpuCount):
            devices.attach(count)
    with pytest.raises(NoSuchDevice):
        devices.attach(device="0")
    for timeout in (float("nan"), -1):
        with pytest.raises(InvalidRequest):
            devices.attach(1, timeout=timeout)
    with devices.attach(1) as lease, pytest.raises(NoSuchDevice):
        lease.telemetry.add(cycles=1, ipu=99)


def test_a_description_that_comes_with_a_release_leaves_no_record_behind():
    """Two threads: one describes, one releases; whoever is first, nothing may be left."""
    for _ in range(30):
        lease = devices.attach(1)
        path = usage.record_path(Home(), lease.device.ipus[0])
        begin = threading.Barrier(2)

        def describe(lease=lease, begin=begin):
            begin.wait()
            try:
                for number in range(20):
                    lease.describe(memory_bytes=number)
            except LeaseClosed:
                pass

        thread = threading.Thread(target=describe)
        thread.start()
        begin.wait()
        lease.release()
        thread.join()
        assert not path.exists()


def test_closing_telemetry_twice_leaves_the_next_holders_counters_alone():
    first = devices.attach(1)
    first.release()
    with devices.attach(1) as second:
        second.telemetry.add(cycles=7)
        second.telemetry.flush()
        first.telemetry.close()
        assert devices.status()[0].counters.cycles == 7
