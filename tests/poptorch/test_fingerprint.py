"""The key of a model changes with whatever could change its graph, and with nothing else."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import importlib
import logging
import os
import pathlib
import queue
import subprocess
import sys
import textwrap
import threading
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import poptorch
from poptorch import _arg_parsers
from poptorch._fingerprint import NotFingerprintable, fingerprint

INPUT = torch.ones(2, 3)
SOURCE = Path(__file__).parent.parent.parent / "src"


def key(model: Any, *args: Any, **kwargs: Any) -> str:
    return fingerprint(model, args or (INPUT,), kwargs)


class Plain(nn.Module):
    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 4)
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.fc(x))


def holding(value: Any) -> Plain:
    return Plain(value=value)


def reason(model: Any, *args: Any) -> str:
    with pytest.raises(NotFingerprintable) as caught:
        key(model, *args)
    return str(caught.value)


# --- programs of several files, as users write them ------------------------------------------------

MODEL = """
    import torch
    from torch import nn
    import helpers
    from helpers import scaled, Config, FLAGS

    RATE = 2

    class Model(nn.Module):
        factor = 3

        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)
            self.config = Config(width=4)

        def forward(self, x, bias=0.5):
            if FLAGS["square"]:
                x = x * x
            return self.finish(scaled(self.fc(x)) * RATE + helpers.OFFSET + bias)

        def finish(self, x):
            return helpers.deep(x) * self.factor

        def save(self, path):
            with open(path, "w") as file:
                file.write("unrelated")

    model = Model()
"""
HELPERS = """
    from dataclasses import dataclass
    import deeper

    FLAGS = {"square": False}
    OFFSET = 1.0
    UNRELATED = 1

    @dataclass
    class Config:
        width: int
        depth: int = 2

    def scaled(x, by=2.0):
        return x * by

    def deep(x):
        def inner(y):
            return deeper.last(y)
        return inner(x)

    def unrelated(x):
        return x - 1
"""
DEEPER = """
    last = lambda x: x + 7
"""
UNREACHED = """
    VALUE = 1
"""


class Program:
    """Files that are imported afresh for each key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = {
            "main_model": MODEL,
            "helpers": HELPERS,
            "deeper": DEEPER,
            "unreached": UNREACHED,
        }
        self.count = 0

    def key(self, before: Callable[[Any], None] | None = None) -> str:
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        for name, text in self.files.items():
            (folder / f"{name}.py").write_text(textwrap.dedent(text))
        sys.path.insert(0, str(folder))
        importlib.invalidate_caches()
        try:
            main = importlib.import_module("main_model")
            if before is not None:
                before(main)
            return key(main.model)
        finally:
            sys.path.remove(str(folder))
            for name in self.files:
                sys.modules.pop(name, None)

    def edit(self, file: str, old: str, new: str) -> None:
        assert old in self.files[file]
        self.files[file] = self.files[file].replace(old, new)


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)


def test_the_same_program_has_the_same_key(program: Program) -> None:
    assert program.key() == program.key()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("main_model", "x * x", "x + x"),
        ("main_model", "RATE = 2", "RATE = 3"),
        ("main_model", "factor = 3", "factor = 4"),
        ("main_model", "bias=0.5", "bias=0.25"),
        ("main_model", "width=4", "width=5"),
        ("main_model", "* self.factor", "/ self.factor"),
        ("main_model", "nn.Linear(3, 4)", "nn.Linear(3, 5)"),
        ("main_model", "nn.Linear(3, 4)", "nn.Linear(3, 4, bias=False)"),
        ("main_model", "nn.Linear(3, 4)", "nn.Linear(3, 4).double()"),
        ("main_model", "nn.Linear(3, 4)", "nn.Linear(3, 4).requires_grad_(False)"),
        ("main_model", "super().__init__()", "super().__init__(); self.other = 1"),
        ("main_model", "return self.finish", "import math; return math.pi * self.finish"),
        ("helpers", "x * by", "x / by"),
        ("helpers", "by=2.0", "by=2.5"),
        ("helpers", "OFFSET = 1.0", "OFFSET = 1"),
        ("helpers", '{"square": False}', '{"square": True}'),
        ("helpers", "return deeper.last(y)", "return deeper.last(y) + 1"),
        ("deeper", "x + 7", "x + 8"),
        ("deeper", "x + 7", "x + 7.0"),
    ],
)
def test_a_change_of_what_forward_reaches_changes_the_key(
    program: Program, file: str, old: str, new: str
) -> None:
    before = program.key()
    program.edit(file, old, new)
    assert program.key() != before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("unreached", "VALUE = 1", "VALUE = 2"),
        ("helpers", "UNRELATED = 1", "UNRELATED = 2"),
        ("helpers", "x - 1", "x - 2"),
        ("deeper", "last =", "# a comment, so another line\n    last ="),
    ],
)
def test_a_change_of_what_forward_does_not_reach_keeps_the_key(
    program: Program, file: str, old: str, new: str
) -> None:
    before = program.key()
    program.edit(file, old, new)
    assert program.key() == before


