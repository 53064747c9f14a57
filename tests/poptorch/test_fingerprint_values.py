"""Attributes of every kind in the key of a model: each value has a key, and no two share one."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import logging
import operator
import pathlib
import re
import sys
import types
import typing
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from fingerprint_support import holding, key
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn


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


Pair = collections.namedtuple("Pair", "x y")


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
    list,
    lambda: (),
    dict,
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
    lambda: np.ones(2),
    lambda: np.zeros(2),
    lambda: np.float32(1),
    lambda: np.dtype("float32"),
    lambda: np.sqrt,
    lambda: np.mean,
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
    lambda: re.compile("a"),
    lambda: operator.itemgetter(1),
    lambda: operator.itemgetter(2),
    lambda: operator.attrgetter("a"),
    lambda: datetime.date(2020, 1, 1),
    lambda: decimal.Decimal("1.5"),
    lambda: fractions.Fraction(1, 2),
    lambda: operator.methodcaller("a", 1, b=2),
    lambda: sys.version_info,
    lambda: typing.Callable[[int], str],
    lambda: typing.Any,
    lambda: typing.TypeVar("T"),
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
