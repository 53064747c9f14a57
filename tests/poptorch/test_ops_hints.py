"""Losses, memory hints, checkpoints, overlap marks and multi-convolutions: what a capture is told."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from ops_capture import Captured, captured, captured_gradients

from poptorch import (
    Error,
    MatMulSerializationMode,
    MultiConv,
    MultiConvPlanType,
    OutputMode,
    OverlapMode,
    getIpuTensorId,
    identity_loss,
    nop,
    recomputationCheckpoint,
    serializedMatMul,
    set_available_memory,
    set_overlap_for_input,
    set_overlap_for_output,
)
from poptorch._ops_overlap import Overlaps, check_overlap_settings, take_overlaps

LOOP = OverlapMode.OverlapAccumulationLoop
NONE = OverlapMode.NoOverlap


# --- identity_loss ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reduction", "reference"), [("sum", torch.sum), ("mean", torch.mean), ("none", torch.clone)]
)
def test_a_loss_is_reduced_and_marked(
    reduction: str, reference: Callable[..., torch.Tensor]
) -> None:
    x = torch.randn(3, 2)
    graph = captured(lambda t: identity_loss(t, reduction), x)
    assert torch.equal(graph(x), reference(x))
    assert torch.equal(identity_loss(x, reduction), reference(x))
    assert len(graph.state.losses) == 1


@pytest.mark.parametrize("reduction", ["max", 0, None])
def test_other_reductions_are_refused(reduction: Any) -> None:
    with pytest.raises(AssertionError, match="Unsupported reduction type!"):
        identity_loss(torch.ones(1), reduction)


# --- hints on tensors -------------------------------------------------------------------------


def test_hints_leave_notes_and_change_nothing() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        x = set_available_memory(x @ x, 0.3)
        return recomputationCheckpoint(nop(x))

    x = torch.randn(3, 3)
    graph = captured(model, x)
    assert torch.equal(graph(x), x @ x)
    assert graph.notes("available_memory") == [0.3]
    assert graph.notes("recompute_checkpoint") == [True]
    assert torch.equal(model(x), x @ x)


def test_hints_let_gradients_through() -> None:
    x = torch.randn(2, 2)
    graph = captured_gradients(
        lambda t: nop(recomputationCheckpoint(set_available_memory(t * t, 0.1))), x
    )
    assert torch.equal(graph(x)[0], 2 * x)


def test_checkpoints_keep_the_structure_they_get() -> None:
    Pair = namedtuple("Pair", "first second")
    a, b = torch.ones(1), torch.zeros(1)
    assert recomputationCheckpoint(a) is a
    assert recomputationCheckpoint(a, b) == (a, b)
    assert recomputationCheckpoint([a, b]) == [a, b]
    assert recomputationCheckpoint((a,)) == (a,)
    assert recomputationCheckpoint(Pair(a, b)).second is b
    with pytest.raises(ValueError, match="All inputs must be tensors"):
        recomputationCheckpoint(a, 3)


@pytest.mark.parametrize("proportion", [-0.1, 1.5])
def test_memory_proportions_lie_between_0_and_1(proportion: float) -> None:
    with pytest.raises(Error, match="not between 0 and 1"):
        set_available_memory(torch.ones(1), proportion)


@pytest.mark.parametrize("op", [nop, lambda x: set_available_memory(x, 0.5)])
def test_hints_take_tensors_only(op: Callable[[Any], Any]) -> None:
    with pytest.raises(Error, match="<class 'int'> is not supported"):
        op(3)


@pytest.mark.parametrize("mode", list(MatMulSerializationMode))
def test_a_serialised_product_is_the_product(mode: MatMulSerializationMode) -> None:
    a, b = torch.randn(2, 4, 6), torch.randn(6, 8)
    graph = captured(lambda x, y: serializedMatMul(x, y, mode, 2), a, b)
    assert torch.equal(graph(a, b), a @ b)
    expected = [] if mode is MatMulSerializationMode.Disabled else [mode.value]
    assert [note["mode"] for note in graph.notes("serialized_matmul")] == expected


@pytest.mark.parametrize(
    ("mode", "size"), [("InputChannels", 8), ("ReducingDim", 6), ("OutputChannels", 10)]
)
def test_a_serialisation_factor_must_divide_its_dimension(mode: str, size: int) -> None:
    a, b = torch.ones(2, 4, 6), torch.ones(6, 10)
    with pytest.raises(Error, match=f"factor 7 does not divide .* size {size}"):
        captured(lambda x, y: serializedMatMul(x, y, MatMulSerializationMode[mode], 7), a, b)


def test_tensor_ids_differ_between_tensors_and_need_a_capture() -> None:
    seen: list[int] = []

    def model(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        seen.extend([getIpuTensorId(x), getIpuTensorId(y), getIpuTensorId(x)])
        return y

    captured(model, torch.ones(1))
    assert seen[0] == seen[2] != seen[1]
    with pytest.raises(Error, match="only call getIpuTensorId on an IPU tensor"):
        getIpuTensorId(torch.ones(1))


# --- overlapped I/O ---------------------------------------------------------------------------


def overlaps(graph: Captured) -> Overlaps:
    nodes = list(graph.graph.graph.nodes)
    inputs = [node for node in nodes if node.op == "placeholder"]
    returned = nodes[-1].args[0]
    outputs = list(returned) if isinstance(returned, list | tuple) else [returned]
    found = take_overlaps(graph.graph.graph, inputs, outputs)
    graph.graph.recompile()
    return found


def test_marks_are_read_and_removed() -> None:
    def model(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> list[torch.Tensor]:
        a, b = set_overlap_for_input((a, b), LOOP)
        outputs = {"sum": a + b, "product": a * c}
        return list(set_overlap_for_output(outputs, NONE).values())

    values = [torch.randn(2) for _ in range(3)]
    graph = captured(model, *values)
    found = overlaps(graph)
    assert found == Overlaps({0: LOOP, 1: LOOP}, {0: NONE, 1: NONE})
    assert found.active
    assert not any("overlap" in target for target in graph.targets)
    a, b, c = values
    assert torch.equal(torch.stack(graph(a, b, c)), torch.stack([a + b, a * c]))


def test_marks_let_gradients_through() -> None:
    graph = captured_gradients(
        lambda x: set_overlap_for_output(set_overlap_for_input(x, LOOP).square(), LOOP),
        torch.ones(1),
    )
    assert graph(torch.tensor([3.0]))[0] == 6


def test_copies_and_casts_on_the_way_out_hide_no_mark() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        return set_overlap_for_output(x + 1, LOOP).clone().to(torch.float16)

    assert overlaps(captured(model, torch.ones(1))).outputs == {0: LOOP}


def both(x: torch.Tensor) -> Any:
    y = x + 1
    return y, set_overlap_for_output(y, LOOP)


def twice(x: torch.Tensor) -> Any:
    y = set_overlap_for_output(x + 1, LOOP)
    return y, y


def reused_before_and_after(x: torch.Tensor) -> Any:
    y = x + 1
    z = y + 1
    y = set_overlap_for_output(y, LOOP)
    return y, z, y + 2


def double_use(x: torch.Tensor) -> Any:
    return x + 1, set_overlap_for_input(x, LOOP)


def not_an_input(x: torch.Tensor) -> Any:
    return set_overlap_for_input(x + 1, LOOP) * 2


def not_an_output(x: torch.Tensor) -> Any:
    return set_overlap_for_output(x, NONE) + 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (both, "cannot be used with a tensor that is returned twice"),
        (twice, "cannot be used with a tensor that is returned twice"),
        (double_use, "must be the only op applied to an input. .* for input 0 to the model"),
        (not_an_input, "not a tensor input to the model"),
        (not_an_output, "not a tensor output to the model"),
    ],
)
def test_misplaced_marks_are_errors(model: Callable[..., Any], message: str) -> None:
    with pytest.raises(Error, match=message):
        overlaps(captured(model, torch.ones(1)))


def test_a_marked_output_may_be_used_inside_the_model() -> None:
    assert overlaps(captured(reused_before_and_after, torch.ones(1))).outputs == {0: LOOP}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, None),
        ({"pipelined": True}, "not supported with poptorch.PipelinedExecution"),
        ({"io_tiles": 0}, "No IO tiles allocated"),
        ({"output_mode": OutputMode.Final}, "Unsupported output mode for overlapped IO"),
    ],
)
def test_overlap_needs_options_that_allow_it(change: dict[str, Any], message: str | None) -> None:
    settings = {"pipelined": False, "io_tiles": 32, "output_mode": OutputMode.All} | change
    check_overlap_settings(Overlaps({0: NONE}, {}), **settings)
    if message is None:
        check_overlap_settings(Overlaps({}, {0: LOOP}), **settings)
    else:
        with pytest.raises(Error, match=message):
            check_overlap_settings(Overlaps({0: LOOP}, {}), **settings)


def test_outside_a_capture_marks_are_nothing() -> None:
    x = torch.ones(1)
    assert set_overlap_for_input([x, None], LOOP)[0] is x
    assert set_overlap_for_output(None, LOOP) is None
    with pytest.raises(Error, match="only set overlap for torch.tensor inputs"):
        set_overlap_for_input(3, LOOP)
    with pytest.raises(Error, match="takes a poptorch.OverlapMode"):
        set_overlap_for_input(x, "no_overlap")  # type: ignore[arg-type]


# --- MultiConv --------------------------------------------------------------------------------


class TwoConvolutions(torch.nn.Module):
    def __init__(self, group: MultiConv) -> None:
        super().__init__()
        self.a = torch.nn.Conv2d(1, 2, 3)
        self.b = torch.nn.ConvTranspose2d(1, 2, 3, padding=2, bias=False)
        self.group = group

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.group:
            return self.a(x) + self.b(x.abs())


def test_the_convolutions_of_a_group_are_noted_in_order() -> None:
    options = (
        MultiConv()
        .availableMemoryProportions((0.8, 0.7))
        .partialsTypes(torch.half)
        .planType(MultiConvPlanType.Parallel)
        .perConvReservedTiles(100)
        .cycleBackOff(0.3)
        .enableConvDithering([True, False])
    )
    model, x = TwoConvolutions(options), torch.randn(2, 1, 5, 5)
    with torch.no_grad():
        graph = captured(lambda t: model(t) - model(t), x)
    notes = graph.notes("multi_conv")
    assert [note["part"] for note in notes] == [0, 1, 0, 1]
    assert notes[0]["group"] == notes[1]["group"] != notes[2]["group"] == notes[3]["group"]
    assert [note["available_memory_proportion"] for note in notes[:2]] == [0.8, 0.7]
    assert [note["partials"] for note in notes[:2]] == ["float16", "float16"]
    assert torch.count_nonzero(graph(x)) == 0
    assert model(x).shape == (2, 2, 3, 3)


def test_groups_do_not_nest() -> None:
    def model(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with MultiConv(), MultiConv():
            return torch.nn.functional.conv1d(x, w)

    x, w = torch.ones(1, 1, 4), torch.ones(1, 1, 2)
    for _ in range(2):  # The failure leaves no group open.
        with pytest.raises(Error, match="Nested poptorch.MultiConv is not supported"):
            captured(model, x, w)
    assert model(x, w).shape == (1, 1, 3)


def test_a_group_without_convolutions_is_an_error() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with MultiConv():
            return x.square()

    with pytest.raises(Error, match="Unexpected end_multi_conv"):
        captured(model, torch.ones(2))


def test_an_exception_inside_a_group_stays_what_it_was() -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        with MultiConv():
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        captured(model, torch.ones(2))


def test_options_for_another_number_of_convolutions_are_an_error() -> None:
    model = TwoConvolutions(MultiConv().availableMemoryProportions([0.1, 0.2, 0.3]))
    with pytest.raises(Error, match="available_memory_proportions has 3 values for 2"):
        captured(model, torch.ones(1, 1, 5, 5))


@pytest.mark.parametrize(
    ("setter", "value", "kind", "message"),
    [
        ("partialsTypes", "half", ValueError, "Invalid partials types"),
        ("partialsTypes", [torch.float, torch.int32], ValueError, "Invalid partials types"),
        ("planType", "parallel", AssertionError, "Invalid plan type"),
        ("availableMemoryProportions", 1, AssertionError, "Invalid available memory proportion"),
        ("availableMemoryProportions", [], AssertionError, "Invalid available memory proportion"),
        ("enableConvDithering", [1], ValueError, "value must be bool or list of bools"),
        ("perConvReservedTiles", 1.5, AssertionError, "Invalid number of reserved tiles"),
        ("cycleBackOff", 1, AssertionError, "Invalid cycle back off"),
    ],
)
def test_wrong_options_are_refused(
    setter: str, value: Any, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        getattr(MultiConv(), setter)(value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("columns", 2),
            "mode must be a member of poptorch.MatMulSerializationMode, not 'columns'",
        ),
        ((None, 2), "not None"),
        ((MatMulSerializationMode.InputChannels, 2.0), "factor must be a whole number, not 2.0"),
        ((MatMulSerializationMode.InputChannels, 2, 1), "keep_precision must be True or False"),
    ],
)
def test_wrong_arguments_of_a_serialised_product_are_named(arguments: Any, message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        serializedMatMul(torch.ones(4, 4), torch.ones(4, 4), *arguments)


@pytest.mark.parametrize("proportion", ["a", None, {"IPU0": 0.5}])
def test_a_memory_proportion_is_a_number(proportion: Any) -> None:
    with pytest.raises(Error, match="must be a number from 0 to 1"):
        set_available_memory(torch.ones(1), proportion)