def test_globals_count_with_the_value_they_have_now(program: Program) -> None:
    before = program.key()

    def change(main: Any) -> None:
        main.helpers.OFFSET = 9.0

    def replace(main: Any) -> None:
        main.helpers.deep = lambda x: x

    assert len({before, program.key(change), program.key(replace)}) == 3


def test_globals_that_do_not_exist_count_as_absent(program: Program) -> None:
    program.edit("main_model", "x = x * x", "x = x * LATER")

    def define(main: Any) -> None:
        main.LATER = 1

    assert program.key() != program.key(define)


def test_a_module_that_is_passed_around_counts_by_the_names_used_on_it(program: Program) -> None:
    program.files["main_model"] = """
        import helpers
        def apply(library, x):
            return library.scaled(x)
        def model(x):
            return apply(helpers, x)
    """
    before = program.key()
    program.edit("helpers", "by=2.0", "by=2.5")
    assert program.key() != before


def test_a_module_whose_members_are_looked_up_by_name_counts_with_all_of_them(
    program: Program,
) -> None:
    program.files["main_model"] = """
        import helpers
        which = "".join(["sca", "led"])
        def model(x):
            return getattr(helpers, which)(x)
    """
    before = program.key()

    def change(main: Any) -> None:
        main.helpers.OFFSET = 4

    assert program.key() == before
    assert program.key(change) != before


def test_imports_inside_functions_are_followed(program: Program) -> None:
    program.files["main_model"] = """
        import helpers
        def model(x):
            from helpers import scaled as renamed
            import helpers as h
            return renamed(x) + h.OFFSET
    """
    before = program.key()
    program.edit("helpers", "x * by", "x / by")
    after = program.key()
    program.edit("helpers", "OFFSET = 1.0", "OFFSET = 2.0")
    assert len({before, after, program.key()}) == 3


def test_imports_of_files_that_are_not_loaded_are_refused(program: Program) -> None:
    program.files["main_model"] = """
        def model(x):
            import unreached
            return x * unreached.VALUE
    """
    with pytest.raises(NotFingerprintable, match="imports unreached, which is not loaded yet"):
        program.key()


def test_methods_found_by_a_computed_name_are_followed(program: Program) -> None:
    program.files["main_model"] = """
        import helpers
        class Model:
            def __call__(self, x):
                return getattr(self, "on" + "e")(x)
            def one(self, x):
                return helpers.deep(x)
        model = Model()
    """
    before = program.key()
    program.edit("deeper", "x + 7", "x + 8")
    assert program.key() != before


def test_methods_that_a_library_calls_are_followed(program: Program) -> None:
    program.files["main_model"] = """
        import torch, helpers
        class Twice(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2
            @staticmethod
            def backward(ctx, gradient):
                return gradient * helpers.OFFSET
        def model(x):
            return Twice.apply(x)
    """
    before = program.key()
    program.edit("helpers", "OFFSET = 1.0", "OFFSET = 2.0")
    assert program.key() != before


def test_decorated_functions_are_seen_through(program: Program) -> None:
    program.files["main_model"] = """
        import functools, torch, helpers
        def twice(function):
            @functools.wraps(function)
            def call(x):
                return function(function(x))
            return call
        @torch.no_grad()
        @twice
        @functools.lru_cache
        def model(x):
            return helpers.scaled(x)
    """
    before = program.key()
    program.edit("main_model", "function(function(x))", "function(x)")
    after = program.key()
    program.edit("helpers", "x * by", "x / by")
    assert len({before, after, program.key()}) == 3


SCRIPT = """
    import sys, torch
    from torch import nn
    from poptorch._fingerprint import fingerprint

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(3, 4)
            self.names = {"b", "a", "c", ("d", 1), frozenset({"e", "f"})}
            self.table = {"x": {1, 2, 3}, "y": object()}
            self.kinds = {int, str, nn.Linear, self.extra, len}
            self.register_forward_hook(lambda module, args, result: result + 1)

        def extra(self, x):
            return x

        def forward(self, x):
            if len(self.names) in {5, 6, "seven"}:
                x = x + 1
            return self.fc(x)

    print(fingerprint(Model(), (torch.ones(2, 3),), {"flag": True}, extra={"b": 1, "a": [2]}))
"""


