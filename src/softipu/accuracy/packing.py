"""How many sequences share a row of the batch where a source packs them, by its own rule."""

from __future__ import annotations

from functools import lru_cache
from random import Random

#: ByteMLPerf draws lengths from this normal distribution and cuts them to the row
#: (backends/IPU/engine_poprt.py `benchmark_pack`: "average sequence length in squad is ~172").
MEAN, DEVIATION = 172, 172
_TRIALS = 300


@lru_cache(maxsize=16)
def packed(rows: int, length: int, most: int) -> float:
    """Sequences in a row on average, when each goes to the first row that has room for it.

    A batch is full when a sequence finds no room, or when it holds as many as its configuration
    allows. Drawn with a fixed seed: the same figure each time.
    """
    random = Random(0)
    total = 0
    for _ in range(_TRIALS):
        room = [length] * rows
        for _ in range(most):
            size = min(length, max(1, int(random.gauss(MEAN, DEVIATION))))
            place = next((index for index, left in enumerate(room) if left >= size), None)
            if place is None:
                break
            room[place] -= size
            total += 1
    return total / _TRIALS / rows
