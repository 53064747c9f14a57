"""Counters that holders keep, and the sensors modelled from them."""

from __future__ import annotations

import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu import arch, devices
from softipu.devices import process
from softipu.devices.home import Home
from softipu.devices.record import Counters, Record, dump, parse
from softipu.devices.telemetry import INTERVAL, model_sensors, telemetry_path, utilisation


def test_counters_add_up_on_every_ipu_of_the_lease():
    with devices.attach(2) as lease:
        lease.telemetry.add(busy_seconds=0.5, cycles=10, host_bytes_in=7)
        lease.telemetry.add(busy_seconds=0.25, cycles=5, host_bytes_out=3)
        lease.telemetry.flush()
        for status in devices.status()[:2]:
            assert status.counters.busy_seconds == 0.75
            assert status.counters.cycles == 15
            assert (status.counters.host_bytes_in, status.counters.host_bytes_out) == (7, 3)


def test_work_of_one_ipu_is_not_counted_for_its_neighbours():
    with devices.attach(2) as lease:
        lease.telemetry.add(cycles=10, ipu=1)
        lease.telemetry.flush()
        assert [s.counters.cycles for s in devices.status()[:2]] == [0, 10]


def test_files_are_written_a_few_times_a_second_at_most(monkeypatch):
    writes = []
    real = Home.write_json
    with devices.attach(1) as lease:
        monkeypatch.setattr(Home, "write_json", lambda *a: writes.append(a) or real(*a))
        started = time.monotonic()
        while time.monotonic() - started < 3 * INTERVAL:
            lease.telemetry.add(busy_seconds=0.0001)
        assert 1 <= len(writes) <= 4


def test_calls_of_a_program_are_all_counted_however_many_there_are():
    with devices.attach(2) as lease:
        for _ in range(1000):
            lease.telemetry.account(0.5, 3, 2)
        lease.telemetry.flush()
        for status in devices.status()[:2]:
            assert status.counters.busy_seconds == 500
            assert (status.counters.host_bytes_in, status.counters.host_bytes_out) == (3000, 2000)


def test_calls_of_a_forked_child_are_not_the_holders():
    with devices.attach(1) as lease:
        lease.telemetry.account(1.0)
        child = os.fork()
        if child == 0:
            lease.telemetry.account(8.0)
            lease.telemetry.flush()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        lease.telemetry.flush()
        assert devices.status()[0].counters.busy_seconds == 1.0


def test_a_call_that_ends_after_the_release_is_no_error():
    with devices.attach(1) as lease:
        pass
    lease.telemetry.account(1.0)
    lease.telemetry.flush()


def test_utilisation_is_the_busy_share_of_the_last_interval_and_decays():
    counters = Counters(1, 1, 101.0, 5.0, 0, 0, 0, 100.0, 0.8)
    assert utilisation(counters, 101.0) == pytest.approx(0.8)
    assert utilisation(counters, 101.9) == pytest.approx(0.8), "the next write is not overdue yet"
    assert utilisation(counters, 109.0) == pytest.approx(0.1)
    assert utilisation(counters, 99.0) == pytest.approx(0.8), "clocks of a foreign boot"
    assert utilisation(Counters(1, 1, 5.0, 0, 0, 0, 0, 5.0, 0), 5.0) == 0.0


def test_a_busy_holder_is_seen_busy_and_an_idle_one_idle(start):
    code = """
import time
from softipu import devices
with devices.attach(1) as lease:
    for _ in range(400):
        time.sleep(0.05); lease.telemetry.add(busy_seconds=0.05)
        print(flush=True)
"""
    worker = start(code)
    for _ in range(12):
        worker.stdout.readline()
    busy, idle = devices.status()[:2]
    assert busy.utilisation > 0.3
    assert busy.session_utilisation > 0.3
    assert idle.utilisation == 0


def test_counters_of_an_earlier_holder_are_not_believed():
    with devices.attach(1) as lease:
        lease.telemetry.add(cycles=5)
        lease.telemetry.flush()
        path = telemetry_path(Home(), lease.device.ipus[0])
        body = json.loads(path.read_text())
        path.write_text(json.dumps(body | {"pid": body["pid"] + 1}))
        assert devices.status()[0].counters is None


@pytest.mark.parametrize("name", arch.system_names())
def test_modelled_power_runs_from_idle_to_full_load(name):
    system = arch.system(name)
    assert model_sensors(system, 0, 0).board_power == system.board_idle_power
    assert model_sensors(system, 1, 1).board_power == system.board_full_power


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_load_never_means_less_heat(a, b):
    system = arch.system("bow-pod16")
    low, high = sorted((a, b))
    cool, hot = model_sensors(system, low, low), model_sensors(system, high, high)
    assert cool.board_power <= hot.board_power
    assert cool.die_temperature <= hot.die_temperature
    assert cool.board_temperature <= cool.die_temperature


def test_monitoring_follows_the_applications_environment(monkeypatch):
    for name, value, expected in (
        ("GCDA_MONITOR", "1", True),
        ("GCDA_MONITOR", "0", False),
        ("GCDA_OPTIONS", '{"enableMonitoring": "true"}', True),
        ("GCDA_OPTIONS", '{"enableMonitoring": "false"}', False),
        ("GCDA_OPTIONS", "not json", False),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            with devices.attach(1):
                assert devices.status()[0].monitored is expected


# --- the record's form --------------------------------------------------------------------------

records = st.builds(
    Record,
    pid=st.integers(1, 2**31), start_ticks=st.integers(0, 2**60), boot_id=st.just("b"),
    pid_namespace=st.integers(0, 2**32), host=st.just("h"), uid=st.integers(0, 2**32),
    user=st.just("u"), command=st.just("python"), since=st.floats(0, 1e11),
    since_boot=st.floats(0, 1e9), partition=st.just("p"), device=st.integers(0, 600),
    ids=st.lists(st.integers(0, 255)), monitoring=st.booleans(),
)  # fmt: skip


@given(records)
def test_a_record_reads_back_as_it_was_written(record):
    assert parse(Record, json.loads(json.dumps(dump(record)))) == record


@given(records, st.sampled_from(["pid", "since", "user", "ids", "monitoring", "format"]),
       st.sampled_from([None, -1, "x\x1b[2J", [], {}, True, 1e400, [True]]))  # fmt: skip
def test_a_record_with_a_wrong_value_is_never_believed(record, key, wrong):
    body = dump(record)
    if type(body[key]) is type(wrong) and key != "user":
        return
    if key == "user" and wrong != "x\x1b[2J" and isinstance(wrong, str):
        return
    if (key, wrong) == ("since", True) or not (key == "ids" and wrong == []):
        assert parse(Record, body | {key: wrong}) is None


def test_a_record_without_a_required_field_is_never_believed():
    with devices.attach(1) as lease:
        body = dump(lease.record)
    for key in ("format", "pid", "start_ticks", "user", "since_boot", "ids"):
        assert parse(Record, {k: v for k, v in body.items() if k != key}) is None
    assert parse(Record, body | {"unknown_field": 1}) is not None, "newer writers may add fields"


def test_a_process_is_told_from_a_later_one_with_its_pid():
    me = process.here()
    assert process.is_alive(me)
    assert not process.is_alive(process.Identity(me.pid, me.start_ticks + 1, "", 0, ""))


def test_a_zombie_counts_as_gone():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert process.start_ticks(child) is None
    os.waitpid(child, 0)