def test_every_process_computes_the_same_key(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    results = set()
    for seed in ("0", "1", "77"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(SOURCE)}
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        results.add(done.stdout)
    assert len(results) == 1
    assert len(results.pop().strip()) == 64


# --- modules --------------------------------------------------------------------------------------


def test_the_values_of_weights_do_not_count() -> None:
    one, two = Plain(), Plain()
    assert not torch.equal(one.fc.weight, two.fc.weight)
    assert key(one) == key(two)


def test_the_values_of_buffers_do_not_count_but_those_of_other_tensors_do() -> None:
    one, two = Plain(), Plain()
    for model, value in ((one, 1.0), (two, 2.0)):
        model.register_buffer("scale", torch.tensor(value))
    assert key(one) == key(two)
    assert key(holding(torch.tensor(1.0))) != key(holding(torch.tensor(2.0)))
    assert key(holding(torch.tensor(1.0))) == key(holding(torch.tensor(1.0)))


def test_parameters_of_modules_that_are_not_registered_count_by_value() -> None:
    layers = [nn.Linear(3, 3), nn.Linear(3, 3)]
    assert key(holding([layers[0]])) != key(holding([layers[1]]))
    assert key(holding([layers[0]])) == key(holding([layers[0]]))


def _mode(model: Plain) -> None:
    model.eval()


def _part_of_the_mode(model: Plain) -> None:
    model.fc.eval()


def _hook(model: Plain) -> None:
    model.fc.register_forward_hook(lambda module, args, result: result * 2)


def _other_hook(model: Plain) -> None:
    model.fc.register_forward_hook(lambda module, args, result: result * 3)


def _hook_that_is_always_called(model: Plain) -> None:
    model.fc.register_forward_hook(lambda module, args, result: result * 2, always_call=True)


def _pre_hook(model: Plain) -> None:
    model.fc.register_forward_pre_hook(lambda module, args: None)


def _backward_hook(model: Plain) -> None:
    model.fc.register_full_backward_hook(lambda module, a, b: None)


def _block(model: Plain) -> None:
    poptorch.BeginBlock(model.fc, ipu_id=1)


def _other_block(model: Plain) -> None:
    poptorch.BeginBlock(model.fc, ipu_id=2)


def _parametrization(model: Plain) -> None:
    nn.utils.parametrize.register_parametrization(model.fc, "weight", nn.Tanh())


def _other_parametrization(model: Plain) -> None:
    nn.utils.parametrize.register_parametrization(model.fc, "weight", nn.Sigmoid())


def _weight_norm(model: Plain) -> None:
    nn.utils.parametrizations.weight_norm(model.fc)


def _half(model: Plain) -> None:
    model.half()


def _frozen(model: Plain) -> None:
    model.fc.weight.requires_grad_(False)


def _transposed(model: Plain) -> None:
    model.fc.weight = nn.Parameter(torch.zeros(3, 4).t())


def _new_layer(model: Plain) -> None:
    model.other = nn.Linear(3, 4)


def _tied_layer(model: Plain) -> None:
    model.other = nn.Linear(3, 4)
    model.other.weight = model.fc.weight


def _same_layer(model: Plain) -> None:
    model.other = model.fc


def _shared_memory(model: Plain) -> None:
    model.other = nn.Linear(3, 4)
    model.other.weight = nn.Parameter(model.fc.weight.data)


def _no_bias(model: Plain) -> None:
    model.fc.bias = None


def _buffer(model: Plain) -> None:
    model.register_buffer("extra", torch.zeros(1))


def _own_forward(model: Plain) -> None:
    model.forward = lambda x: x  # type: ignore[method-assign]


def _attribute_of_a_layer(model: Plain) -> None:
    model.fc.in_features = 7


CHANGES = [
    value
    for name, value in list(globals().items())
    if name.startswith("_") and isinstance(value, types.FunctionType)
]


def test_every_change_of_a_module_gives_a_key_of_its_own() -> None:
    keys = {"nothing": key(Plain())}
    for change in CHANGES:
        model = Plain()
        change(model)
        keys[change.__name__] = key(model)
    repeated = [name for name, count in collections.Counter(keys.values()).items() if count > 1]
    assert not repeated, {name for name, value in keys.items() if value in repeated}


def test_a_module_of_a_sequence_may_not_move() -> None:
    assert key(nn.Sequential(nn.ReLU(), nn.Tanh())) != key(nn.Sequential(nn.Tanh(), nn.ReLU()))


def test_hooks_count_by_order_not_by_number() -> None:
    def model_with_hook() -> Plain:
        model = Plain()
        model.handle = model.fc.register_forward_hook(shared_hook)
        return model

    before = key(model_with_hook())
    nn.Linear(1, 1).register_forward_hook(shared_hook)
    assert key(model_with_hook()) == before


def shared_hook(module: Any, args: Any, result: Any) -> Any:
    return result


def test_hooks_for_all_modules_count() -> None:
    before = key(Plain())
    handle = nn.modules.module.register_module_forward_hook(shared_hook)
    try:
        assert key(Plain()) != before
    finally:
        handle.remove()
    assert key(Plain()) == before


def test_a_wrapped_model_has_the_key_it_had_before() -> None:
    model = Plain()
    before = key(model)
    training = poptorch.trainingModel(model)
    try:
        assert key(training._model) == before
        assert key(model) == before
    finally:
        training.destroy()


def test_looking_at_a_wrapped_model_fetches_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Plain()
    training = poptorch.trainingModel(model)
    asked: list[int] = []
    monkeypatch.setattr(
        type(training), "copyWeightsToHostIfNeeded", lambda self: asked.append(1) or False
    )
    key(training._model)
    key(model)
    assert not asked
    monkeypatch.undo()
    training.destroy()


def test_functions_methods_and_callable_objects_have_keys_too() -> None:
    class Callable_:
        def __init__(self, scale: float) -> None:
            self.scale = scale

        def __call__(self, x: Any) -> Any:
            return x * self.scale

        def run(self, x: Any) -> Any:
            return x / self.scale

    one, two = Callable_(1.0), Callable_(2.0)
    models = [
        one,
        two,
        one.run,
        two.run,
        lambda x: x * one.scale,
        lambda x: x * two.scale,
        functools.partial(one.run, x=1),
        torch.relu,
        torch.tanh,
        nn.functional.gelu,
    ]
    assert len({key(model) for model in models}) == len(models)


def test_code_without_a_file_is_fine() -> None:
    def made(constant: int) -> Any:
        names: dict[str, Any] = {}
        exec(f"def forward(x):\n    return x + {constant}", names)
        return names["forward"]

    assert key(made(1)) == key(made(1))
    assert key(made(1)) != key(made(2))


def test_closures_and_defaults_count() -> None:
    def made(cell: Any, default: Any = 0) -> Any:
        def forward(x: Any, k: Any = default, *, only: Any = default) -> Any:
            return x + cell + k + only

        return forward

    keys = [key(made(1)), key(made(2)), key(made(1, 1)), key(made([1])), key(made(1.0))]
    assert len(set(keys)) == len(keys)
    assert key(made([1])) == key(made([1]))


# --- libraries ------------------------------------------------------------------------------------


def test_functions_put_into_a_library_count(monkeypatch: pytest.MonkeyPatch) -> None:
    def gelu(x: Any, approximate: str = "none") -> Any:
        return x

    model = nn.Sequential(nn.GELU())
    keys = [key(model)]
    monkeypatch.setattr(nn.functional, "gelu", gelu)
    keys.append(key(model))
    monkeypatch.setattr(nn.GELU, "forward", lambda self, x: x)
    keys.append(key(model))
    monkeypatch.setattr(torch.Tensor, "twice", lambda self: self * 2, raising=False)
    keys.append(key(model))
    assert len(set(keys)) == 4
    monkeypatch.undo()
    assert key(model) == keys[0]


def test_flags_of_a_library_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import sortedcontainers

    model = holding(sortedcontainers.SortedDict)
    before = key(model)
    monkeypatch.setattr(sortedcontainers, "FAST", True, raising=False)
    assert key(model) != before


def test_custom_ops_count(monkeypatch: pytest.MonkeyPatch) -> None:
    from poptorch import _ops_custom

    before = key(Plain())
    monkeypatch.setattr(_ops_custom, "_registered", {})
    _ops_custom.register_custom_op("Cube", "test", 1)(lambda x: x**3)
    cube = key(Plain())
    _ops_custom.register_custom_op("Cube", "test", 1)(lambda x: x**2)
    assert len({before, cube, key(Plain())}) == 3


def test_operators_of_torch_are_known_and_others_are_refused() -> None:
    assert key(lambda x: torch.ops.aten.relu(x)) != key(lambda x: torch.ops.aten.tanh(x))
    assert "torch.ops.mine is not part of torch" in reason(lambda x: torch.ops.mine.op(x))


STATES: list[Callable[[], Any]] = [
    lambda: torch.autocast("cpu"),
    lambda: torch.autocast("cpu", dtype=torch.float16),
    torch.no_grad,
    torch.inference_mode,
    lambda: torch.backends.mkldnn.flags(enabled=False),
    lambda: nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH),
    lambda: torch.device("meta"),
]


