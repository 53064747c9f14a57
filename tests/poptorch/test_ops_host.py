"""`ipu_print_tensor` and `CPU`: what a graph does on the host while it runs."""

from __future__ import annotations

import copy
import functools
import gc

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from ops_capture import captured, captured_gradients

from poptorch import CPU, Error, cond, identity_loss, ipu_print_tensor
from poptorch._context import current, isRunningOnIpu
from poptorch._ops_print_text import Layout, render

# --- ipu_print_tensor -------------------------------------------------------------------------


def test_a_tensor_is_printed_when_the_graph_runs_and_not_before(
    capfd: pytest.CaptureFixture[str],
) -> None:
    graph = captured(lambda x: ipu_print_tensor(x + 1, "sum") * 2, torch.zeros(2))
    assert capfd.readouterr().err == ""
    assert torch.equal(graph(torch.tensor([0.0, 1.0])), torch.tensor([2.0, 4.0]))
    assert capfd.readouterr().err == "sum: (1.000, 2.000)\n"


def test_outside_a_captured_model_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(2)
    assert ipu_print_tensor(x, "x") is x
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("title", "wanted", "expected"),
    [
        ("x", True, ["x: (3.000)", "x_gradient: (6.000)"]),
        ("", True, ["(3.000)", "gradient: (6.000)"]),
        ("x", False, ["x: (3.000)"]),
    ],
)
def test_the_gradient_is_printed_if_asked_for(
    title: str, wanted: bool, expected: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    x = torch.tensor([3.0])
    graph = captured_gradients(lambda t: ipu_print_tensor(t, title, wanted).square(), x)
    assert graph(x)[0] == 6
    assert capfd.readouterr().err.splitlines() == expected


def test_each_micro_batch_prints_in_order(capfd: pytest.CaptureFixture[str]) -> None:
    graph = captured(lambda x: ipu_print_tensor(x, "row"), torch.zeros(1, dtype=torch.int32))
    graph.mapped(torch.tensor([[3], [1], [2]], dtype=torch.int32))
    assert capfd.readouterr().err.splitlines() == ["row: (3)", "row: (1)", "row: (2)"]


TABLE = torch.tensor([[1.5, -20.25], [0.0, 3.125]])


@pytest.mark.parametrize(
    ("layout", "expected"),
    [
        (Layout(), "(\n (  1.50, -20.25)\n (  0.00,   3.12)\n)"),
        (Layout(digits=6, separator=" "), "(\n (  1.5000 -20.2500)\n (  0.0000   3.1250)\n)"),
        (
            Layout(float_format="scientific", digits=2, open_bracket="[", close_bracket="]"),
            "[\n [ 1.5e+00, -2.0e+01]\n [ 0.0e+00,  3.1e+00]\n]",
        ),
        (Layout(float_format="none"), "(\n (1.5, -20.25)\n (0, 3.125)\n)"),
        (Layout(digits=0), "(\n (1.5, -20.25)\n (0, 3.125)\n)"),
        (Layout(max_line_width=9), "(\n (  1.50,\n   -20.25)\n (  0.00,\n     3.12)\n)"),
    ],
)
def test_numbers_are_laid_out_as_asked(layout: Layout, expected: str) -> None:
    assert render(TABLE, layout) == expected


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (torch.tensor(7), "7"),
        (torch.tensor([True, False]), "(1, 0)"),
        (torch.tensor([]), "()"),
        (torch.tensor([1, -200, 30]), "(   1, -200,   30)"),
        (torch.tensor([1e6, float("nan"), float("-inf")]), "(1.000e+06,       nan,      -inf)"),
        (torch.tensor([1.0, 1e-7], dtype=torch.float16), "(1.000e+00, 1.192e-07)"),
    ],
)
def test_every_kind_of_tensor_can_be_printed(tensor: torch.Tensor, expected: str) -> None:
    assert render(tensor, Layout()) == expected


def test_large_tensors_show_their_edges() -> None:
    text = render(torch.arange(24).reshape(6, 4), Layout(summarise_threshold=20, edge_items=1))
    assert text == "(\n ( 0, ...,  3)\n ...\n (20, ..., 23)\n)"
    assert "..." not in render(torch.arange(5000), Layout(summarise_threshold=0))


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=40), st.integers(1, 9))
def test_printed_numbers_read_back_within_their_digits(values: list[float], digits: int) -> None:
    layout = Layout(digits=digits, separator=" ", float_format="scientific")
    read = [float(word) for word in render(torch.tensor(values), layout)[1:-1].split()]
    assert read == pytest.approx(values, rel=10.0 ** (1 - digits))


def test_wrong_arguments_are_named() -> None:
    with pytest.raises(Error, match="must take a torch.tensor argument"):
        ipu_print_tensor([1])  # type: ignore[arg-type]
    with pytest.raises(Error, match="'hex' is not one of auto, fixed, scientific, none"):
        ipu_print_tensor(torch.ones(1), float_format="hex")


# --- CPU --------------------------------------------------------------------------------------


