"""Compiled programs and predictors of Paddle as what the machine model takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paddle.base import core, framework

from softipu.graph import Graph
from softipu.machine.settings import Settings

from . import graphs
from .executable import Executable
from .inference_model import Model, looks_like_json
from .inference_options import IpuOptions
from .neutral import graph_of, settings_of
from .neutral_pir import operations_of
from .plan import Plan
from .program import _averaged, _operations, program_of
from .usage import EXECUTABLE


def of_compiled(compiled: Any, name: str = "program") -> tuple[Graph, Settings]:
    """What `IpuCompiledProgram.compile` made of a program."""
    data = data_of_compiled(compiled)
    return graph_of(data, name), settings_of(data)


def data_of_compiled(compiled: Any) -> dict[str, Any]:
    """All that an estimate needs to know of the program, sharing nothing with it."""
    data = program_of(compiled)
    executable: Executable = (
        compiled if isinstance(compiled, Executable) else getattr(compiled, EXECUTABLE)
    )
    plan, lowered = executable.plan, executable.lowered
    block = lowered.micro_batch.global_block()
    if any(min(graphs.shape_of(block, f.name), default=0) < 0 for f in executable.feeds):
        shapes = {feed.name: feed.shape for feed in executable.feeds}
        sized = _sized(lowered.micro_batch, shapes, plan.micro_batch)
        data["operations"] = _operations(sized, plan)
        if lowered.update is not None:
            data["operations"] += _operations(lowered.update, plan)
    data["locations"] = {
        name: values
        for name, values in executable.options.groups.items()
        if name.startswith("location_")
    }
    return data


def _sized(program: Any, feeds: Mapping[str, Iterable[int]], batch: int) -> Any:
    """The program for one size of batch: shapes follow from those of the feeds."""
    copy = program.clone()
    block = copy.global_block()
    for name, shape in feeds.items():
        var = block.desc.find_var(name.encode())
        if var is not None:
            var.set_shape([size if size >= 0 else batch for size in shape])
    for op in block.ops:
        op.desc.infer_shape(block.desc)
    return copy


# --- predictors ---------------------------------------------------------------------------------


def of_predictor(predictor: Any) -> tuple[Graph, Settings]:
    """What a predictor with `enable_ipu` runs."""
    return of_model(predictor.session.model, predictor.session.options)


def of_model(model: Model, options: IpuOptions) -> tuple[Graph, Settings]:
    """The same of a model's file and the options of a Config."""
    data = data_of_model(model, options)
    return graph_of(data, model.name), settings_of(data)


def data_of_model(model: Model, options: IpuOptions) -> dict[str, Any]:
    """All that an estimate needs to know of a model that a predictor runs."""
    assert model.source is not None
    batch, stages = int(options["ipu_micro_batch_size"]), int(options["ipu_device_num"])
    replicas = int(options["ipu_replica_num"])
    plan = Plan(
        training=False, num_ipus=stages * replicas, micro_batch=batch,
        batches_per_step=1, accumulation=None, replicas=replicas,
        reduction="mean", pipelined=bool(options["ipu_enable_pipelining"]), manual_shards=False,
        average_shards=stages > 1,
        loss_scaling=1.0, pads_batches=False, random_seed=None,
    )  # fmt: skip
    partials = "half" if options["ipu_enable_half_partial"] else "float"
    data = {
        "training": False, "ipus": plan.num_ipus, "replicas": replicas,
        "micro_batch_size": batch, "gradient_accumulation": 1,
        "batches_per_step": options.batches_per_step,
        "pipelined": plan.pipelined,
        "feeds": [{"name": feed.name} for feed in model.feeds.values()],
        "fetches": list(model.fetches), "weights": [],
        "operations": _of_source(model, batch, plan),
        "options": {
            "available_memory_proportion": float(options["ipu_available_memory_proportion"]),
            "partials_type_matmuls": partials,
            "convolution_options": {"partialsType": partials},
        },
    }  # fmt: skip
    if options["ipu_enable_fp16"]:
        _halve(data["operations"])
    return data


@graphs.in_static_mode
def _of_source(model: Model, batch: int, plan: Plan) -> list[dict[str, Any]]:
    assert model.source is not None
    if looks_like_json(model.source):
        operations = operations_of(model.source, batch)
        if plan.average_shards:
            for operation, (ipu, stage) in zip(
                operations, _averaged(operations, plan), strict=True
            ):
                operation.update(ipu=ipu, stage=stage)
        return operations
    feeds = {feed.name: feed.shape for feed in model.feeds.values()}
    return _operations(_sized(_program(model.source), feeds, batch), plan)


def _program(source: bytes) -> Any:
    """The program of a model file, without feed and fetch operations."""
    program = framework.Program()
    program.desc = core.ProgramDesc(source)
    program.blocks = [framework.Block(program, index) for index in range(program.desc.num_blocks())]
    program._sync_with_cpp()
    return graphs.copy_of(program)


def _halve(operations: list[dict[str, Any]]) -> None:
    """With half precision everything that is a float32 is a float16 on the device."""
    for operation in operations:
        for side in ("inputs", "outputs"):
            for items in operation[side].values():
                for item in items:
                    if item["dtype"] == "float32":
                        item["dtype"] = "float16"
