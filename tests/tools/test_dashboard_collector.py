"""From statuses to snapshots: sums, rates, colours, history. Pure functions, no server."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from softipu import devices
from softipu.devices import Counters, Home, IpuStatus, Partition
from softipu.tools.dashboard import reader
from softipu.tools.dashboard.collector import Reading, take
from softipu.tools.dashboard.feed import Feed
from softipu.tools.dashboard.history import MOST_POINTS, History, Point
from softipu.tools.dashboard.memory import Memory, next_rate, next_slots
from softipu.tools.dashboard.reader import Reader
from softipu.tools.dashboard.snapshot import Snapshot, encode

NOW = {"now": 1000.0, "now_boot": 50.0, "interval": 1.0, "home": "/somewhere"}


def look() -> tuple[Partition, tuple[IpuStatus, ...]]:
    return devices.active_partition(), devices.status()


@pytest.fixture
def held() -> IpuStatus:
    """The status of an IPU that this process holds, with counters of our choice."""
    with devices.attach(1) as lease:
        lease.telemetry.add(busy_seconds=0.1)
        lease.telemetry.flush()
        status = devices.status()[0]
    assert status.counters is not None
    assert status.record is not None
    return replace(status, record=replace(status.record, since_boot=10.0))


def counted(status: IpuStatus, updated: float, received: int, sent: int = 0) -> IpuStatus:
    assert status.counters is not None
    counters: Counters = replace(
        status.counters, updated_boot=updated, host_bytes_in=received, host_bytes_out=sent
    )
    return replace(status, counters=counters)


def test_the_first_rate_is_the_mean_since_the_lease_began(held: IpuStatus) -> None:
    rate = next_rate(None, counted(held, 20.0, 5000, 100), 20.1)
    assert rate is not None
    assert (rate.rate_in, rate.rate_out) == (500.0, 10.0)


def test_later_rates_are_between_two_writes_and_fade_when_writes_stop(held: IpuStatus) -> None:
    first = next_rate(None, counted(held, 20.0, 5000), 20.1)
    second = next_rate(first, counted(held, 22.0, 9000), 22.1)
    assert second is not None
    assert second.rate_in == 2000.0
    same = next_rate(second, counted(held, 22.0, 9000), 23.0)
    assert same is not None
    assert same.rate_in == 2000.0, "a short pause of the writer is not a pause of the program"
    late = next_rate(same, counted(held, 22.0, 9000), 40.0)
    assert late is not None
    assert late.rate_in == 0.0


def test_a_new_holder_never_gets_a_negative_rate(held: IpuStatus) -> None:
    first = next_rate(None, counted(held, 20.0, 10**9), 20.0)
    assert held.record is not None
    other = replace(held, record=replace(held.record, since_boot=21.0))
    again = next_rate(first, counted(other, 22.0, 100), 22.0)
    assert again is not None
    assert again.rate_in == 100.0


def test_leases_keep_their_slot_and_new_ones_get_the_smallest_free() -> None:
    slots = next_slots({}, ["a", "b", "c"])
    assert slots == {"a": 0, "b": 1, "c": 2}
    assert next_slots(slots, ["c", "d", "a"]) == {"c": 2, "a": 0, "d": 1}


def test_ipus_and_boards_that_two_partitions_share_count_once() -> None:
    partition, statuses = look()
    half = replace(partition, name="half", ipus=partition.ipus[:8])
    alone, _ = take([Reading(partition, statuses)], [], Memory(), **NOW)
    both, _ = take([Reading(partition, statuses), Reading(half, statuses[:8])], [], Memory(), **NOW)
    assert both.totals == alone.totals
    assert (alone.totals.ipus, alone.totals.boards) == (16, 8)
    assert alone.totals.power == pytest.approx(8 * statuses[0].sensors.board_power)
    assert [one.active for one in both.partitions] == [True, False]


def test_a_partition_that_cannot_be_read_keeps_its_ipus_as_unknown() -> None:
    partition, _ = look()
    snapshot, _ = take([Reading(partition, None)], [], Memory(), **NOW)
    assert {one.state for one in snapshot.partitions[0].ipus} == {"unknown"}
    assert snapshot.totals.ipus == 16
    assert (snapshot.totals.known, snapshot.totals.power) == (0, 0.0)


def test_a_missing_record_is_a_problem_only_when_it_lasts(held: IpuStatus) -> None:
    partition, statuses = look()
    lost = (replace(held, record=None, counters=None, held=True), *statuses[1:])
    first, memory = take([Reading(partition, lost)], [], Memory(), **NOW)
    assert first.problems == []
    assert first.partitions[0].ipus[0].state == "held"
    second, _ = take([Reading(partition, lost)], [], memory, **NOW)
    assert [one.code for one in second.problems] == ["SIPU-1307"]


def test_a_snapshot_becomes_one_line_of_json() -> None:
    partition, statuses = look()
    snapshot, _ = take([Reading(partition, statuses)], [], Memory(), **NOW)
    text = encode(snapshot)
    assert b"\n" not in text
    assert json.loads(text)["partitions"][0]["ipus"][15]["id"] == 15


# --- reading ---------------------------------------------------------------------------------


def test_any_failure_becomes_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Reader()
    assert source.snapshot().problems == []

    def broken(*_: object) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(reader.devices, "status", broken)
    snapshot = source.snapshot()
    assert [one.code for one in snapshot.problems] == ["SIPU-1000"]
    assert "ZeroDivisionError: a bug" in snapshot.problems[0].what
    monkeypatch.setattr(reader.devices, "partitions", broken)
    snapshot = source.snapshot()
    assert snapshot.stale
    assert len(snapshot.partitions[0].ipus) == 16


def test_time_does_not_go_back_with_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Reader()
    first = source.snapshot().time
    monkeypatch.setattr(reader.time, "time", lambda: 0.0)
    assert source.snapshot().time >= first


def test_a_process_with_two_devices_has_two_rows(state: Path) -> None:
    with devices.attach(2), devices.attach(1):
        snapshot = Reader(Home(state)).snapshot()
    assert sorted(one.ipus for one in snapshot.processes) == [[0, 1], [2]]
    assert len({one.key for one in snapshot.processes}) == 2
    assert snapshot.totals.processes == 2


# --- history ---------------------------------------------------------------------------------


def filled(history: History, seconds: int, step: float, value: Callable[[float], float]) -> None:
    for number in range(int(seconds / step)):
        time = number * step
        history.add(Point(time, value(time), 0.0, 0.0, 0.0, 0.0))


def test_history_is_bounded_in_time() -> None:
    history = History(minutes=1, interval=1.0)
    filled(history, 600, 1.0, lambda _: 1.0)
    points = history.to_json()["points"]
    assert 59 <= len(points) <= 61
    assert points[0][0] >= 599 - 60


def test_a_long_history_is_thinned_to_means() -> None:
    history = History(minutes=1440, interval=10.0)
    filled(history, 86400 * 2, 10.0, lambda time: (time / 10) % 2)
    points = history.to_json()["points"]
    assert MOST_POINTS // 2 <= len(points) <= MOST_POINTS * 1.1
    assert all(0.3 <= row[1] <= 0.7 for row in points[2:])


def test_a_point_after_every_idle_look_is_kept() -> None:
    history = History(minutes=10, interval=1.0)
    filled(history, 100, 5.0, lambda _: 2.0)
    assert len(history) == 20


def test_an_update_costs_one_encoded_frame_and_one_point(state: Path) -> None:
    feed = Feed(Home(state))
    first, second = feed.update(), feed.update()
    assert (first.sequence, second.sequence) == (1, 2)
    assert len(feed.history) == 2
    assert json.loads(second.body)["sequence"] == 2


def test_what_cannot_be_read_is_a_gap_in_the_history(state: Path) -> None:
    feed = Feed(Home(state))
    feed.update()
    state.mkdir()
    (state / "holiday.jpg").write_bytes(b"not ours")
    assert json.loads(feed.update().body)["problems"][0]["code"] == "SIPU-1303"
    assert len(feed.history) == 1


def test_a_bug_in_the_feed_is_shown_and_the_next_update_works(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Feed(Home(state), interval=0.2)
    answers: list[Callable[[], Snapshot]] = [Reader(Home(state)).snapshot]

    def snapshot() -> Snapshot:
        if answers:
            return answers.pop()()
        feed.close()
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(feed._reader, "snapshot", snapshot)
    monkeypatch.setattr("softipu.tools.dashboard.feed.IDLE_INTERVAL", 0.0)
    feed.start()
    feed._thread.join(10)
    assert feed._latest is not None
    assert feed._latest.sequence == 2
    assert json.loads(feed._latest.body)["problems"][0]["code"] == "SIPU-1000"
