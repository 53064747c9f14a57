"""Keys against results: whatever changes what a program computes changes its key.

The program brings numbers into `forward` in every way that we could think of, so that plain PyTorch
shows whether each arrives.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from fingerprint_support import Program

WAYS = """
    import collections, contextlib, dataclasses, enum, functools, importlib, operator, types
    import numpy as np
    import torch
    from torch import nn
    import constants
    from constants import FROM_IMPORT, function_from_import as renamed

    GLOBAL = <1>
    NESTED = {"a": [{"b": (<2>,)}]}
    TENSOR = torch.tensor(float(<3>))
    ARRAY = np.array([float(<4>)])
    FUNCTIONS = {"key": lambda x: x + <5>}
    PARTIAL = functools.partial(lambda by, x: x + by, <6>)
    Tuple = collections.namedtuple("Tuple", "n")
    NAMED = Tuple(<7>)
    NAMESPACE = types.SimpleNamespace(n=<8>)
    GET = operator.itemgetter(<9> % 100)
    NUMBERS = list(range(100))
    EMPTY = None

    class Kind(enum.Enum):
        ONE = <10>

    @dataclasses.dataclass
    class Config:
        n: int = <11>

        def __post_init__(self):
            self.twice = self.n + <12>

    class Meta(type):
        @property
        def number(cls):
            return <13>

    class Base(metaclass=Meta):
        inherited = <14>

        def method(self, x):
            return self.template(x)

        @classmethod
        def of_class(cls, x):
            return x + cls.inherited

    class Derived(Base):
        __slots__ = ("slot",)

        def template(self, x):
            return x + <15>

        @property
        def value(self):
            return <16>

        @functools.cached_property
        def cached(self):
            return <17>

        @staticmethod
        def static(x):
            return x + <18>

        def __getattr__(self, name):
            if name == "made_up":
                return <19>
            raise AttributeError(name)

        def __add__(self, x):
            return x + <20>

        def __getitem__(self, index):
            return <21>

    class Descriptor:
        def __get__(self, owner, kind):
            return <22>

    def decorated(by):
        def decorate(function):
            @functools.wraps(function)
            def call(x):
                return function(x) + by
            return call
        return decorate

    @decorated(<23>)
    @torch.enable_grad()
    def with_decorators(x):
        return x + <24>

    @contextlib.contextmanager
    def context():
        yield <25>

    def defaults(x, a=<26>, *, b=<27>):
        return x + a + b

    def generator():
        yield <28>

    @functools.lru_cache
    def remembered(n):
        return n + <29>

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + <30>

        @staticmethod
        def backward(ctx, gradient):
            return gradient * <53>

    class Activation(nn.Module):
        def forward(self, x):
            return x + <31>

    class Made:
        def __init__(self):
            self.n = <32>

    def make_closure(n):
        def closure(x):
            return x + n
        return closure

    CLOSURE = make_closure(<33>)

    class Model(nn.Module):
        described = Descriptor()
        by_class = <34>

        def __init__(self):
            super().__init__()
            self.attribute = <35>
            self.config = Config()
            self.derived = Derived()
            self.child = nn.Sequential(Activation())
            self.loose = [Activation()]
            self.constant = torch.full((1,), float(<36>))
            self.options = {"set": {<37>}, "bytes": bytes([<38> % 100])}
            self.bound = self.method_in_attribute
            self.child.register_forward_hook(lambda module, args, result: result + <39>)
            self.register_forward_pre_hook(self.before)
            self.register_buffer("buffer", torch.zeros(1))

        def named_in_a_text(self, x):
            return x + <54>

        def before(self, module, args):
            return (args[0] + <40>,)

        def method_in_attribute(self, x):
            return x + <41>

        def forward(self, x, default=<42>):
            import constants as inside
            from constants import INSIDE
            x = x + GLOBAL + NESTED["a"][0]["b"][0] + TENSOR + torch.from_numpy(ARRAY)
            x = PARTIAL(FUNCTIONS["key"](x)) + NAMED.n + NAMESPACE.n + GET(NUMBERS)
            x = x + Kind.ONE.value + self.config.n + self.config.twice + Config().twice
            x = self.derived.method(x) + Base.number + self.derived.inherited
            x = Derived.of_class(x) + self.derived.value + self.derived.cached
            x = self.derived + Derived.static(x) + self.derived.made_up + self.derived[0]
            x = with_decorators(x) + self.described
            with context() as n:
                x = x + n
            x = defaults(x) + next(generator()) + remembered(1)
            x = self.loose[0](self.child(Own.apply(x)))
            x = getattr(self, "named_in_a_text")(x) + Made().n
            x = CLOSURE(x) + self.by_class + self.attribute + self.constant
            x = x + sum(self.options["set"]) + self.options["bytes"][0]
            x = self.bound(x) + default + constants.MODULE + FROM_IMPORT + renamed(1)
            x = x + inside.INSIDE_MODULE + INSIDE + constants.deep.more.DEEP
            local = lambda x: x + <43>
            x = local(x) + [y + <44> for y in (1,)][0] + (<45> if EMPTY is None else 0)
            return torch.nn.functional.relu(x + self.buffer) + f"{<46>}".count("0")

    model = Model()
"""
CONSTANTS = """
    import types

    FROM_IMPORT = <47>
    MODULE = <48>
    INSIDE = <49>
    INSIDE_MODULE = <50>
    deep = types.SimpleNamespace(more=types.SimpleNamespace(DEEP=<51>))

    def function_from_import(n):
        return n + helper(n)

    def helper(n):
        return n * <52>
"""
COUNT = 54
#: 46 is a number whose digits count, and must have zeros to count.
START = {number: 1000 * number for number in range(1, COUNT + 1)}


def in_place(text: str, numbers: dict[int, int]) -> str:
    return re.sub(r"<(\d+)>", lambda match: str(numbers[int(match[1])]), text)


def through_globals(text: str, numbers: dict[int, int]) -> str:
    """The same numbers, but in code only by name, so that they count only if code is followed."""
    used = sorted(set(re.findall(r"<(\d+)>", text)))
    definitions = "".join(f"    N{number} = {numbers[int(number)]}\n" for number in used)
    return definitions + re.sub(r"<(\d+)>", r"N\1", text)


def computed(model: Any) -> list[float]:
    """One output and one gradient, in which every number of the program has its part."""
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)
    output = model(x)
    output.sum().backward()
    assert x.grad is not None
    return [output.item(), x.grad.item()]


class Ways(Program):
    """The program above with given numbers."""

    def __init__(self, folder: Path, fill: Callable[[str, dict[int, int]], str]) -> None:
        super().__init__(folder)
        self._fill = fill
        self.start = self.result(START)

    def result(self, numbers: dict[int, int]) -> tuple[list[float], str]:
        self.files = {
            "main_model": self._fill(WAYS, numbers),
            "constants": self._fill(CONSTANTS, numbers),
        }
        results: list[list[float]] = []
        key = self.key(lambda main: results.append(computed(main.Model())))
        return results[0], key


@pytest.fixture(scope="module", params=[in_place, through_globals])
def ways(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ways:
    return Ways(tmp_path_factory.mktemp("ways"), request.param)


def test_nothing_changed_changes_nothing(ways: Ways) -> None:
    assert ways.result(START) == ways.start


@pytest.mark.parametrize("number", range(1, COUNT + 1))
def test_a_number_that_changes_the_result_changes_the_key(ways: Ways, number: int) -> None:
    result, key = ways.result(START | {number: START[number] + 1})
    assert result != ways.start[0], "the program doesn't use this number"
    assert key != ways.start[1]
