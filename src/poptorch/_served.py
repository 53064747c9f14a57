"""Executables that run from their files alone, for servers: no model, any number of samples.

The whole batch of an executable is device iterations x replicas x micro-batch. Fewer samples run as
fewer iterations; what is missing from a last micro-batch is filled up and cut off again.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.fx import GraphModule, Node

from softipu import executable
from softipu.errors import ExecutableForeign, ExecutableVersion, NotServable

from ._attachment import Attachment, clock
from ._capture.program import Program
from ._engine.backend import backend_device
from ._engine.freeze import Frozen
from ._engine.memory import DeviceMemory, RandomState
from ._engine.plan import Plan
from ._engine.runner import Runner
from ._executables import _online
from ._graph_tensors import from_bytes
from ._program_file import PRODUCER, Compiled, restore
from ._threads import tracing
from .options import Options

#: Each size that runs packs weights of its own, so only a few smaller ones are offered.
_SMALLER_SIZES = (16, 4, 1)
_ATEN = torch.ops.aten
#: What capture puts between a tensor and the output that it is.
_SAME_VALUE = (_ATEN.detach.default, _ATEN.alias.default, _ATEN.clone.default)


@dataclass(frozen=True)
class ServedTensor:
    """An input or output: its name in the executable, the shape of one sample, its type."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    #: What the device computes in; a caller may send it in the place of `dtype`.
    device_dtype: torch.dtype


def sizes_of(iterations: int) -> list[int]:
    """Numbers of iterations that run as one, the largest first."""
    return [iterations, *(size for size in _SMALLER_SIZES if size < iterations)]


def executions(needed: int, sizes: Sequence[int]) -> list[int]:
    """How `needed` iterations are run: sizes that add up to it or to little more."""
    result = []
    while needed > 0:
        # The last quarter of an execution may be empty: cheaper than several small ones.
        fitting = (size for size in sizes if 4 * needed >= 3 * size)
        size = next(fitting, sizes[-1])
        result.append(size)
        needed -= size
    return result


