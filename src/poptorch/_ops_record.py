"""Records the ATen calls of a loop body or branch, so that they can be checked and made again.

The calls pass through to whatever captures around them; nothing is held back or changed here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

_BATCH_NORM = torch.ops.aten.native_batch_norm.default


@dataclass(frozen=True)
class Call:
    """One ATen call: the arguments it got and what it returned."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    result: Any

    @property
    def writes(self) -> list[Tensor]:
        """The tensors that the call changes in place."""
        if self.function is _BATCH_NORM:
            # Its schema does not say that training updates the running statistics.
            return _tensors(self.args[3:5]) if self.args[5] else []
        schema = self.function._schema
        if not schema.is_mutable:
            return []
        written = []
        for position, parameter in enumerate(schema.arguments):
            if parameter.alias_info is None or not parameter.alias_info.is_write:
                continue
            value = (
                self.args[position]
                if position < len(self.args)
                else self.kwargs.get(parameter.name)
            )
            written += _tensors(value)
        return written


@dataclass
class Recording:
    """What a Python function did with its inputs, as a list of calls and the outputs they gave."""

    inputs: list[Tensor]
    calls: list[Call] = field(default_factory=list)
    outputs: list[Tensor] = field(default_factory=list)

    def replay(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Make the same calls on other inputs; tensors from outside stay what they were."""
        renamed = {id(old): new for old, new in zip(self.inputs, inputs, strict=True)}

        def now(tensor: Tensor) -> Tensor:
            return renamed.get(id(tensor), tensor)

        for call in self.calls:
            args, kwargs = tree_map_only(Tensor, now, (call.args, call.kwargs))
            result = call.function(*args, **kwargs)
            for old, new in zip(_tensors(call.result), _tensors(result), strict=True):
                renamed[id(old)] = new
        return [now(tensor) for tensor in self.outputs]

    @property
    def outer(self) -> list[Tensor]:
        """Tensors that the calls or the outputs use but that come from outside, each once."""
        known = {id(tensor) for tensor in self.inputs}
        found: dict[int, Tensor] = {}
        for call in self.calls:
            for tensor in _tensors((call.args, call.kwargs)):
                if id(tensor) not in known:
                    found[id(tensor)] = tensor
            known.update(id(tensor) for tensor in _tensors(call.result))
        found |= {id(tensor): tensor for tensor in self.outputs if id(tensor) not in known}
        return list(found.values())

    @property
    def writes(self) -> bool:
        return any(call.writes for call in self.calls)

    @property
    def writes_outside(self) -> bool:
        """Whether a call changes a tensor that exists without the recorded function."""
        outer = {storage_of(tensor) for tensor in self.outer}
        return any(storage_of(tensor) in outer for call in self.calls for tensor in call.writes)

    @property
    def random(self) -> bool:
        return any(torch.Tag.nondeterministic_seeded in call.function.tags for call in self.calls)


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, calls: list[Call]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = calls

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self._calls.append(Call(func, args, kwargs, result))
        return result


@contextlib.contextmanager
def recording(inputs: Sequence[Tensor]) -> Iterator[Recording]:
    """Record what happens inside the `with`; the caller sets `outputs` before it ends."""
    record = Recording(list(inputs))
    with _Recorder(record.calls):
        yield record


def _tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]


def storage_of(tensor: Tensor) -> int:
    """A number that tensors share if and only if writing to one can show in the other."""
    return int(tensor.untyped_storage()._cdata)


def unshared(results: Sequence[Tensor], given: Sequence[Tensor]) -> list[Tensor]:
    """The results, copied where they share memory with each other or with what was given."""
    taken = {storage_of(tensor) for tensor in given}
    separate = []
    for tensor in results:
        own = tensor.clone() if storage_of(tensor) in taken else tensor
        taken.add(storage_of(own))
        separate.append(own)
    return separate
