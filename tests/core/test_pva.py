"""pva as scripts use it: the calls of the public tutorials, and figures that add up."""

from __future__ import annotations

import fnmatch
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from machine_networks import Net
from report_samples import TILES, bert, network, resnet, small

import pva
from pva._records import Computed, divided
from softipu import SDK_VERSION, report
from softipu.errors import ProfileForeign, ProfileLacks, ProfileMissing, ProfileUnreadable
from softipu.machine import Settings, estimate
from softipu.machine.result import Estimate
from softipu.machine.text import grouped
from softipu.report.timeline import lay_out


def opened(estimate: Estimate, folder: Path) -> pva.Report:
    return pva.openReport(str(report.write(estimate, folder)["profile.pop"]))


@pytest.fixture
def two_ipus(tmp_path: Path) -> pva.Report:
    return opened(small(), tmp_path)


# --- the tutorial, line by line ----------------------------------------------------------------

TUTORIAL = """
import sys
from pathlib import Path
import pva

reports = sorted(Path(sys.argv[1]).glob("./training/*.pop"), key=lambda a: a.stat().st_mtime)
report = pva.openReport(str(reports[0]))
print("Number of compute sets: ", report.compilation.graph.numComputeSets)
print("Number of tiles on target: ", report.compilation.target.numTiles)
print("Version of Poplar used: ", report.poplarVersion.string)
print("cycles", sum(step.ipus[0].cycles for step in report.execution.steps))

class Shown(pva.ProgramVisitor):
    def visitOnTileExecute(self, onTileExecute):
        if len(onTileExecute.computeset.vertices) > 1:
            print("ran", onTileExecute.name)

visitor = Shown()
for step in report.execution.steps:
    step.program.accept(visitor)
print("bytes", len([tile.memory.total.includingGaps for tile in report.compilation.tiles]))
"""