class ServedExecutable:
    """An inference executable from a file, with its weights; IPUs from `attach` to `detach`."""

    def __init__(self, filename: str | os.PathLike[str], version: str) -> None:
        with executable.read(filename, producer=PRODUCER) as container:
            meta = container.meta
            _check_made_here(filename, meta, version)
            if "weights.safetensors" not in container:
                raise NotServable(
                    f"{os.fspath(filename)} holds no weights.",
                    cause="It is an executable for training, or an older softipu exported it.",
                    remedy="Export the inference model again with compileAndExport.",
                )
            compiled = restore(meta, container.blobs, container.blob)
            values = from_bytes(container.blob("weights.safetensors"))
            self.options = Options._fromState(meta["options"])
        self.name = str(meta.get("name") or "model")
        self.plan: Plan = compiled.plan
        _check_servable(self.plan)
        self.inputs, self.outputs = _tensors(compiled)
        batching = self.plan.batching
        #: Samples of one iteration on all replicas: what runs at least.
        self.unit = _micro_batch(self.plan.program) * batching.replicas
        self._sizes = sizes_of(batching.iterations)
        self._memory = _memory_with(self.plan.program, values, self.options)
        self._runners: dict[int, Runner] = {}
        #: What is prepared of the weights is the same for all sizes, and lives while one needs it.
        self._frozen: WeakValueDictionary[bool, Frozen] = WeakValueDictionary()
        _online(self.options)
        self._attachment = Attachment(self.options, compiled.per_replica)
        self._per_replica = compiled.per_replica

    @property
    def batch(self) -> int:
        """Samples of one whole execution."""
        return self.unit * self.plan.batching.iterations

    def attach(self) -> None:
        """Takes the IPUs that the program needs."""
        self._attachment.attach(self.name)
        self._attachment.describe(self._memory.bytes // self._per_replica)

    def detach(self) -> None:
        self._attachment.detach()

    def run(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Outputs for any number of samples, of which each input has the same number."""
        rows = inputs[0].shape[0]
        start = clock()
        prepared = [
            (tensor if tensor.dtype == info.device_dtype else tensor.to(info.device_dtype))
            for tensor, info in zip(inputs, self.inputs, strict=True)
        ]
        parts: list[list[torch.Tensor]] = []
        begin = 0
        for size in executions(-(-rows // self.unit), self._sizes):
            end = begin + size * self.unit
            parts.append(self._runner(size)([_filled(t[begin:end], end - begin) for t in prepared]))
            begin = end
        joined = [
            column[0] if len(column) == 1 else torch.cat(column)
            for column in zip(*parts, strict=True)
        ]
        outputs = [tensor[:rows] for tensor in joined]
        self._attachment.account(clock() - start, _bytes(inputs), _bytes(outputs))
        return outputs

    def _runner(self, iterations: int) -> Runner:
        runner = self._runners.get(iterations)
        if runner is None:
            batching = replace(self.plan.batching, iterations=iterations)
            with tracing():
                plan = replace(self.plan, batching=batching)
                runner = Runner(plan, self._memory, frozen=self._frozen)
            self._runners[iterations] = runner
        return runner


def _filled(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    missing = rows - tensor.shape[0]
    if missing <= 0:
        return tensor
    return torch.cat([tensor, tensor.new_zeros((missing, *tensor.shape[1:]))])


def _bytes(tensors: Sequence[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _check_made_here(filename: str | os.PathLike[str], meta: dict[str, Any], version: str) -> None:
    path = os.fspath(filename)
    if meta.get("version") != version:
        raise ExecutableVersion(
            f"{path} was made by PopTorch {meta.get('version')}, and this is {version}."
        )
    backend, here = meta.get("backend"), backend_device().type
    if backend != here:
        raise ExecutableForeign(
            f"{path} was compiled for the backend {backend}, and this process uses {here}.",
            cause="An executable runs on the backend that it was compiled for.",
            remedy="Set SOFTIPU_BACKEND, or export the model again.",
        )


def _check_servable(plan: Plan) -> None:
    """Raises unless each sample's result depends on that sample only, as far as can be seen."""
    program = plan.program
    reason = None
    if program.training:
        reason = "it trains"
    elif program.written_buffers or program.written_inputs:
        reason = "it changes its buffers or inputs while it runs, so requests would mix"
    elif plan.sharded:
        reason = "its replicas have weights of their own"
    elif plan.batching.inputs != plan.batching.runs:
        reason = "several replicas get the same inputs"
    elif any(output.mode != "All" for output in plan.outputs):
        reason = "its output mode drops or joins results (set outputMode(OutputMode.All))"
    elif program.anchors:
        reason = "it has anchored tensors"
    elif not program.inputs or not program.outputs:
        reason = "it has no inputs, or no outputs"
    if reason is not None:
        raise NotServable(f"The executable cannot be served: {reason}.")
    micro = _micro_batch(program)
    for spec in (*program.inputs, *program.outputs):
        if not spec.shape or spec.shape[0] != micro:
            raise NotServable(
                f"The executable cannot be served: {spec.name} has the shape {list(spec.shape)}, "
                f"which does not begin with the micro-batch size {micro}."
            )


def _micro_batch(program: Program) -> int:
    first = program.inputs[0].shape
    return first[0] if first else 0


def _tensors(compiled: Compiled) -> tuple[list[ServedTensor], list[ServedTensor]]:
    program = compiled.plan.program
    given = [tensor.dtype for tensor in compiled.arguments.arguments.tensors()]
    inputs = [
        ServedTensor("input" if i == 0 else f"input/{i}", spec.shape[1:], dtype, spec.dtype)
        for i, (spec, dtype) in enumerate(zip(program.inputs, given, strict=True))
    ]
    names = output_names(program.micro, program.tensor_names, len(program.outputs))
    # An input that is handed back would have two meanings: a name is one tensor.
    taken = {tensor.name for tensor in inputs}
    names = [f"output_{i}" if name in taken else name for i, name in enumerate(names)]
    outputs = [
        ServedTensor(name, spec.shape[1:], spec.dtype, spec.dtype)
        for name, spec in zip(names, program.outputs, strict=True)
    ]
    return inputs, outputs


def output_names(micro: GraphModule, tensor_names: dict[str, str], count: int) -> list[str]:
    """The names that PopART would give to the outputs: of the tensors that they are."""
    name_of = {node: name for name, node in tensor_names.items()}
    returned = next(node for node in micro.graph.nodes if node.op == "output").args[0]
    result: list[str] = []
    seen: Counter[str] = Counter()
    for index, node in enumerate(returned[:count]):
        while isinstance(node, Node) and node.name not in name_of and node.target in _SAME_VALUE:
            node = node.args[0]
        name = name_of.get(getattr(node, "name", ""), f"output_{index}")
        result.append(f"{name}/{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return result


def _memory_with(
    program: Program, values: dict[str, torch.Tensor], options: Options
) -> DeviceMemory:
    seed = options.random_seed if options.exists("random_seed") else 0
    memory = DeviceMemory(backend_device(), buffers=[{}], random=RandomState(seed))
    missing = [s.name for s in (*program.parameters, *program.buffers) if s.name not in values]
    if missing:
        raise NotServable(
            f"The executable's weights lack {', '.join(missing[:5])}.",
            cause="The file was put together from parts of different models.",
            remedy="Export the model again.",
        )
    memory.write_parameters({s.name: values[s.name] for s in program.parameters})
    memory.write_buffers({s.name: values[s.name] for s in program.buffers})
    return memory