def test_what_torch_is_set_to_counts() -> None:
    model = Plain()
    keys = [key(model)]
    for state in STATES:
        with state():
            keys.append(key(model))
    torch.set_default_dtype(torch.float64)
    keys.append(key(model))
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    keys.append(key(model))
    torch.use_deterministic_algorithms(False)
    assert len(set(keys)) == len(keys)
    assert key(model) == keys[0]


def test_modes_that_may_change_any_operation_are_refused() -> None:
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    with Mode():
        assert "Mode is active" in reason(Plain())


# --- inputs and extra -----------------------------------------------------------------------------


def test_the_types_of_inputs_count_and_their_values_do_not() -> None:
    model = Plain()
    two = torch.zeros(2, 3)
    assert key(model, torch.ones(2, 3)) == key(model, torch.zeros(2, 3))
    assert key(model, torch.ones(8, 3)[2:4]) == key(model, torch.ones(8, 3)[4:6])
    inputs: list[tuple[Any, ...]] = [
        (torch.ones(2, 3),),
        (torch.ones(3, 3),),
        (torch.ones(2, 3, 1),),
        (torch.ones(2, 3).half(),),
        (torch.ones(3, 2).t(),),
        (torch.ones(2, 3), 1),
        (torch.ones(2, 3), 1.0),
        (torch.ones(2, 3), None),
        (torch.ones(2, 3), True),
        (torch.ones(2, 3), "a"),
        ([torch.ones(2, 3)],),
        ((torch.ones(2, 3),),),
        ({"a": torch.ones(2, 3)},),
        ({"b": torch.ones(2, 3)},),
        (two, two),
        (two, two.clone()),
        (two, [two.clone()]),
    ]
    assert len({key(model, *args) for args in inputs}) == len(inputs)
    assert fingerprint(model, (two,), {}) != fingerprint(model, (), {"x": two})
    assert fingerprint(model, (), {"y": two}) != fingerprint(model, (), {"x": two})


