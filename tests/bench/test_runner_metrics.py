"""Metrics of the benchmark runner: found, reduced, derived; and the files they go to."""

from __future__ import annotations

import csv
import io
import json
import re
from statistics import fmean
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from softipu.bench.runner import custom
from softipu.bench.runner.metrics import (
    Derived,
    Metric,
    Output,
    collect,
    derive,
    extract,
    mpirun_processes,
)
from softipu.bench.runner.results import Result, as_csv, as_json, as_junit, as_markdown, summary
from softipu.errors import BenchmarkFailed, CustomMetricFailed, MetricMissing, PlaceholderUnknown

#: Machines that run tests are busy: how long one example takes says nothing.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
numbers = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=8)


def metric(name: str = "m", regexp: str = r"m=(\S+)", reduction: str = "mean", skip: int = 0):
    return Metric(name, re.compile(regexp), reduction, skip)


def said(values: list[float], name: str = "m") -> Output:
    return Output("\n".join(f"step {name}={value!r} done" for value in values), "noise\n")


@unhurried
@given(numbers)
def test_reductions(values):
    output = said(values)
    assert extract(metric(reduction="final"), output) == values[-1]
    assert extract(metric(reduction="value"), output) == values[0]
    assert extract(metric(reduction="min"), output) == min(values)
    assert extract(metric(), output) == pytest.approx(fmean(sorted(values)))


@unhurried
@given(numbers, st.integers(0, 8))
def test_skip_leaves_out_the_worst(values, skip):
    throughput = metric("throughput", skip=skip)
    latency = metric("latency", skip=skip)
    if skip >= len(values):
        for one in (throughput, latency):
            with pytest.raises(MetricMissing):
                extract(one, said(values))
        return
    best = sorted(values)[skip:]
    assert extract(throughput, said(values)) == pytest.approx(fmean(best))
    shortest = sorted(values, reverse=True)[skip:]
    assert extract(latency, said(values)) == pytest.approx(fmean(shortest))


def test_both_streams_are_searched_the_errors_last():
    output = Output("m=1 m=2", "m=3")
    assert extract(metric(reduction="final"), output) == 3
    assert extract(metric(), output) == 2


def test_a_regexp_without_a_group_takes_the_whole_match():
    assert extract(metric(regexp=r"\d+\.\d"), Output("took 4.5 s", "")) == 4.5


@pytest.mark.parametrize(
    ("text", "told"),
    [("", "matched 0 times"), ("m=nan", "nan"), ("m=inf", "inf"), ("m=1,5", "'1,5'")],
)
def test_what_is_no_number_is_told(text, told):
    with pytest.raises(MetricMissing, match=told):
        extract(metric(), Output(text, ""))


@pytest.mark.parametrize(
    ("command", "processes"),
    [
        ("mpirun --tag-output --np 4 python3 t.py", 4),
        ("mpirun -np 8 python3 t.py", 8),
        ("python3 t.py --np 4 ", 1),
        ("poprun --num-instances 4 python3 t.py", 1),
    ],
)
def test_throughput_counts_the_processes_of_mpirun(command, processes):
    assert mpirun_processes(command) == processes
    found = extract(metric("throughput"), Output("m=10", ""), processes)
    assert found == 10 * processes
    assert extract(metric("loss"), Output("m=10", ""), processes) == 10


def test_derived_metrics_see_metrics_parameters_and_each_other():
    values, failures = collect(
        [metric("throughput")],
        [
            Derived("per_ipu", "{throughput} / {ipus}", "mean"),
            Derived("rounded", "round({per_ipu} + math.sqrt(4))", "value"),
        ],
        {"ipus": "4"},
        Output("m=10", ""),
        1,
    )
    assert failures == []
    assert values == {
        "throughput": {"mean": 10.0},
        "per_ipu": {"mean": 2.5},
        "rounded": {"value": 4.0},
    }


@pytest.mark.parametrize(
    "expression", ["1 / 0", "open('x')", "{loss} +", "'text'", "1e308 * 10", "{loss} * {none}"]
)
def test_an_expression_that_fails_is_told(expression):
    with pytest.raises((MetricMissing, PlaceholderUnknown)):
        derive(Derived("d", expression, "mean"), {}, {"loss": {"final": 1.0}})


def test_a_missing_metric_leaves_the_others():
    values, failures = collect(
        [metric("a"), metric("b", "b=(.*)")], [Derived("c", "{b}*2", "mean")], {}, said([1.5]), 1
    )
    assert values == {"a": {"mean": 1.5}, "b": {"mean": None}, "c": {"mean": None}}
    assert [failure.label for failure in failures] == ["SIPU-6060", "SIPU-6060"]
    # The expression is right, and nobody is told to correct it.
    assert failures[1].what == "c has no value: it needs b."
    assert "expr" not in failures[1].remedy


# --- functions as metrics --------------------------------------------------------------------------


@pytest.fixture
def registry(monkeypatch):
    monkeypatch.setattr(custom, "registered", {})
    return custom.registered


