"""While a model is captured, its modules hold fakes in the places of their parameters and buffers.

For the capturing thread only: others, which may run, save or copy the same modules meanwhile, go on
seeing the tensors that are there.
"""

from __future__ import annotations

import contextlib
import copy
import operator
import threading
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule

from softipu.errors import CaptureUnsupported

from .._context import Capture
from .._errors import createPoptorchError, failure

Table = MutableMapping[str, Any]


@dataclass(frozen=True)
class Slots:
    """What one table of a module (`_parameters`, `_buffers`) holds in a capture."""

    module: torch.nn.Module
    path: str
    table: str
    fakes: dict[str, torch.Tensor]


def slots(
    model: Any, fakes: tuple[Mapping[str, torch.Tensor], ...], held: tuple[Mapping[str, Any], ...]
) -> list[Slots]:
    """All tables of the model, aliases included, for fakes of the tensors held by those names."""
    if not isinstance(model, torch.nn.Module):
        return []
    by_id = {
        id(tensor): lent[name]
        for lent, tensors in zip(fakes, held, strict=True)
        for name, tensor in tensors.items()
    }
    return [
        Slots(
            module,
            path,
            table,
            {k: by_id[id(v)] for k, v in getattr(module, table).items() if v is not None},
        )
        for table in ("_buffers", "_parameters")
        for path, module in model.named_modules(remove_duplicate=True)
    ]


@contextlib.contextmanager
def lent(places: list[Slots], original: Any = None) -> Iterator[None]:
    """The tables hold fakes inside; afterwards they hold what they held, checked for changes.

    `original` is what the model is a shallow copy of: it has the same tables, and methods bound to
    it may run in the capture.
    """
    with contextlib.ExitStack() as stack:
        modules = {id(place.module): place.module for place in places}
        if places and original is not None:
            modules[id(original)] = original
        for module in modules.values():
            stack.enter_context(_without_leftovers(module))
        tables: list[Table] = []
        for place in places:
            table = stack.enter_context(_opened((place.module, original), place.table))
            for name, fake in place.fakes.items():
                table[name] = fake
            tables.append(table)
        yield
        problem = _reassigned(places, tables)
    if problem:
        raise createPoptorchError(problem)


@contextlib.contextmanager
def _opened(modules: tuple[Any, Any], name: str) -> Iterator[Table]:
    """One of the first module's tables, for a while one that can be written without loss."""
    held: Table = getattr(modules[0], name)
    holders = [vars(m) for m in modules if m is not None and vars(m).get(name) is held]
    if holders and isinstance(held, dict):
        table = ForOneThread(held)
        for holder in holders:
            holder[name] = table
        try:
            yield table
        finally:
            for holder in holders:
                holder[name] = held
        return
    before = dict(held.items())  # of a scripted module, whose tables are not Python's
    try:
        yield held
    finally:
        for key, value in before.items():
            held[key] = value


@contextlib.contextmanager
def _without_leftovers(module: torch.nn.Module) -> Iterator[None]:
    """Attributes to which `forward` assigns tensors get the values back that they had.

    Left as they are, they could be neither looked at nor saved nor met in the next capture.
    """
    before = dict(vars(module))
    try:
        yield
    finally:
        for name in [name for name, value in vars(module).items() if _has_fakes(value)]:
            if name in before:
                vars(module)[name] = before[name]
            else:
                del vars(module)[name]


def _has_fakes(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_has_fakes, value))
    if type(value) is dict:
        return any(map(_has_fakes, value.values()))
    return isinstance(value, FakeTensor)


def _reassigned(places: list[Slots], tables: list[Table]) -> str | None:
    for place, table in zip(places, tables, strict=True):
        kind = "Parameter" if place.table == "_parameters" else "Buffer"
        for name, fake in place.fakes.items():
            full = f"{place.path}.{name}" if place.path else name
            if name not in table:
                return f"{kind} {full} is removed from the model when calling the forward method."
            if table[name] is not fake:
                return (
                    f"{kind} {full} is reassigned within the model when calling the forward "
                    f"method. This is not supported. Consider using self.{full}.copy_(src) to copy "
                    "data from a source tensor, where src is the name of the source tensor."
                )
    return None


def refuse_lost_values(graph: GraphModule, state: Capture) -> None:
    """Raises where the graph has a constant without values: it would be the result of the model."""
    for node in graph.graph.find_nodes(op="get_attr"):
        value = operator.attrgetter(str(node.target))(graph)
        if isinstance(value, FakeTensor):
            raise failure(
                CaptureUnsupported,
                "forward() uses a tensor from an earlier capture, or one that an operation made "
                f"outside of this one, of shape {tuple(value.shape)}"
                f"{state.lines.get(node.name, '')}.",
                cause="Such tensors have no values.",
                remedy="Don't keep tensors of forward() in lists, globals or closures; return "
                "them, or keep them in buffers (self.register_buffer) written in place.",
            )


class ForOneThread(dict[str, Any]):
    """A module's table, which the thread that made it can change for itself."""

    def __init__(self, held: dict[str, Any]) -> None:
        super().__init__(held)
        self._held = held
        self._own = dict(held)
        self._thread = threading.get_ident()

    def _seen(self) -> dict[str, Any]:
        return self._own if threading.get_ident() == self._thread else self._held

    def __ior__(self, other: Any) -> ForOneThread:  # type: ignore[misc,override]
        self._seen().update(other)
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return copy.deepcopy(self._seen(), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return dict, (dict(self._seen()),)


def _passed_on(name: str) -> Any:
    def method(self: ForOneThread, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._seen(), name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in (
    "__contains__", "__delitem__", "__eq__", "__getitem__", "__iter__", "__len__", "__ne__",
    "__or__", "__repr__", "__reversed__", "__setitem__", "clear", "copy", "get", "items", "keys",
    "pop", "popitem", "setdefault", "update", "values",
):  # fmt: skip
    setattr(ForOneThread, _name, _passed_on(_name))
