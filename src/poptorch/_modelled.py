"""What a real IPU would have done with a compiled model, as `softipu.estimating.modelled` asks it.

Here a compiled program says how it becomes a graph, and how large it is at most.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from softipu.errors import SoftIPUError
from softipu.estimating.modelled import Modelled, chip_here, is_large
from softipu.graph import Graph
from softipu.machine import Settings

from ._attachment import uses_model
from ._environment import model_chip
from ._errors import Error, failure
from ._logging import logger


def modelled(program: Any, options: Any, name: str) -> Modelled:
    """The estimate of a compiled model, still to be made."""
    chip = (model_chip() if uses_model(options) else None) or chip_here()

    def describe() -> tuple[Graph, Settings]:
        from ._neutral import neutral_graph
        from ._neutral_options import settings_for

        graph = neutral_graph(program, options, name)
        return graph, settings_for(program, graph, options, chip)

    def large() -> bool:
        return is_large(bytes_at_most(program), chip)

    return Modelled(name, describe, large=large, log=logger, raised=as_users_catch_it)


def as_users_catch_it(problem: SoftIPUError) -> Error:
    return failure(type(problem), problem.what, cause=problem.cause, remedy=problem.remedy)


def bytes_at_most(program: Any) -> int:
    """All weights, states and results of a program, as if they were in memory at once."""
    specs = [*program.parameters, *program.buffers, *program.state]
    held = sum(_bytes(spec.shape, spec.dtype) for spec in specs)
    return held + sum(_made(node) for node in program.nodes)


def _made(node: Any) -> int:
    """What a node puts into memory that wasn't there before."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or any(result.alias_info is not None for result in schema.returns):
        return 0
    value = node.meta.get("val")
    several = value if isinstance(value, list | tuple) else [value]
    return sum(_bytes(v.shape, v.dtype) for v in several if isinstance(v, torch.Tensor))


def _bytes(shape: Any, dtype: torch.dtype) -> int:
    return int(math.prod(shape)) * min(dtype.itemsize, 4)
