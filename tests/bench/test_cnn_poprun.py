"""The CNN harness under poprun: real instances that share the work and print one result."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cnn_support import FOLDER, SMALL, THROUGHPUT, environment

import softipu
from softipu.bench import together
from softipu.bench.figures import Call
from softipu.bench.harness import inference_executor
from softipu.bench.options import Options
from softipu.bench.together import Part, joined
from softipu.executable import Store

#: Calls that each instance made itself, beside the result, which is that of all.
MEASURE = """
import dataclasses, json, sys
from pathlib import Path
import popdist
from softipu.bench import figures, harness
from softipu.bench.options import Options

options = Options(model="resnet18", precision="32.32", data="generated", iterations=6)
own = []
result = harness.measure(options, own.append)
found = {"own": [dataclasses.astuple(call) for call in own], "all": figures.as_json(result)}
Path(sys.argv[1], f"{popdist.getInstanceIndex()}.json").write_text(json.dumps(found))
"""


def poprun(
    *words: object,
    replicas: int = 4,
    ipus: int = 1,
    more: list[str] | None = None,
    **variables: str,
) -> Any:
    """A program as two instances; `ipus` are those of a replica, `more` other options of poprun."""
    counts = ["--num-instances=2", f"--num-replicas={replicas}", f"--ipus-per-replica={ipus}"]
    counts += more or []
    return subprocess.run(
        [sys.executable, "-m", "softipu.poprun", *counts, sys.executable, *map(str, words)],
        cwd=FOLDER, capture_output=True, text=True,
        env=environment() | {"SOFTIPU_DETERMINISTIC": "1"} | variables,
    )  # fmt: skip


# --- as processes -----------------------------------------------------------------------------


def test_instances_print_one_result_that_counts_the_ipus_of_all() -> None:
    done = poprun("run_benchmark.py", *SMALL, "--iterations", "5", "--replicas", "3")
    assert done.returncode == 0, done.stderr
    # The first one's own calls: 5 calls for 2 instances are 2 for each.
    own = re.findall(r"^\[instance1/2\] Throughput: (\S+) imgs/sec; Lat", done.stdout, re.M)
    assert len(own) == done.stdout.count("Throughput") == 2
    assert done.stdout.count("resnet18 results:") == 1
    assert "\tnum_ipus: 4\n" in done.stdout
    assert "\tmeasured on: this host (cpu), 1 calls of each of 2 instances\n" in done.stdout
    [(mean, _, _, _)] = THROUGHPUT.findall(done.stdout)
    # Twice the samples, but never in less time than the slower of the two.
    assert 0 < float(mean) <= 2.001 * float(own[1])
    assert done.stdout.count("Weights are random") == 1
    assert done.stderr.count("poprun decides on replicas: 4, not --replicas 3.") == 1
    assert done.stderr.count("Graph compilation: 100%") == 1


def test_throughput_is_all_samples_by_the_slowest_time_and_the_model_counts_all_replicas(
    tmp_path: Path,
) -> None:
    program = tmp_path / "measure.py"
    program.write_text(MEASURE)
    done = poprun(program, tmp_path)
    assert done.returncode == 0, done.stderr
    first, second = (json.loads((tmp_path / f"{i}.json").read_text()) for i in (0, 1))
    assert first["all"] == second["all"]
    host = first["all"]["host"]
    assert (first["all"]["num_ipus"], host["instances"], host["calls"]) == (4, 2, 1)
    calls = list(zip(first["own"], second["own"], strict=True))
    assert [(mine[0], yours[0]) for mine, yours in calls] == [(2, 2)] * 3  # two replicas each
    counted = calls[2:]
    speeds = [4 / max(mine[1], yours[1]) for mine, yours in counted]
    assert host["throughput"]["mean"] == pytest.approx(statistics.fmean(speeds))
    assert host["latency"]["max"] == pytest.approx(
        1e3 * max(call[2][1] for both in counted for call in both)
    )
    options = Options(model="resnet18", precision="32.32", data="generated", replicas=4)
    expected = softipu.estimate(*inference_executor(options))
    assert first["all"]["modelled"]["throughput"] == pytest.approx(expected.throughput)


def test_json_of_instances_is_one_document() -> None:
    done = poprun("run_benchmark.py", *SMALL, "--iterations", "2", "--json", replicas=2)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["num_ipus"] == 2
    assert found["options"]["replicas"] == 1


def test_an_instance_says_why_it_fails() -> None:
    done = poprun("run_benchmark.py", *SMALL, "--iterations", "1")
    assert done.returncode != 0
    # One or both: poprun ends the other as soon as the first failed.
    assert "1 iterations are fewer than the 2 instances." in done.stderr
    assert "Use --iterations 2 or more" in done.stderr


def test_pipelines_need_the_ipus_per_replica_that_poprun_was_told() -> None:
    done = poprun("run_benchmark.py", *SMALL, "--pipeline-splits", "layer3")
    assert done.returncode != 0
    assert "poprun --ipus-per-replica 2" in done.stderr


def test_pipelines_of_instances_have_their_ipus_each_and_count_together() -> None:
    splits = ["--pipeline-splits", "layer3", "--device-iterations", "2"]
    done = poprun(
        "run_benchmark.py", *SMALL, *splits, "--iterations", "2", "--json", replicas=2, ipus=2
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["num_ipus"], found["host"]["instances"]) == (4, 2)
    assert found["options"]["pipeline_splits"] == ["layer3"]
    assert found["host"]["throughput"]["mean"] > 0


def test_compiling_only_is_told_once_attaches_to_nothing_and_fills_one_cache(
    tmp_path: Path,
) -> None:
    cache = ["--model-cache-path", tmp_path / "cache"]
    # The system has one IPU for two instances: who attached, would fail.
    done = poprun(
        "run_benchmark.py", *SMALL, *cache, "--compile-only",
        replicas=2, more=["--offline-mode=yes"], SOFTIPU_SYSTEM="c600",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Graph compilation complete in ") == 1
    assert "throughput" not in done.stdout
    assert len(Store(str(tmp_path / "cache")).entries()) == 1


def test_a_profile_is_that_of_the_first_instance(tmp_path: Path) -> None:
    options = {"autoReport.directory": str(tmp_path / "there")}
    words = ["--profile", "--iterations", "2", "--warmup-iterations", "0"]
    done = poprun(
        "run_benchmark.py", *SMALL, *words, replicas=2, POPLAR_ENGINE_OPTIONS=json.dumps(options)
    )
    assert done.returncode == 0, done.stderr
    trace = tmp_path / "there" / "resnet18_bs1_trace.json"
    assert done.stdout.count("Profile written to") == 1
    assert f"Profile written to {trace}\n" in done.stdout
    assert any(
        "conv" in str(one.get("name")) for one in json.loads(trace.read_text())["traceEvents"]
    )
    page = tmp_path / "there" / "resnet18_bs1_report" / "report.html"
    assert f"written to {page}\n" in done.stdout
    # The report is about all replicas, not about this instance's.
    profile = json.loads(page.with_name("profile.json").read_text())
    assert profile["schedule"]["replicas"] == 2


# --- arithmetic -------------------------------------------------------------------------------


def test_calls_of_instances_count_as_one_by_the_slowest() -> None:
    mine = Part([Call(8, 2.0, (1.0, 2.0, 1.5))], 7.0, True, frozenset({"a"}))
    yours = Part([Call(8, 4.0, (0.5, 4.0, 2.5))], 9.0, False, frozenset({"b"}))
    both = joined([Part.unpacked(mine.packed()), Part.unpacked(yours.packed())])
    assert both == Part([Call(16, 4.0, (0.5, 4.0, 2.0))], 9.0, False, frozenset({"a", "b"}))
    assert both.calls[0].throughput == 4


def test_a_program_without_poprun_is_alone() -> None:
    options = Options(replicas=3, iterations=1)
    assert together.share(options) is options
    assert (together.count(), together.is_first(), together.label()) == (1, True, "")
    assert together.calls_each(options) == 1
