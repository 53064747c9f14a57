"""The lines that PopTorch's log has about where ops run, for scripts and tests that read it.

Only text is made here; who logs it, and at which level, is the executor's business.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ._context import Place
from ._strategies import _IExecutionStrategy, _IPhasedExecution, used_places
from .enums import Liveness


class Lowered(NamedTuple):
    """An op for the log: its scoped name (`layer1/Relu`), its place, and the tensors it makes.

    `outputs` are anything with `dtype` and `shape`; `loss` marks the op that makes the final loss.
    """

    name: str
    place: Place
    outputs: tuple[Any, ...] = ()
    loss: bool = False


# Names of the native op set where they are not the ATen name in another spelling.
_NATIVE_NAMES = {
    native: aten.split()
    for native, aten in {
        "BatchNormalization": "batch_norm native_batch_norm _native_batch_norm_legit",
        "Cast": "_to_copy to type",
        "Concat": "cat",
        "Conv": "convolution conv1d conv2d conv3d",
        "Gather": "embedding index_select",
        "Gemm": "addmm addmv",
        "Identity": "clone contiguous",
        "LogSoftmax": "_log_softmax",
        "MatMul": "mm bmm mv dot matmul",
        "MaxPool": "max_pool2d max_pool2d_with_indices",
        "ReduceMean": "mean",
        "ReduceSum": "sum",
        "Reshape": "view reshape _unsafe_view unsqueeze squeeze flatten",
        "Slice": "split split_with_sizes chunk narrow select unbind",
        "Softmax": "_softmax",
        "Transpose": "t permute",
    }.items()
}
_NATIVE_NAME_OF = {aten: native for native, names in _NATIVE_NAMES.items() for aten in names}


def native_name(aten: str) -> str:
    """The name PopTorch's log gives to an ATen op (without overload): `mm` is `MatMul`."""
    camel = "".join(part.capitalize() for part in aten.strip("_").split("_"))
    return _NATIVE_NAME_OF.get(aten, camel)


def execution_info(place: Place, strategy: _IExecutionStrategy) -> str:
    """`mode(Pipelined), ipu(0), stage(0)`, or the phase instead of the stage."""
    settled = strategy.settle(place)
    if isinstance(strategy, _IPhasedExecution):
        which = f"phase({(settled.phase or 0) * strategy.stride})"
    else:
        which = f"stage({settled.stage})"
    return f"mode({strategy.mode}), ipu({settled.ipu}), {which}"


def _as_l1_loss(nodes: list[Lowered]) -> list[Lowered]:
    """PyTorch splits the L1 loss into plain ops; the log knows its absolute sum as one op."""
    told = list(nodes)
    for index in range(1, len(nodes)):
        before, last = nodes[index - 1], nodes[index]
        scope, _, op = before.name.rpartition("/")
        reduces = last.name.rpartition("/")[2] in ("ReduceMean", "ReduceSum")
        if last.loss and reduces and op == "Abs":
            prefix = f"{scope}/" if scope else ""
            told[index - 1] = before._replace(name=f"{prefix}L1", outputs=last.outputs)
            told[index] = last._replace(name=f"{prefix}IdentityLoss")
    return told


def _one_op_per_line(nodes: Iterable[Lowered]) -> Iterator[Lowered]:
    for node in nodes:
        if node.name.rpartition("/")[2] == "Slice" and node.outputs:
            yield from (node._replace(outputs=(output,)) for output in node.outputs)
        else:
            yield node


def log_lines(
    nodes: Iterable[Lowered | tuple[str, Place]], strategy: _IExecutionStrategy
) -> list[str]:
    """One line per op in order of execution, for the log at level DEBUG."""
    told = _one_op_per_line(_as_l1_loss([Lowered(*node) for node in nodes]))
    seen: Counter[str] = Counter()
    lines = ["Graph lowered to PopART {"]
    for node in told:
        names, types = [], []
        for index, output in enumerate(node.outputs or (None,)):
            name = f"{node.name}:{index}"
            names.append(f"{name}/{seen[name]}" if seen[name] else name)
            seen[name] += 1
            if output is not None:
                dtype = str(output.dtype).removeprefix("torch.")
                types.append(f"{dtype}({', '.join(str(int(size)) for size in output.shape)})")
        op = node.name.rpartition("/")[2].lower()
        facts = "".join(f"{text}, " for text in types) or " "
        facts += execution_info(node.place, strategy)
        lines.append(f"popart::{op} was lowered to {', '.join(names)} [{facts}]")
    return [*lines, "}"]


def setting_lines(places: Iterable[Place], strategy: _IExecutionStrategy) -> list[str]:
    """The settings that follow from the places of the ops, for the log at level DEBUG."""
    used = used_places(places, strategy)
    pipelining = strategy.mode == "Pipelined" and len({place.ipu for place in used}) > 1
    lines = [f"enablePipelining set to value {int(pipelining)}"]
    if isinstance(strategy, _IPhasedExecution):
        phases = max((place.phase or 0 for place in used), default=0) * strategy.stride + 1
        if strategy._tensors_liveness != Liveness.AlwaysLive:
            phases += 3  # Tensors stay live for three phases: a gap before the backward pass.
        elif strategy._separate_backward_phase:
            phases += 1
        lines += [
            f"executionPhaseSettings.phases set to value {phases}",
            f"executionPhaseSettings.stages set to value {1 if strategy._serial else 2}",
        ]
        lines += [
            f"location_{what} set to value useOnChipStorage(False)"
            for what in ("activation", "weight", "optimizer", "accumulator")
        ]
    return lines
