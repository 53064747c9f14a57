"""`poptorch::repeat`: a recorded loop body as one operator, for loops too long to write out.

The body travels as text inside the graph, so a program with such a loop can be saved, loaded and
read by people. Short loops never come here: `_ops_control` writes them out.
"""

from __future__ import annotations

import functools
import json
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ._errors import createPoptorchError
from ._ops_library import RANDOM, declare
from ._ops_record import Recording, unshared

#: torch values that JSON can't hold, by the name they get in the text.
_NAMED = {
    torch.dtype: "dtype",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


def to_text(record: Recording) -> str:
    """The recorded body as JSON. Its values are numbered: carried, outer, then results."""
    slots: dict[int, int] = {}
    for tensor in (*record.inputs, *record.outer):
        slots[id(tensor)] = len(slots)
    inputs = following = len(slots)
    calls = []
    for call in record.calls:
        name, arguments = call.function.name(), _encoded([call.args, call.kwargs], slots)
        several = isinstance(call.result, list | tuple)
        numbers: list[int | None] = []
        for result in call.result if several else [call.result]:
            numbers.append(following if isinstance(result, Tensor) else None)
            if isinstance(result, Tensor):
                slots[id(result)] = following
                following += 1
        calls.append([name, *arguments, numbers if several else numbers[0]])
    outputs = [slots[id(tensor)] for tensor in record.outputs]
    content = {"copies": record.writes, "inputs": inputs, "outputs": outputs, "calls": calls}
    return json.dumps(content)


@functools.lru_cache(maxsize=64)
def loop_body(text: str, device: torch.device) -> GraphModule:
    """One iteration as a graph: takes carried and outer tensors, returns the carried ones."""
    content = json.loads(text)
    graph = Graph()
    values: dict[int, Node] = {i: graph.placeholder(f"v{i}") for i in range(content["inputs"])}
    for name, args, kwargs, numbers in content["calls"]:
        args, kwargs = _decoded([args, kwargs], values, device)
        node = graph.call_function(_operator(name), tuple(args), kwargs)
        if not isinstance(numbers, list):
            values[numbers] = node
            continue
        for position, number in enumerate(numbers):
            if number is not None:
                values[number] = graph.call_function(operator.getitem, (node, position))
    graph.output([values[number] for number in content["outputs"]])
    return GraphModule(torch.nn.Module(), graph)


def _operator(qualified: str) -> Any:
    namespace, _, rest = qualified.partition("::")
    name, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")


def _encoded(value: Any, slots: dict[int, int]) -> Any:
    if isinstance(value, Tensor):
        return {"tensor": slots[id(value)]}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_encoded(item, slots) for item in value]
    if isinstance(value, dict):
        return {"dict": {key: _encoded(item, slots) for key, item in value.items()}}
    if isinstance(value, torch.device):
        # The device of the inputs, known when the body runs.
        return {"device": None}
    for kind, name in _NAMED.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    raise createPoptorchError(
        f"poptorch.for_loop: the body uses a value of type {type(value).__name__}, which a loop "
        "of this length can't hold. Compute it outside the body, or run fewer iterations."
    )


def _decoded(value: Any, values: dict[int, Node], device: torch.device) -> Any:
    if isinstance(value, list):
        return [_decoded(item, values, device) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, content),) = value.items()
    if kind == "tensor":
        return values[content]
    if kind == "device":
        return device
    if kind == "dict":
        return {key: _decoded(item, values, device) for key, item in content.items()}
    return getattr(torch, content)


def _run(carried: Sequence[Tensor], outer: Sequence[Tensor], body: str, count: int) -> list[Tensor]:
    iteration = loop_body(body, (*carried, *outer)[0].device)
    copies = json.loads(body)["copies"]
    state = list(carried)
    for _ in range(count):
        if copies:
            state = [tensor.clone() for tensor in state]
        state = iteration(*state, *outer)
    return unshared(state, (*carried, *outer))


def _shapes(
    carried: Sequence[Tensor], outer: Sequence[Tensor], body: str, count: int
) -> list[Tensor]:
    return [torch.empty_like(tensor) for tensor in carried]


_SCHEMA = "(Tensor[] carried, Tensor[] outer, str body, int count) -> Tensor[]"
_repeat = declare("repeat", _SCHEMA, _run, _shapes)
_repeat_random = declare("repeat_random", _SCHEMA, _run, _shapes, tags=RANDOM)


def repeat(record: Recording, carried: Sequence[Tensor], count: int) -> list[Tensor]:
    """Run the recorded body `count` times as one operator of the graph."""
    operator = _repeat_random if record.random else _repeat
    results: list[Tensor] = operator(list(carried), record.outer, to_text(record), count)
    return results