class Graph:
    def __init__(self, nodes: torch.Tensor, name: str) -> None:
        self.nodes = nodes
        self.name = name


class GraphParser(poptorch.ICustomArgParser):
    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        yield struct.nodes

    def reconstruct(self, original_structure: Any, tensor_iterator: Iterator[torch.Tensor]) -> Any:
        return Graph(next(tensor_iterator), original_structure.name)


def test_registered_types_count_by_their_tensors_types_and_other_attributes() -> None:
    model = Plain()
    assert key(model, Graph(torch.ones(2), "a")) != key(model, Graph(torch.zeros(2), "a"))
    poptorch.registerCustomArgParser(Graph, GraphParser())
    try:
        assert key(model, Graph(torch.ones(2), "a")) == key(model, Graph(torch.zeros(2), "a"))
        assert key(model, Graph(torch.ones(2), "a")) != key(model, Graph(torch.ones(3), "a"))
        assert key(model, Graph(torch.ones(2), "a")) != key(model, Graph(torch.ones(2), "b"))
    finally:
        poptorch.registerCustomArgParser(Graph, None)
    assert not _arg_parsers._parsers


def test_an_input_that_the_model_also_holds_is_a_constant_there() -> None:
    shared = torch.ones(2, 3)
    before = key(holding(shared), shared)
    shared += 1
    assert key(holding(shared), shared) != before


def test_extra_counts_whatever_the_order_of_its_keys() -> None:
    def with_extra(extra: dict[str, Any]) -> str:
        return fingerprint(Plain(), (INPUT,), {}, extra=extra)

    assert with_extra({"a": 1, "b": [2]}) == with_extra({"b": [2], "a": 1})
    assert with_extra({"a": 1}) != with_extra({"a": 2})
    assert with_extra({}) == key(Plain())
    with pytest.raises(NotFingerprintable, match="extra"):
        with_extra({"a": object()})


# --- attributes -----------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    ONE = 1


class Bits(enum.Flag):
    A = 1
    B = 2


@dataclasses.dataclass
class Settings:
    width: int = 1
    parts: list[Any] = dataclasses.field(default_factory=list)


Pair = collections.namedtuple("Pair", "x y")  # noqa: PYI024


