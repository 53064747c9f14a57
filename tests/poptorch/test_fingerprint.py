"""The key of a model changes with whatever could change its graph, and with nothing else."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from fingerprint_support import INPUT, Plain, Program, holding, key
from torch import nn

import poptorch
from poptorch import _arg_parsers
from poptorch._fingerprint import NotFingerprintable, fingerprint

SOURCE = Path(__file__).parent.parent.parent / "src"


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


def test_base_classes_in_other_files_are_followed(program: Program) -> None:
    program.files["base"] = """
        import deeper
        class Base:
            def __call__(self, x):
                return deeper.last(x)
    """
    program.files["main_model"] = """
        from base import Base
        class Model(Base):
            pass
        model = Model()
    """
    before = program.key()
    program.edit("deeper", "x + 7", "x + 8")
    assert program.key() != before


@pytest.mark.parametrize(
    "call",
    [
        "Box()",
        "KINDS[0]()",
        "type(box)()",
        "box.__class__()",
        "box.again()",
        "Box.make()",
        "dataclasses.replace(box)",
    ],
)
def test_constructors_count_if_an_object_may_be_made(program: Program, call: str) -> None:
    program.files["main_model"] = f"""
        import dataclasses, deeper
        @dataclasses.dataclass
        class Box:
            n: int = 1
            def __post_init__(self):
                self.n = deeper.last(self.n)
            @classmethod
            def make(cls):
                return cls()
            def again(self):
                kind = self.__class__
                return kind()
        KINDS = [Box]
        box = Box()
        def model(x):
            return x * {call}.n
    """
    before = program.key()
    program.edit("deeper", "x + 7", "x - -7")
    assert program.key() != before


def test_constructors_do_not_count_if_no_object_is_made(program: Program) -> None:
    program.files["main_model"] = """
        import dataclasses, deeper
        @dataclasses.dataclass
        class Box:
            n: int = 1
            def __post_init__(self):
                self.n = deeper.last(self.n)
        box = Box()
        def model(x):
            return x * box.n
    """
    before = program.key()
    program.edit("deeper", "x + 7", "x - -7")
    assert program.key() == before


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
    running = [
        subprocess.Popen(
            [sys.executable, str(script)],
            env=os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(SOURCE)},
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed in ("0", "77")
    ]
    results = {process.communicate()[0] for process in running}
    assert len(results) == 1
    assert len(results.pop().strip()) == 64


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


class Stored:
    """As graph libraries do it: the tensors are further inside, beside a way back."""

    def __init__(self, nodes: torch.Tensor, name: str) -> None:
        self.store = Graph([nodes], name)  # type: ignore[arg-type]
        self.store.parent = weakref.ref(self)  # type: ignore[attr-defined]


class StoredParser(GraphParser):
    def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
        yield from struct.store.nodes


def test_registered_types_may_keep_their_tensors_further_inside() -> None:
    model = Plain()
    poptorch.registerCustomArgParser(Stored, StoredParser())
    try:
        assert key(model, Stored(torch.ones(2), "a")) == key(model, Stored(torch.zeros(2), "a"))
        assert key(model, Stored(torch.ones(2), "a")) != key(model, Stored(torch.ones(3), "a"))
        assert key(model, Stored(torch.ones(2), "a")) != key(model, Stored(torch.ones(2), "b"))
    finally:
        poptorch.registerCustomArgParser(Stored, None)


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


def resnet50() -> nn.Module:
    """torchvision's. Beside a torch that it wasn't built for it lacks two operators."""
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    try:
        import torchvision
    except RuntimeError:
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        for name in ("nms", "qnms"):
            OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision
    model: nn.Module = torchvision.models.resnet50()
    return model


#: Definitions last as long as this does.
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")


@pytest.mark.alone
@pytest.mark.parametrize("make", [resnet50, lambda: Bert(24, 64, 4)], ids=["resnet", "bert"])
def test_large_models_take_well_under_a_second(
    make: Callable[[], nn.Module], capsys: pytest.CaptureFixture[str]
) -> None:
    model = make()
    times = []
    for _ in range(2):
        start = time.perf_counter()
        key(model)
        times.append(1000 * (time.perf_counter() - start))
    with capsys.disabled():
        count = len(list(model.modules()))
        print(f" [{count} modules: {times[0]:.0f} ms, then {times[1]:.0f} ms]", end="")
    assert times[1] < 1000
