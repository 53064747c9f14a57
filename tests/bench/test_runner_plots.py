"""Plots of results, and of IPUs in use while benchmarks run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from runner_kit import Kit, codes

from softipu.bench import plot
from softipu.bench.runner.results import Result, save
from softipu.errors import ResultsUnreadable
from softipu.tools import cli

PNG = b"\x89PNG\r\n\x1a\n"


def run_of(folder: Path, **throughputs: float | None) -> Path:
    folder.mkdir(parents=True)
    results = [
        Result("/s.yml", "b", name, results={"throughput": {"mean": value}, "text": {"text": "x"}})
        for name, value in throughputs.items()
    ]
    save(folder, results, ["throughput"])
    return folder


def plotted(*arguments: object) -> int:
    return cli.guarded(plot.main, [str(word) for word in arguments])


def texts(path: Path) -> list[str]:
    """What an SVG says: matplotlib writes each text as a comment beside its shapes."""
    tree = ElementTree.parse(
        path, ElementTree.XMLParser(target=ElementTree.TreeBuilder(insert_comments=True))
    )
    return [str(node.text).strip() for node in tree.iter() if node.tag is ElementTree.Comment]


def test_a_picture_per_metric_beside_the_results(tmp_path, capsys):
    run = run_of(tmp_path / "run", small=10.0, large=20.5)
    assert plotted(run) == 0
    assert capsys.readouterr().out == f"{run}/throughput.png\n"
    assert (run / "throughput.png").read_bytes().startswith(PNG)
    assert not (run / "text.png").exists()


@pytest.mark.parametrize("suffix", ["json", "csv"])
def test_both_kinds_of_files_can_be_drawn(tmp_path, suffix):
    run = run_of(tmp_path / "run", small=10.0, large=20.5)
    out = tmp_path / "pictures"
    assert plotted(run / f"benchmark_results.{suffix}", "--format", "svg", "-o", out) == 0
    assert {"small", "large", "throughput", "10", "20.5"} <= set(texts(out / "throughput.svg"))


def test_runs_are_drawn_side_by_side_and_gaps_are_told(tmp_path):
    one = run_of(tmp_path / "a" / "run", small=10.0, large=20.0)
    two = run_of(tmp_path / "b" / "run", small=11.0, large=None)
    assert plotted(one, two, "--format", "svg", "--metric", "throughput") == 0
    found = texts(one / "throughput.svg")
    assert {"run (1)", "run (2)", "10", "11", "20", "none"} <= set(found)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.json", None, "can't be read"),
        ("bad.json", "{", "not a file of results"),
        ("list.json", "[1]", "not a file of results"),
        ("other.json", '{"a": [{"b": 1}]}', "not a file of results"),
        ("other.csv", "a,b\n1,2\n", "not a file of results"),
        ("empty.json", "{}", "no numbers"),
        ("notes.txt", "x", "neither a directory"),
    ],
)
def test_what_is_no_result_is_told(tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ResultsUnreadable, match=said):
        plot.read(tmp_path / name)


def test_an_unknown_metric_is_told_with_the_known(tmp_path, capsys):
    run = run_of(tmp_path / "run", small=1.0)
    assert plotted(run, "--metric", "speed") == 1
    assert "They have throughput." in capsys.readouterr().err


def test_a_place_that_cannot_be_written_to_is_told(tmp_path, capsys):
    run = run_of(tmp_path / "run", small=1.0)
    (tmp_path / "file").write_text("")
    assert plotted(run, "-o", tmp_path / "file") == 1
    assert "SIPU-6067" in capsys.readouterr().err


def test_without_matplotlib_the_way_out_is_told(tmp_path):
    run = run_of(tmp_path / "run", small=1.0)
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from softipu.bench.plot import entry\nentry()"
    )
    kit = Kit(run)
    words = [sys.executable, "-c", code, str(run)]
    done = subprocess.run(words, env=kit.environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert "SIPU-6063" in done.stderr
    assert "softipu[bench]" in done.stderr


HOLD = """
import time
from softipu.devices import attach
with attach(2):
    time.sleep(1.5)
"""


def test_ipus_in_use_are_noted_and_drawn(kit):
    kit.program(
        "gc-monitor",
        f"""\
        #!{sys.executable}
        from softipu.tools.gc_monitor import entry
        entry()
        """,
    )
    (kit.folder / "hold.py").write_text(HOLD)
    kit.spec("a_gen: {cmd: python3 hold.py}\nb_gen: {cmd: echo}")
    ran = kit.benchmark("--gc-monitor")
    assert codes(kit) == {"a_gen": [], "b_gen": []}, ran.err
    lines = (kit.logs / "a_gen" / "ipu-monitor.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["cards"]
    assert (kit.logs / "ipu_usage.png").read_bytes().startswith(PNG)


def test_used_ipus_are_counted(tmp_path):
    folder = tmp_path / "variant"
    folder.mkdir()
    free, used = {"ID": "0"}, {"ID": "1", "PID": "77"}
    stamp = "2024-01-02-10.00.0{}.000000"
    entries = [
        {"timestamp": stamp.format(at), "cards": [{"ipus": ipus}]}
        for at, ipus in enumerate([[free, free], [free, used], [used, used]])
    ]
    path = folder / "ipu-monitor.jsonl"
    path.write_text("\n".join(map(json.dumps, entries)))
    assert [count for _, count in plot._in_use(path)] == [0, 1, 2]
    assert plot.usage(tmp_path, tmp_path, "svg") == [tmp_path / "ipu_usage.svg"]
    assert {"variant", "IPUs in use"} <= set(texts(tmp_path / "ipu_usage.svg"))
    path.write_text("{}")
    with pytest.raises(ResultsUnreadable, match="gc-monitor"):
        plot.usage(tmp_path, tmp_path, "svg")
