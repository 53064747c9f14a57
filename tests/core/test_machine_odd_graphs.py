"""Legal graphs of odd shapes: scalars, empty tensors, single elements, outputs that are inputs."""

from __future__ import annotations

import pytest

from softipu.graph import KINDS, Builder, Graph, Phase, Role
from softipu.machine import Settings, estimate

SHAPES: dict[str, tuple[int, ...]] = {
    "scalar": (), "one": (1, 1, 1), "empty": (4, 0, 8), "prime": (7, 11, 13), "long": (1, 1, 100_003),
}  # fmt: skip
DTYPES = ("float16", "float32", "float8", "int32", "uint8", "bool")
#: Attributes that an op of each kind needs, for any shape of up to three dimensions.
ATTRIBUTES: dict[str, dict[str, object]] = {
    "elementwise": {"function": "add"}, "reduce": {"function": "sum", "axes": ()},
    "normalise": {"function": "layer", "groups": 3}, "scan": {"function": "cumsum", "axis": -1},
    "normalise_gradient": {"function": "group", "groups": 3}, "sort": {"axis": -1},
    "softmax": {"axis": -1, "function": "softmax"}, "gather": {"axis": 0},
    "softmax_gradient": {"axis": -1, "function": "log_softmax"},
    "scatter": {"axis": 0, "function": "add"}, "concat": {"axis": 0},
    "random": {"function": "normal"},
    "pool": {"function": "max", "kernel": (2, 2), "stride": (2, 2)},
    "pool_gradient": {"function": "mean", "kernel": (2, 2), "stride": (2, 2)},
}  # fmt: skip
SPECIAL = {
    "matmul", "convolution", "convolution_input_gradient", "convolution_weight_gradient",
    "transpose", "loop", "branch",
}  # fmt: skip
KIND_NAMES = sorted(set(KINDS) - SPECIAL)


def graph_of(kind: str, shape: tuple[int, ...], dtype: str) -> Graph | None:
    build = Builder(kind)
    spec = KINDS[kind]
    count = max(spec.inputs[0], 1 if spec.inputs[1] != 0 else 0)
    names = [build.tensor("x", shape, dtype, Role.INPUT) for _ in range(count)]
    if kind in ("gather", "scatter", "ctc_loss"):
        names[1] = build.tensor("index", shape, "int32", Role.INPUT)
    attributes = dict(ATTRIBUTES.get(kind, {}))
    (first, *_) = build.op(kind, names, [(shape, dtype)] * max(1, spec.outputs[0]), **attributes)
    # Something that takes time even if the op itself does not.
    build.op("elementwise", [first], [(shape, dtype)], function="relu")
    return build.finish([first])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("kind", KIND_NAMES)
def test_every_kind_has_a_price_for_every_shape(
    kind: str, shape: tuple[int, ...], dtype: str
) -> None:
    found = estimate(graph_of(kind, shape, dtype), Settings())
    assert found.cycles.total >= 0
    assert found.throughput >= 0
    assert all(step.cycles.total >= 0 for step in found.steps)
    assert found.memory[0].used > 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (2, 0, 4, 4), (3, 5, 7, 11), (1, 4096, 1, 1)])
def test_products_of_odd_sizes_have_plans(sizes: tuple[int, ...], dtype: str) -> None:
    groups, rows, inner, columns = sizes
    build = Builder("product")
    x = build.tensor("x", [groups, rows, inner], dtype, Role.INPUT)
    w = build.tensor("w", [groups, inner, columns], dtype, Role.WEIGHT)
    (y,) = build.op("matmul", [x, w], [([groups, rows, columns], dtype)])
    assert estimate(build.finish([y]), Settings()).cycles.total >= 0


@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_convolutions_of_any_dimensions_have_plans(dimensions: int, groups: int) -> None:
    build = Builder("convolution")
    field = (9,) * dimensions
    attributes = {
        "kernel": (3,) * dimensions, "stride": (2,) * dimensions, "dilation": (2,) * dimensions,
        "groups": groups,
    }  # fmt: skip
    x = build.tensor("x", (2, 12, *field), role=Role.INPUT)
    w = build.tensor("w", (6, 12 // groups, *attributes["kernel"]), role=Role.WEIGHT)
    (y,) = build.op("convolution", [x, w], [((2, 6, *(4,) * dimensions), "float16")], **attributes)
    (dx,) = build.op("convolution_input_gradient", [y, w], [((2, 12, *field), "float16")],
                     phase=Phase.BACKWARD, **attributes)  # fmt: skip
    (dw,) = build.op("convolution_weight_gradient", [x, y],
                     [((6, 12 // groups, *attributes["kernel"]), "float16")],
                     phase=Phase.BACKWARD, **attributes)  # fmt: skip
    found = estimate(build.finish([dx, dw]), Settings())
    assert all(step.cycles.compute > 0 for step in found.steps[:3])


def test_an_input_that_is_an_output_or_that_nobody_reads_is_legal() -> None:
    build = Builder("through")
    x = build.tensor("x", [64], role=Role.INPUT)
    build.tensor("unread", [64], role=Role.INPUT)
    (y,) = build.op("elementwise", [x], [([64], "float16")], function="relu")
    found = estimate(build.finish([x, y]), Settings())
    assert found.cycles.host > 0


def test_a_transpose_of_a_single_number_is_legal() -> None:
    build = Builder("turn")
    x = build.tensor("x", [], role=Role.INPUT)
    (y,) = build.op("transpose", [x], [([], "float16")], order=())
    assert estimate(build.finish([y]), Settings()).cycles.total > 0