def test_the_tutorial_script_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    one = network("tutorial", 3, ("convolution", "normalise"), 1, accumulation=2, replicas=1)
    report.write(one, tmp_path / "training")
    source = Path(pva.__file__).parent.parent
    result = subprocess.run(
        [sys.executable, "-c", TUTORIAL, str(tmp_path)],
        capture_output=True, text=True, timeout=120, env=os.environ | {"PYTHONPATH": str(source)},
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    computing = [step for step in one.steps if step.cycles.compute]
    assert lines[0] == f"Number of compute sets:  {len(computing)}"
    assert lines[1] == "Number of tiles on target:  1472"
    assert lines[2] == f"Version of Poplar used:  {SDK_VERSION} (softipu)"
    cycles = int(lines[3].removeprefix("cycles "))
    assert cycles == pytest.approx(lay_out(one).total, abs=2)
    ran = [line.removeprefix("ran ") for line in lines if line.startswith("ran ")]
    runs = [s.op for s in computing for _ in range(1 if s.phase == "update" else 2)]
    assert sorted(ran) == sorted(runs)
    assert lines[-1] == "bytes 1472"


def test_cycles_of_one_ipu_are_those_of_the_call(tmp_path: Path) -> None:
    estimate = resnet()
    profile = opened(estimate, tmp_path)
    total = sum(step.ipus[0].cycles for step in profile.execution.steps)
    assert total == pytest.approx(estimate.cycles.total, abs=2)
    assert profile.execution.totalCycles.total == round(estimate.cycles.total)


def last_outputs_only(training: bool, **schedule: int) -> Estimate:
    net = Net("last")
    x = net.input("x", (1, 512, 256))
    y = net.linear(x, 256)
    if training:
        net.train(net.loss(y))
    graph = net.finish([y], **schedule)
    # The host needs next to no time for its part, so nobody waits for it.
    return estimate(graph, Settings(outputs_every_micro_batch=False, clock_hz=1e6))


@pytest.mark.parametrize("training", [False, True])
def test_outputs_that_travel_once_a_call_are_in_it_once(tmp_path: Path, training: bool) -> None:
    loops = {"device_iterations": 3} | ({"accumulation": 4} if training else {})
    found = last_outputs_only(training, **loops)
    assert found.training is training
    steps = opened(found, tmp_path).execution.steps
    every = list(steps)
    assert sum(step.ipus[0].cycles for step in every) == pytest.approx(found.cycles.total, abs=2)
    leaving = [step for step in every if step.program.step.kind == "host_output"]
    assert len(leaving) == 2  # a sync, and the copy to the host
    assert len(steps) == len(every)
    for number in (0, -3, -2, -1):
        assert steps[number].program is every[number].program
    assert every[-1].program.step.op == "outputs"
    assert every[-1].program.cyclesTo.max == pytest.approx(found.cycles.total, abs=2)
    spent = sum(cycles.total for _, cycles, _ in grouped(found, "kind"))
    assert spent == pytest.approx(found.cycles.total)


def test_memory_by_tile_has_the_fullest_tile_where_the_model_has_it(two_ipus: pva.Report) -> None:
    sizes = [tile.memory.total.excludingGaps for tile in two_ipus.compilation.tiles]
    memory = small().memory
    assert len(sizes) == 2 * 4 * TILES
    assert max(sizes) == max(one.used for one in memory)
    assert sizes[37 * 16] == memory[0].used
    assert sizes[TILES + 37 * 16] == memory[1].used
    assert sizes[: 2 * TILES] == sizes[2 * TILES : 4 * TILES]  # the next replica


# --- target, graph, versions -------------------------------------------------------------------


def test_the_target_is_all_ipus_of_all_replicas(two_ipus: pva.Report) -> None:
    target = two_ipus.compilation.target
    assert (target.numIPUs, target.numReplicas, target.tilesPerIpu) == (8, 4, 1472)
    assert target.numTiles == 8 * 1472
    assert target.bytesPerIPU == 1472 * 638_976
    assert target.totalMemory == 8 * target.bytesPerIPU
    assert target.architecture is pva.IPU.Architecture.Ipu2


def test_versions_and_settings_are_there(two_ipus: pva.Report) -> None:
    assert two_ipus.poplarVersion.string.startswith(SDK_VERSION)
    assert f"{two_ipus.poplarVersion.major}.{two_ipus.poplarVersion.minor}" in SDK_VERSION
    assert two_ipus.version.major == 1
    assert two_ipus.version.isUnstableFormat is False
    level = two_ipus.instrumentationSettings.computeInstrumentationLevel
    assert level is pva.ComputeInstrumentationLevel.Ipu


def test_compute_sets_are_found_by_pattern(two_ipus: pva.Report) -> None:
    names = [one.name for one in two_ipus.compilation.computeSets]
    assert len(names) == two_ipus.compilation.graph.numComputeSets
    assert any(fnmatch.fnmatch(name, "*convolution*") for name in names)
    kinds = {v.type.name for one in two_ipus.compilation.computeSets for v in one.vertices[:1]}
    assert kinds == {"convolution", "normalise", "elementwise"}
    vertices = sum(len(one.vertices) for one in two_ipus.compilation.computeSets)
    assert vertices == two_ipus.compilation.graph.numVertices


# --- programs and steps ------------------------------------------------------------------------


class Collector(pva.ProgramVisitor):
    """Counts visits, and needs no method for what it doesn't want."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, set[object]] = {"execute": set(), "exchange": set(), "global": set()}
        self.host = 0

    def visitOnTileExecute(self, onTileExecute: object) -> None:
        self.seen["execute"].add(onTileExecute)

    def visitDoExchange(self, doExchange: object) -> None:
        self.seen["exchange"].add(doExchange)

    def visitGlobalExchange(self, globalExchange: object) -> None:
        self.seen["global"].add(globalExchange)

    def visitStreamCopyMid(self, streamCopyMid: object) -> None:
        self.host += 1


def test_visitors_meet_each_program_as_often_as_it_runs(two_ipus: pva.Report) -> None:
    whole, ran = Collector(), Collector()
    for program in two_ipus.compilation.programs:
        program.accept(whole)
    for step in two_ipus.execution.steps:
        step.program.accept(ran)
    assert whole.seen == ran.seen  # the same programs, not copies of them
    assert len(whole.seen["execute"]) == two_ipus.compilation.graph.numComputeSets
    assert len(whole.seen["global"]) == 2
    assert (whole.host, ran.host) == (1, 3)  # once for each of three micro-batches


def test_program_types_are_told_apart(two_ipus: pva.Report) -> None:
    mine = {program.type for program in two_ipus.compilation.programs}
    kind = pva.Program.Type
    assert mine == {
        kind.OnTileExecute, kind.DoExchange, kind.GlobalExchange, kind.StreamCopyMid, kind.Sync,
    }  # fmt: skip
    exchanges = [p.name for p in two_ipus.compilation.programs if p.type == kind.DoExchange]
    assert all(name.endswith("/ExchangePre") for name in exchanges)


def test_the_share_of_global_exchange_is_the_models(two_ipus: pva.Report) -> None:
    """As a test helper of the TensorFlow port computes it."""

    class Interval(pva.ProgramVisitor):
        cycles = 0

        def visitGlobalExchange(self, globalExchange: pva.Program) -> None:
            self.cycles += globalExchange.cyclesTo.max - globalExchange.cyclesFrom.max

    visitor, total = Interval(), 0
    for step in two_ipus.execution.runs[0].steps:
        ipu = step.ipus[0]
        total += ipu.activeCycles.cyclesTo.max - ipu.activeCycles.cyclesFrom.max
        step.program.accept(visitor)
    assert visitor.cycles == 2 * 190_000
    mine = sum(
        s.cycles.total * (3 if s.phase != "update" else 1) for s in small().steps if s.ipu == 0
    )
    assert total == pytest.approx(mine, abs=2)


def test_steps_of_an_ipu_follow_each_other_without_overlap(two_ipus: pva.Report) -> None:
    for ipu in range(2):
        last = 0
        for step in two_ipus.execution.steps:
            active = step.ipus[ipu].activeCycles
            if step.ipus[ipu].cycles:
                assert active.cyclesFrom.max >= last
                last = active.cyclesTo.max
        assert last <= round(lay_out(small()).total) + 1


def test_replicas_do_the_same_at_the_same_time(two_ipus: pva.Report) -> None:
    for step in two_ipus.execution.steps[:50]:
        cycles = [ipu.cycles for ipu in step.ipus]
        assert len(cycles) == 8
        assert cycles[:2] * 4 == cycles


def test_steps_can_be_taken_by_number_as_from_a_list(two_ipus: pva.Report) -> None:
    steps = two_ipus.execution.steps
    all_of_them = list(steps)
    assert len(steps) == len(all_of_them)
    for number in (0, 1, 57, len(steps) // 2, len(steps) - 1, -1, -len(steps)):
        one, two = steps[number], all_of_them[number]
        assert one.program is two.program
        assert one.ipus[0].activeCycles.cyclesFrom.max == two.ipus[0].activeCycles.cyclesFrom.max
    assert [step.program for step in steps[5:8]] == [step.program for step in all_of_them[5:8]]
    for wrong in (len(steps), -len(steps) - 1):
        with pytest.raises(IndexError):
            steps[wrong]


def test_a_call_of_millions_of_programs_opens_at_once(tmp_path: Path) -> None:
    long = replace(small(), schedule={**small().schedule, "accumulation": 50_000})
    steps = opened(long, tmp_path).execution.steps
    assert len(steps) > 5_000_000
    assert steps[len(steps) // 2].ipus[0].activeCycles.cyclesFrom.max > 10**9


def test_blocks_of_a_tile_are_those_of_its_ipu(two_ipus: pva.Report) -> None:
    blocks = two_ipus.execution.blocks(TILES + 3)
    assert {block.program.name for block in blocks} == {
        "forward/stage1", "backward/stage1", "update/stage1",
    }  # fmt: skip
    assert len(blocks) == 3 + 3 + 1
    assert all(block.cyclesFrom <= block.cyclesTo and block.isCommon for block in blocks)
    assert {block.tile for block in blocks} == {TILES + 3}


# --- memory ------------------------------------------------------------------------------------


def test_categories_of_a_tile_add_up_to_its_bytes(two_ipus: pva.Report) -> None:
    names = ("vertexCode", "vertexInstanceState", "internalExchangeCode", "variable")
    for tile in two_ipus.compilation.tiles[: 2 * TILES : 61]:
        parts = [getattr(tile.memory.category, name).total for name in names]
        assert sum(parts) == tile.memory.total.includingGaps
        live = tile.memory.alwaysLiveBytes + tile.memory.notAlwaysLiveBytes
        assert live == tile.memory.total.includingGaps
    fullest = two_ipus.compilation.tiles[37 * 16].memory
    assert fullest.category.vertexCode.total == small().memory[0].fullest_tile["code"]
    assert fullest.category.controlCode.total == 0
    assert fullest.alwaysLiveBytes == small().memory[0].always_live


def test_always_live_variables_are_the_always_live_bytes(two_ipus: pva.Report) -> None:
    for tile in (0, 37 * 16, TILES + 5):
        variables = two_ipus.compilation.alwaysLiveVariablesForTile(tile)
        assert sum(one.size for one in variables) == (
            two_ipus.compilation.tiles[tile].memory.alwaysLiveBytes
        )
        assert {"weights", "vertexCode", "internalExchangeCode"} <= {v.name for v in variables}
        assert not {"activations", "temporary"} & {v.name for v in variables}


def test_the_worst_step_of_the_fullest_tile_is_the_models(two_ipus: pva.Report) -> None:
    tile = 37 * 16
    worst = max(
        two_ipus.compilation.livenessProgramSteps,
        key=lambda step: step.notAlwaysLiveMemoryForTile(tile).bytes,
    )
    assert worst.program.step.op == small().memory[0].peak_step
    memory = worst.notAlwaysLiveMemoryForTile(tile)
    assert sum(one.size for one in memory.variables) == memory.bytes
    # What a tile of the other IPU holds meanwhile, nobody said.
    assert worst.notAlwaysLiveMemoryForTile(TILES + tile).bytes == 0


def test_liveness_of_a_step_is_that_of_all_its_tiles(two_ipus: pva.Report) -> None:
    """Of one replica: scripts multiply by the number of replicas."""
    for step in two_ipus.compilation.livenessProgramSteps[::17]:
        by_ipu = [
            sum(
                step.notAlwaysLiveMemoryForTile(tile).bytes
                for tile in range(ipu * TILES, (ipu + 1) * TILES)
            )
            for ipu in range(2)
        ]
        assert [step.notAlwaysLiveMemoryForIpu(ipu).bytes for ipu in range(2)] == by_ipu
        assert step.notAlwaysLiveMemory.bytes == sum(by_ipu) > 0
        variables = step.notAlwaysLiveMemory.variables
        assert sum(one.size for one in variables) == step.notAlwaysLiveMemory.bytes
    for wrong in (-1, 8):
        with pytest.raises(IndexError):
            step.notAlwaysLiveMemoryForIpu(wrong)


def test_peak_liveness_as_public_scripts_compute_it(two_ipus: pva.Report) -> None:
    always = sum(variable.size for variable in two_ipus.compilation.alwaysLiveVariables)
    tiles = [tile.memory.alwaysLiveBytes for tile in two_ipus.compilation.tiles]
    assert always == sum(tiles[: 2 * TILES]) == sum(tiles) // 4
    worst = max(s.notAlwaysLiveMemory.bytes for s in two_ipus.compilation.livenessProgramSteps)
    assert 0 < worst < sum(one.memory.total.includingGaps for one in two_ipus.compilation.tiles)


def test_tiles_are_found_by_their_ipu(two_ipus: pva.Report) -> None:
    ipus = two_ipus.compilation.ipus
    assert len(ipus) == two_ipus.compilation.target.numIPUs
    every = [tile.memory.total.excludingGaps for tile in two_ipus.compilation.tiles]
    mine = [tile.memory.total.excludingGaps for ipu in ipus for tile in ipu.tiles]
    assert mine == every
    code = sum(tile.memory.category.vertexCode.total for tile in ipus[1].tiles)
    assert code > 0
    with pytest.raises(IndexError):
        ipus[0].tiles[TILES]


def test_what_is_beyond_a_tile_s_memory_is_said(two_ipus: pva.Report, tmp_path: Path) -> None:
    assert all(t.memory.overflowed.includingGaps == 0 for t in two_ipus.compilation.tiles[::61])
    large = small(scale=2.0)
    ipu = opened(large, tmp_path / "large").compilation.ipus[0]
    most = max(tile.memory.overflowed.excludingGaps for tile in ipu.tiles)
    assert most == large.memory[0].used - large.memory[0].capacity > 0


@pytest.mark.parametrize("tile", [-1, 8 * TILES])
def test_a_tile_that_is_not_there_is_an_index_error(two_ipus: pva.Report, tile: int) -> None:
    with pytest.raises(IndexError):
        two_ipus.compilation.livenessProgramSteps[0].notAlwaysLiveMemoryForTile(tile)


@given(st.integers(0, 10**9), st.dictionaries(st.text(max_size=3), st.integers(0, 10**6)))
@settings(max_examples=100, deadline=None)
def test_nothing_is_lost_in_dividing(total: int, weights: dict[str, int]) -> None:
    parts = divided(total, weights)
    assert parts.keys() == weights.keys()
    whole = sum(weights.values())
    assert sum(parts.values()) == (total if whole else 0)
    for name, part in parts.items():
        if whole:
            assert abs(part - total * weights[name] / whole) < 1


# --- what is not there -------------------------------------------------------------------------


def test_names_without_a_figure_say_why(two_ipus: pva.Report) -> None:
    for name in ("loweredVariables", "alwaysLiveVariabels"):  # of libpva, and of nobody
        with pytest.raises(ProfileLacks, match=f"Compilation has no `{name}`") as caught:
            getattr(two_ipus.compilation, name)
        assert "Misspelt, or a name of libpva" in str(caught.value)
    assert not hasattr(two_ipus.compilation.graph, "numEdges")
    assert hasattr(two_ipus.compilation, "alwaysLiveVariablesForTile")
    with pytest.raises(AttributeError):
        _ = two_ipus.compilation.tiles[0].memory.category.stack
    # Names that public scripts use.
    for where, name in (
        (two_ipus.compilation.tiles[0].memory, "vertices"),
        (two_ipus.compilation.programs[0], "vars"),
        (pva, "OperationAnalysis"),
    ):
        with pytest.raises(ProfileLacks, match=f"`{name}`") as caught:
            getattr(where, name)
        assert caught.value.code == 8055
    assert not hasattr(pva, "__path_of_nothing__")


def test_profiles_of_others_and_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ProfileMissing):
        pva.openReport(str(tmp_path / "profile.pop"))
    foreign = tmp_path / "profile.pop"
    foreign.write_bytes(b"SQLite format 3\x00" + bytes(100))
    with pytest.raises(ProfileForeign, match="Graphcore"):
        pva.openReport(str(foreign))
    foreign.write_text('{"format": 1}')
    with pytest.raises(ProfileUnreadable):
        pva.openReport(foreign)


def test_a_directory_and_a_debug_file_may_be_named(tmp_path: Path) -> None:
    report.write(small(), tmp_path / "inference")
    found = pva.openReport(tmp_path, tmp_path / "debug.cbor")
    assert found.compilation.target.numIPUs == 8


def test_an_estimate_without_steps_or_memory_can_be_looked_at(tmp_path: Path) -> None:
    empty = opened(replace(small(), steps=(), memory=()), tmp_path)
    assert list(empty.execution.steps) == []
    assert len(empty.execution.steps) == 0
    assert empty.compilation.programs == []
    assert empty.compilation.tiles[0].memory.total.includingGaps == 0
    assert empty.compilation.alwaysLiveVariablesForTile(0)[0].size == 0
    assert sum(one.size for one in empty.compilation.alwaysLiveVariables) == 0
    assert empty.compilation.ipus[0].tiles[0].memory.overflowed.includingGaps == 0


def test_long_lists_print_their_first_items(two_ipus: pva.Report) -> None:
    before = Computed.shown
    try:
        two_ipus.listPrintLength(2)
        assert repr(Computed(5, lambda n: n)) == "[0, 1, ...]"
        assert repr(Computed(2, lambda n: n)) == "[0, 1]"
    finally:
        Computed.shown = before


# --- traces ------------------------------------------------------------------------------------


def test_a_trace_opens_as_processes_threads_and_events(tmp_path: Path) -> None:
    trace = pva.openTrace(str(report.write(small(), tmp_path)["trace.json"]))
    assert [process.pid for process in trace.processes] == [0, 1]
    (thread,) = trace.processes[0].threads
    assert [event.label for event in thread.events[:2]] == [
        "stage 0 forward, micro-batch 0",
        "stage 0 forward, micro-batch 1",
    ]
    block = thread.events[0]
    steps = [s for s in small().steps if (s.ipu, s.phase) == (0, "forward")]
    assert [event.label for event in block.children()] == [step.op for step in steps]
    assert [event.label for event in block.children()[0].children()] == ["host", "sync"]
    assert sum(e.duration for e in block.children()) == pytest.approx(block.duration, abs=0.01)


def all_labels(events: list[pva.Event]) -> int:
    return len(events) + sum(all_labels(event.children()) for event in events)


def test_no_event_of_a_large_trace_is_lost(tmp_path: Path) -> None:
    import json

    path = report.write(bert(), tmp_path)["trace.json"]
    written = sum(e["ph"] == "X" for e in json.loads(path.read_text())["traceEvents"])
    trace = pva.openTrace(path)
    assert written == sum(all_labels(t.events) for p in trace.processes for t in p.threads)
    tops = [event.label for p in trace.processes for t in p.threads for event in t.events]
    assert all(label.startswith("stage ") for label in tops)
    assert len(tops) == len(list(lay_out(bert()).blocks()))


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"SQLite format 3\x00", ProfileForeign),
        (b"{}", ProfileUnreadable),
        (b"[", ProfileUnreadable),
    ],
)
def test_other_files_are_no_traces(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    path = tmp_path / "run.pvti"
    path.write_bytes(content)
    with pytest.raises(error):
        pva.openTrace(path)
    with pytest.raises(ProfileMissing):
        pva.openTrace(tmp_path / "none.pvti")
