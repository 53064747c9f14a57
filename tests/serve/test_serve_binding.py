"""Configuration and executable joined, and samples split into executions: without a server."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poptorch._served import ServedTensor, executions, sizes_of
from softipu.errors import ConfigMismatch, NameMapInvalid
from softipu.serve.binding import bind, read_parameters
from softipu.serve.exporting import text_of


def tensor(name: str, *shape: int, dtype: Any = torch.float32, device: Any = None) -> ServedTensor:
    return ServedTensor(name, shape, dtype, device or dtype)


def row(name: str, kind: str, *dims: int) -> dict[str, Any]:
    return {"name": name, "data_type": f"TYPE_{kind}", "dims": [str(size) for size in dims]}


def config(inputs: list[Any], outputs: list[Any], batch: int = 8) -> dict[str, Any]:
    return {"max_batch_size": batch, "input": inputs, "output": outputs}


PLAIN = config([row("input_0", "FP32", 4)], [row("output_0", "FP32", 3)])
NAMES = {"input": "input_0", "fc/addmm:0": "output_0"}
TENSORS = ([tensor("input", 4)], [tensor("fc/addmm:0", 3)])


def test_names_say_which_tensor_is_which_in_whatever_order() -> None:
    both = config(
        [row("a", "FP32", 1), row("b", "FP32", 2)], [row("c", "FP32", 3), row("d", "FP32", 4)]
    )
    names = {"y:0": "c", "x:0": "d", "input": "b", "input/1": "a"}
    found = bind(
        both,
        names,
        [tensor("input", 2), tensor("input/1", 1)],
        [tensor("x:0", 4), tensor("y:0", 3)],
    )
    assert [bound.public for bound in found.inputs] == ["b", "a"]
    assert [bound.public for bound in found.outputs] == ["d", "c"]
    assert found.notes == ()


def test_output_names_of_popart_are_matched_by_their_order_with_a_note() -> None:
    names = {"input": "input_0", "fc/fc/model/fc/fc/Gemm:0": "output_0"}
    found = bind(PLAIN, names, *TENSORS)
    assert found.outputs[0].tensor.name == "fc/addmm:0"
    assert "order" in found.notes[0]


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"input": "input_0"}, "'output_0'"),
        ({"input": "input_0", "other": "output_0"}, "'other'"),
        ({"data:0": "input_0", "fc/addmm:0": "output_0"}, "'data:0'"),
        (NAMES | {"more": "output_9"}, "'output_9'"),
    ],
)
def test_names_that_do_not_fit_are_refused(names: dict[str, str], says: str) -> None:
    with pytest.raises(NameMapInvalid, match=says):
        bind(PLAIN, names, *TENSORS)


def test_an_input_of_the_executable_that_nobody_feeds_is_refused() -> None:
    with pytest.raises(NameMapInvalid, match="input/1"):
        bind(PLAIN, NAMES, [tensor("input", 4), tensor("input/1", 4)], TENSORS[1])


def test_a_type_may_be_that_of_the_device() -> None:
    """PopTorch computes with 32-bit integers where programs have 64 bits."""
    wide = tensor("input", 4, dtype=torch.int64, device=torch.int32)
    for kind in ("INT64", "INT32"):
        found = bind(config([row("input_0", kind, 4)], PLAIN["output"]), NAMES, [wide], TENSORS[1])
        assert found.inputs[0].data_type == kind
    with pytest.raises(ConfigMismatch, match="TYPE_INT32 or TYPE_INT64"):
        bind(config([row("input_0", "FP32", 4)], PLAIN["output"]), NAMES, [wide], TENSORS[1])


@pytest.mark.parametrize("dims", [(5,), (4, 1), (2, 2)])
def test_other_dims_are_refused(dims: tuple[int, ...]) -> None:
    with pytest.raises(ConfigMismatch, match=r"by the executable they are \[4\]"):
        bind(config([row("input_0", "FP32", *dims)], PLAIN["output"]), NAMES, *TENSORS)


def test_without_batching_the_dims_begin_with_the_number_of_samples() -> None:
    unbatched = config([row("input_0", "FP32", -1, 4)], [row("output_0", "FP32", -1, 3)], 0)
    assert not bind(unbatched, NAMES, *TENSORS).batched
    with pytest.raises(ConfigMismatch, match=r"\[-1, 4\]"):
        bind(PLAIN | {"max_batch_size": 0}, NAMES, *TENSORS)


def test_a_number_per_sample_is_a_list_of_one() -> None:
    single = config(PLAIN["input"], [row("output_0", "FP32", 1)])
    assert bind(single, NAMES, TENSORS[0], [tensor("fc/addmm:0")]).outputs[0].dims == (1,)


def test_parameters_are_whole_numbers() -> None:
    written = {"parameters": {"timeout_ns": {"string_value": "500000"}}}
    assert read_parameters(written) == {"timeout_ns": "500000"}
    with pytest.raises(ConfigMismatch, match="timeout_ns"):
        read_parameters({"parameters": {"timeout_ns": {"string_value": "soon"}}})


def test_a_configuration_reads_as_the_server_expects_it() -> None:
    text = text_of(
        {
            "name": "m",
            "max_batch_size": 8,
            "input": [{"name": "x", "data_type": "TYPE_FP32", "dims": [3, 2]}],
            "dynamic_batching": {"max_queue_delay_microseconds": 5},
            "parameters": {"threads": {"string_value": "2"}},
        }
    )
    assert text.splitlines() == [
        'name: "m"',
        "max_batch_size: 8",
        "input [",
        '  { name: "x" data_type: TYPE_FP32 dims: [ 3, 2 ] }',
        "]",
        "dynamic_batching { max_queue_delay_microseconds: 5 }",
        'parameters { key: "threads" value: { string_value: "2" } }',
    ]


@given(st.integers(1, 200), st.integers(1, 1000))
def test_executions_cover_all_iterations_with_little_waste(iterations: int, needed: int) -> None:
    sizes = sizes_of(iterations)
    chosen = executions(needed, sizes)
    assert set(chosen) <= set(sizes)
    assert chosen == sorted(chosen, reverse=True)
    spare = sum(chosen) - needed
    assert 0 <= spare <= chosen[-1] // 4


def test_the_whole_batch_runs_as_one() -> None:
    assert executions(8, sizes_of(8)) == [8]
    assert executions(1, sizes_of(8)) == [1]
    assert executions(5, sizes_of(8)) == [4, 1]
    assert executions(7, sizes_of(8)) == [8]
