"""Hostile graph files: no file can smuggle code in, whatever is tampered with."""

from __future__ import annotations

import ast
import builtins
import contextlib
import copy
import functools
import json
import operator
import os
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.fx import Graph, GraphModule

from poptorch import _graph_file, _ops_host, _ops_record, _ops_repeat
from softipu.errors import (
    ExecutableCorrupt,
    ExecutableForeign,
    ExecutableVersion,
    NotPortable,
    SoftIPUError,
)

aten = torch.ops.aten
assert _ops_host  # declares the operator that calls functions of this process

#: Texts that would do something if they were ever run; `CANARY` notices.
PAYLOADS = [
    "CANARY.append(1)",
    "x); CANARY.append(1); (",
    "x\n    CANARY.append(1)\n    y",
    "x = CANARY.append(1)",
    "__import__('builtins').CANARY.append(1)",
    "'+str(CANARY.append(1))+'",
    '"""\nCANARY.append(1)\n"""',
    '"""; CANARY.append(1); """',
    '\\"""; CANARY.append(1); """',
    "'''; CANARY.append(1); '''",
    "\\N{CANARY}",
    "# x\nCANARY.append(1)",
    "x\u2028CANARY.append(1)",
    "self.__class__",
    "aten.add.Tensor\nCANARY.append(1)",
    "os.system",
    "builtins.exec",
    "aten.__class__.mro",
    "aten.add.__class__",
    "aten.add._op",
    "aten.save.default",
    "aten.from_file.default",
    "aten.__dict__.default",
    "prims.__loader__.load_module",
    "lambda",
    "None",
    "torch",
    "self",
    "device",
    "forward",
    "__class__",
    "print",
    "ｘ",
    "cpu; CANARY.append(1)",
    "privateuseone:0",
]


