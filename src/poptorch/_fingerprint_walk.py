"""Walks everything a model can reach and writes it down as a text that is equal for equal models.

Objects are numbered in the order of discovery, which depends on the program only, so that sharing
and cycles are part of the text. How values are written is in `_fingerprint_values`; classes and
functions are in `_fingerprint_reach`.
"""

from __future__ import annotations

import functools
import hashlib
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import torch

from . import _fingerprint_reach as reach
from . import _fingerprint_values as values
from . import _ops_custom
from ._fingerprint_code import primitive
from ._fingerprint_origin import (
    OURS,
    PYTHON,
    NotFingerprintable,
    is_users_module,
    library_of_module,
    loaded_modules,
    module_of,
    name_of,
    version_of,
)
from ._fingerprint_torch import TensorTypes

#: Most of what is in a module, and nothing that a user would put into a library.
_NO_REPLACEMENTS = frozenset({BuiltinFunctionType, ModuleType, str, tuple, list, dict, float})


class Path:
    """How something was reached, kept as steps because most paths are never shown."""

    __slots__ = ("_before", "_step")

    def __init__(self, step: str, before: Path | None = None) -> None:
        self._step = step
        self._before = before

    def __truediv__(self, step: str) -> Path:
        return Path(step, self)

    def __str__(self) -> str:
        steps: list[str] = []
        path: Path | None = self
        while path is not None:
            steps.append(path._step)
            path = path._before
        return "".join(reversed(steps))


@dataclass
class _Space:
    """Members of a class or module that count only if reached code may name them.

    `always` count anyway. With `open`, code that computes names reaches all. `made_with` is the
    class that must be called for its constructors to count; `rebuilt` ones may be called as
    `type(x)(…)`.
    """

    label: str
    members: dict[str, Any]
    path: Path
    always: frozenset[str] = frozenset()
    open: bool = True
    made_with: int | None = None
    rebuilt: bool = False
    followed: set[str] = field(default_factory=set)


