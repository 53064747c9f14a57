"""A program that somebody has described already, with what the command's options change about it.

Loops, samples and settings can be changed in the graph that is there. What would need another
capture is refused: an option either counts or is an error.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from softipu.errors import OptionsContradict
from softipu.graph import Graph
from softipu.machine import Settings
from softipu.machine.rescale import with_micro_batch

from .request import Request


def adapted(graph: Graph, settings: Settings, request: Request) -> tuple[Graph, Settings]:
    """The program of a function or a file, as the options want it."""
    _refuse(graph, request)
    return _rescheduled(_rebatched(graph, request), request), _reset(settings, request)


def _refuse(graph: Graph, request: Request) -> None:
    if request.training and not graph.training:
        raise OptionsContradict(
            f"--training, but {request.target} was made for inference.",
            remedy="Leave --training out, or export the model of poptorch.trainingModel.",
        )
    if request.length is not None:
        raise OptionsContradict(
            f"--length {request.length}: {request.target} decides about its inputs itself.",
            remedy="Make inputs of that length there, and leave --length out.",
        )
    request.refuse_training_options(graph.training)
    if request.recompute and not graph.schedule.recomputed_stages:
        raise OptionsContradict(
            f"--recompute: what {request.target} keeps is decided when it is captured.",
            remedy='Set options._Popart.set("autoRecomputation", 1) in the options that it returns '
            "or was exported with, and leave --recompute out.",
        )


def _rebatched(graph: Graph, request: Request) -> Graph:
    asked, own = request.micro_batch, graph.schedule.micro_batch
    if asked is None or asked == own:
        return graph
    found = with_micro_batch(graph, asked)
    if found is None:
        raise OptionsContradict(
            f"--micro-batch {asked}: {request.target} has a micro-batch of {own}, and its graph "
            "does not tell which dimensions are samples.",
            remedy=f"Make its inputs for micro-batches of {asked}, and leave --micro-batch out.",
        )
    return found


def _rescheduled(graph: Graph, request: Request) -> Graph:
    named = {
        "accumulation": request.accumulation,
        "device_iterations": request.iterations,
        "replicas": request.replicas,
    }
    changes: dict[str, Any] = {name: value for name, value in named.items() if value is not None}
    if request.recompute is False:
        changes["recomputed_stages"] = frozenset()
    return graph.with_schedule(**changes)


def _reset(settings: Settings, request: Request) -> Settings:
    changes: dict[str, Any] = {}
    if request.proportion is not None:
        changes["available_memory_proportion"] = request.proportion
    if request.half_partials:
        changes |= {"matmul_partials": "float16", "convolution_partials": "float16"}
    if request.io_tiles is not None:
        changes |= {"io_tiles": request.io_tiles, "overlapped": None}
    return replace(settings, **changes)
