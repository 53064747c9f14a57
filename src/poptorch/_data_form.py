"""How a batch is taken apart into tensors for shared memory, and put together again on arrival.

A batch is a tensor, a dictionary of tensors, a flat sequence of tensors, or an object with a
registered argument parser; the first batch of a data set decides for all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ._arg_parsers import flatten, parser_of, rebuild
from ._errors import createPoptorchError


@dataclass(frozen=True)
class Form:
    """The form of all batches of a data set."""

    kind: str
    keys: tuple[Any, ...] = ()
    template: Any = None

    @classmethod
    def of(cls, batch: Any) -> Form:
        if isinstance(batch, torch.Tensor):
            return cls("tensor")
        if parser_of(batch) is not None:
            # Only the structure travels, so empty tensors take the place of the data.
            empty = [torch.empty(0, dtype=tensor.dtype) for tensor in flatten(batch)]
            return cls("object", template=rebuild(batch, empty))
        if isinstance(batch, dict):
            return cls("dictionary", keys=tuple(batch))
        return cls("sequence")

    def tensors(self, batch: Any) -> list[torch.Tensor]:
        """The tensors of a batch, in the order of the first one."""
        parts = list(_TAKE_APART[self.kind](self, batch))
        for index, part in enumerate(parts):
            if not isinstance(part, torch.Tensor):
                raise _not_flat(f"Tensor at index {index} is not a torch tensor ({type(part)}).")
        if not parts:
            raise _not_flat(f"A batch of type {type(batch)} has no tensors.")
        return parts

    def batch(self, tensors: Sequence[torch.Tensor]) -> Any:
        """The batch that these tensors make; sequences become lists."""
        if self.kind == "tensor":
            return tensors[0]
        if self.kind == "dictionary":
            return dict(zip(self.keys, tensors, strict=True))
        if self.kind == "object":
            return rebuild(self.template, iter(tensors))
        return list(tensors)


def _not_flat(what: str) -> Exception:
    return createPoptorchError(
        f"{what} AsynchronousDataAccessor expects data to be organised as a flat 1D container of "
        "tensors: a tensor, a list, tuple or dictionary of tensors, or an object whose type was "
        "given to poptorch.registerCustomArgParser when the module of the data set was imported."
    )


def _of_tensor(_: Form, batch: Any) -> Sequence[Any]:
    return (batch,)


def _of_dictionary(form: Form, batch: Any) -> Sequence[Any]:
    if not isinstance(batch, dict) or set(batch) != set(form.keys):
        found = sorted(map(str, batch)) if isinstance(batch, dict) else type(batch)
        raise createPoptorchError(
            f"The first batch was a dictionary with the keys {sorted(map(str, form.keys))}, this "
            f"one has {found}: all batches must have the same keys."
        )
    return [batch[key] for key in form.keys]


def _of_object(_: Form, batch: Any) -> Sequence[Any]:
    return flatten(batch)


def _of_sequence(_: Form, batch: Any) -> Sequence[Any]:
    if isinstance(batch, torch.Tensor):
        return (batch,)
    try:
        return list(batch)
    except TypeError:
        raise _not_flat(f"A batch of type {type(batch)} is not a container.") from None


_TAKE_APART: dict[str, Callable[[Form, Any], Sequence[Any]]] = {
    "tensor": _of_tensor,
    "dictionary": _of_dictionary,
    "object": _of_object,
    "sequence": _of_sequence,
}
