"""`poptorch.MultiConv`: convolutions the IPU plans and runs together. Results do not change."""

from __future__ import annotations

import enum
import itertools
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from . import _context
from ._errors import createPoptorchError
from ._graph_values import name_of
from ._logging import warnOnce
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
            hint = {"group": self._group, "part": self.found, **self._own_options()}
            self._capture.note(result, "multi_conv", hint)
            self.found += 1
        return result

    def _own_options(self) -> dict[str, Any]:
        """What the planner is told about this convolution, as notes in files can have it."""
        found: dict[str, Any] = {}
        for name, given in self._options.items():
            value = given
            if isinstance(given, tuple):
                if self.found >= len(given) > 1:
                    continue  # an error, once the number of convolutions is known
                value = given[self.found] if len(given) > 1 else given[0]
            found[_ONE_OF.get(name, name)] = _plain(value)
        return found


def _plain(value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return name_of(value)
    return value.value if isinstance(value, enum.Enum) else value


#: The name for one convolution of what is set for several.
_ONE_OF = {
    "available_memory_proportions": "available_memory_proportion", "partials_types": "partials",
}  # fmt: skip
_open: list[_Finder] = []


class MultiConv:
    """Joins the independent convolutions called inside `with MultiConv():` into one operation.

    The methods set options and return the object, so that calls can be chained. Memory proportions
    and types of partial sums count in estimates.
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
        _has_no_effect("enableConvDithering")
        return self._set("enable_conv_dithering", _per_convolution(value, bool, wrong))

    def planType(self, value: MultiConvPlanType | None) -> MultiConv:
        """Run the convolutions in parallel or one after the other, as they are modelled."""
        if value is not None and not isinstance(value, MultiConvPlanType):
            raise AssertionError("Invalid plan type!")
        if value is MultiConvPlanType.Parallel:
            _has_no_effect("planType(MultiConvPlanType.Parallel)")
        return self._set("plan_type", value)

    def perConvReservedTiles(self, value: int) -> MultiConv:
        """The number of tiles kept for each convolution."""
        assert isinstance(value, int), "Invalid number of reserved tiles!"
        _has_no_effect("perConvReservedTiles")
        return self._set("per_conv_reserved_tiles", value)

    def cycleBackOff(self, value: float) -> MultiConv:
        """How much slower than the fastest plan (0 to 1) the planner may go to save memory."""
        assert isinstance(value, float), "Invalid cycle back off!"
        _has_no_effect("cycleBackOff")
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


def _has_no_effect(setting: str) -> None:
    warnOnce(
        f"MultiConv.{setting}",
        "MultiConv.%s has no effect on a software IPU: convolutions of a group are modelled one "
        "after the other, each on all tiles.",
        setting,
    )


def _per_convolution(value: Any, kind: type, wrong: Exception) -> tuple[Any, ...] | None:
    """One value or a list of them as a tuple; None stays None."""
    if value is None:
        return None
    values = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not values or not all(isinstance(item, kind) for item in values):
        raise wrong
    return values
