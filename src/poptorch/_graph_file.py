"""Captured graphs as data: a `torch.fx` graph of ATen operators to JSON and tensors, and back.

Reading never runs anything that the file says: operators are looked up by exact name in a few
namespaces, and every text that could reach FX's code generator is checked first. It is not a
general FX serialiser: what a capture cannot contain is refused by name.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from functools import reduce
from typing import Any

import torch
import torch._prims  # registers torch.ops.prims
from torch._ops import OpOverload
from torch.fx import Graph, GraphModule, Node
from torch.fx.graph import CodeGen, _custom_builtins

from softipu.errors import ExecutableVersion, NotPortable

from ._graph_loops import check_texts, may_be_in_a_file
from ._graph_tensors import Read, dump_tensors, from_bytes, load_tensors, to_bytes, to_text
from ._graph_values import (
    FORMAT,
    VERSION,
    ValueReader,
    dump_value,
    fail,
    is_identifier,
    one_of,
    parsed,
    shown,
)

NAMESPACES = ("aten", "prims", "poptorch")
#: What is kept of `Node.meta`, besides `val`, and its type; it must be JSON.
NOTES: dict[str, type] = {"softipu": dict, "forward": bool}
_GETITEM = "operator.getitem"
#: Names that generated code uses itself; an input of that name would hide them.
_TAKEN_BY_CODE = {"self", *_custom_builtins}
#: FX_GRAPH_SHOW_META makes FX put meta into the code as a text, which these would end.
_QUOTES = json.dumps('"' * 3)[1:-1]
_TAKEN_BY_MODULES = set(dir(GraphModule({}, Graph())))


def pack(gm: GraphModule, name: str = "graph") -> dict[str, bytes]:
    """A graph as blobs of a container: `NAME.json` and `NAME.safetensors`."""
    text, storages = dump(gm)
    return {f"{name}.json": text.encode(), f"{name}.safetensors": to_bytes(storages)}


def unpack(read: Read, name: str = "graph") -> GraphModule:
    """The graph that `pack` wrote; `read` is `Container.blob`."""
    return load(to_text(read(f"{name}.json")), from_bytes(read(f"{name}.safetensors")))


# --- writing --------------------------------------------------------------------------------------


def dump(gm: GraphModule) -> tuple[str, dict[str, torch.Tensor]]:
    """The graph as JSON, and the memory of its constants, shared with `gm`, by name.

    Kept of each node: name, operator, arguments, the NOTES in its `meta`, and of `meta["val"]` the
    shape, strides, dtype and device. NotPortable says what no file can hold. The same graph gives
    the same text.
    """
    if type(gm.graph._codegen) is not CodeGen:
        raise NotPortable(
            "The graph takes or returns nested structures.",
            remedy="Capture with flat arguments, or `graph.set_codegen(CodeGen())` first.",
        )
    constants: dict[str, torch.Tensor] = {}
    nodes = [_dump_node(gm, node, constants) for node in gm.graph.nodes]
    rows, storages = dump_tensors(constants)
    body = {"format": FORMAT, "version": VERSION, "torch": torch.__version__}
    text = json.dumps(body | {"constants": rows, "nodes": nodes}, separators=(",", ":"))
    return text, storages


def _dump_node(gm: GraphModule, node: Node, constants: dict[str, torch.Tensor]) -> dict[str, Any]:
    where = f"Node {node.name}"
    row: dict[str, Any] = {"op": node.op, "name": node.name}
    if not is_identifier(node.name):
        raise NotPortable(f"{where} has a name that is too long or no name.")
    if node.op in ("call_function", "output"):
        if node.op == "call_function":
            row["target"] = _operator_name(node)
        row["args"] = [dump_value(argument, where) for argument in node.args]
        if node.kwargs:
            row["kwargs"] = {k: dump_value(v, where) for k, v in node.kwargs.items()}
    elif node.op == "placeholder" and not node.args and _may_be_input(node.target):
        row["target"] = node.target
    elif node.op == "get_attr" and _may_be_constant(node.target):
        row["target"] = node.target
        constants[row["target"]] = _constant(gm, node)
    else:
        raise NotPortable(f"{where} is a {node.op} of {node.target}, with no place in a file.")
    if "val" in node.meta:
        if not _may_be_val(node.meta["val"]):
            raise NotPortable(f'meta["val"] of node {node.name} is not made of tensors.')
        row["val"] = dump_value(node.meta["val"], where)
    return row | {key: _note(node, key) for key in NOTES if key in node.meta}


def _operator_name(node: Node) -> str:
    if node.target is operator.getitem:
        return _GETITEM
    if isinstance(node.target, OpOverload) and node.target.namespace in NAMESPACES:
        if not may_be_in_a_file(node.target):
            raise NotPortable(f"Node {node.name} calls {node.target}, bound to this process.")
        return str(node.target)
    allowed = ", ".join(NAMESPACES)
    raise NotPortable(f"Node {node.name} calls {node.target}, not an operator of {allowed}.")


def _constant(gm: GraphModule, node: Node) -> torch.Tensor:
    found = reduce(getattr, str(node.target).split("."), gm)
    if not isinstance(found, torch.Tensor):
        raise NotPortable(f"Node {node.name} refers to a {type(found).__name__}, not a tensor.")
    return found


def _note(node: Node, key: str) -> Any:
    note = node.meta[key]
    try:
        text = json.dumps(note, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise NotPortable(f'meta["{key}"] of node {node.name} is not JSON: {error}.') from None
    if type(note) is not NOTES[key]:
        raise NotPortable(f'meta["{key}"] of node {node.name} is a {type(note).__name__}.')
    if _QUOTES in text:
        raise NotPortable(f'meta["{key}"] of node {node.name} has three quotation marks in a row.')
    return note


def _may_be_input(target: Any) -> bool:
    return is_identifier(target) and target not in _TAKEN_BY_CODE


def _may_be_constant(target: Any) -> bool:
    parts = target.split(".") if isinstance(target, str) else [None]
    return all(is_identifier(part) and part not in _TAKEN_BY_MODULES for part in parts)


def _may_be_val(value: Any) -> bool:
    """No texts: see _QUOTES."""
    if isinstance(value, (list, tuple)):
        return all(_may_be_val(inner) for inner in value)
    return value is None or isinstance(value, (int, float, complex, torch.Tensor))


# --- reading --------------------------------------------------------------------------------------


def load(text: str, tensors: Mapping[str, torch.Tensor]) -> GraphModule:
    """The graph that `dump` wrote. `meta["val"]` come back as fake tensors of one mode.

    Whatever `dump` would not have written is an ExecutableCorrupt, a file of another kind an
    ExecutableForeign, one of another version or with operators of another torch an
    ExecutableVersion.
    """
    body = parsed(text, {"format", "version", "torch", "constants", "nodes"})
    if not isinstance(body["torch"], str) or not isinstance(body["nodes"], list):
        fail("it has parts of the wrong type")
    constants = load_tensors(body["constants"], tensors)
    reader = _Reader(_Operators(body["torch"]))
    for row in body["nodes"]:
        reader.add(row)
    reader.finish(constants)
    return GraphModule(constants, reader.graph)


class _Operators:
    """Finds operators by their exact name, and nothing else."""

    def __init__(self, torch_version: str) -> None:
        self._torch_version = torch_version
        self._found: dict[str, Any] = {_GETITEM: operator.getitem}

    def find(self, name: Any) -> Any:
        if not isinstance(name, str):
            fail("an operator has no name")
        if name not in self._found:
            self._found[name] = self._look_up(name)
        return self._found[name]

    def _look_up(self, name: str) -> Any:
        parts = name.split(".")
        if len(parts) != 3 or parts[0] not in NAMESPACES:
            fail(f"{shown(name)} is not an operator of {', '.join(NAMESPACES)}")
        namespace, packet, overload = parts
        try:  # the dispatcher: torch.ops would also find what TorchScript adds, like aten.save
            torch._C._dispatch_find_schema_or_throw(
                f"{namespace}::{packet}", overload.removeprefix("default")
            )
        except RuntimeError:
            self._unknown(name)
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        if not isinstance(found, OpOverload) or str(found) != name or not may_be_in_a_file(found):
            fail(f"{shown(name)} is not an operator that a graph may use")
        return found

    def _unknown(self, name: str) -> None:
        text = f"torch {torch.__version__} has no operator {shown(name)}"
        if self._torch_version != torch.__version__:
            made = shown(self._torch_version)
            raise ExecutableVersion(f"The graph was made with torch {made}; {text}.")
        fail(text)


class _Reader:
    """Rebuilds the nodes one by one; a node can only refer to those before it."""

    def __init__(self, operators: _Operators) -> None:
        self.graph = Graph()
        self._operators = operators
        self._nodes: dict[str, Node] = {}
        self._values = ValueReader(self._nodes)
        self._inputs: set[str] = set()
        self._constants: set[str] = set()
        self._complete = False
        self._makers = {
            "placeholder": self._input,
            "get_attr": self._constant,
            "call_function": self._call,
            "output": self._output,
        }

    def add(self, row: Any) -> None:
        if not isinstance(row, dict) or self._complete:
            fail("a node is not an object, or follows the output")
        name = row.get("name")
        if not is_identifier(name):
            fail(f"{shown(name)} cannot be the name of a node")
        node = one_of(self._makers, row.get("op"))(name, row)
        if node.name != name:  # FX found a better one
            fail(f"two nodes are named {name}, or it is a name of Python's")
        if "val" in row:
            node.meta["val"] = self._values.read(row["val"])
            if not _may_be_val(node.meta["val"]):
                fail(f"the value of {name} is not made of tensors")
        for key, kind in NOTES.items():
            if key in row:
                if type(row[key]) is not kind or _QUOTES in json.dumps(row[key]):
                    fail(f"the note {key} on {name} is not one that was written")
                node.meta[key] = row[key]
        self._nodes[str(name)] = node

    def finish(self, constants: Mapping[str, torch.Tensor]) -> None:
        if not self._complete:
            fail("there is no output")
        if set(constants) != self._constants:
            fail("the constants are not those that the nodes use")
        for name in constants:
            parts = name.split(".")
            if any(".".join(parts[:count]) in constants for count in range(1, len(parts))):
                fail(f"the constant {name} is inside another")

    def _input(self, name: str, row: dict[str, Any]) -> Node:
        _demand_keys(row, {"target"})
        target = row["target"]
        if not _may_be_input(target) or target in self._inputs:
            fail(f"{shown(target)} cannot be the name of an input, or is it twice")
        self._inputs.add(target)
        return self.graph.create_node("placeholder", target, name=name)

    def _constant(self, name: str, row: dict[str, Any]) -> Node:
        _demand_keys(row, {"target"})
        target = row["target"]
        if not _may_be_constant(target):
            fail(f"{shown(target)} cannot be the name of a constant")
        self._constants.add(target)
        return self.graph.create_node("get_attr", target, name=name)

    def _output(self, name: str, row: dict[str, Any]) -> Node:
        _demand_keys(row, {"args"})
        args = self._arguments(row["args"])
        if len(args) != 1:
            fail("the output is not one value")
        self._complete = True
        return self.graph.create_node("output", "output", args, name=name)

    def _call(self, name: str, row: dict[str, Any]) -> Node:
        _demand_keys(row, {"target", "args"}, {"kwargs"})
        target, args = self._operators.find(row["target"]), self._arguments(row["args"])
        keywords = row.get("kwargs", {})
        if not isinstance(keywords, dict):
            fail(f"the keyword arguments of {name} are not an object")
        kwargs = {key: self._values.read(value) for key, value in keywords.items()}
        if target is operator.getitem:
            fits = len(args) == 2 and isinstance(args[0], Node) and not kwargs
        else:
            expected = [argument.name for argument in target._schema.arguments]
            fits = len(args) <= len(expected) and set(kwargs) <= set(expected[len(args) :])
        if not fits:
            fail(f"{name} has arguments that its operator does not take")
        if target is not operator.getitem:
            check_texts(target, args, kwargs, self._operators.find)
        return self.graph.create_node("call_function", target, args, kwargs, name=name)

    def _arguments(self, values: Any) -> tuple[Any, ...]:
        if not isinstance(values, list):
            fail("the arguments of a node are not a list")
        return tuple(self._values.read(value) for value in values)


def _demand_keys(
    row: dict[str, Any], required: set[str], optional: frozenset[str] | set[str] = frozenset()
) -> None:
    common = {"op", "name", "val", *NOTES}
    if not required <= set(row) <= required | optional | common:
        fail("a node lacks parts, or has unknown ones")
