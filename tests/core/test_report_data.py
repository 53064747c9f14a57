"""From an estimate to what pages, traces and comparisons hold, and back from its JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from report_samples import bert, resnet, small

from softipu.errors import ProfileTooNew, ProfileUnreadable
from softipu.machine.reading import estimate_from_json
from softipu.machine.result import FORMAT, Cycles, Estimate, Hint, IpuMemory, Step
from softipu.machine.settings import Settings
from softipu.report import html, payload
from softipu.report.comparing import Pair, call_cycles, compare, match
from softipu.report.files import profile_text
from softipu.report.summary import CAUSES, fullest, fullest_tile, ordered, shares, summarise
from softipu.report.timeline import lay_out
from softipu.report.trace import MOST_EVENTS, chrome_trace

# --- hypothesis: any estimate ------------------------------------------------------------------

names = st.text(max_size=12)
amounts = st.floats(0, 1e12, allow_nan=False)
sizes = st.integers(0, 1 << 40)
cycles = st.builds(Cycles, amounts, amounts, amounts, amounts, amounts)
phases = st.sampled_from(["forward", "backward", "update"])
small_numbers = st.integers(0, 3)
steps = st.builds(
    Step, op=names, kind=names, source=names, path=names, phase=phases, stage=small_numbers,
    ipu=small_numbers, cycles=cycles, flops=amounts, tiles_used=st.integers(0, 1472), plan=names,
    live_bytes=sizes, temporary_bytes=sizes,
)  # fmt: skip
categories = st.dictionaries(st.sampled_from(["weights", "code", "temporary", "brand_new"]), sizes)
memories = st.builds(
    IpuMemory, ipu=small_numbers, capacity=st.integers(1, 1 << 20), fullest_tile=categories,
    all_tiles=categories, always_live=sizes, not_always_live_peak=sizes, peak_step=names,
    tiles=st.lists(st.tuples(st.integers(0, 1471), sizes), max_size=4).map(tuple),
)  # fmt: skip
estimates = st.builds(
    Estimate, name=names,
    settings=st.builds(
        Settings, chip=st.sampled_from(["mk2", "bow"]), tiles=st.none() | st.integers(1, 1472),
        available_memory_proportion=st.floats(0, 1) | st.lists(st.floats(0, 1)).map(tuple),
        execution=st.sampled_from(["pipelined", "sharded", "phased"]),
    ),
    schedule=st.fixed_dictionaries(
        {"accumulation": st.integers(1, 4), "replicas": st.integers(1, 4)}
    ),
    clock_hz=st.floats(1e6, 1e10), cycles=cycles, seconds=amounts, latency_seconds=amounts,
    throughput=amounts, steps=st.lists(steps, max_size=8).map(tuple),
    memory=st.lists(memories, max_size=3).map(tuple),
    hints=st.lists(st.builds(Hint, names, names, sizes, amounts), max_size=2).map(tuple),
    warnings=st.lists(names, max_size=2).map(tuple),
    unknown=st.dictionaries(names, st.integers(1, 9), max_size=2),
)  # fmt: skip
either = settings(max_examples=80, deadline=None)


@given(estimates)
@either
def test_an_estimate_survives_its_json(estimate: Estimate) -> None:
    assert estimate_from_json(json.loads(json.dumps(estimate.to_json()))) == estimate
    assert estimate_from_json(json.loads(profile_text(estimate))) == estimate


@given(estimates)
@either
def test_a_profile_holds_just_what_the_estimate_says_and_who_wrote_it(estimate: Estimate) -> None:
    profile = json.loads(profile_text(estimate))
    assert profile.pop("producer").startswith("softipu ")
    assert profile == json.loads(json.dumps(estimate.to_json()))


@given(estimates)
@either
def test_pages_hold_every_step_and_every_byte(estimate: Estimate) -> None:
    data = html.unpacked(html.packed(payload.of_estimate(estimate)))
    columns, texts = data["steps"], data["texts"]
    assert len(set(texts)) == len(texts)
    for number, step in enumerate(estimate.steps):
        for name in ("op", "kind", "source", "path", "phase", "plan"):
            assert texts[columns[name][number]] == getattr(step, name)
        for cause in CAUSES:
            assert columns[cause][number] == pytest.approx(getattr(step.cycles, cause), abs=0.051)
        assert columns["live_bytes"][number] == step.live_bytes
    assert [memory["used"] for memory in data["memory"]] == [m.used for m in estimate.memory]
    assert set(data["runs"]) == {step.phase for step in estimate.steps}


@given(estimates)
@either
def test_a_group_and_its_blocks_hold_each_step_once(estimate: Estimate) -> None:
    data = payload.of_estimate(estimate)["timeline"]
    numbers = [n for group in data["groups"] for a, b in group["steps"] for n in range(a, b)]
    assert sorted(numbers) == list(range(len(estimate.steps)))
    assert all(0 <= number < len(data["groups"]) for number in data["blocks"]["group"])


@given(estimates, estimates)
@either
def test_matching_uses_each_step_of_both_sides_once(first: Estimate, second: Estimate) -> None:
    pairs = match(first.steps, second.steps)
    assert [p.first for p in pairs if p.first is not None] == list(range(len(first.steps)))
    assert sorted(p.second for p in pairs if p.second is not None) == list(range(len(second.steps)))
    for pair in pairs:
        if pair.first is not None and pair.second is not None:
            one, two = first.steps[pair.first], second.steps[pair.second]
            assert (one.op, one.phase) == (two.op, two.phase)


@given(estimates, estimates)
@either
def test_comparing_the_other_way_round_turns_every_difference(
    first: Estimate, second: Estimate
) -> None:
    there, back = compare(first, second), compare(second, first)
    for part in ("figures", "cycles"):
        for one, two in zip(there[part], back[part], strict=True):
            assert one["difference"] == -two["difference"]
            assert (one["better"] is None) == (two["better"] is None)
    assert there["steps"]["only_first"] == back["steps"]["only_second"]


@given(estimates)
@either
def test_an_estimate_compared_with_itself_has_no_differences(estimate: Estimate) -> None:
    result = compare(estimate, estimate_from_json(json.loads(profile_text(estimate))))
    assert result["options"] == []
    assert result["steps"]["largest"] == []
    assert all(row["difference"] == 0 and row["better"] is None for row in result["figures"])


@given(estimates)
@either
def test_events_of_a_trace_lie_inside_each_other(estimate: Estimate) -> None:
    assert_nested(chrome_trace(estimate))


@given(st.lists(st.integers(0, 200), unique=True).map(sorted))
def test_ranges_say_the_same_as_the_numbers(numbers: list[int]) -> None:
    pairs = payload.ranges(numbers)
    assert [n for first, end in pairs for n in range(first, end)] == numbers
    assert all(a[1] < b[0] for a, b in pairwise(pairs))


# --- bad files ---------------------------------------------------------------------------------


def spoilt(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(small().to_json()))
    change(data)
    return data


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("format"), "no `format`"),
        (lambda d: d.update(format="1"), "format is '1'"),
        (lambda d: d.update(format=True), "format is True"),
        (lambda d: d.pop("throughput"), "estimate has no `throughput`"),
        (lambda d: d.update(throughput="fast"), "`throughput` is 'fast'"),
        (lambda d: d.update(throughput=float("nan")), "`throughput` is nan"),
        (lambda d: d.update(steps={}), "`steps` is {}"),
        (lambda d: d["steps"].append(3), "steps[55] is 3, not an object"),
        (lambda d: d["steps"][2].pop("op"), "steps[2] has no `op`"),
        (lambda d: d["steps"][2].update(ipu=1.5), "`ipu` is 1.5"),
        (lambda d: d["steps"][2].update(ipu=True), "`ipu` is True"),
        (lambda d: d["steps"][2]["cycles"].update(sync=None), "`sync` is None"),
        (lambda d: d["memory"][0].update(tiles=[[1]]), "has 1 parts, not 2"),
        (lambda d: d["memory"][0].update(fullest_tile=[1]), "`fullest_tile` is [1]"),
        (lambda d: d["settings"].update(execution="wild"), "`execution` is 'wild'"),
        (lambda d: d["settings"].update(tiles="many"), "`tiles` is 'many'"),
    ],
)
def test_a_spoilt_profile_is_refused_with_the_place(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    with pytest.raises(ProfileUnreadable) as caught:
        estimate_from_json(spoilt(change))
    assert said in caught.value.what


def test_a_profile_of_a_later_format_is_refused_as_such() -> None:
    with pytest.raises(ProfileTooNew, match=f"format {FORMAT + 1}"):
        estimate_from_json(spoilt(lambda data: data.update(format=FORMAT + 1)))


def test_fields_that_this_version_does_not_know_are_no_obstacle() -> None:
    data = spoilt(lambda d: (d.update(later=1), d["steps"][0].update(later=2)))
    assert estimate_from_json(data) == small()


def test_fields_with_a_default_may_be_missing() -> None:
    estimate = estimate_from_json(spoilt(lambda data: (data.pop("hints"), data.pop("unknown"))))
    assert (estimate.hints, estimate.unknown) == ((), {})


# --- figures -----------------------------------------------------------------------------------


def test_a_summary_says_what_a_person_asks_first() -> None:
    estimate = bert()
    summary = summarise(estimate)
    assert summary["training"] is True
    assert summary["batch"] == 2 * 128 * 4
    assert summary["ipus"] == 4
    assert summary["chip"]["product"] == "Bow"
    assert summary["chip"]["tiles"] == 1472
    assert summary["cycles"]["total"] == pytest.approx(estimate.cycles.total)
    assert summary["fullest"]["ipu"] == 3
    assert summary["fullest"]["tile"] == 37 * 16
    assert sum(summary["fullest"]["categories"].values()) == summary["fullest"]["used"]


def test_the_fullest_ipu_is_the_one_nearest_to_its_own_capacity() -> None:
    roomy, tight = small().memory
    roomy, tight = replace(roomy, capacity=10**9), replace(tight, capacity=600_000)
    assert fullest(replace(small(), memory=(roomy, tight))) is tight
    assert fullest(replace(small(), memory=())) is None
    assert fullest_tile(replace(roomy, tiles=())) == 0


def test_shares_of_causes_add_up() -> None:
    assert sum(shares(Cycles(3, 1, 2, 0, 4)).values()) == pytest.approx(1)
    assert set(shares(Cycles()).values()) == {0.0}


def test_categories_come_in_one_order_and_new_ones_last() -> None:
    found = ordered({"zebra": 1, "code": 2, "apple": 3, "weights": 4, "state": 0})
    assert list(found) == ["weights", "code", "apple", "zebra"]


def test_steps_count_as_often_as_they_run_in_a_call() -> None:
    estimate = small()
    timeline = lay_out(estimate)
    assert sum(call_cycles(estimate)) == pytest.approx(sum(
        group.cycles.total * (3 if group.phase != "update" else 1)
        for group in (*timeline.groups, *timeline.updates)
    ))  # fmt: skip


def test_a_comparison_knows_better_from_worse() -> None:
    slow = small()
    fast = replace(slow, throughput=slow.throughput * 2, seconds=slow.seconds / 2)
    rows = {row["name"]: row for row in compare(slow, fast)["figures"]}
    assert rows["Throughput"]["better"] is True
    assert rows["Throughput"]["ratio"] == pytest.approx(2)
    assert rows["One call"]["better"] is True
    assert rows["Latency"]["better"] is None
    assert {row["better"] for row in compare(fast, slow)["figures"]} == {None, False}


def test_a_comparison_names_options_that_differ_and_steps_that_are_gone() -> None:
    one, two = small(), small(training=False, matmul_partials="float16")
    result = compare(one, two)
    assert {"name": "matmul_partials", "first": "float32", "second": "float16"} in result["options"]
    assert result["steps"]["matched"] == len(two.steps)
    assert result["steps"]["only_first"] == len(one.steps) - len(two.steps)
    assert result["steps"]["largest"][0]["second"] == 0


def test_repeated_names_match_in_their_order() -> None:
    first = [replace(small().steps[0], op="same") for _ in range(3)]
    assert match(first, first[:2]) == [Pair(0, 0), Pair(1, 1), Pair(2, None)]


def test_memory_of_an_ipu_that_only_one_side_uses_is_compared_with_nothing() -> None:
    one = small()
    two = replace(one, memory=one.memory[:1])
    rows = compare(one, two)["memory"]
    assert [row["ipu"] for row in rows] == [0, 1]
    assert rows[1]["total"]["second"] == 0
    assert rows[1]["total"]["better"] is True


# --- traces ------------------------------------------------------------------------------------


def assert_nested(trace: dict[str, Any]) -> None:
    """Viewers stack events by time: each must end before the one around it does."""
    lanes: dict[int, list[dict[str, Any]]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            lanes.setdefault(event["pid"], []).append(event)
    for events in lanes.values():
        events.sort(key=lambda event: (event["ts"], -event["dur"]))
        open_ends: list[float] = []
        for event in events:
            start, end = event["ts"], event["ts"] + event["dur"]
            slack = 2e-4 + 1e-12 * end
            while open_ends and open_ends[-1] <= start + slack:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + slack
            open_ends.append(end)


def test_a_trace_has_a_process_for_each_ipu_and_times_in_microseconds() -> None:
    estimate = small()
    trace = chrome_trace(estimate)
    names = {
        event["pid"]: event["args"]["name"]
        for event in trace["traceEvents"]
        if event["name"] == "process_name"
    }
    assert names == {0: "IPU 0", 1: "IPU 1"}
    ends = [e["ts"] + e["dur"] for e in trace["traceEvents"] if e["ph"] == "X"]
    assert max(ends) == pytest.approx(lay_out(estimate).total / estimate.clock_hz * 1e6)
    steps = {e["name"] for e in trace["traceEvents"] if e["ph"] == "X" and "args" in e}
    assert steps == {step.op for step in estimate.steps}


@pytest.mark.parametrize("sample", [small, resnet, bert])
def test_traces_of_large_programs_stay_within_what_viewers_bear(
    sample: Callable[[], Estimate],
) -> None:
    trace = chrome_trace(sample())
    assert_nested(trace)
    assert len(trace["traceEvents"]) < 1.6 * MOST_EVENTS
    json.dumps(trace, allow_nan=False)


def test_a_page_shows_whether_its_blocks_are_all() -> None:
    assert payload.of_estimate(small())["timeline"]["complete"] is True
    long = replace(small(), schedule={**small().schedule, "accumulation": 100_000})
    timeline = payload.of_estimate(long)["timeline"]
    assert timeline["complete"] is False
    assert len(timeline["blocks"]["start"]) == payload.MOST_BLOCKS
