"""Bytes of a tile that are no data: vertex code, control and exchange code, vertex state.

Programs share the code of a kind of vertex, and compilers outline ops that look alike, so that the
second of them costs a call. The sizes are our guesses, chosen so that configurations known to fit
do fit: the part of memory that the model knows least about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from typing import Any

from .cost import Cost

#: Run-time, exchange helpers and control that every program has.
BASE_CODE = 13_000
#: Code of a vertex kind by the start of its name.
_VERTEX_CODE = {
    "AMP": 3_600, "SLIC": 2_800, "HMAC": 1_600, "VMAC": 1_900, "outer product": 700,
    "reduce": 1_700, "transpose": 1_200, "copy": 300, "pool": 1_400, "multi_slice": 900,
}  # fmt: skip
_DEFAULT_VERTEX_CODE = 420
#: One compute set or exchange in the control program; an op's share of calling an outlined run.
_STEP_CODE, _CALL_CODE = 32, 8
#: Sends, receives and delays for each message that a tile takes part in; the frame of an exchange.
_MESSAGE_CODE, _EXCHANGE_FRAME = 12, 40
#: Fields of a vertex; work lists of those that multiply.
_VERTEX_STATE, _WORK_LIST = 36, 180


@dataclass(frozen=True)
class CodeSize:
    """Bytes on each tile."""

    code: int
    exchange_code: int
    vertex_state: int


def code_size(priced: Iterable[tuple[Cost, Any]]) -> CodeSize:
    """Of a program of these ops; those with the same key share their code."""
    seen: set[Any] = set()
    kinds: set[str] = set()
    code = exchange_code = state = 0.0
    for cost, key in priced:
        if not cost.steps:
            continue
        kinds |= cost.vertices
        if key is not None and key in seen:
            code += _CALL_CODE
            continue
        seen.add(key)
        code += _STEP_CODE * min(cost.steps, 40)
        exchange_code += _MESSAGE_CODE * cost.messages + _EXCHANGE_FRAME * (cost.exchange > 0)
        multiplies = any(name.startswith(("AMP", "SLIC", "HMAC", "VMAC")) for name in cost.vertices)
        state += _VERTEX_STATE * cost.instances + _WORK_LIST * multiplies
    code += BASE_CODE + sum(_vertex_code(kind) for kind in kinds)
    return CodeSize(ceil(code), ceil(exchange_code), ceil(state))


def _vertex_code(kind: str) -> int:
    for start, size in _VERTEX_CODE.items():
        if kind.startswith(start):
            return size
    return _DEFAULT_VERTEX_CODE
