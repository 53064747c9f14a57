"""What is done to graphs on the way to a fast variant: norms, layouts, hidden writes, chunks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from executor_support import Net, Shape
from hypothesis import given, settings
from hypothesis import strategies as st
from test_engine import Noisy
from test_engine_variants import Conv, apart, compiled, rows, run
from torch import nn
from torch.fx import Graph, GraphModule
from torch.fx.experimental.proxy_tensor import make_fx

from poptorch import _graph_file
from poptorch._engine import chunks, cuda, norms
from poptorch._engine.coalesce import CannotCoalesce
from poptorch._engine.freeze import CannotFreeze, freeze
from poptorch._engine.inplace import undo_hidden_writes
from poptorch._engine.layouts import channels_last
from poptorch._engine.packing import CannotPack, packed_form
from poptorch._engine.tidy import tidied
from poptorch._engine.variants import Coalesced, Loop

_aten = torch.ops.aten


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


# --- batch norms by groups ----------------------------------------------------------------------


@settings(max_examples=30, deadline=None)
@given(
    groups=st.integers(1, 4),
    rows=st.integers(2, 4),
    tail=st.sampled_from([(), (3,), (4, 3), (2, 3, 2)]),
    affine=st.booleans(),
    last=st.booleans(),
)
def test_a_grouped_norm_is_a_norm_of_each_group(
    groups: int, rows: int, tail: tuple[int, ...], affine: bool, last: bool
) -> None:
    torch.manual_seed(groups * rows)
    x = torch.randn(groups * rows, 3, *tail)
    if last and len(tail) == 2:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_()
    weight = torch.rand(3, requires_grad=True) if affine else None
    bias = torch.randn(3, requires_grad=True) if affine else None
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    expected = torch.cat(
        [nn.functional.batch_norm(part, None, None, weight, bias, True) for part in x.chunk(groups)]
    )
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, grad)
    y, mean, inverse_std = torch.ops.softipu_engine.grouped_norm(x, weight, bias, groups, 1e-5)
    close(y, expected)
    close(torch.autograd.grad(y, leaves, grad), wanted)
    with torch.no_grad():
        forward, backward = norms.PARTS.values()
        close(forward(x, weight, bias, groups, 1e-5), (y, mean, inverse_std))
        native = torch.ops.softipu_engine.grouped_norm_backward
        arguments = (grad, x, weight, mean, inverse_std, groups, 1e-5)
        close(backward(*arguments), native(*arguments))


def test_a_mapped_norm_is_the_grouped_one() -> None:
    x, weight, bias = torch.randn(4, 3, 2, 5, 5), torch.rand(2), torch.randn(2)
    mapped = torch.vmap(lambda part: norms.batch_norm(part, weight, bias, 1e-5)[0])(x)
    close(
        mapped,
        torch.stack([nn.functional.batch_norm(p, None, None, weight, bias, True) for p in x]),
    )


# --- writes in place ----------------------------------------------------------------------------


def from_file(graph: GraphModule) -> GraphModule:
    """The same graph, as it comes back from a file."""
    return _graph_file.unpack(_graph_file.pack(graph).__getitem__)


def undone(function: Any, *inputs: torch.Tensor) -> tuple[list[str], Any, Any]:
    """The operators after the pass, and the results without and with it."""
    graph = make_fx(function, tracing_mode="fake")(*inputs)
    before = graph(*(t.clone() for t in inputs))
    changed = from_file(graph)
    undo_hidden_writes(changed.graph)
    changed.recompile()
    names = [str(n.target) for n in changed.graph.nodes if n.op == "call_function"]
    return names, before, changed(*(t.clone() for t in inputs))


def test_a_write_that_nobody_sees_is_undone() -> None:
    names, before, after = undone(lambda x: (x + 1).relu_() * 2, torch.randn(5))
    assert "aten.relu.default" in names
    assert "aten.relu_.default" not in names
    assert torch.equal(before, after)


def test_results_of_one_operator_are_apart() -> None:
    def work(x: torch.Tensor) -> torch.Tensor:
        top, where = torch.max(x, dim=0)
        return top.relu_() + where

    names, before, after = undone(work, torch.randn(3, 5))
    assert "aten.relu.default" in names
    assert torch.equal(before, after)


def reads_a_view_later(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    view = y.view(5, 1)
    y.relu_()
    return view * 2


def writes_its_input(x: torch.Tensor) -> torch.Tensor:
    return x.view(5, 1).relu_() + 1


def writes_a_part(x: torch.Tensor) -> torch.Tensor:
    y = x + 1
    y[:2].zero_()
    return y


@pytest.mark.parametrize("function", [reads_a_view_later, writes_its_input, writes_a_part])
def test_a_write_that_is_seen_stays(function: Any) -> None:
    names, before, after = undone(function, torch.randn(5))
    assert any(name.split(".")[1].endswith("_") for name in names)
    assert torch.equal(before, after)


# --- layouts ------------------------------------------------------------------------------------


def test_convolutions_turn_and_results_do_not() -> None:
    weight = torch.randn(4, 3, 3, 3)

    def run(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        y = torch.relu(torch.conv2d(x, w))
        return [y, y.flatten(1)]

    x = torch.randn(2, 3, 8, 8)
    graph = make_fx(run, tracing_mode="fake")(x, weight)
    assert channels_last(graph.graph)
    graph.recompile()
    seen: list[bool] = []

    class Looks(torch.fx.Interpreter):
        def run_node(self, n: torch.fx.Node) -> Any:
            result = super().run_node(n)
            if n.target is _aten.convolution.default:
                seen.append(result.is_contiguous(memory_format=torch.channels_last))
            return result

    images, flat = Looks(graph).run(x, weight)
    assert seen == [True]
    close([images, flat], run(x, weight))
    assert images.is_contiguous()


def test_a_graph_with_strides_in_it_keeps_its_layout() -> None:
    def run(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        return [torch.conv2d(x, w).as_strided((2, 2), (2, 1))]

    graph = make_fx(run, tracing_mode="fake")(torch.randn(1, 1, 4, 4), torch.randn(1, 1, 3, 3))
    before = str(graph.graph)
    assert not channels_last(graph.graph)
    assert str(graph.graph) == before


def test_a_graph_without_convolutions_is_left_alone() -> None:
    graph = Graph()
    graph.output([graph.call_function(_aten.relu.default, (graph.placeholder("x"),))])
    assert not channels_last(graph)


# --- chunks -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "training", "sizes"),
    [
        (Shape(2, accumulation=8), True, [4, 8]),
        (Shape(2, accumulation=100), True, [4, 10, 50]),
        (Shape(2, accumulation=7), True, [7]),
        (Shape(2), True, []),
        (Shape(2, iterations=32), False, [4, 16, 32]),
        (Shape(2, iterations=67), False, [4, 16, 64]),
    ],
)
def test_sizes_divide_the_work_where_they_can(
    shape: Shape, training: bool, sizes: list[int]
) -> None:
    made = compiled(Net, shape, training=training)
    assert chunks.chunk_sizes(made.plan, made.memory) == sizes


def test_replicas_with_buffers_stay_together() -> None:
    made = compiled(Conv, Shape(3, accumulation=3, replicas=4), training=True)
    assert chunks.chunk_sizes(made.plan, made.memory) == [4, 12]


def test_little_memory_means_small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = compiled(Net, Shape(2, accumulation=64), training=True)
    random = compiled(Noisy, Shape(2, accumulation=64), training=True)
    monkeypatch.setattr(chunks, "_free", lambda device: 0)
    assert chunks.chunk_sizes(made.plan, made.memory) == []
    assert chunks.chunk_sizes(random.plan, random.memory) == [4], "the same on every machine"


# --- packed convolutions --------------------------------------------------------------------------


class Residual(nn.Module):
    """Convolutions with everything that can follow them, and one that can't be packed."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.second = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.short = nn.Conv2d(4, 4, 1)
        self.grouped = nn.Conv2d(4, 8, 3, stride=2, groups=2)
        self.up = nn.ConvTranspose2d(8, 2, 2)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        x = x[:, :1].view(-1, 1, 1, 1) * torch.linspace(-1, 1, 49).view(1, 1, 7, 7)
        x = torch.relu(self.norm(self.first(x)))
        x = nn.functional.relu_(self.second(x) + self.short(x))
        x = x + self.second(x)
        return self.up(self.grouped(x)), x.mean(), target