@pytest.fixture(autouse=True)
def canary(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Fails the test when a payload ran."""
    sung: list[int] = []
    monkeypatch.setattr(builtins, "CANARY", sung, raising=False)
    yield
    assert not sung


def inert(code: str) -> bool:
    """Whether generated code does nothing but call operators of ours and return."""
    (function,) = ast.parse(code.strip()).body
    assert isinstance(function, ast.FunctionDef)
    calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    plain = (
        ast.FunctionDef, ast.arguments, ast.arg, ast.Assign, ast.Return, ast.Call, ast.keyword,
        ast.Name, ast.Attribute, ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Subscript,
        ast.Slice, ast.UnaryOp, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Load, ast.Store,
        ast.Pass, ast.Expr,
    )  # fmt: skip
    return all(isinstance(node, plain) for node in ast.walk(function)) and all(
        ast.unparse(call.func).startswith(("torch.ops.aten.", "torch.ops.prims."))
        or ast.unparse(call.func)
        in ("device", "slice", "complex", "operator.getitem", "_operator.getitem")
        for call in calls
    )


def attacked(body: Any, tensors: dict[str, torch.Tensor]) -> GraphModule | None:
    """Load and run a file that was tampered with; None if it was refused."""
    try:
        with mock.patch.dict(os.environ, FX_GRAPH_SHOW_META="1"):  # more of it is in the code then
            gm = _graph_file.load(json.dumps(body), tensors)
    except (ExecutableCorrupt, ExecutableForeign, ExecutableVersion) as error:
        text = str(error)
        assert text.isprintable() or "\n  Cause: " in text
        return None
    assert inert(gm.code), gm.code
    with contextlib.suppress(Exception):  # what it says may make no sense, but must do no harm
        gm(torch.ones(2, 3), torch.ones(1))
    return gm


def valid() -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    text, tensors = _valid()
    return json.loads(text), dict(tensors)


@functools.cache
def _valid() -> tuple[str, dict[str, torch.Tensor]]:
    """A small file with a part of every kind."""
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    c = graph.get_attr("part.weight")
    fakes = FakeTensorMode()
    x.meta["val"] = fakes.from_tensor(torch.ones(2, 3))
    added = graph.call_function(aten.add.Tensor, (x, c), {"alpha": float("inf")})
    cast = graph.call_function(
        aten._to_copy.default, (added,), {"dtype": torch.float16, "device": torch.device("cpu")}
    )
    pooled = graph.call_function(aten.aminmax.default, (cast,))
    pooled.meta["softipu"] = {"stage": 1, "path": "a/b"}
    pooled.meta["val"] = (fakes.from_tensor(torch.ones(())), None)
    first = graph.call_function(operator.getitem, (pooled, 0))
    gelu = graph.call_function(aten.gelu.default, (y,), {"approximate": "tanh"})
    graph.output([first, (gelu, 1.5, None), {"k": [True, slice(0, 2)]}])
    return _graph_file.dump(GraphModule({"part.weight": torch.ones(3)}, graph))


def places(tree: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of everything inside a JSON value."""
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    return [path] * bool(path) + [
        inner for key, one in items for inner in places(one, (*path, key))
    ]


def holder(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def test_the_file_under_attack_is_a_good_one():
    body, tensors = valid()
    gm = attacked(body, tensors)
    assert gm is not None
    assert json.loads(_graph_file.dump(gm)[0]) == body
    assert gm(torch.ones(2, 3), torch.ones(1))[0] == torch.inf


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_in_any_text_is_refused_or_stays_a_text(payload):
    body, tensors = valid()
    for path in places(body):
        tampered = copy.deepcopy(body)
        if not isinstance(holder(tampered, path)[path[-1]], str):
            continue
        holder(tampered, path)[path[-1]] = payload
        gm = attacked(tampered, tensors)
        # Texts that are plain names may be names, unless generated code has a use for them.
        may_be = {"name": ("forward", "device", "torch", "self", "__class__")}
        may_be["target"] = ("forward", "print", "__class__")
        if path[-1] in ("name", "target", "op", "dtype", "device", "format", "storage"):
            assert gm is None or payload in may_be.get(path[-1], ()), path


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_as_any_key_is_refused_or_stays_a_text(payload):
    body, tensors = valid()
    for path in places(body):
        tampered = copy.deepcopy(body)
        inside = holder(tampered, path)
        if isinstance(inside, dict):
            inside[payload] = inside.pop(path[-1])
            gm = attacked(tampered, tensors)
            harmless = "softipu" in path or "kwargs" in path or payload == path[-1]
            assert gm is None or harmless, path


@pytest.mark.parametrize("payload", [*PAYLOADS, "graph", "training", "_buffers", "a..b", "."])
def test_a_constant_with_a_hostile_name_is_refused_or_just_an_attribute(payload):
    body, tensors = valid()
    (node,) = (row for row in body["nodes"] if row["op"] == "get_attr")
    node["target"] = body["constants"][0]["name"] = payload
    gm = attacked(body, tensors)
    assert gm is None or [name for name, _ in gm.named_buffers()] == [payload]
    assert gm is None or all(part.isidentifier() for part in payload.split("."))


_POISON = st.sampled_from(PAYLOADS) | st.sampled_from(
    [
        None, True, 0, -1, 2**70, 1.5, 1e308, "", [], {}, [[]], {"node": "add"}, {"node": "zzz"},
        {"tuple": [{"node": "x"}]}, {"float": "nan"}, {"float": "1"}, {"complex": [1.0, 2.0]},
        {"complex": [1, "2"]}, {"slice": [1, 2, 3]}, {"slice": [1]}, {"dict": [["a", 1], ["a", 2]]},
        {"dict": [[{"node": "x"}, 1]]}, {"dtype": "float32"}, {"dtype": "__class__"},
        {"device": "cuda:999"}, {"device": "cpu:0"}, {"layout": "strided"}, {"pickle": "gASV"},
        {"tensor": {"shape": [2**61, 2**61], "stride": [1, 1], "dtype": "bool", "device": "cpu"}},
        {"tensor": {"shape": [2], "stride": [1, 1], "dtype": "bool", "device": "cpu"}},
        {"a": 1, "b": 2}, "x", "y", "add", "aten.mul.Tensor", "operator.getitem", "storage0",
    ]
)  # fmt: skip


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_tampered_files_are_refused_or_mean_exactly_what_they_say(data):
    body, tensors = valid()
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(body)))
        inside, key = holder(body, path), path[-1]
        deed = data.draw(st.sampled_from(["replace", "remove", "double", "move"]))
        if deed == "replace":
            inside[key] = data.draw(_POISON)
        elif deed == "remove":
            del inside[key]
        elif isinstance(inside, list):
            inside.insert(0 if deed == "move" else key, copy.deepcopy(inside[key]))
            if deed == "move":
                del inside[key + 1]
        if not places(body):
            break
    gm = attacked(body, tensors)
    if gm is not None:
        again = json.loads(_graph_file.dump(gm)[0])
        for row in body["nodes"]:
            if row.get("kwargs") == {}:
                del row["kwargs"]
        assert again == body | {"torch": torch.__version__}


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode), st.integers(0, 10**6))
@settings(deadline=None)
def test_random_bytes_in_place_of_either_part_are_refused(noise, place):
    graph = Graph()
    graph.output([graph.get_attr("c")])
    blobs = _graph_file.pack(GraphModule({"c": torch.ones(3)}, graph))
    for name in blobs:
        whole = blobs[name]
        start = place % len(whole)
        for altered in (noise, whole[:start] + noise, whole[:start] + noise + whole[start:]):
            if altered != whole:
                try:
                    _graph_file.unpack((blobs | {name: altered}).__getitem__)
                except SoftIPUError:
                    continue
                # Blanks and digits can change without making a file bad; checksums see those.
                assert name.endswith("json") or len(altered) >= len(whole)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", ExecutableForeign),
        ("{}", ExecutableForeign),
        ("[1]", ExecutableForeign),
        ("[" * 100_000, ExecutableForeign),
        ('{"format": "softipu-graph", "version": 2}', ExecutableVersion),
        ('{"format": "softipu-graph", "version": true}', ExecutableVersion),
        ('{"format": "softipu-graph", "version": 1}', ExecutableCorrupt),
        ('{"format": "softipu-graph", "format": "softipu-graph"}', ExecutableForeign),
        ('{"format": "softipu-graph", "version": NaN}', ExecutableForeign),
    ],
)
def test_files_of_another_kind_or_version_are_told_apart(text, kind):
    with pytest.raises(kind):
        _graph_file.load(text, {})


