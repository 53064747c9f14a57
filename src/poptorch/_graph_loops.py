"""Checks what a file puts into operators of ours that give a text a meaning.

`poptorch::repeat` makes a graph of the text that it is given, in the form of `_ops_repeat`. In a
file that text is as strange as the rest, so nothing passes that `_ops_repeat` would not write.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from torch._ops import OpOverload

from ._graph_values import fail, sizes, unique_keys
from ._graph_values import named as is_named

#: Finds an operator by its dotted name, or fails.
Find = Callable[[str], Any]
#: Operators of ours whose texts are only shown or compared; all others with texts are refused.
_SHOWN = {"poptorch.overlap.default", "poptorch.ipu_print_tensor.default"}
_LOOPS = {"poptorch.repeat.default", "poptorch.repeat_random.default"}
_DEEPEST = 24


def may_be_in_a_file(operator: OpOverload[..., Any]) -> bool:
    """Whether the operator means the same in another process, and its texts can be checked."""
    arguments = operator._schema.arguments
    if any(argument.name == "filename" for argument in arguments):
        return False
    if operator.namespace != "poptorch" or str(operator) in _SHOWN | _LOOPS:
        return True
    return not any("str" in str(argument.type) for argument in arguments)


def check_texts(
    operator: OpOverload[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    find: Find,
    depth: int = 0,
) -> None:
    """Check the loop body that an operator would run, if it is one that would."""
    if str(operator) not in _LOOPS:
        return
    names = [argument.name for argument in operator._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    body = given.get("body")
    if not isinstance(body, str) or depth > 8:
        fail("a loop has no body, or too many inside each other")
    _check_body(body, find, depth)


def _check_body(text: str, find: Find, depth: int) -> None:
    try:
        body = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError):
        fail("the body of a loop is not JSON")
    if not isinstance(body, dict) or set(body) != {"copies", "inputs", "outputs", "calls"}:
        fail("the body of a loop lacks parts, or has unknown ones")
    [inputs] = sizes([body["inputs"]])
    if inputs > 1_000_000 or not isinstance(body["calls"], list):
        fail("the body of a loop has parts of the wrong type")
    known = set(range(inputs))
    for call in body["calls"]:
        _check_call(call, known, find, depth)
    if not set(sizes(body["outputs"])) <= known:
        fail("a loop returns what it does not have")


def _check_call(call: Any, known: set[int], find: Find, depth: int) -> None:
    if not isinstance(call, list) or len(call) != 4 or not isinstance(call[0], str):
        fail("a call in a loop is not an operator, its arguments and its results")
    name, args, kwargs, numbers = call
    operator = find(_dotted(name))
    keywords = kwargs["dict"] if isinstance(kwargs, dict) and set(kwargs) == {"dict"} else None
    if not isinstance(args, list) or not isinstance(keywords, dict):
        fail("the arguments of a call in a loop are not lists and names")
    names = [argument.name for argument in operator._schema.arguments]
    if len(args) > len(names) or not set(keywords) <= set(names[len(args) :]):
        fail("a call in a loop has arguments that its operator does not take")
    for value in (*args, *keywords.values()):
        _check_value(value, known)
    check_texts(operator, args, keywords, find, depth + 1)
    results = numbers if isinstance(numbers, list) else [numbers]
    known.update(sizes([number for number in results if number is not None]))


def _dotted(qualified: str) -> str:
    """aten.add.Tensor of aten::add.Tensor."""
    namespace, _, rest = qualified.partition("::")
    packet, dot, overload = rest.partition(".")
    return f"{namespace}.{packet}.{overload if dot else 'default'}"


def _check_value(value: Any, known: set[int], depth: int = 0) -> None:
    if depth > _DEEPEST:
        fail("values are nested too deeply")
    if isinstance(value, list):
        for inner in value:
            _check_value(inner, known, depth + 1)
    elif isinstance(value, dict):
        if len(value) != 1:
            fail("a value in a loop has no tag, or several")
        ((tag, inner),) = value.items()
        if tag == "dict" and isinstance(inner, dict):
            _check_value(list(inner.values()), known, depth + 1)
        elif tag == "tensor":
            if type(inner) is not int or inner not in known:
                fail("a call in a loop uses what is not there")
        elif not (is_named(tag, inner) or (tag == "device" and inner is None)):
            fail("a value in a loop is not one that was written")
