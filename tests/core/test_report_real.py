"""Reports and `pva` over estimates of the machine model itself, not over made-up ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from machine_networks import bert, resnet50

import pva
from softipu import report
from softipu.machine import Estimate, Settings, estimate
from softipu.report import html, payload
from softipu.report.timeline import lay_out
from softipu.report.trace import chrome_trace


@pytest.fixture(scope="module")
def training() -> Estimate:
    """A small encoder in two stages that repeats its forward pass."""
    graph = bert(2, 64, (1, 1), 256, 4, True, accumulation=4, replicas=2)
    return estimate(graph, Settings(matmul_partials="float16"))


@pytest.fixture(scope="module")
def inference() -> Estimate:
    return estimate(resnet50(2), Settings())


def test_a_report_holds_the_estimate(training: Estimate, tmp_path: Path) -> None:
    written = report.write(training, tmp_path)
    assert report.read(written["profile.pop"]) == training
    data = payload.of_estimate(training)
    assert html.unpacked(html.packed(data)) == data
    assert data["summary"]["fits"] is training.fits


def test_stages_of_a_pipeline_are_found(training: Estimate) -> None:
    timeline = lay_out(training)
    assert timeline.pipelined
    order = [(group.phase, group.stage, group.slot) for group in timeline.groups]
    assert order == [
        ("forward", 0, 0), ("forward", 1, 1), ("backward", 1, 1), ("backward", 0, 2),
    ]  # fmt: skip
    assert {group.ipu for group in timeline.updates} == {0, 1}


def test_steps_laid_out_take_about_as_long_as_the_estimate_says(
    training: Estimate, inference: Estimate
) -> None:
    """The estimate also knows what overlaps and what waits, so they need not be equal."""
    for one in (training, inference):
        print(f"{one.name}: {lay_out(one).total / one.cycles.total:.4f} of the estimate")
        assert lay_out(one).total == pytest.approx(one.cycles.total, rel=0.02)


@pytest.mark.parametrize("order", ["grouped", "interleaved", "sequential"])
def test_every_pipeline_schedule_is_laid_out_as_it_is_priced(order: str, tmp_path: Path) -> None:
    graph = bert(2, 64, (1, 1, 1), 256, 4, True, accumulation=8)
    one = estimate(graph, Settings(pipeline_schedule=order), hints=False)
    assert lay_out(one).total == pytest.approx(one.cycles.total, rel=0.005)
    assert chrome_trace(one)["otherData"]["cycles_of_a_call"] == str(round(lay_out(one).total))
    profile = pva.openReport(report.write(one, tmp_path)["profile.pop"])
    last = max(
        s.ipus[s.program.step.ipu].activeCycles.cyclesTo.max for s in profile.execution.steps
    )
    assert last == pytest.approx(profile.execution.totalCycles.total, rel=0.005)


def test_the_repeated_forward_pass_is_a_step_before_the_backward_pass(training: Estimate) -> None:
    repeated = [n for n, step in enumerate(training.steps) if step.kind == "recompute"]
    assert len(repeated) == 2
    backward = [group for group in lay_out(training).groups if group.phase == "backward"]
    assert sorted(group.steps[0] for group in backward) == repeated
    assert all(training.steps[n].cycles.compute > 0 for n in repeated)


def test_pva_reads_what_the_model_says(inference: Estimate, tmp_path: Path) -> None:
    profile = pva.openReport(report.write(inference, tmp_path / "inference")["profile.pop"])
    cycles = sum(step.ipus[0].cycles for step in profile.execution.steps)
    assert cycles == pytest.approx(lay_out(inference).total, abs=2)
    sizes = [tile.memory.total.includingGaps for tile in profile.compilation.tiles]
    assert max(sizes) == inference.memory[0].used
    assert profile.compilation.graph.numComputeSets > 50


def test_two_real_estimates_are_compared(training: Estimate, tmp_path: Path) -> None:
    graph = bert(2, 64, (1, 1), 256, 4, True, accumulation=4, replicas=2)
    singles = estimate(graph, Settings(matmul_partials="float32"))
    result = report.compare(singles, training)
    assert result["steps"]["only_first"] == result["steps"]["only_second"] == 0
    assert [row["name"] for row in result["options"]] == ["matmul_partials"]
    assert result["figures"][0]["better"] is True  # half partials are no slower
    path = report.write_comparison(singles, training, ("singles", "halves"), tmp_path / "c.html")
    assert path.stat().st_size > 20_000
