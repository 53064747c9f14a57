"""Leases: who may hold an IPU, and what happens when holders die, fork or leave rubbish."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from softipu import devices
from softipu.devices import usage
from softipu.devices.home import Home
from softipu.errors import (
    DevicesBusy,
    InvalidIpuCount,
    LeaseClosed,
    NoSuchDevice,
    NotEnoughIpus,
)


def held_ids(**kwargs) -> list[int]:
    return [status.ipu.id for status in devices.status(**kwargs) if status.held]


def test_a_lease_holds_its_ipus_until_it_is_released():
    with devices.attach(2) as lease:
        assert lease.ids == (0, 1)
        assert held_ids() == [0, 1]
    assert held_ids() == []
    assert not lease.held


def test_a_group_is_aligned_to_its_size():
    with devices.attach(1), devices.attach(4) as lease:
        assert lease.ids == (4, 5, 6, 7)
        assert lease.device.id == 16 + 8 + 1


def test_a_device_can_be_chosen_by_id():
    with devices.attach(device=30) as lease:
        assert lease.ids == tuple(range(16))


def test_the_same_process_cannot_hold_an_ipu_twice():
    with devices.attach(device=0), pytest.raises(DevicesBusy):
        devices.attach(device=0)


@pytest.mark.parametrize("count", [0, 3, -1, 12])
def test_a_count_that_is_no_power_of_two_is_refused(count):
    with pytest.raises(InvalidIpuCount):
        devices.attach(count)


def test_more_ipus_than_exist_are_refused():
    with pytest.raises(NotEnoughIpus, match="32 IPUs .* has 16"):
        devices.attach(32)


def test_an_unknown_device_id_is_refused_with_the_known_range():
    with pytest.raises(NoSuchDevice, match="0 to 30"):
        devices.attach(device=31)


def test_busy_says_who_holds_the_ipus(hold):
    holder = hold(16)
    with pytest.raises(DevicesBusy) as caught:
        devices.attach(1)
    assert f"pid {holder.pid}" in caught.value.cause
    assert "user " in caught.value.cause


def test_waiting_ends_when_an_ipu_becomes_free(hold):
    holder = hold(16)
    threading.Timer(0.3, holder.terminate).start()
    with devices.attach(16, timeout=20) as lease:
        assert len(lease.ids) == 16


def test_waiting_gives_up_after_the_time_out(hold):
    hold(16)
    started = time.monotonic()
    with pytest.raises(DevicesBusy):
        devices.attach(1, timeout=0.3)
    assert time.monotonic() - started >= 0.3


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_any_death_of_the_holder_frees_its_ipus(hold, number):
    holder = hold(4)
    assert held_ids() == [0, 1, 2, 3]
    holder.send_signal(number)
    holder.wait()
    assert held_ids() == []
    with devices.attach(16):
        assert len(held_ids()) == 16


def test_a_forked_child_neither_keeps_nor_frees_the_parents_lease(start):
    parent = start(
        """
import os, time
from softipu import devices
lease = devices.attach(1)
child = os.fork()
if child == 0:
    print(os.getpid(), lease.held, flush=True)
    lease.release()
    print(flush=True)
    time.sleep(60)
os.read(0, 1)
"""
    )
    child, held = parent.stdout.readline().split()
    child = int(child)
    parent.stdout.readline()
    try:
        assert held == "False"
        assert held_ids() == [0], "the child's release must not free the parent's IPU"
        parent.kill()
        parent.wait()
        assert held_ids() == [], "the child must not keep the dead parent's IPU"
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_process_started_by_the_holder_does_not_inherit_the_lease(start):
    parent = start(
        """