class Walker:
    """One walk. `slots` are the tables whose tensors count by type only (`slot_tables`).

    `known` are objects that a walk around this one has numbered: they are not described again.
    """

    def __init__(
        self, slots: frozenset[int] = frozenset(), known: Mapping[int, str] | None = None
    ) -> None:
        self.slots = slots
        self._known = known or {}
        self.tensors = TensorTypes()
        self.names: set[str] = set()
        self.computed_names = False
        self.rebuilds = False
        self._conditions: list[tuple[frozenset[str], Callable[[], None]]] = []
        self._text: list[str] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []
        self._queue: deque[tuple[Any, Path]] = deque()
        self._spaces: list[_Space] = []
        self._made: set[int] = set()
        self._libraries: dict[str, bool] = {}
        self._modules: dict[str, bool] = {}
        self._users: dict[type, bool] = {}

    # --- writing --------------------------------------------------------------------------------

    def put(self, *texts: str) -> None:
        self._text += texts

    def refuse(self, path: Path, what: str) -> NotFingerprintable:
        return NotFingerprintable(f"{path}: {what}")

    def ref(self, value: Any, path: Path) -> None:
        """Writes a value: simple ones in place, others as a number, to be described later."""
        text = primitive(value)
        if text is not None:
            self._text.append(text)
            return
        inline = values.INLINE.get(type(value))
        if inline is not None:
            inline(self, value, path)
        elif type in type(value).__mro__:
            self._value_class(value, path)
        else:
            self._number(value, path)

    def klass(self, kind: type, path: Path) -> None:
        """Writes the class of something. What calling the class would run doesn't count."""
        self._number(kind, path)

    def _value_class(self, kind: type, path: Path) -> None:
        """Writes a class that code holds, and so may call."""
        if id(kind) not in self._made:
            self._made.update(map(id, kind.__mro__))
            module = module_of(kind)
            library = library_of_module(module)
            if library is not None:
                reach.use_library(self, library, module, name_of(kind), path)
        self._number(kind, path)

    def items(self, content: Iterable[Any], path: Path) -> None:
        self.put("[")
        for index, value in enumerate(content):
            self.ref(value, path / f"[{index}]")
        self.put("]")

    def mapping(self, content: Iterable[tuple[Any, Any]], path: Path) -> None:
        """Keys and values in order: code may iterate."""
        self.put("{")
        for key, value in content:
            shown = repr(key) if primitive(key) is not None else "…"
            self.ref(key, path / f" key {shown}")
            self.ref(value, path / f"[{shown}]")
        self.put("}")

    def attributes(self, content: Mapping[str, Any], path: Path) -> None:
        self.put("{")
        for name, value in content.items():
            self.put(repr(name))
            self.ref(value, path / f".{name}")
        self.put("}")

    def unordered(self, content: Iterable[Any], path: Path) -> None:
        """Sorted by what each element is, because the order of a set is chance."""
        self.put("<")
        for value in sorted(content, key=lambda value: self._sort_key(value, path)):
            self.ref(value, path / "{…}")
        self.put(">")

    def _sort_key(self, value: Any, path: Path) -> str:
        text = primitive(value)
        if text is not None:
            return text
        known = {**self._known, **{key: f"^{number}" for key, number in self._numbers.items()}}
        return Walker(self.slots, known).digest(value, path / "{…}")

    def _number(self, value: Any, path: Path) -> None:
        if id(value) in self._known:
            self._text.append(self._known[id(value)])
            return
        number = self._numbers.get(id(value))
        if number is None:
            number = self._numbers[id(value)] = len(self._numbers)
            # An object that dies would give its id, and so its number, to another one.
            self._alive.append(value)
            self._queue.append((value, path))
        self._text.append(f"#{number}")

    # --- following ------------------------------------------------------------------------------

    def space(self, label: str, members: dict[str, Any], path: Path, **rules: Any) -> None:
        """Members that are written only when reached code names them."""
        self._spaces.append(_Space(label, members, path, **rules))

    def settle(self) -> None:
        """Describes all that was found, until reached code leads to nothing new."""
        while True:
            while self._queue:
                value, path = self._queue.popleft()
                self.put("\n", str(self._numbers[id(value)]), "=")
                values.describe(self, value, path)
            before = len(self._text)
            for space in list(self._spaces):
                self._follow(space)
            for name in [name for name, swept in self._libraries.items() if not swept]:
                self._libraries[name] = True
                self._sweep_library(name)
            for name in [name for name, swept in self._modules.items() if not swept]:
                self._modules[name] = True
                self._sweep(name)
            if len(self._text) == before:
                return

    def _follow(self, space: _Space) -> None:
        for name, member in space.members.items():
            if name not in space.followed and self._counts(space, name):
                space.followed.add(name)
                # Methods of a class are given the class and may call it.
                self.rebuilds |= type(member) is classmethod and not reach.is_special(name)
                self.put("\n", space.label, repr(name))
                self.ref(member, space.path / f".{name}")

    def _counts(self, space: _Space, name: str) -> bool:
        if name in self.names or name in space.always:
            return True
        if name in reach.CONSTRUCTION:
            return space.made_with in self._made or (space.rebuilt and self.rebuilds)
        return self.computed_names and space.open

    def when_named(self, names: frozenset[str], action: Callable[[], None]) -> None:
        """Something that only matters if reached code uses one of the names."""
        self._conditions.append((names, action))

    def refuse_when_named(self, names: frozenset[str], path: Path, what: str) -> None:
        def refuse() -> None:
            used = ", ".join(sorted(names & self.names))
            raise self.refuse(path, f"{what}, of which {used} may be used")

        self.when_named(names, refuse)

    def conclude(self) -> None:
        """What can be said only once all reached code is known."""
        for names, action in self._conditions:
            if not names.isdisjoint(self.names):
                action()

    # --- libraries ------------------------------------------------------------------------------

    def library(self, name: str, module: str | None = None) -> None:
        """Notes that a library is used, and which of its modules."""
        self._libraries.setdefault(name, False)
        if module is not None and name not in (PYTHON, OURS):
            self._modules.setdefault(module, False)

    def versions(self) -> dict[str, str]:
        return {name: version_of(name) for name in sorted(self._libraries)}

    def _sweep_library(self, name: str) -> None:
        if name == "torch":
            for module in ("torch", "torch.functional", "torch.nn.functional"):
                self._modules.setdefault(module, False)
            self.klass(torch.Tensor, Path("torch.Tensor"))
        elif name == OURS:
            self.ref(_ops_custom._registered, Path("custom ops"))
        elif name != PYTHON:
            for module in loaded_modules(name):
                self._modules.setdefault(module, False)

    def _sweep(self, name: str) -> None:
        """A library's module is known by its version, except for what was changed since.

        Its flags are read when it runs, and users replace functions and classes by their own.
        """
        module = sys.modules[name]
        members = dict(vars(module)) if reach.is_module(module) else {}
        for key in sorted(members):
            value = members[key]
            kind = type(value)
            if kind in _NO_REPLACEMENTS or key[:2] == "__":
                continue
            # Larger numbers are no flags, and some are times or process ids.
            if kind is bool or value is None or (kind is int and -256 < value < 256):
                self.put(f"\n{name}.{key}", primitive(value) or "")
            elif self._is_replacement(value, kind):
                self.put(f"\n{name}.{key}")
                self.ref(value, Path(f"{name}.{key}"))

    def _is_replacement(self, value: Any, kind: type) -> bool:
        if kind is functools.partial:
            value, kind = value.func, type(value.func)
        if kind is FunctionType:
            return reach.is_replaced(value)
        # A class of the user's, or an object of one.
        owner = value if kind is type else kind
        known = self._users.get(owner)
        if known is None:
            known = self._users[owner] = is_users_module(module_of(owner))
        return known

    # --- results --------------------------------------------------------------------------------

    def text(self) -> str:
        return "\x1f".join(self._text)

    def digest(self, value: Any, path: Path) -> str:
        """The digest of one value by itself."""
        self.ref(value, path)
        self.settle()
        return hashlib.sha256(self.text().encode()).hexdigest()
