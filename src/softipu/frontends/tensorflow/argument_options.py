"""The table of arguments of IPU functions that change no result: what each of them does here.

Options of the configuration and of pipelines have tables of their own. Nothing here needs
TensorFlow.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

_NO_COMPILER = "ignored: no Poplar program is compiled"
_NO_TRANSFER = "ignored: host and IPUs share memory"
_EXACT_SUMS = "ignored: sums are not rounded on the way"


@dataclass(frozen=True)
class Argument:
    #: As users know it; several where they take the same.
    function: str
    name: str
    meaning: str
    #: What it does here; "ignored: why" is warned about once.
    support: str
    #: Values that ask for nothing.
    plain: tuple[Any, ...] = (None, False, {}, "", "{}")


INFEED, OUTFEED = "IPUInfeedQueue", "IPUOutfeedQueue"
RECURRENT = "PopnnLSTM, PopnnGRU and their kin"

ARGUMENTS = (
    Argument(INFEED, "optimise_latency", "Fewer, larger packets from the host.", _NO_TRANSFER),
    Argument(OUTFEED, "optimise_latency", "Fewer, larger packets to the host.", _NO_TRANSFER),
    Argument(OUTFEED, "buffer_depth", "How many elements may wait between IPU and host.",
             "ignored: as many wait as there are", (None, 3)),
    Argument("nn_ops.multi_conv", "options", "Poplar's options for convolutions side by side.",
             _NO_COMPILER),
    Argument(RECURRENT, "options", "Poplar's options of the layer.", _NO_COMPILER),
    Argument(RECURRENT, "options_bwd", "Poplar's options of its gradient.", _NO_COMPILER),
    Argument(RECURRENT, "partials_dtype", "The type in which products are added up.",
             _EXACT_SUMS, (None, "float32")),
    Argument("scopes.stochastic_rounding", "override",
             "Halves inside are rounded up or down by chance.",
             "ignored: halves are rounded to nearest"),
    Argument("scopes.partials_type", "override_type",
             "The type in which products inside are added up.", _EXACT_SUMS, (None, "float32")),
    Argument("serving.export_pipeline", "poplar_options", "Poplar's options of the stages.",
             _NO_COMPILER),
    Argument("utils.reset_ipu_seed", "experimental_identical_replicas",
             "All replicas draw the same numbers.",
             "honoured: after a seed they always do"),
)  # fmt: skip

_said: set[tuple[str, str]] = set()
_logger = logging.getLogger("tensorflow")


def warn_of_ignored(function: str, **given: Any) -> None:
    """One warning for each argument that a function got and that does nothing."""
    for row in ARGUMENTS:
        value = given.get(row.name) if row.function == function else None
        if value in row.plain or not row.support.startswith("ignored"):
            continue
        if (function, row.name) not in _said:
            _said.add((function, row.name))
            reason = row.support.removeprefix("ignored: ")
            _logger.warning(
                "%s: %s has no effect on a software IPU: %s.", function, row.name, reason
            )