def test_a_host_function_runs_on_zeros_at_capture_and_on_values_later() -> None:
    seen = []

    def multiply(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert type(x) is torch.Tensor
        seen.append(x.sum().item())
        return torch.from_numpy(x.numpy() * y.numpy())

    operator = CPU(multiply, "Multiply")
    x, y = torch.ones(2, 3), torch.tensor([2.0])
    graph = captured(lambda a, b: operator(a, b) * 3, x, y)
    assert seen == [0]
    assert torch.equal(graph(x, y), torch.full((2, 3), 6.0))
    assert torch.equal(graph(x, y * 2), torch.full((2, 3), 12.0))
    assert seen == [0, 6, 6]


def test_several_outputs_come_back_as_a_list_and_scalars_as_scalars() -> None:
    operator = CPU(lambda x: (x + 1, x.mean(), x.argmax()), "Three")
    x = torch.tensor([1.0, 5.0])
    more, mean, place = captured(lambda t: operator(t), x)(x)
    assert (more.tolist(), mean.shape, mean.item(), place.item()) == ([2, 6], (), 3, 1)
    assert place.dtype == torch.int64
    assert isinstance(operator(x), list)


def test_a_host_function_runs_once_for_each_micro_batch() -> None:
    seen: list[float] = []

    def note(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.item())
        return x * 10

    operator = CPU(note, "Note")
    graph = captured(lambda x: operator(x), torch.zeros(1))
    assert torch.equal(graph.mapped(torch.tensor([[1.0], [2.0]])), torch.tensor([[10.0], [20.0]]))
    assert seen == [0, 1, 2]


def test_a_module_on_the_host_uses_the_weights_it_has_when_it_runs() -> None:
    layer = torch.nn.Linear(3, 2)
    operator = CPU(layer, "Linear")
    assert not layer.weight.requires_grad
    x = torch.randn(4, 3)
    graph = captured(lambda t: operator(t), x)
    layer.weight.zero_()
    assert torch.equal(graph(x), layer(x))


def test_weights_that_are_fake_during_capture_do_not_reach_the_host() -> None:
    from torch.nn.utils.stateless import _reparametrize_module

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)
            self.cpu = CPU(self.on_host, "OnHost")

        def on_host(self, x: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(self.layer(x).detach().numpy())

    model, x = Model(), torch.randn(4, 3)

    def step(t: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        with _reparametrize_module(model, {"layer.weight": weight}):
            return model.cpu(t)

    graph = captured(step, x, model.layer.weight.detach())
    assert torch.equal(graph(x, torch.zeros(2, 3)), model.layer(x))


def test_inside_a_host_function_nothing_is_captured() -> None:
    def on_host(x: torch.Tensor) -> torch.Tensor:
        assert current() is None
        assert not isRunningOnIpu()
        return identity_loss(x, "sum")

    operator = CPU(on_host, "Plain")
    graph = captured(lambda x: (operator(x), identity_loss(x, "sum")), torch.ones(2))
    assert len(graph.state.losses) == 1
    assert [t.item() for t in graph(torch.ones(2))] == [2, 2]


def test_only_the_branch_taken_calls_the_host() -> None:
    seen: list[float] = []

    def host(x: torch.Tensor) -> torch.Tensor:
        seen.append(x.item())
        return -x

    operator = CPU(host, "Branch")
    graph = captured(
        lambda c, x: cond(c, lambda: operator(x), [], lambda: x, [])[0],
        torch.tensor([True]),
        torch.ones(1),
    )
    assert graph(torch.tensor([False]), torch.ones(1)) == 1
    assert graph(torch.tensor([True]), torch.ones(1)) == -1
    assert seen == [0, 1]


def test_outside_a_capture_the_function_is_just_called() -> None:
    assert CPU(lambda x, y: x - y, "Minus")(torch.tensor(3), torch.tensor(1)) == 2


def test_a_copied_model_calls_its_own_function() -> None:
    class Scale(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.factor = 2.0
            self.cpu = CPU(self.host, "Scale")

        def host(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.factor

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.cpu(x)

    x = torch.ones(1)
    first = Scale()
    first_graph = captured(first, x)
    second = copy.deepcopy(first)
    second.factor = 5.0
    second_graph = captured(second, x)
    assert (first_graph(x).item(), second_graph(x).item()) == (2, 5)


def test_a_function_that_is_gone_is_named() -> None:
    graph = captured(CPU(lambda x: x, "Short"), torch.ones(1))
    graph.state.notes.clear()
    gc.collect()
    with pytest.raises(Error, match="host function 'Short' of this graph no longer exists"):
        graph(torch.ones(1))


def test_outputs_that_change_shape_are_an_error() -> None:
    operator = CPU(lambda x: x[x > 0] if x.any() else x, "Filter")
    graph = captured(lambda x: operator(x), torch.zeros(2))
    with pytest.raises(Error, match=r"'Filter' returned shape \(1,\), but \(2,\)"):
        graph(torch.tensor([0.0, 1.0]))


def test_only_tensors_go_to_the_host_and_come_back() -> None:
    operator = CPU(lambda x, scale=1: x * scale, "Scale")
    with pytest.raises(Error, match="keyword arguments"):
        operator(torch.ones(1), scale=2)
    with pytest.raises(Error, match="by position only, not <class 'int'>"):
        operator(torch.ones(1), 2)  # type: ignore[arg-type]
    assert CPU(functools.partial(lambda x, scale: x * scale, scale=2), "P")(torch.ones(1)) == 2
    with pytest.raises(Error, match="must return a tensor"):
        CPU(lambda x: None, "Nothing")(torch.ones(1))


def test_a_host_function_has_no_gradient_and_says_so() -> None:
    operator = CPU(lambda x: x * 2, "NoGradient")
    with pytest.raises(Error, match="'NoGradient' has no gradient"):
        captured_gradients(lambda x: operator(x), torch.ones(1))
    graph = captured_gradients(lambda x: x.square() + operator(x).detach(), torch.ones(1))
    assert graph(torch.ones(1))[0] == 2


def test_persistent_buffers_can_be_driven_by_hand() -> None:
    operator = CPU(lambda x: x + 1, "ByHand")
    with pytest.raises(Error, match="registerPersistentData"):
        operator.execute()
    operator(torch.ones(3))
    operator.registerPersistentData()
    operator.execute()
    assert operator.outputs is not None
    assert operator.outputs[0].tolist() == [1, 1, 1]
