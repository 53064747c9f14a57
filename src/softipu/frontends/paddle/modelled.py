"""Paddle programs that were built for IPUs: what a real IPU would do with them.

Programs are described before they run, in the thread that builds them, because Paddle's programs
and modes are not made for two threads; only the estimate itself is left to the background.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from softipu.estimating.idle_options import USED
from softipu.estimating.modelled import Modelled, chip_here, is_large
from softipu.graph import Graph
from softipu.machine import Settings

from .inference_model import Model, looks_like_json
from .inference_options import IpuOptions

if TYPE_CHECKING:
    from .executable import Executable

_logger = logging.getLogger("softipu.paddle")
_logger.setLevel(logging.WARNING)  # Paddle shows everybody's INFO lines


def ask_about_compiled(executable: Executable) -> Modelled:
    """Warns, raises or writes a report about a compiled program, as settings ask."""
    from .neutral_programs import data_of_compiled

    given = executable.options["engine_options"]
    return _ask(
        "program",
        lambda: data_of_compiled(executable),
        lambda: bytes_of_program(executable),
        {name: given[name] for name in USED if name in given},  # the strategy has told the others
    )


def ask_about_model(model: Model, options: IpuOptions) -> Modelled:
    """The same about a model that a predictor with `enable_ipu` is to run."""
    from .neutral_programs import data_of_model

    return _ask(
        model.name,
        lambda: data_of_model(model, options),
        lambda: bytes_of_model(model, int(options["ipu_micro_batch_size"])),
        None,
    )


def _ask(
    name: str,
    described: Callable[[], dict[str, Any]],
    most_bytes: Callable[[], int],
    engine_options: Any,
) -> Modelled:
    known: list[dict[str, Any]] = []

    def prepare() -> None:
        known.append(described())

    def describe() -> tuple[Graph, Settings]:
        from .neutral import graph_of, settings_of

        if not known:
            prepare()
        return graph_of(known[0], name), settings_of(known[0])

    def large() -> bool:
        return is_large(most_bytes(), chip_here())

    found = Modelled(name, describe, large=large, log=_logger, prepare=prepare)
    found.check()
    written = found.report(engine_options)
    if written is not None:
        _logger.info("Report written to %s", written)
    return found


def bytes_of_program(executable: Executable) -> int:
    """All variables of a program, as if they were in memory at once."""
    from . import graphs

    lowered, batch = executable.lowered, executable.plan.micro_batch
    total = 0
    for program in (lowered.micro_batch, lowered.update):
        if program is not None:
            block = program.global_block()
            total += _bytes((graphs.shape_of(block, name) for name in block.vars), batch)
    return total


def bytes_of_model(model: Model, batch: int) -> int:
    """All weights and results of a model's file."""
    assert model.source is not None
    if looks_like_json(model.source):
        return model.weight_bytes + _bytes(_shapes_in_json(model.source), batch)
    from paddle.base import core

    from . import graphs

    program = core.ProgramDesc(model.source)  # blocks don't outlive it
    block = program.block(0)
    shapes = (
        var.shape()
        for var in block.all_vars()
        if var.type() in graphs.TENSORS and not var.persistable()
    )
    return model.weight_bytes + _bytes(shapes, batch)


def _shapes_in_json(source: bytes) -> Iterable[list[int]]:
    for op in json.loads(source)["program"]["regions"][0]["blocks"][0]["ops"]:
        outputs = op["O"] if isinstance(op["O"], list) else []
        for output in outputs:
            kind = output["TT"]
            if kind["#"].endswith("t_dtensor"):
                yield kind["D"][1]


def _bytes(shapes: Iterable[Iterable[int]], batch: int) -> int:
    """Every element counts as four bytes, and every open dimension as the micro-batch."""
    return sum(4 * math.prod(size if size >= 0 else batch for size in shape) for shape in shapes)