def test_functions_of_files_become_metrics(registry, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from examples_utils import register_custom_metric\n"
        "def lengths(stdout, stderr, exitcode):\n"
        "    return {'out': len(stdout), 'err': len(stderr), 'code': exitcode}\n"
        "register_custom_metric('lengths', lengths)\n"
    )
    custom.import_files([str(path)])
    values, failures = custom.collect(Output("four", ""), 3)
    assert values["lengths"] == {"out": 4, "err": 0, "code": 3}
    assert failures == []


def test_a_function_that_raises_is_told_and_the_others_are_called(registry):
    custom.register_custom_metric("bad", lambda out, err, code: 1 / 0)
    custom.register_custom_metric("worse", lambda out, err, code: object())
    custom.register_custom_metric("good", lambda out, err, code: 1)
    values, failures = custom.collect(Output("", ""), 0)
    assert (values["bad"], values["worse"], values["good"]) == (None, None, 1)
    assert ["ZeroDivisionError" in str(failures[0]), "worse" in str(failures[1])] == [True, True]


@pytest.mark.parametrize(
    ("name", "text"), [("a.py", "1 /"), ("b.py", "import nosuchmod"), ("c.txt", "")]
)
def test_a_file_that_cannot_be_imported_is_told(registry, tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(CustomMetricFailed, match=name):
        custom.import_files([str(tmp_path / name)])


POPART_LOG = """\
2023-01-01T10:00:00.000000Z popart info: Popart version: 3.3
2023-01-01T10:00:02.500000Z popart info: Poplar graph initialised
2023-01-01T10:00:04.000000Z popart info: Starting compilation
2023-01-01T10:00:10.250000Z popart info: Graph compiled
"""


def test_the_time_of_compilation_comes_from_the_log():
    assert custom.compile_seconds(POPART_LOG) == 10.25
    assert custom.compile_seconds("Graph compiled\nnothing") is None
    tagged = "".join(
        f"[1,{at % 2}]<stderr>:{line}\n" for at, line in enumerate(POPART_LOG.split("\n"))
    )
    # Process 0 has a beginning and process 1 an end: no phase is whole.
    assert custom.compile_seconds(tagged.replace("[1,1]", "[1,9]")) is None


# --- files -----------------------------------------------------------------------------------------


@pytest.fixture
def results() -> list[Result]:
    good = Result("/s.yml", "b", "b_n_1", "About | it.", params={"n": "1"})
    good.results = {"throughput": {"mean": 12.3456789}, "total_compiling_time": {"mean": None}}
    good.output = [("size", "n"), ("samples/sec", "throughput")]
    bad = Result("/s.yml", "b", "b_n_2", params={"n": "2"}, test_duration="2.5")
    bad.fail(BenchmarkFailed("It <failed>\x1b."), 3)
    other = Result("/t.yml", "c", "c")
    other.results = {"loss": {"final": 0.5}}
    return [good, bad, other]


def test_the_summary_has_a_line_per_variant(results):
    assert summary(results).splitlines() == [
        "=================== short test summary info ====================",
        "",
        "PASSED b::b_n_1",
        "FAILED b::b_n_2",
        "PASSED c::c",
        "",
        "================ 1 failed, 2 passed ===============",
    ]


def test_json_has_all_variants_under_their_benchmark(results):
    body = json.loads(as_json(results))
    assert [one["variant_name"] for one in body["b"]] == ["b_n_1", "b_n_2"]
    assert body["b"][0]["results"]["throughput"] == {"mean": 12.3456789}
    assert body["b"][1]["exitcode"] == 3
    assert body["b"][1]["errors"][0]["code"] == "SIPU-6058"


def test_csv_has_the_metrics_asked_for(results):
    rows = list(csv.reader(io.StringIO(as_csv(results, ["throughput", "loss"]))))
    assert rows == [
        ["benchmark name", "Variant name", "throughput", "loss"],
        ["b", "b_n_1", "12.3456789", ""],
        ["b", "b_n_2", "", ""],
        ["c", "c", "", "0.5"],
    ]


def test_markdown_has_the_columns_of_the_spec_file(results):
    text = as_markdown(results)
    assert "## b\n\nAbout | it.\n\n| variant | size | samples/sec | seconds | result |" in text
    assert "| b_n_1 | 1 | 12.3457 | 0.0 | passed |" in text
    assert "| b_n_2 | 2 | – | 2.5 | failed: SIPU-6058 |" in text
    assert "| variant | loss | seconds | result |" in text  # without `output`, what was measured


def test_junit_has_failures_with_their_reason(results):
    cases = ElementTree.fromstring(as_junit(results)).findall(".//testcase")
    assert [case.get("name") for case in cases] == ["b_n_1", "b_n_2", "c"]
    assert [case.find("failure") is not None for case in cases] == [False, True, False]
    assert "It <failed>" in str(cases[1].find("failure").get("message"))  # type: ignore[union-attr]
