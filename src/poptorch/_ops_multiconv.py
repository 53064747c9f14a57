"""`poptorch.MultiConv`: convolutions the IPU plans and runs together. Results do not change."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _context
from ._errors import createPoptorchError
from .enums import MultiConvPlanType

_CONVOLUTIONS = frozenset({torch.ops.aten.convolution.default})
_groups = itertools.count()


class _Finder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes each convolution of the group on the capture, in order."""

    def __init__(self, capture: _context.Capture, options: dict[str, Any]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.found = 0
        self._capture = capture
        self._group = next(_groups)
        self._options = options

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _CONVOLUTIONS:
            hint = {"group": self._group, "part": self.found, **self._options}
            self._capture.note(result, "multi_conv", hint)
            self.found += 1
        return result


_open: list[_Finder] = []


class MultiConv:
    """Joins the independent convolutions called inside `with MultiConv():` into one operation.

    The methods set options and return the object, so that calls can be chained.
    """

    def __init__(self) -> None:
        self._options: dict[str, Any] = {}

    def availableMemoryProportions(self, value: Any) -> MultiConv:
        """The share of tile memory for each convolution, or one for all."""
        return self._set(
            "available_memory_proportions",
            _per_convolution(value, float, AssertionError("Invalid available memory proportion!")),
        )

    def partialsTypes(self, value: Any) -> MultiConv:
        """torch.float or torch.half for the partial sums of each convolution, or one for all."""
        wrong = ValueError("Invalid partials types. Expecting torch.float or torch.half")
        kinds = _per_convolution(value, torch.dtype, wrong)
        if kinds is None or not all(kind in (torch.float32, torch.float16) for kind in kinds):
            raise wrong
        return self._set("partials_types", kinds)

    def enableConvDithering(self, value: Any) -> MultiConv:
        """Whether each convolution (or all) starts on a tile of its own."""
        wrong = ValueError("value must be bool or list of bools")
        return self._set("enable_conv_dithering", _per_convolution(value, bool, wrong))

    def planType(self, value: MultiConvPlanType | None) -> MultiConv:
        """Run the convolutions in parallel or one after the other."""
        if value is not None and not isinstance(value, MultiConvPlanType):
            raise AssertionError("Invalid plan type!")
        return self._set("plan_type", value)

    def perConvReservedTiles(self, value: int) -> MultiConv:
        """The number of tiles kept for each convolution."""
        assert isinstance(value, int), "Invalid number of reserved tiles!"
        return self._set("per_conv_reserved_tiles", value)

    def cycleBackOff(self, value: float) -> MultiConv:
        """How much slower than the fastest plan (0 to 1) the planner may go to save memory."""
        assert isinstance(value, float), "Invalid cycle back off!"
        return self._set("cycle_back_off", value)

    def _set(self, name: str, value: Any) -> MultiConv:
        if value is None:
            self._options.pop(name, None)
        else:
            self._options[name] = value
        return self

    def __enter__(self) -> None:
        capture = _context.current()
        if capture is None:
            return
        if _open:
            raise createPoptorchError(
                "Nested poptorch.MultiConv is not supported.",
                remedy="Leave the inner one out, or end the outer one before it begins.",
            )
        finder = _Finder(capture, dict(self._options))
        finder.__enter__()  # type: ignore[no-untyped-call]
        _open.append(finder)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if not _open or _context.current() is None:
            return
        finder = _open.pop()
        finder.__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        if kind is None:
            self._check(finder.found)

    def _check(self, found: int) -> None:
        if not found:
            raise createPoptorchError(
                "Unexpected end_multi_conv, is the IR malformed? There is no convolution inside "
                "this poptorch.MultiConv.",
                remedy="Call convolutions inside it, or leave it out.",
            )
        for name, value in self._options.items():
            if isinstance(value, tuple) and len(value) not in (1, found):
                raise createPoptorchError(
                    f"poptorch.MultiConv: {name} has {len(value)} values for {found} "
                    "convolutions. Give one value, or one for each of them."
                )


def _per_convolution(value: Any, kind: type, wrong: Exception) -> tuple[Any, ...] | None:
    """One value or a list of them as a tuple; None stays None."""
    if value is None:
        return None
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not values or not all(isinstance(item, kind) for item in values):
        raise wrong
    return values