def test_an_operator_of_another_torch_names_both_versions():
    body, tensors = valid()
    body["torch"] = "9.9.9"
    assert _graph_file.load(json.dumps(body), tensors) is not None
    body["nodes"][3]["target"] = "aten.add_quickly.default"
    with pytest.raises(ExecutableVersion, match=r"9\.9\.9.*" + torch.__version__.split("+")[0]):
        _graph_file.load(json.dumps(body), tensors)


def test_a_deep_argument_is_refused():
    body, tensors = valid()
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    body["nodes"][-1]["args"] = [deep]
    assert attacked(body, tensors) is None


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is such a device")
def test_a_constant_on_a_device_that_is_not_there_is_explained():
    body, tensors = valid()
    body["constants"][0]["device"] = "cuda:1"
    with pytest.raises(ExecutableForeign, match="belongs on cuda:1"):
        _graph_file.load(json.dumps(body), tensors)


def test_tensors_cannot_reach_beyond_their_memory():
    body, tensors = valid()
    for change in (
        {"shape": [4]}, {"offset": 1}, {"stride": [2]}, {"shape": [2**60], "stride": [2**60]},
        {"shape": [3, 3], "stride": [1, 1]}, {"stride": []}, {"offset": -1}, {"dtype": "float64"},
        {"dtype": "int64"}, {"storage": "storage1"}, {"device": "cpu;"}, {"requires_grad": 1},
    ):  # fmt: skip
        tampered = copy.deepcopy(body)
        tampered["constants"][0] |= change
        assert attacked(tampered, tensors) is None, change
    assert attacked(body, {}) is None
    assert attacked(body, tensors | {"more": torch.ones(1)}) is None


# --- loops: operators of ours that run a text -----------------------------------------------------


def loop(body: Any, name: str = "poptorch.repeat.default") -> dict[str, Any]:
    """A file with a loop that has this body, a text or what becomes one."""
    text = body if isinstance(body, str) else json.dumps(body)
    call = {"op": "call_function", "name": "loop", "target": name}
    nodes = [
        {"op": "placeholder", "name": "x", "target": "x"},
        call | {"args": [[{"node": "x"}], [], text, 3]},
        {"op": "output", "name": "output", "args": [{"node": "loop"}]},
    ]
    head = {"format": "softipu-graph", "version": 1, "torch": torch.__version__}
    return head | {"constants": [], "nodes": nodes}


