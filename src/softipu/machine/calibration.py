"""The only fitted numbers of the model: at most four, each with what it was fitted on.

Everything else is chip data (`softipu.arch`), a formula of the PopLibs sources, or a guess that
`softipu.accuracy.assumed` lists. `accuracy` rows that took part in the fit are marked there; all
others are validation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Constants:
    #: Cycles beside the sync that each compute set and each exchange costs: control code, vertex
    #: start, and tiles that finish at different times.
    step_overhead: float = 273.0
    #: Measured exchange over the ideal of every tile receiving in every cycle.
    exchange: float = 1.25
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


#: The published rows that `step_overhead` was fitted on: training with known hardware, one or two
#: of each family of models. All others are validation, and so are all of DeBERTa's.
STEP_ROWS = (
    "ResNet-50 training, TF1, batch 3520",
    "ResNet-50 training, MLPerf v1.1, POD16",
    "EfficientNet-B4 G16 training, TF1",
    "BERT-Large packed training, PyTorch, SDK 3.3",
    "BERT-Base training, PyTorch",
    "Conformer-medium training, M2000 POD4",
)
#: What each was fitted on. A test holds this to the fields above, and `make accuracy` to the rows.
FITTED_ON = {
    "step_overhead": f"the throughput of {len(STEP_ROWS)} rows, marked `fit`",
    "exchange": "one measured exchange, that of the matrix–vector product among the "
    "micro-benchmarks; no throughput",
    "imbalance": "configurations known to fit (ResNet-50, EfficientNet, BERT) with their batch",
}


def names() -> tuple[str, ...]:
    return tuple(field.name for field in fields(Constants))