@pytest.mark.parametrize("chunk", [None, 3])
def test_packed_convolutions_give_the_same_and_follow_new_weights(chunk: int | None) -> None:
    made = compiled(Residual, Shape(2, iterations=3), training=False)
    plan, memory = made.plan, apart(made.memory)
    frozen = freeze(plan.program, memory, widen=False)
    prepared = replace(plan, program=frozen.program)
    base = (
        Loop(prepared, frozen.memory)
        if chunk is None
        else Coalesced(prepared, frozen.memory, chunk)
    )
    packed = packed_form(base)
    names = packed.run._call.__self__.code
    # `second` is used twice, and so stays as it is.
    assert names.count("mkldnn._convolution_pointwise.default") == 2
    assert names.count("mkldnn._convolution_pointwise.binary") == 1
    for _ in range(2):
        close(run(packed, rows(plan)), run(Loop(plan, memory), rows(plan)))
        for value in memory.parameters.values():
            value.mul_(1.5)
        frozen.refresh()


def test_a_model_without_convolutions_has_no_packed_form() -> None:
    made = compiled(Net, Shape(2), training=False)
    with pytest.raises(CannotPack, match="no convolution"):
        packed_form(Loop(made.plan, made.memory))


# --- idle operators -------------------------------------------------------------------------------


