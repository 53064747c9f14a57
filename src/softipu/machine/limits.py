"""What no machine could run: settings and schedules out of range, or against each other."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, get_args

from softipu.errors import GraphEmpty, SettingsContradict
from softipu.graph import KINDS, Graph, Schedule

from .program import forward_stages
from .settings import Execution, Partials, PipelineSchedule, Settings

_WORDS: dict[str, tuple[str, ...]] = {
    "execution": get_args(Execution),
    "pipeline_schedule": get_args(PipelineSchedule),
    "matmul_partials": get_args(Partials),
    "convolution_partials": get_args(Partials),
}
_LOOPS = ("micro_batch", "accumulation", "device_iterations", "replicas")


def refuse(graph: Graph, settings: Settings) -> None:
    """Raise an error that names the setting and the way out, unless all can hold."""
    if all(KINDS[op.kind].free for op in graph.ops):
        raise GraphEmpty(f"the graph {graph.name!r} computes nothing")
    _schedule(graph.schedule)
    _settings(settings)
    _pipeline(graph, settings)


def _schedule(schedule: Schedule) -> None:
    for name in _LOOPS:
        count = getattr(schedule, name)
        if not _whole(count) or count < 1:
            raise _out_of_range(name, count, "a whole number, 1 or more")
    ipus = schedule.stage_ipus
    if not ipus or not all(_whole(ipu) and ipu >= 0 for ipu in ipus):
        raise _out_of_range("stage_ipus", ipus, "the IPU of each stage, from 0 on")
    for stage in schedule.recomputed_stages:
        if not _whole(stage) or stage < 0:
            raise _out_of_range(
                "recomputed_stages", sorted(schedule.recomputed_stages), "numbers of stages"
            )


def _settings(settings: Settings) -> None:
    for name, words in _WORDS.items():
        given = getattr(settings, name)
        if given not in words:
            raise _out_of_range(name, repr(given), f"one of {', '.join(words)}")
    proportions = settings.available_memory_proportion
    each = proportions if isinstance(proportions, tuple) else (proportions,)
    if not each or not all(isinstance(one, Real) and 0 <= one <= 1 for one in each):
        raise _out_of_range("available_memory_proportion", proportions, "from 0 to 1")
    for name in ("prefetch_depth", "io_tiles"):
        count = getattr(settings, name)
        if not _whole(count) or count < 0:
            raise _out_of_range(name, count, "a whole number, 0 or more")
    if settings.overlapped and not settings.io_tiles:
        raise SettingsContradict(
            f"{', '.join(settings.overlapped)} overlap with compute, but no tiles are set aside for"
            " I/O",
            remedy="Set io_tiles, to 32 for example, or name nothing as overlapped.",
        )


def _pipeline(graph: Graph, settings: Settings) -> None:
    if settings.execution != "pipelined" or settings.pipeline_schedule != "interleaved":
        return
    stages, schedule = forward_stages(graph), graph.schedule
    if stages == 1:
        raise SettingsContradict(
            "an interleaved pipeline needs stages that take turns, the graph has one",
            remedy="Split the model into stages, or leave the pipeline schedule as it is.",
        )
    if graph.training and schedule.accumulation < stages:
        raise SettingsContradict(
            f"an interleaved pipeline of {stages} stages accumulates {schedule.accumulation}"
            " micro-batches: with fewer than it has stages, some never take turns",
            remedy=f"Set the gradient accumulation to {stages} or more, or use a grouped schedule.",
        )


def _whole(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _out_of_range(name: str, given: object, wanted: str) -> SettingsContradict:
    return SettingsContradict(
        f"{name} is {given}, not {wanted}",
        cause="A setting has a value that no IPU program can have.",
        remedy=f"Set {name} to {wanted}.",
    )
