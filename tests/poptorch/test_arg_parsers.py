"""Structures of arguments: taken apart into tensors and put together again."""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, namedtuple
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poptorch import (
    Error,
    ICustomArgParser,
    _arg_parsers,
    registerCustomArgParser,
    registerGeometricCustomArgParsers,
)
from poptorch._arg_parsers import flatten, rebuild

Pair = namedtuple("Pair", "left right")


class Point:
    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class PointParser(ICustomArgParser):
    def yieldTensors(self, struct: Point) -> Iterator[torch.Tensor]:
        yield struct.x
        yield struct.y

    def reconstruct(
        self, original_structure: Point, tensor_iterator: Iterator[torch.Tensor]
    ) -> Any:
        return type(original_structure)(next(tensor_iterator), next(tensor_iterator))


class Labelled(Point):
    pass


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_arg_parsers, "_parsers", {})
    _arg_parsers._known.clear()


def tensors(count: int) -> list[torch.Tensor]:
    return [torch.tensor(float(i)) for i in range(count)]


def test_tensors_come_out_in_order_and_the_rest_stays() -> None:
    a, b, c, d, e = tensors(5)
    struct = (a, [b, 5, None], {"k": c, "word": "x"}, Pair(d, (e,)), object())
    assert flatten(struct) == [a, b, c, d, e]
    new = tensors(5)
    copy = rebuild(struct, new)
    assert flatten(copy) == new
    assert copy[1][1:] == [5, None]
    assert copy[2]["word"] == "x"
    assert isinstance(copy[3], Pair)
    assert copy[4] is struct[4]


def test_subclasses_keep_their_type() -> None:
    class Names(OrderedDict[str, Any]):
        pass

    class Items(list[Any]):
        pass

    (t,) = tensors(1)
    for struct in (Names(a=t), Items([t]), torch.return_types.max((t, t)), torch.Size([1, 2])):
        assert type(rebuild(struct, flatten(struct))) is type(struct)
    table = rebuild(defaultdict(list, {"a": t}), [t])
    assert isinstance(table, defaultdict)
    assert table["missing"] == []


def test_parameters_and_tensor_subclasses_count_as_tensors() -> None:
    class Mine(torch.Tensor):
        pass

    parameter, mine = torch.nn.Parameter(torch.ones(1)), torch.ones(1).as_subclass(Mine)
    assert flatten([parameter, mine])[0] is parameter
    assert len(flatten([parameter, mine])) == 2
    assert rebuild([parameter, mine], [1, 2]) == [1, 2]  # type: ignore[list-item]


def test_dicts_can_be_read_in_the_order_of_another() -> None:
    x, y = tensors(2)
    given, compiled = [{"y": y, "x": {"b": x, "a": y}}], [{"x": {"a": x, "b": x}, "y": y}]
    assert flatten(given) == [y, x, y]
    assert flatten(given, like=compiled) == [y, x, y][::-1]


structures = st.recursive(
    st.one_of(st.just("tensor"), st.none(), st.integers(), st.text(max_size=2)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=2), inner, max_size=3),
        st.tuples(inner, inner).map(lambda pair: Pair(*pair)),
    ),
    max_leaves=12,
)


def with_tensors(struct: Any) -> Any:
    if struct == "tensor":
        return torch.zeros(())
    if isinstance(struct, dict):
        return {key: with_tensors(value) for key, value in struct.items()}
    if isinstance(struct, Pair):
        return Pair(*map(with_tensors, struct))
    if isinstance(struct, list | tuple):
        return type(struct)(map(with_tensors, struct))
    return struct


def as_numbers(struct: Any) -> Any:
    return rebuild(struct, iter(range(1000)))  # type: ignore[arg-type]


@settings(max_examples=60, deadline=None)
@given(structures)
def test_any_structure_survives_being_taken_apart(struct: Any) -> None:
    struct = with_tensors(struct)
    found = flatten(struct)
    copy = rebuild(struct, found)
    assert as_numbers(copy) == as_numbers(struct)
    assert all(a is b for a, b in zip(flatten(copy), found, strict=True))


def test_unknown_types_are_passed_over() -> None:
    x, y = tensors(2)
    point = Point(x, y)
    assert flatten([point]) == []
    assert rebuild([point], [])[0] is point


def test_a_registered_type_is_taken_apart_and_so_are_its_subclasses() -> None:
    registerCustomArgParser(Point, PointParser())
    x, y = tensors(2)
    for kind in (Point, Labelled):
        assert flatten({"p": kind(x, y)}) == [x, y]
        copy = rebuild([kind(x, y)], [y, x])[0]
        assert type(copy) is kind
        assert copy.x is y


def test_a_parser_can_take_over_a_standard_type() -> None:
    class Reversed(ICustomArgParser):
        def yieldTensors(self, struct: Any) -> Iterator[torch.Tensor]:
            yield from reversed(struct)

        def reconstruct(self, original_structure: Any, tensor_iterator: Any) -> Any:
            return [next(tensor_iterator) for _ in original_structure][::-1]

    registerCustomArgParser(list, Reversed())
    x, y = tensors(2)
    assert flatten((x, [x, y])) == [x, y, x]
    assert rebuild([x, y], [x, y]) == [y, x]


def test_none_removes_a_parser_at_once() -> None:
    registerCustomArgParser(Point, PointParser())
    registerCustomArgParser(dict, PointParser())
    point = Point(*tensors(2))
    assert len(flatten(point)) == 2
    registerCustomArgParser(Point, None)
    registerCustomArgParser(Point, None)
    assert flatten(point) == []


def test_a_parser_must_be_a_parser() -> None:
    with pytest.raises(Error, match="arg_parser must inherit from ICustomArgParser"):
        registerCustomArgParser(Point, object())  # type: ignore[arg-type]


def test_geometric_parsers_come_from_poptorch_geometric_if_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registerGeometricCustomArgParsers()
    assert _arg_parsers._parsers == {}
    package, types = ModuleType("poptorch_geometric"), ModuleType("poptorch_geometric.types")
    package.__path__ = []  # type: ignore[attr-defined]
    package.__spec__ = types.__spec__ = sys.__spec__
    types.registerCustomArgParsers = lambda: registerCustomArgParser(Point, PointParser())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "poptorch_geometric", package)
    monkeypatch.setitem(sys.modules, "poptorch_geometric.types", types)
    registerGeometricCustomArgParsers()
    assert Point in _arg_parsers._parsers