def test_what_does_nothing_is_left_out() -> None:
    def work(x: torch.Tensor) -> list[torch.Tensor]:
        x = x.detach().permute(0, 1).view(3, 2).view(6).view(2, 3)
        return [(torch.ops.aten.mul.Scalar(x, 1) + 1).view(6).view(3, 2)]

    x = torch.randn(2, 3)
    graph = make_fx(work, tracing_mode="fake")(x)
    tidy_graph = tidied(graph)
    targets = [str(n.target) for n in tidy_graph.graph.nodes if n.op == "call_function"]
    assert targets == ["aten.add.Tensor", "aten.reshape.default"]
    assert torch.equal(tidy_graph(x)[0], graph(x)[0])


def test_a_scaling_by_one_that_is_written_to_stays() -> None:
    def work(x: torch.Tensor) -> list[torch.Tensor]:
        y = torch.ops.aten.mul.Scalar(x, 1)
        y.add_(1)
        return [x * 2, y]

    x = torch.randn(2, 3)
    graph = make_fx(work, tracing_mode="fake")(x)
    close(tidied(graph)(x.clone()), graph(x.clone()))
    close(tidied(from_file(graph))(x.clone()), graph(x.clone()))


class WritesThroughView(nn.Module):
    """Halves a convolution's result in place, by way of a view."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 3, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        y = self.conv(x[:, :1].view(-1, 1, 1, 1) * torch.linspace(-1, 1, 25).view(1, 1, 5, 5))
        y.view(x.shape[0], -1).mul_(0.5)
        return y * 1.0, nn.functional.mse_loss(y.mean((1, 2)), target[:, :1].expand(-1, 3))


def test_a_write_by_way_of_a_view_is_never_lost() -> None:
    trained = compiled(WritesThroughView, Shape(2, accumulation=2), training=True)
    with pytest.raises(CannotCoalesce, match="by way of a view"):
        Coalesced(trained.plan, apart(trained.memory), 2)
    made = compiled(WritesThroughView, Shape(2, iterations=2), training=False)
    with pytest.raises(CannotFreeze, match="by way of a view"):
        freeze(made.plan.program, made.memory, widen=False)


def test_a_scaled_copy_that_is_written_by_way_of_a_view_stays_a_copy() -> None:
    def work(x: torch.Tensor) -> list[torch.Tensor]:
        y = torch.ops.aten.mul.Scalar(x, 1)
        y.view(6).add_(1)
        return [x * 2, y]

    x = torch.randn(2, 3)
    graph = make_fx(work, tracing_mode="fake")(x)
    close(tidied(graph)(x.clone()), graph(x.clone()))
    close(tidied(from_file(graph))(x.clone()), graph(x.clone()))


class Spread(nn.Module):
    """A convolution's single pixel is added to a whole image."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 1, 3)

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> Any:
        image = x[:, :1].view(-1, 1, 1, 1) * torch.linspace(-1, 1, 9).view(1, 1, 3, 3)
        return torch.relu(self.conv(image) + image), target


def test_a_packed_result_that_is_spread_is_not_fused() -> None:
    made = compiled(Spread, Shape(2), training=False)
    packed = packed_form(Loop(made.plan, made.memory))
    close(run(packed, rows(made.plan)), run(Loop(made.plan, made.memory), rows(made.plan)))


# --- the GPU's choice, without a GPU --------------------------------------------------------------


@pytest.mark.parametrize(
    ("checks", "pinned", "best"),
    [(False, "", "coalesced 4"), (True, "", "checked loop"), (False, "1", "loop")],
)
def test_on_a_gpu_float_checks_and_pinning_hold_too(
    checks: bool, pinned: str, best: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "Replayed", lambda base, *_: base)
    monkeypatch.setenv("SOFTIPU_DETERMINISTIC", pinned)
    made = compiled(Net, Shape(2, accumulation=4), training=True)
    tuner = cuda.CudaTuner(replace(made.plan, checks_floats=checks), apart(made.memory))
    assert tuner.choose(4).name == best