import subprocess, sys
from softipu import devices
lease = devices.attach(1)
child = subprocess.Popen(["sleep", "60"], close_fds=False)
print(child.pid, flush=True)
sys.stdin.readline()
"""
    )
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.wait()
        assert held_ids() == []
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_stale_record_of_a_reused_pid_is_not_believed(state):
    """The record names this process's pid, but another start time: somebody else's lease."""
    with devices.attach(1) as lease:
        home = Home()
        path = usage.record_path(home, lease.device.ipus[0])
        body = json.loads(path.read_text())
        path.write_text(json.dumps(body | {"start_ticks": body["start_ticks"] + 1}))
        status = devices.status()[0]
        assert status.held
        assert status.record is None


def test_a_record_without_its_lock_means_nothing():
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        text = path.read_text()
    path.write_text(text)
    assert held_ids() == []


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", '{"format": 2}', '{"format": 1, "pid": "x"}', "\x00\xff", "9" * 99],
)
def test_a_damaged_record_is_reported_as_unreadable_not_as_wrong_values(text):
    with devices.attach(1) as lease:
        usage.record_path(Home(), lease.device.ipus[0]).write_text(text)
        status = devices.status()[0]
        assert status.held
        assert status.record is None
        with pytest.raises(DevicesBusy, match="no readable record"):
            devices.attach(device=0)


def test_durations_survive_a_clock_that_goes_backwards(monkeypatch):
    real = time.time
    with devices.attach(1):
        time.sleep(0.05)
        monkeypatch.setattr(time, "time", lambda: real() - 86400)
        assert 0.05 <= devices.status()[0].seconds_held < 60
        monkeypatch.setattr(time, "time", lambda: real() + 86400)
        assert 0.05 <= devices.status()[0].seconds_held < 60


def test_a_deleted_lock_file_does_not_make_two_owners_of_the_new_one():
    with devices.attach(device=0) as lease:
        usage.lock_path(Home(), lease.device.ipus[0]).unlink()
        first = devices.attach(device=0)  # the old lock is beyond anybody's sight
        with pytest.raises(DevicesBusy):
            devices.attach(device=0)
        first.release()


def test_a_lock_file_replaced_between_open_and_lock_is_noticed(monkeypatch):
    """The file is swapped just before flock: the lock on the orphan must not count."""
    from softipu.devices import lease as lease_module

    real = lease_module.fcntl.flock
    path = usage.lock_path(Home(), devices.active_partition().ipus[0])
    calls = []

    def swap_first(descriptor, operation):
        if not calls and operation & lease_module.fcntl.LOCK_EX:
            path.unlink()
        calls.append(operation)
        return real(descriptor, operation)

    monkeypatch.setattr(lease_module.fcntl, "flock", swap_first)
    with devices.attach(device=0):
        assert len(calls) == 2
        assert held_ids() == [0]


def test_monitors_never_make_an_attach_fail():
    stop = threading.Event()

    def watch():
        while not stop.is_set():
            devices.status()

    watchers = [threading.Thread(target=watch) for _ in range(2)]
    for watcher in watchers:
        watcher.start()
    try:
        for _ in range(200):
            devices.attach(16).release()
    finally:
        stop.set()
        for watcher in watchers:
            watcher.join()


def test_a_monitor_that_sleeps_while_it_looks_does_not_either(state: Path):
    devices.attach(1).release()  # makes the file
    path = usage.lock_path(Home(state), devices.status()[0].ipu)
    with open(path) as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        threading.Timer(0.3, fcntl.flock, (looking, fcntl.LOCK_UN)).start()
        with devices.attach(device=0) as lease:
            assert lease.ids == (0,)


def test_a_released_lease_refuses_further_use():
    lease = devices.attach(1)
    lease.release()
    lease.release()
    with pytest.raises(LeaseClosed):
        lease.describe(executable="x")
    with pytest.raises(LeaseClosed):
        lease.telemetry.add(busy_seconds=1)


def test_a_lease_describes_what_runs():
    with devices.attach(2) as lease:
        lease.describe(executable="resnet", memory_bytes=1234)
        for status in devices.status()[:2]:
            assert status.record.executable == "resnet"
            assert status.record.memory_bytes == 1234


def test_release_leaves_only_lock_files_behind(state: Path):
    with devices.attach(4) as lease:
        lease.telemetry.add(busy_seconds=0.1)
        lease.telemetry.flush()
    assert {path.suffix for path in (state / "ipus").iterdir()} == {".lock"}


def test_an_ipu_held_from_another_namespace_is_shown_as_remote():
    with devices.attach(1) as lease:
        path = usage.record_path(Home(), lease.device.ipus[0])
        body = json.loads(path.read_text())
        path.write_text(
            json.dumps(body | {"host": "elsewhere", "boot_id": "other", "pid_namespace": 7})
        )
        status = devices.status()[0]
        assert status.held
        assert not status.local
        assert status.record.host == "elsewhere"


def test_threads_of_one_process_can_attach_at_once():
    leases, errors = [], []

    def attach():
        try:
            leases.append(devices.attach(1))
        except DevicesBusy as error:
            errors.append(error)

    threads = [threading.Thread(target=attach) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(leases) == 16
    assert len({lease.ids for lease in leases}) == 16
    assert len(errors) == 4
    with contextlib.ExitStack() as stack:
        for lease in leases:
            stack.enter_context(lease)