class Slotted:
    __slots__ = ("__hidden", "value")

    def __init__(self, value: Any) -> None:
        self.value = value
        self.__hidden = value


class Attributes(dict):  # type: ignore[type-arg]
    def __init__(self, **content: Any) -> None:
        super().__init__(content)
        self.__dict__ = self


def _cyclic(value: Any) -> Any:
    found: list[Any] = [value]
    found.append(found)
    return found


def _moved() -> Any:
    found = collections.OrderedDict(a=1, b=2)
    found.move_to_end("a")
    return found


DIFFERENT: list[Callable[[], Any]] = [
    lambda: None,
    lambda: 1,
    lambda: 1.0,
    lambda: True,
    lambda: "1",
    lambda: b"1",
    lambda: bytearray(b"1"),
    lambda: 1j,
    lambda: -0.0,
    lambda: 0.0,
    lambda: float("nan"),
    lambda: 10**5000,
    lambda: ...,
    lambda: range(3),
    lambda: slice(3),
    lambda: [],
    lambda: (),
    lambda: {},
    lambda: set(),
    lambda: frozenset(),
    lambda: [1, 2],
    lambda: (1, 2),
    lambda: [[1], 2],
    lambda: [[1, 2]],
    lambda: {1, 2},
    lambda: frozenset({1, 2}),
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda: collections.OrderedDict(a=1, b=2),
    _moved,
    lambda: collections.defaultdict(list, a=1),
    lambda: collections.defaultdict(dict, a=1),
    lambda: collections.deque([1]),
    lambda: collections.deque([1], maxlen=2),
    lambda: Pair(1, 2),
    lambda: Pair(2, 1),
    lambda: argparse.Namespace(a=1),
    lambda: argparse.Namespace(a=2),
    lambda: types.SimpleNamespace(a=1),
    lambda: types.SimpleNamespace(a=2),
    lambda: Settings(),
    lambda: Settings(2),
    lambda: Settings(1, [1]),
    lambda: Slotted(1),
    lambda: Slotted(2),
    lambda: Attributes(a=1),
    lambda: Attributes(a=2),
    lambda: Colour.RED,
    lambda: Colour.BLUE,
    lambda: Level.ONE,
    lambda: Bits.A,
    lambda: Bits.A | Bits.B,
    lambda: Colour,
    lambda: Settings,
    lambda: int,
    lambda: torch.float16,
    lambda: torch.device("cpu"),
    lambda: torch.Size([1]),
    lambda: torch.channels_last,
    lambda: torch.ones(2),
    lambda: torch.ones(2, dtype=torch.bfloat16),
    lambda: torch.zeros(2),
    lambda: torch.ones(2, 1),
    lambda: torch.ones(0),
    lambda: torch.ones(2, device="meta"),
    lambda: nn.Parameter(torch.ones(2)),
    lambda: __import__("numpy").ones(2),
    lambda: __import__("numpy").zeros(2),
    lambda: __import__("numpy").float32(1),
    lambda: __import__("numpy").dtype("float32"),
    lambda: __import__("numpy").sqrt,
    lambda: __import__("numpy").mean,
    lambda: len,
    lambda: torch.relu,
    lambda: torch.tanh,
    lambda: nn.functional.relu,
    lambda: nn.functional.max_pool2d,
    lambda: nn.functional.max_pool1d,
    lambda: torch.Tensor.add,
    lambda: torch.ops.aten.add.Tensor,
    lambda: [1].append,
    lambda: (1).__add__,
    lambda: str.upper,
    lambda: functools.partial(max, 1),
    lambda: functools.partial(max, 2),
    lambda: functools.partial(min, key=2),
    lambda: logging.getLogger("a"),
    lambda: logging.getLogger("b"),
    lambda: pathlib.Path("a"),
    lambda: pathlib.Path("b"),
    lambda: __import__("re").compile("a"),
    lambda: __import__("operator").itemgetter(1),
    lambda: __import__("operator").itemgetter(2),
    lambda: __import__("operator").attrgetter("a"),
    lambda: __import__("datetime").date(2020, 1, 1),
    lambda: __import__("decimal").Decimal("1.5"),
    lambda: __import__("fractions").Fraction(1, 2),
    lambda: list[int],
    lambda: int | None,
    lambda: lambda x: x,
    lambda: lambda x: x + 1,
    lambda: _cyclic(1),
    lambda: _cyclic(2),
    lambda: object(),
    lambda: [[0]] * 2,
    lambda: [[0], [0]],
    lambda: nn.ReLU().forward,
    lambda: sys.stdout,
]


