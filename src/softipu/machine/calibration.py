"""The only fitted numbers of the model: at most four, each with what it was fitted on.

Everything else is chip data (`softipu.arch`) or a formula of the PopLibs sources. `accuracy` rows
that took part in the fit are marked there; all others are validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Constants:
    #: Cycles beside the sync that each compute set and each exchange costs: control code, vertex
    #: start, and tiles that finish at different times.
    step_overhead: float = 60.0
    #: Measured exchange over the ideal of every tile receiving in every cycle.
    exchange: float = 1.15
    #: Measured vector work over the estimators' aligned inner loops.
    vector: float = 2.0
    #: Bytes that padding, alignment and uneven mapping add to tensors on the fullest tile.
    imbalance: float = 1.1


FITTED = Constants()
_current = FITTED


def constants() -> Constants:
    """Those in use: the fitted ones, unless a fit tries others."""
    return _current


@contextmanager
def using(tried: Constants) -> Iterator[None]:
    """Estimates inside use `tried`; for fits and for showing what a constant does."""
    global _current
    before, _current = _current, tried
    try:
        yield
    finally:
        _current = before


#: What each was fitted on. A test holds this to the fields above.
_ROWS = (
    "a coarse grid over eleven published training rows (ResNet-50, EfficientNet-B4, BERT-Large"
    " and -Base on Bow and MK2)"
)
FITTED_ON = {
    "step_overhead": f"{_ROWS}; the rows hardly tell it from the others, so it is a round figure",
    "exchange": _ROWS,
    "vector": _ROWS,
    "imbalance": "configurations known to fit (ResNet-50, EfficientNet, BERT) with their batch",
}


def names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Constants))
