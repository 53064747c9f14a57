"""The neutral graph: what is legal, what is refused and how, how it reads."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from softipu.errors import GraphMalformed
from softipu.graph import DTYPE_BYTES, KINDS, Builder, Graph, Phase, Role, Schedule, check, show
from softipu.graph.spec import fault


def small() -> Builder:
    """A matmul with a softmax, whose weight is updated."""
    build = Builder("small")
    x = build.tensor("x", [1, 4, 8], role=Role.INPUT)
    w = build.tensor("w", [1, 8, 16], role=Role.WEIGHT)
    (y,) = build.op("matmul", [x, w], [([1, 4, 16], "float16")], path="fc")
    build.op("softmax", [y], [([1, 4, 16], "float16")], axis=2, function="softmax")
    build.op(
        "elementwise",
        [w],
        [([1, 8, 16], "float16")],
        function="mul",
        phase=Phase.UPDATE,
        name="new",
    )
    build.update("new", w)
    return build


def finished() -> Graph:
    return small().finish(["softmax"], Schedule(micro_batch=4, accumulation=2, replicas=3))


def test_a_built_graph_knows_its_parts() -> None:
    graph = finished()
    assert [op.kind for op in graph.ops] == ["matmul", "softmax", "elementwise"]
    assert graph.training
    assert graph.inputs == ("x",)
    assert graph.tensor("w").bytes == 8 * 16 * 2
    assert graph.producers()["matmul"].path == "fc"
    assert graph.last_uses() == {"x": 0, "w": 2, "matmul": 1, "softmax": 3}
    assert graph.schedule.batch == 24
    assert graph.with_schedule(replicas=1).schedule.batch == 8


def test_names_given_twice_become_different() -> None:
    build = Builder()
    assert [build.tensor("a", [1]) for _ in range(3)] == ["a", "a_1", "a_2"]
    assert build.tensor("a_1", [1]) == "a_1_1"


def test_a_graph_prints_with_its_schedule_phases_and_updates() -> None:
    text = show(finished())
    assert text.splitlines()[0] == (
        "graph small: 3 ops, micro-batch 4 × accumulation 2 × iterations 1 × replicas 3, 1 IPU"
    )
    assert "    matmul: float16[1, 4, 16] = matmul(x, w)  # fc" in text.splitlines()
    assert "  update, stage 0 on IPU 0:" in text.splitlines()
    assert "  w ← new" in text.splitlines()
    assert text.splitlines()[-1] == "  return softmax"


def test_a_long_graph_prints_in_part() -> None:
    assert "… 2 more ops" in show(finished(), limit=1)


def test_stages_beyond_the_list_are_on_the_last_ipu() -> None:
    schedule = Schedule(stage_ipus=(0, 1, 3))
    assert [schedule.ipu_of(stage) for stage in (0, 2, 9)] == [0, 3, 3]
    assert schedule.ipus == 4


@pytest.mark.parametrize(
    ("kind", "shapes", "out", "attributes", "said"),
    [
        ("matmul", ([1, 4, 8], [1, 9, 2]), [1, 4, 2], {}, "can't be multiplied"),
        ("matmul", ([4, 8], [8, 2]), [4, 2], {}, "groups, rows, columns"),
        ("matmul", ([1, 4, 8], [1, 8, 2]), [1, 4, 3], {}, "has not the shape"),
        ("matmul", ([1, 4, 8],), [1, 4, 3], {}, "1 inputs, not 2 to 3"),
        ("view", ([4, 8],), [4, 9], {}, "32 elements become 36"),
        ("transpose", ([4, 8],), [8, 4], {"order": (0, 0)}, "no order"),
        ("transpose", ([4, 8],), [4, 8], {"order": (1, 0)}, "has not the shape"),
        ("reduce", ([4, 8],), [4], {"function": "sum", "axes": (2,)}, "axes"),
        ("reduce", ([4, 8],), [8], {"function": "sum", "axes": (1,)}, "has not the shape"),
        ("reduce", ([4, 8],), [4], {"function": "sum"}, "'axes' is missing"),
        ("reduce", ([4, 8],), [4], {"function": "sum", "axes": [1]}, "'axes' is [1]"),
        ("softmax", ([4],), [4], {"axis": 0, "function": "softmax", "speed": 2}, "'speed'"),
        ("loop", (), [1], {"count": 2}, "one body"),
        ("branch", (), [1], {}, "at least one branch"),
        ("concat", ([4], [5]), [8], {"axis": 0}, "as many elements"),
        ("magic", ([4],), [4], {}, "no kind 'magic'"),
    ],
)
def test_an_illegal_op_is_refused_with_its_reason(
    kind: str, shapes: tuple[list[int], ...], out: list[int], attributes: dict, said: str
) -> None:
    build = Builder("bad")
    inputs = [build.tensor(f"in{i}", shape, role=Role.INPUT) for i, shape in enumerate(shapes)]
    outputs = build.op(kind, inputs, [(out, "float16")], path="net.layer", **attributes)
    with pytest.raises(GraphMalformed, match="net.layer") as caught:
        build.finish(outputs)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("kernel", "channels", "groups", "said"),
    [((3, 3), 8, 3, "multiple of 3 groups"), ((3,), 8, 1, "3 dimensions")],
)
def test_a_convolution_fits_its_kernel(
    kernel: tuple[int, ...], channels: int, groups: int, said: str
) -> None:
    build = Builder()
    x = build.tensor("x", [1, channels, 5, 5], role=Role.INPUT)
    w = build.tensor("w", [8, channels, *kernel], role=Role.WEIGHT)
    build.op(
        "convolution", [x, w], [([1, 8, 3, 3], "float16")], kernel=kernel, groups=groups,
        stride=(1,) * len(kernel), dilation=(1,) * len(kernel),
    )  # fmt: skip
    with pytest.raises(GraphMalformed, match=said):
        build.finish(["convolution"])


def test_what_is_read_must_have_been_made() -> None:
    graph = finished()
    swapped = replace(graph, ops=(graph.ops[1], graph.ops[0], graph.ops[2]))
    with pytest.raises(GraphMalformed, match="before anything makes it"):
        check(swapped)


def test_nothing_is_made_twice() -> None:
    graph = finished()
    with pytest.raises(GraphMalformed, match="exists already"):
        check(replace(graph, ops=(graph.ops[0], *graph.ops)))


def test_outputs_and_names_must_exist() -> None:
    with pytest.raises(GraphMalformed, match="no tensor 'z'"):
        small().finish(["z"])
    build = small()
    build.tensor("lonely", [1])
    with pytest.raises(GraphMalformed, match="nothing makes the output 'lonely'"):
        build.finish(["lonely"])


def test_only_weights_and_states_are_updated_by_values_of_their_size() -> None:
    build = small()
    build.update("softmax", "x")
    with pytest.raises(GraphMalformed, match="no weight or state"):
        build.finish([])
    build = small()
    build.update("softmax", "w")
    with pytest.raises(GraphMalformed, match="other size"):
        build.finish([])


def test_an_unknown_element_type_and_a_negative_size_are_refused() -> None:
    with pytest.raises(GraphMalformed, match="float64"):
        Builder().tensor("x", [1], "float64")
    build = Builder()
    build.tensor("x", [-1], role=Role.INPUT)
    with pytest.raises(GraphMalformed, match="negative"):
        build.finish([])


def test_the_body_of_a_loop_is_checked_as_well() -> None:
    body = finished()
    broken = replace(body, outputs=("nowhere",))
    for inner, fine in ((body, True), (broken, False)):
        build = Builder("outer")
        build.op("loop", [], [([1], "float16")], bodies=(inner,), count=3)
        if fine:
            assert "        graph small" in show(build.finish(["loop"]))
        else:
            with pytest.raises(GraphMalformed, match="nowhere"):
                build.finish(["loop"])


@pytest.mark.parametrize("name", sorted(KINDS))
def test_each_kind_says_what_it_is_and_refuses_a_strange_attribute(name: str) -> None:
    kind = KINDS[name]
    assert kind.meaning
    build = Builder()
    inputs = [build.tensor("i", [2, 2], role=Role.INPUT) for _ in range(max(1, kind.inputs[0]))]
    wrong = {attribute: object() for attribute in kind.required} or {"strange": 1}
    build.op(name, inputs[: kind.inputs[0]], [([2, 2], "float16")] * kind.outputs[0], **wrong)
    op = build.ops[0]
    said = fault(op, [build.tensors[n] for n in op.inputs], [build.tensors[n] for n in op.outputs])
    assert said is not None
    assert "attribute" in said


@given(st.lists(st.integers(0, 9), max_size=5), st.sampled_from(sorted(DTYPE_BYTES)))
def test_bytes_are_elements_times_their_size(shape: list[int], dtype: str) -> None:
    build = Builder()
    tensor = build.tensors[build.tensor("x", shape, dtype)]
    count = 1
    for size in shape:
        count *= size
    assert tensor.bytes == count * DTYPE_BYTES[dtype]
