"""What the CTC loss costs: serial in time, spread over batch, labels and parts of the time."""

from __future__ import annotations

import pytest

from softipu.graph import Builder, Graph, Role
from softipu.machine import Settings, estimate
from softipu.machine.chip import machine
from softipu.machine.cost import Cost
from softipu.machine.ctc import ctc_loss

MK2 = machine(Settings(chip="mk2"))


def graph(time: int, batch: int, classes: int, labels: int, dtype: str = "float16") -> Graph:
    build = Builder("ctc")
    sounds = build.tensor("sounds", (time, batch, classes), dtype, Role.INPUT)
    words = build.tensor("words", (batch, labels), "int32", Role.INPUT)
    losses, gradient = build.op(
        "ctc_loss", [sounds, words], [((batch,), dtype), ((time, batch, classes), dtype)]
    )
    return build.finish([losses, gradient])


def cost(*sizes: int) -> Cost:
    made = graph(*sizes)
    (op,) = made.ops
    tensors = made.tensors
    return ctc_loss(op, [tensors[n] for n in op.inputs], [tensors[n] for n in op.outputs], MK2)


def test_a_short_loss_takes_what_the_formulas_of_poplibs_give() -> None:
    # Two times, one label, one class beside the blank: nothing to split. One step of variables
    # (44 + 17 cycles of a worker) and one of gradients (61 + 40 + 17) in each direction.
    assert cost(2, 1, 2, 1).compute == 6 * ((44 + 17) + (44 + 17 + 40 + 17))


def test_time_is_walked_through_step_by_step() -> None:
    short, long = cost(128, 4, 49, 48), cost(512, 4, 49, 48)
    assert long.steps == pytest.approx(4 * short.steps, rel=0.05)
    assert long.compute == pytest.approx(4 * short.compute, rel=0.05)


def test_all_classes_of_a_large_vocabulary_leave_fewer_tiles_for_labels() -> None:
    few, many = cost(304, 4, 49, 48), cost(304, 4, 4233, 48)
    assert many.compute > 2 * few.compute
    assert many.temporary <= 0.6 * MK2.memory


def test_the_loss_has_a_price_of_its_own_in_an_estimate() -> None:
    found = estimate(graph(304, 4, 49, 48), Settings(chip="mk2", synthetic_data=True))
    assert not found.unknown
    (step,) = (step for step in found.steps if step.kind == "ctc_loss")
    assert step.plan.startswith("batch × time × labels")
    assert step.cycles.total > 100_000


@pytest.mark.parametrize("sizes", [(0, 4, 8, 4), (16, 0, 8, 4), (16, 4, 8, 0)])
def test_no_sequences_cost_nothing(sizes: tuple[int, ...]) -> None:
    assert cost(*sizes).compute == 0
