"""The reader of bytecode agrees with Python's own disassembler, and tells code apart by what it does."""

from __future__ import annotations

import argparse
import dis
import functools
import inspect
import logging
import types
from collections.abc import Iterator
from typing import Any

import pytest

from poptorch._fingerprint_code import (
    Import,
    _chain,
    _globals,
    code_digest,
    primitive,
    references,
)

GLOBALS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR")


def all_code(module: types.ModuleType) -> Iterator[types.CodeType]:
    todo = [compile(inspect.getsource(module), "text", "exec")]
    while todo:
        code = todo.pop()
        todo += [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
        yield code


def disassembled(code: types.CodeType) -> list[tuple[str, tuple[str, ...]]]:
    skipped = ("CACHE", "EXTENDED_ARG")
    found = [i for i in dis.get_instructions(code) if i.opname not in skipped]
    uses = []
    for index, instruction in enumerate(found):
        if instruction.opname in GLOBALS:
            chain = []
            for after in found[index + 1 :]:
                if after.opname not in ATTRIBUTES:
                    break
                chain.append(after.argval)
            uses.append((instruction.argval, tuple(chain)))
    return uses


@pytest.mark.parametrize("module", [argparse, logging])
def test_uses_of_globals_are_those_that_the_disassembler_sees(module: types.ModuleType) -> None:
    for code in all_code(module):
        parts = code.co_code[::2], code.co_code[1::2]
        found = [
            (name, tuple(_chain(code, *parts, position + 1)))
            for position, name in _globals(code, *parts)
        ]
        assert found == disassembled(code)


def test_names_and_imports_of_nested_functions_are_found() -> None:
    def outer(x: Any) -> Any:
        import os.path as p

        from ..sibling import one as two

        def inner(y: Any) -> Any:
            return functools.reduce(max, y.attribute, "a_text not_a_name")

        return inner(x), p, two, "some_text"

    found = references(outer.__code__)
    assert ("functools", ("reduce",)) in found.uses
    assert ("max", ()) in found.uses
    assert found.imports == [Import("os.path", 0, None), Import("sibling", 2, ("one",))]
    assert {"attribute", "some_text"} <= found.names
    assert "a_text not_a_name" not in found.names
    assert not found.computed


@pytest.mark.parametrize(
    ("function", "computed"),
    [
        (lambda x: getattr(x, "a"), False),  # noqa: B009
        (lambda x: getattr(x.b.c, "a", None), False),
        (lambda x: getattr(x, "a" + x.b), True),
        (lambda x: getattr(x, "a", x.b), True),
        (lambda x: getattr(x, x.a), True),
        (lambda x: list(map(getattr, x, "ab")), True),
        (lambda x: x.__dict__, True),
        (lambda x: vars(x), True),
        (lambda x: dir(x), True),
        (lambda x: x.getattr, False),
        (lambda x: x.a, False),
    ],
)
def test_names_that_are_computed_are_noticed(function: Any, computed: bool) -> None:
    assert references(function.__code__).computed is computed


@pytest.mark.parametrize(
    ("function", "rebuilds"),
    [
        (lambda x: type(x) is int, False),
        (lambda x: type(x) in (int, float), False),
        (lambda x, y: type(x.a) == type(y.b), False),  # noqa: E721
        (lambda x, y: x.__class__ is y.__class__, False),
        (lambda x, y: type(x).__name__ == y, False),
        (lambda x, y: x.__class__.__name__ == y.a, False),
        (lambda x: type(x)(1), True),
        (lambda x: x.__class__(x.a), True),
        (lambda x: type(x)(x) is int, True),
        (lambda x: x.__class__() == 1, True),
        (lambda x, y: [type(x), y], True),
        (lambda x, y: type(x) or y, True),
        (lambda x: x.a == 1, False),
    ],
)
def test_classes_that_may_be_called_are_noticed(function: Any, rebuilds: bool) -> None:
    assert references(function.__code__).rebuilds is rebuilds


def test_code_is_told_apart_by_what_it_does() -> None:
    def digest(text: str) -> str:
        scope: dict[str, Any] = {}
        exec(text, scope)
        return code_digest(scope["f"].__code__)

    base = digest("def f(x): return x + 1")
    assert digest("\n\ndef f(x):\n    return x + 1") == base
    different = [
        "def f(x): return x + 2",
        "def f(x): return x + 1.0",
        "def f(x): return x + True",
        "def f(x): return x - 1",
        "def f(y): return y + 1",
        "def f(x, /): return x + 1",
        "def f(*, x): return x + 1",
        "def f(x): return x.a",
        "def f(x): return x.b",
        "def f(x): return lambda: 1",
        "def f(x): return lambda: 2",
        "def f(x): return x in {1, 2}",
        "def f(x): return x in {1, 3}",
        "def f(x): return -0.0",
        "def f(x): return 0.0",
        "def f(x):\n try: return x\n except ValueError: return 1",
    ]
    digests = {base, *map(digest, different)}
    assert len(digests) == len(different) + 1


def test_primitives_of_different_types_have_different_texts() -> None:
    values = [
        None,
        False,
        True,
        0,
        1,
        0.0,
        1.0,
        -0.0,
        0j,
        "",
        "None",
        "1",
        b"",
        b"1",
        ...,
        range(1),
    ]
    texts = [primitive(value) for value in values]
    assert None not in texts
    assert len(set(texts)) == len(values)
    assert primitive([]) is None
    assert primitive(type("Text", (str,), {})("a")) is None
