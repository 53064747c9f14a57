"""Lets samplers that were written for the PyTorch of PopTorch's days (2.0) work on today's.

Then a `Sampler` took its data source, and the documented way to write one passed it on; now that
is a TypeError. Nothing else of PyTorch is changed.
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import Sampler


def _initialise(self: Any, *arguments: Any, **named: Any) -> None:
    lineage = type(self).__mro__
    heirs = lineage[lineage.index(Sampler) + 1 :]
    following = next(kind for kind in heirs if "__init__" in vars(kind))
    is_source = (len(arguments), list(named)) in ((1, []), (0, ["data_source"]))
    if following is object and is_source:
        return  # It was never used.
    super(Sampler, self).__init__(*arguments, **named)


def accept_data_source() -> None:
    """Give `Sampler` its old constructor, if this PyTorch has none."""
    if Sampler.__init__ is object.__init__:
        Sampler.__init__ = _initialise  # type: ignore[method-assign]
