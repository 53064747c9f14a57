"""What single operators become in the neutral graph."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from neutral_support import Function, Trained, functions, graph_of, kinds, only
from torch import nn

import poptorch
from softipu.graph import Phase, Role

IMAGES = torch.randn(2, 4, 8, 8)
ROWS = torch.randn(6, 10)
POSITIONS = torch.tensor([1, 0, 3, 2, 2, 0])


@pytest.mark.parametrize(
    ("function", "inputs", "expected"),
    [
        (lambda x: x + 1, (ROWS,), ["elementwise"]),
        (lambda x: F.relu(x), (ROWS,), ["elementwise"]),
        (lambda x: x.sum(1), (ROWS,), ["reduce"]),
        (lambda x: x.amax((0, 1)), (ROWS,), ["reduce"]),
        (lambda x: x.std(1), (ROWS,), ["reduce", *["elementwise"] * 2, "reduce", "elementwise"]),
        (lambda x: x.cumsum(0), (ROWS,), ["scan"]),
        (lambda x: x.topk(3)[0], (ROWS,), ["sort"]),
        (lambda x: x.softmax(-1), (ROWS,), ["softmax"]),
        (lambda x: x @ x.t(), (ROWS,), ["matmul"]),
        (lambda x: x[:, 0] @ x[:, 1], (ROWS,), ["matmul"]),
        (lambda x: torch.cat([x, x], 1), (ROWS,), ["concat"]),
        (lambda x, i: x[i], (ROWS, POSITIONS), ["gather"]),
        (lambda x, i: x.index_select(0, i), (ROWS, POSITIONS), ["gather"]),
        (lambda x, i: x.gather(1, i[:, None]), (ROWS, POSITIONS), ["gather"]),
        (lambda x, i: x.index_add(0, i, x), (ROWS, POSITIONS), ["scatter"]),
        (lambda x, i: x.scatter(1, i[:, None], 0.0), (ROWS, POSITIONS), ["scatter"]),
        (lambda x: x.half(), (ROWS,), ["cast"]),
        (lambda x: x + torch.zeros(10), (ROWS,), ["fill", "elementwise"]),
        (lambda x: x + torch.rand_like(x), (ROWS,), ["random", "elementwise"]),
        (lambda x: F.pad(x, (1, 1)), (ROWS,), ["copy"]),
        (lambda x: x.repeat(2, 1), (ROWS,), ["copy"]),
        (lambda x: F.max_pool2d(x, 2), (IMAGES,), ["pool"]),
        (lambda x: F.avg_pool2d(x, 2), (IMAGES,), ["pool"]),
        (lambda x: F.adaptive_avg_pool2d(x, 2), (IMAGES,), ["pool"]),
        (lambda x: F.interpolate(x, scale_factor=2), (IMAGES,), ["copy"]),
        (lambda x: F.layer_norm(x, [10]), (ROWS,), ["normalise"]),
        (lambda x: F.group_norm(x, 2), (IMAGES,), ["normalise"]),
        (lambda x: F.cross_entropy(x, POSITIONS), (ROWS,), ["softmax", "gather", "reduce"]),
        (lambda x: F.mse_loss(x, x), (ROWS,), ["elementwise", "elementwise", "reduce"]),
        (lambda x: torch.cdist(x, x[:4]), (ROWS,), [*["elementwise"] * 2, "reduce", "elementwise"]),
        (lambda x: F.pdist(x), (ROWS,), [*["elementwise"] * 2, "reduce", "elementwise"]),
    ],
)
def test_an_operator_becomes_its_kind(
    function: Callable[..., torch.Tensor], inputs: tuple[torch.Tensor, ...], expected: list[str]
) -> None:
    assert kinds(graph_of(function, *inputs)) == expected


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.view(10, 6), lambda x: x.t(), lambda x: x[1:3], lambda x: x.unsqueeze(0),
        lambda x: x.expand(4, 6, 10), lambda x: x.permute(1, 0).reshape(5, 2, 6),
        lambda x: x.chunk(2)[1], lambda x: x.select(1, 3), lambda x: x.detach(),
    ],
)  # fmt: skip
def test_looks_at_the_same_memory_are_free(function: Callable[..., torch.Tensor]) -> None:
    # The last copy is the output's own: results never share memory with inputs.
    graph = graph_of(lambda x: function(x) + 1, ROWS)
    assert kinds(graph) == ["elementwise"]


def test_a_copy_in_another_order_is_where_data_move() -> None:
    graph = graph_of(lambda x: x.permute(2, 0, 1, 3).contiguous() + 1, torch.randn(2, 3, 4, 5))
    assert only(graph, "transpose").attributes["order"] == (2, 0, 1, 3)
    assert graph.tensors[only(graph, "transpose").inputs[0]].role is Role.INPUT


def test_an_order_that_is_undone_moves_nothing() -> None:
    graph = graph_of(lambda x: x.permute(1, 2, 0).permute(2, 0, 1).contiguous() + 1, IMAGES[0])
    assert "transpose" not in kinds(graph)


def test_a_convolution_says_its_field() -> None:
    conv = nn.Conv2d(4, 6, (3, 5), stride=(2, 1), dilation=(1, 2), groups=2, bias=False)
    op = only(graph_of(conv, IMAGES[:, :, :, :].repeat(1, 1, 2, 2)), "convolution")
    assert op.attributes == {"kernel": (3, 5), "stride": (2, 1), "dilation": (1, 2), "groups": 2}


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(4, 6, 3), (2, 4, 8)),
        (nn.Conv3d(4, 6, 3), (2, 4, 5, 5, 5)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2), (2, 4, 5, 5)),
    ],
)
def test_convolutions_of_any_dimension_have_both_gradients(
    module: nn.Module, shape: tuple[int, ...]
) -> None:
    graph = graph_of(Trained(nn.Sequential(module, module.__class__(6, 3, 1))), torch.randn(shape),
                     training=True)  # fmt: skip
    assert kinds(graph).count("convolution") == 2
    assert kinds(graph).count("convolution_weight_gradient") == 2
    assert kinds(graph).count("convolution_input_gradient") == 1
    transposed = isinstance(module, nn.ConvTranspose2d)
    forward = next(op for op in graph.ops if op.kind == "convolution")
    assert forward.attributes.get("transposed", False) is transposed


def test_a_batch_norm_moves_its_running_statistics_in_training_only() -> None:
    norm = nn.BatchNorm2d(4)
    trained = graph_of(Trained(norm), IMAGES, training=True)
    assert {old for _, old in trained.updates} >= {"inner.running_mean", "inner.running_var"}
    assert only(trained, "normalise").attributes["training"] is True
    assert only(trained, "normalise").attributes["groups"] == 4
    assert "normalise_gradient" in kinds(trained)
    assert trained.tensors["inner.running_mean"].role is Role.STATE
    infers = graph_of(norm.eval(), IMAGES)
    assert only(infers, "normalise").attributes["training"] is False
    assert infers.tensors["running_mean"].role is Role.WEIGHT
    assert infers.updates == ()


def test_statistics_groups_follow_the_norm() -> None:
    assert only(graph_of(nn.GroupNorm(2, 4), IMAGES), "normalise").attributes["groups"] == 4
    assert only(graph_of(nn.LayerNorm(10), ROWS), "normalise").attributes["groups"] == 6


def test_a_dropout_mask_is_drawn_again_instead_of_kept() -> None:
    """PopART seeds both passes alike; a mask that lives through both would cost memory."""
    graph = graph_of(Trained(Function(lambda x: F.dropout(x, 0.3))), ROWS, training=True)
    drawn = [op for op in graph.ops if op.kind == "random"]
    assert [op.phase for op in drawn] == [Phase.FORWARD, Phase.BACKWARD]
    forward = set(drawn[0].outputs)
    assert not any(forward & set(op.inputs) for op in graph.ops if op.phase is Phase.BACKWARD)
    assert "div" not in functions(graph)


def test_attention_is_two_products_and_a_softmax() -> None:
    heads = torch.randn(2, 3, 7, 8)
    graph = graph_of(lambda q: F.scaled_dot_product_attention(q, q, q), heads)
    products = [op for op in graph.ops if op.kind == "matmul"]
    assert [graph.tensors[op.outputs[0]].shape for op in products] == [(6, 7, 7), (6, 7, 8)]
    assert only(graph, "softmax").attributes["axis"] in (2, 3)
    assert "unknown" not in kinds(graph)


def test_attention_trains_with_four_more_products() -> None:
    function = Function(lambda q: F.scaled_dot_product_attention(q, q, q))
    graph = graph_of(Trained(function), torch.randn(2, 3, 7, 8), training=True)
    assert kinds(graph).count("matmul") == 6
    assert kinds(graph).count("softmax_gradient") == 1


def test_a_recurrent_layer_is_written_out_step_by_step() -> None:
    graph = graph_of(nn.LSTM(10, 5, batch_first=True), torch.randn(2, 6, 10))
    assert kinds(graph).count("matmul") == 7  # the inputs at once, then six steps
    assert "unknown" not in kinds(graph)


def test_the_powers_that_a_tile_knows_are_functions_of_their_own() -> None:
    graph = graph_of(lambda x: x**2 + x**0.5 + x**3.3, ROWS)
    assert functions(graph) == ["square", "sqrt", "add", "pow_scalar", "add"]


def test_a_weight_is_read_the_other_way_in_the_backward_pass() -> None:
    graph = graph_of(Trained(nn.Sequential(nn.Linear(10, 4), nn.Linear(4, 3))), ROWS, training=True)
    products = [op for op in graph.ops if op.kind == "matmul"]
    turned = {(op.phase, op.attributes.get("transposed", False)) for op in products}
    assert turned == {(Phase.FORWARD, False), (Phase.BACKWARD, True)}


def test_a_product_with_keys_reads_them_transposed() -> None:
    graph = graph_of(lambda x: x @ x.transpose(1, 2), torch.randn(2, 6, 10))
    assert only(graph, "matmul").attributes == {"transposed": True}


def test_hints_reach_the_product_and_its_gradients() -> None:
    weight = nn.Parameter(torch.randn(10, 8))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = weight
            self.first = nn.Linear(10, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mode = poptorch.MatMulSerializationMode.OutputChannels
            y = poptorch.serializedMatMul(self.first(x), self.weight, mode, factor=4)
            return poptorch.set_available_memory(y, 0.2)

    graph = graph_of(Trained(Net()), ROWS, training=True)
    forward = [op for op in graph.ops if op.kind == "matmul" and op.phase is Phase.FORWARD][1]
    assert forward.attributes["serialisation"] == 4
    assert forward.attributes["serialised"] == "columns"
    assert forward.attributes["available_memory_proportion"] == pytest.approx(0.2)
    backward = [op for op in graph.ops if op.kind == "matmul" and op.phase is Phase.BACKWARD]
    assert [op.attributes.get("serialisation", 1) for op in backward].count(4) == 2


def test_a_long_loop_is_a_loop() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).tanh().mul(0.5).add(1).relu().sin().cos().exp().neg().sub(2)

    graph = graph_of(lambda x: poptorch.for_loop(500, step, [x])[0], torch.randn(4, 4))
    loop = only(graph, "loop")
    assert loop.attributes["count"] == 499  # the first iteration is written out
    assert kinds(loop.bodies[0]).count("matmul") == 1
    assert loop.bodies[0].ops[0].phase is Phase.FORWARD


def test_a_call_of_the_host_is_one() -> None:
    graph = graph_of(lambda x: poptorch.ipu_print_tensor(x + 1, "x") * 2, ROWS)
    assert kinds(graph) == ["elementwise", "host", "elementwise"]


def test_an_operator_without_a_row_is_kept_as_unknown() -> None:
    graph = graph_of(lambda x: torch.linalg.cholesky_ex(x @ x.t())[0], ROWS)
    op = only(graph, "unknown")
    assert op.source == "aten.linalg_cholesky_ex"
    assert graph.tensors[op.inputs[0]].shape == (6, 6)


@pytest.mark.parametrize("p", [1.0, 2.0])
def test_distances_have_gradients_with_a_price(p: float) -> None:
    module = Trained(Function(lambda x: torch.cdist(x, x[:4], p=p)))
    graph = graph_of(module, ROWS, training=True)
    assert "unknown" not in kinds(graph)
    (summed,) = (
        op for op in graph.ops if op.kind == "reduce" and op.source == "aten._cdist_forward"
    )
    assert graph.tensors[summed.inputs[0]].shape == (6, 4, 10)
