"""Bytes that lie in another order than an op wants them: pieces, and what arranging them costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from .chip import Machine
from .cost import Cost, messages, spread

#: Of a copy that rearranges on a tile: PopLibs' regression over ten thousand tests
#: (lib/poplin/ConvModel.cpp), for pieces of a multiple of 8, of 4 and of 2 bytes.
START, PER_BYTE = 587, 0.4404
PER_BYTE_OF_4, PER_BYTE_OF_2 = 3.125, 5.1484

#: Assumption: what a tile receives for windows that reach beyond its own part of a field, over that
#: part.
BORDER = 1.4


@dataclass(frozen=True)
class Turned:
    """A tensor that lies the wrong way round: its bytes, and those that stay together."""

    bytes: int
    piece: int


def piece(element_bytes: int, *sizes: int) -> int:
    """Bytes that stay together when dimensions of these sizes change their order: elements come in
    blocks of what divides all of them, and more than 16 are never needed."""
    return gcd(16, *sizes) * element_bytes


def per_byte(piece: int) -> float:
    """Cycles of a byte in pieces of that many."""
    if piece % 8 == 0:
        return PER_BYTE
    return PER_BYTE_OF_4 if piece % 4 == 0 else PER_BYTE_OF_2


def arranging(tensors: Sequence[Turned], machine: Machine) -> Cost:
    """All of them in one exchange and one compute set."""
    parts = [(spread(tensor.bytes, machine)[0], tensor.piece) for tensor in tensors]
    here = sum(size for size, _ in parts)
    if not here:
        return Cost()
    return Cost(
        compute=START + sum(per_byte(piece) * size for size, piece in parts),
        exchange=here / machine.exchange, steps=2, temporary=2 * here,
        vertices=frozenset(("transpose",)), instances=1, messages=messages(here),
    )  # fmt: skip
