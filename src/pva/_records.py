"""What all parts of a report share: names that we lack say so, long lists are computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, NoReturn, TypeVar, overload

from softipu.errors import ProfileLacks

Item = TypeVar("Item")


class Record:
    """Its attributes are what libpva calls them; any other name says why it isn't there."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # what Python itself asks for, as copying does
            raise AttributeError(name)
        raise ProfileLacks(f"{type(self).__name__} has no `{name}` in a profile of softipu.")


class Computed(Sequence[Item], Generic[Item]):
    """A list of known length whose items are made when they are asked for."""

    #: How many items `print` shows; `listPrintLength` sets it for all lists.
    shown = 10

    def __init__(self, length: int, item: Callable[[int], Item]) -> None:
        self._length = length
        self._item = item

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Item: ...
    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...
    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        if isinstance(index, slice):
            return [self._item(number) for number in range(*index.indices(self._length))]
        number = index + self._length if index < 0 else index
        if not 0 <= number < self._length:
            raise IndexError(f"{index} of {self._length}")
        return self._item(number)

    def __iter__(self) -> Iterator[Item]:
        return map(self._item, range(self._length))

    def __repr__(self) -> str:
        items = [repr(item) for item in self[: Computed.shown]]
        return "[" + ", ".join([*items, *(["..."] if self._length > len(items) else [])]) + "]"


def divided(total: int, weights: dict[str, int]) -> dict[str, int]:
    """A whole number divided as the weights are, without a byte lost."""
    whole = sum(weights.values())
    if not whole:
        return dict.fromkeys(weights, 0)
    parts = {name: total * weight // whole for name, weight in weights.items()}
    left = total - sum(parts.values())
    for name in sorted(weights, key=lambda name: -(total * weights[name] % whole))[:left]:
        parts[name] += 1
    return parts