def doubling(**changes: Any) -> dict[str, Any]:
    call = ["aten::mul.Scalar", [{"tensor": 0}, 2.0], {"dict": {}}, 1]
    return {"copies": False, "inputs": 1, "outputs": [1], "calls": [call]} | changes


def run_loop(body: Any) -> Any:
    """None if it is refused."""
    try:
        gm = _graph_file.load(json.dumps(loop(body)), {})
    except (ExecutableCorrupt, ExecutableVersion):
        return None
    return gm(torch.ones(1))


def test_a_loop_that_was_recorded_comes_back():
    def body(x: torch.Tensor, y: torch.Tensor) -> list[torch.Tensor]:
        high, _ = torch.max(x.to(torch.float64), dim=-1, keepdim=True)
        return [(x + high.float() * y).masked_fill(x > 9, float("inf")), y.clamp(min=0.5)]

    inputs = [torch.ones(3), torch.full((3,), 0.25)]
    with _ops_record.recording(inputs) as record:
        record.outputs = body(*inputs)
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    text = _ops_repeat.to_text(record)
    graph.output(graph.call_function(torch.ops.poptorch.repeat.default, ([x, y], [], text, 20)))
    gm = GraphModule({}, graph)
    back = _graph_file.load(*_graph_file.dump(gm))
    for mine, theirs in zip(back(*inputs), gm(*inputs), strict=True):
        assert torch.equal(mine, theirs)


def test_the_loop_under_attack_is_a_good_one():
    assert run_loop(doubling())[0] == 8


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_payload_anywhere_in_a_loop_is_refused(payload):
    body = doubling(
        calls=[["aten::full", [[1], 2.0], {"dict": {"dtype": {"dtype": "float32"}}}, 1]]
    )
    assert run_loop(body) is not None
    assert run_loop(payload) is None
    for path in places(body):
        for as_key in (False, True):
            tampered = copy.deepcopy(body)
            inside = holder(tampered, path)
            if not as_key:
                inside[path[-1]] = payload
            elif isinstance(inside, dict):
                inside[payload] = inside.pop(path[-1])
            if tampered != body and path != ("copies",):
                with contextlib.suppress(TypeError, RuntimeError):  # torch refuses a text, too
                    assert run_loop(tampered) is None, path


@pytest.mark.parametrize(
    "call",
    [
        ["aten::save", [{"tensor": 0}, "file"], {"dict": {}}, None],
        ["aten::from_file", ["file"], {"dict": {}}, 1],
        ["os::system", ["true"], {"dict": {}}, 1],
        ["aten::mul.Scalar", [{"tensor": 0}], {"dict": {"other = CANARY.append(1), x": 1}}, 1],
        ["aten::mul.Scalar", [{"tensor": 0}, {"compile": "compile"}], {"dict": {}}, 1],
        ["aten::mul.Scalar", [{"tensor": 0}, {"dtype": "serialization"}], {"dict": {}}, 1],
        ["aten::mul.Scalar", [{"tensor": 7}, 2.0], {"dict": {}}, 1],
        ["aten::mul.Scalar", [{"tensor": 0}, 2.0], {"dict": {}}, "1"],
        ["aten::mul.Scalar", [{"tensor": 0}, 2.0], {}, 1],
        ["poptorch::host_call", [[{"tensor": 0}], "f#1", "float32:1", None], {"dict": {}}, [1]],
        ["poptorch::repeat", [[{"tensor": 0}], [], "CANARY.append(1)", 1], {"dict": {}}, [1]],
        [
            "poptorch::repeat",
            [[{"tensor": 0}], [], json.dumps({"calls": []}), 1],
            {"dict": {}},
            [1],
        ],
    ],
)
def test_calls_that_a_loop_may_not_make_are_refused(call):
    assert run_loop(doubling(calls=[call])) is None


def test_operators_that_need_this_process_are_neither_written_nor_read():
    assert attacked(loop(doubling(), "poptorch.host_call.default"), {}) is None
    graph = Graph()
    x = graph.placeholder("x")
    call = graph.call_function(
        torch.ops.poptorch.host_call.default, ([x], "f#1", "float32:1", None)
    )
    graph.output(call)
    with pytest.raises(NotPortable, match="host_call"):
        _graph_file.dump(GraphModule({}, graph))