def test_values_of_attributes_have_keys_of_their_own_that_can_be_repeated() -> None:
    keys: dict[str, int] = {}
    for index, make in enumerate(DIFFERENT):
        found = key(holding(make()))
        assert found == key(holding(make())), index
        assert found not in keys, (index, keys[found])
        keys[found] = index


def test_equal_values_in_two_places_differ_from_one_value_in_two_places() -> None:
    one = Settings()
    assert key(holding([one, one])) != key(holding([Settings(), Settings()]))


def test_a_change_of_a_class_changes_its_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    model = holding(Slotted(1))
    before = key(model)
    monkeypatch.setattr(Slotted, "extra", 5, raising=False)
    assert key(model) != before


def test_no_method_of_the_users_classes_is_called() -> None:
    class Touchy:
        def _refuse(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("called")

        __getattr__ = __getattribute__ = __eq__ = __hash__ = __repr__ = __str__ = _refuse
        __len__ = __iter__ = __bool__ = __reduce__ = __getstate__ = __copy__ = _refuse
        value = property(_refuse)

    class TouchyDict(dict):  # type: ignore[type-arg]
        def _refuse(self, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("called")

        __iter__ = __getitem__ = keys = items = values = __len__ = __eq__ = __repr__ = _refuse

    class TouchyTensor(torch.Tensor):
        @classmethod
        def __torch_function__(cls, *args: Any, **kwargs: Any) -> Any:
            raise AssertionError("called")

    touchy = Touchy.__new__(Touchy)
    tensor = torch.Tensor._make_subclass(TouchyTensor, torch.ones(2))
    model = holding(None)
    model.__dict__["value"] = [touchy, TouchyDict(a=1), {"key": touchy}, tensor]
    assert key(model) == key(model)


# --- what can't be recognised ---------------------------------------------------------------------


def test_objects_with_a_hidden_state_are_refused_by_path_and_type() -> None:
    layer = nn.Linear(1, 1)
    layer.config = types.SimpleNamespace(lock=threading.Lock())
    assert reason(Plain(layer=layer)) == "model.layer.config.lock: _thread.lock"
    assert reason(holding({"a": [threading.RLock()]})) == "model.value['a'][0]: _thread.RLock"
    assert reason(holding((x for x in "ab"))) == "model.value: generator"
    assert reason(holding(iter([1]))) == "model.value: list_iterator"
    assert reason(holding(threading.Thread())) == "model.value: threading.Thread"
    assert reason(holding(threading.Event())) == "model.value: threading.Event"
    assert reason(holding(queue.Queue())) == "model.value: queue.Queue"
    assert reason(holding(torch.Generator())) == "model.value: torch._C.Generator"
    assert reason(Plain(), types.SimpleNamespace(lock=threading.Lock())) == (
        "args[0].lock: _thread.lock"
    )
    with open(__file__) as file:
        assert reason(holding(file)) == "model.value: _io.TextIOWrapper"


LOCK = threading.Lock()
LOGGER = logging.getLogger("a model")


def test_what_code_reaches_is_refused_by_path_too() -> None:
    class Locked(Plain):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with LOCK:
                return x

    assert reason(Locked()) == "model.forward -> LOCK: _thread.lock"
    assert reason(nn.Sequential(Locked())) == "model.0.forward -> LOCK: _thread.lock"


def reads_the_environment(x: Any) -> Any:
    return x if os.environ["MODE"] else -x


def asks_the_environment(x: Any) -> Any:
    return x if os.getenv("MODE") else -x


def reads_a_file(x: Any) -> Any:
    with open("mode") as file:
        return x if file.read() else -x


def reads_a_path(x: Any) -> Any:
    return x if FILE.exists() else -x


def reads_the_time(x: Any) -> Any:
    return x * time.time()


def draws_a_number(x: Any) -> Any:
    import random

    return x * random.random()


def draws_a_number_from_numpy(x: Any) -> Any:
    import numpy as np

    return x * np.random.rand()


def evaluates(x: Any) -> Any:
    return eval("x + 1")


def looks_at_globals(x: Any) -> Any:
    return x * globals()["RATE"]


def loads(x: Any) -> Any:
    return x * torch.load("weights.pt")


def imports_by_name(x: Any) -> Any:
    return importlib.import_module("helpers").scaled(x)


FILE = pathlib.Path("mode")


@pytest.mark.parametrize(
    "function",
    [
        reads_the_environment,
        asks_the_environment,
        reads_a_file,
        reads_a_path,
        reads_the_time,
        draws_a_number,
        draws_a_number_from_numpy,
        evaluates,
        looks_at_globals,
        loads,
        imports_by_name,
    ],
)
def test_code_that_depends_on_the_world_outside_is_refused(function: Any) -> None:
    assert reason(function).startswith("model")


def test_methods_that_forward_does_not_reach_may_do_anything() -> None:
    class Careful(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.started = time.time() * 0
            self.training_rate = float(os.environ.get("RATE", "1"))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            LOGGER.debug("shape %s", x.shape)
            self.eval()
            return self.fc(x)

        def save(self, path: str) -> None:
            with open(path, "wb") as file, LOCK:
                torch.save(self.state_dict(), file)

        def state_dict(self, *args: Any, **kwargs: Any) -> Any:
            return super().state_dict(*args, **kwargs) | {"time": time.time()}

    assert key(Careful()) == key(Careful())


def test_poptorch_cpu_is_refused_because_its_function_lives_in_this_process() -> None:
    assert "CPU" in reason(holding(poptorch.CPU(lambda x: x, "f")))


def test_modules_that_name_their_parameters_themselves_are_refused() -> None:
    class Renamed(Plain):
        def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
            return iter(())

    assert "overrides named_parameters" in reason(Renamed())


def test_torchscript_is_refused() -> None:
    assert "TorchScript" in reason(torch.jit.trace(nn.Linear(3, 4), INPUT))


# --- structures -----------------------------------------------------------------------------------

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.sampled_from([torch.float32, torch.float16, Colour.RED, Colour.BLUE, int, str]),
)
HASHABLE = st.one_of(
    st.integers(), st.text(max_size=3), st.tuples(st.integers(), st.text(max_size=2))
)
STRUCTURES = st.recursive(
    LEAVES | st.frozensets(HASHABLE, max_size=4),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(HASHABLE, inner, max_size=3),
        st.builds(Settings, st.integers(), st.lists(inner, max_size=2)),
        st.builds(Pair, inner, inner),
        st.builds(lambda value: types.SimpleNamespace(value=value), inner),
    ),
    max_leaves=8,
)


def rebuilt(value: Any, change: Iterator[bool]) -> Any:
    """A copy that shares nothing, in which the leaf is replaced where `change` says so."""
    if isinstance(value, Pair):
        return Pair(rebuilt(value.x, change), rebuilt(value.y, change))
    if isinstance(value, list):
        return [rebuilt(item, change) for item in value]
    if isinstance(value, tuple):
        return tuple(rebuilt(item, change) for item in value)
    if isinstance(value, dict):
        return {key: rebuilt(item, change) for key, item in value.items()}
    if isinstance(value, Settings):
        return Settings(rebuilt(value.width, change), rebuilt(value.parts, change))
    if isinstance(value, types.SimpleNamespace):
        return types.SimpleNamespace(value=rebuilt(value.value, change))
    return ("changed", value) if next(change) else value


def leaves(value: Any) -> int:
    counted = 0

    def count() -> Iterator[bool]:
        nonlocal counted
        while True:
            counted += 1
            yield False

    rebuilt(value, count())
    return counted


@settings(max_examples=60, deadline=None)
@given(STRUCTURES, st.data())
def test_equal_structures_have_equal_keys_and_any_change_changes_them(
    structure: Any, data: st.DataObject
) -> None:
    before = key(holding(structure))
    never = iter(lambda: False, None)
    assert key(holding(rebuilt(structure, never))) == before
    count = leaves(structure)
    if count:
        place = data.draw(st.integers(0, count - 1))
        changed = rebuilt(structure, (index == place for index in range(count)))
        assert key(holding(changed)) != before
    assert key(holding([structure])) != before


# --- time -----------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(0.1)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        weights = self.dropout(torch.softmax(q @ k.transpose(-1, -2), -1))
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Encoder(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norms[0](x + self.attention(x))
        return self.norms[1](x + self.down(nn.functional.gelu(self.up(x))))


class Bert(nn.Module):
    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(100, width), nn.Embedding(64, width)
        self.layers = nn.ModuleList(Encoder(width, heads) for _ in range(layers))
        self.head = nn.Linear(width, 100)
        self.head.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def test_large_models_take_well_under_a_second(capsys: pytest.CaptureFixture[str]) -> None:
    model = Bert(24, 64, 4)
    key(model)
    start = time.perf_counter()
    key(model)
    seconds = time.perf_counter() - start
    with capsys.disabled():
        print(f" [{len(list(model.modules()))} modules: {1000 * seconds:.0f} ms]", end="")
    assert seconds < 1
