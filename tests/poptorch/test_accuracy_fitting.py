"""Published figures: the rows that constants are fitted on, micro-benchmarks, packs, the fit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from softipu.accuracy import fitting
from softipu.accuracy.document import page
from softipu.accuracy.micro import MICRO, Micro, measured_exchange
from softipu.accuracy.packing import packed
from softipu.accuracy.rows import ROWS
from softipu.accuracy.workloads import Row, Workload
from softipu.graph import Builder, Graph, Role
from softipu.machine import Settings, calibration
from softipu.machine.calibration import FITTED, STEP_ROWS, Constants


def test_the_rows_marked_for_fitting_are_those_that_the_constants_name() -> None:
    assert {row.name for row in ROWS if row.calibrates} == set(STEP_ROWS)


def test_rows_of_doubt_and_of_unknown_hardware_fit_nothing() -> None:
    for row in ROWS:
        if row.doubtful or "not stated" in row.note:
            assert not row.calibrates, row.name


def test_families_are_those_of_models() -> None:
    assert {row.family for row in ROWS} == {
        "ResNet", "ResNeXt", "Swin", "EfficientNet", "U-Net", "ViT", "BERT", "DeBERTa", "GPT-2",
        "Conformer",
    }  # fmt: skip


@pytest.mark.parametrize("row", MICRO, ids=lambda row: row.name)
def test_micro_benchmarks_are_within_a_tenth(row: Micro) -> None:
    assert abs(row.ratio - 1) <= 0.1
    assert row.source


def test_the_constant_of_the_exchange_is_the_measured_one() -> None:
    assert pytest.approx(measured_exchange(), abs=0.005) == FITTED.exchange


def test_the_page_shows_every_micro_benchmark() -> None:
    text = page([_judged()], {}, [])
    assert all(f"| {row.name} | {row.chip} |" in text for row in MICRO)


def test_packs_hold_what_first_fit_puts_into_them() -> None:
    assert packed(40, 384, 100) == pytest.approx(1.98, abs=0.03)
    assert packed(10, 384, 20) < packed(10, 384, 100) <= 2.5
    assert packed(40, 384, 40) == 1.0


# ---- the fit, on programs that take no time to capture -------------------------------------------


def _graph(layers: int, width: int) -> Graph:
    build = Builder("fitted")
    x = build.tensor("x", (1, 512, width), role=Role.INPUT)
    for _ in range(layers):
        w = build.tensor("w", (1, width, width), role=Role.WEIGHT)
        (x,) = build.op("matmul", [x, w], [((1, 512, width), "float16")])
    return build.finish([x])


def _rows(monkeypatch: pytest.MonkeyPatch, truth: Constants) -> list[fitting.Priced]:
    """Rows whose figures a machine with other constants would have had."""
    graphs = {f"{family}{size}": _graph(layers, size)
              for family, layers, size in (("a", 9, 64), ("b", 3, 512), ("c", 1, 1024))}  # fmt: skip
    quiet = Settings(synthetic_data=True)
    monkeypatch.setattr(fitting, "described_row", lambda row: (graphs[row.name], quiet))
    rows = [
        Row(name, name[0], Workload("none", "bow", 1), 1.0, "made up", calibrates=name[0] != "c")
        for name in graphs
    ]
    with calibration.using(truth):
        found = [(one.row, one.rate) for one in fitting.priced(rows)]
    return list(fitting.priced(replace(row, figure=rate) for row, rate in found))


def _judged():  # type: ignore[no-untyped-def]
    from softipu.accuracy.figures import Judged
    from softipu.machine import estimate

    row = Row("made up", "a", Workload("none", "bow", 1), 1.0, "nowhere")
    return Judged(row, estimate(_graph(1, 64), Settings(synthetic_data=True)))


def test_the_fit_finds_what_made_the_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    truth = replace(FITTED, step_overhead=170.0)
    found = fitting.fitted(_rows(monkeypatch, truth))
    assert found.step_overhead == pytest.approx(170, rel=0.01)
    assert found.exchange == FITTED.exchange


def test_constants_in_use_that_a_fit_would_not_find_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert fitting.out_of_date(_rows(monkeypatch, FITTED)) == []
    (text,) = fitting.out_of_date(_rows(monkeypatch, replace(FITTED, step_overhead=500.0)))
    assert "step_overhead" in text
    assert "500" in text


def test_leaving_a_family_out_judges_it_without_its_own_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = _rows(monkeypatch, replace(FITTED, step_overhead=170.0))
    wrong = [
        replace(one, row=replace(one.row, figure=2 * one.rate)) if one.row.family == "a" else one
        for one in rows
    ]
    found = fitting.left_out(wrong)
    assert sorted(found) == ["a", "b", "c"]
    assert found["a"][0] > 0.3  # nothing in the others tells of its error
    assert fitting.left_out(rows)["b"][0] < 0.01


def test_rows_that_contradict_others_are_not_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    (first, *_) = _rows(monkeypatch, FITTED)
    assert not list(fitting.priced([replace(first.row, doubtful="another source differs")]))
