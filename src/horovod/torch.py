"""horovod.torch for poprun's instances: `import horovod.torch as hvd`.

Collectives run when they are called; a handle of an asynchronous one holds a finished result.
Gradients of PopTorch models need none of this: popdist.poptorch.Options is enough.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from softipu.errors import HorovodMisuse
from softipu.instances.group import Reduction

from ._basics import (
    ccl_built as ccl_built,
)
from ._basics import (
    cross_rank as cross_rank,
)
from ._basics import (
    cross_size as cross_size,
)
from ._basics import (
    cuda_built as cuda_built,
)
from ._basics import (
    ddl_built as ddl_built,
)
from ._basics import (
    gloo_built as gloo_built,
)
from ._basics import (
    gloo_enabled as gloo_enabled,
)
from ._basics import (
    init as init,
)
from ._basics import (
    is_homogeneous as is_homogeneous,
)
from ._basics import (
    is_initialized as is_initialized,
)
from ._basics import (
    local_rank as local_rank,
)
from ._basics import (
    local_size as local_size,
)
from ._basics import (
    mpi_built as mpi_built,
)
from ._basics import (
    mpi_enabled as mpi_enabled,
)
from ._basics import (
    mpi_threads_supported as mpi_threads_supported,
)
from ._basics import (
    nccl_built as nccl_built,
)
from ._basics import (
    rank as rank,
)
from ._basics import (
    rocm_built as rocm_built,
)
from ._basics import (
    shutdown as shutdown,
)
from ._basics import (
    size as size,
)
from ._basics import (
    together,
)


@dataclass(frozen=True)
class ReduceOp:
    """How values are combined."""

    name: str
    reduction: Reduction


Average = ReduceOp("Average", "sum")
Sum = ReduceOp("Sum", "sum")
Min = ReduceOp("Min", "min")
Max = ReduceOp("Max", "max")
Product = ReduceOp("Product", "product")


class Compression:
    """Names only: nothing is compressed, which changes speed and not results."""

    none = "none"
    fp16 = "fp16"


@dataclass
class Handle:
    """What an asynchronous call returns; its result is there already."""

    value: Any


def _operation(average: bool | None, op: ReduceOp | None) -> ReduceOp:
    if average is not None:
        if op is not None:
            raise ValueError(
                "The op parameter supersedes average. Please provide only one of them."
            )
        return Average if average else Sum
    chosen = Average if op is None else op
    if not isinstance(chosen, ReduceOp):
        raise HorovodMisuse(f"{chosen!r} is no operation of hvd: Sum, Average, Min, Max, Product.")
    return chosen


def _reduce(tensor: torch.Tensor, op: ReduceOp, prescale: float, postscale: float) -> None:
    """In place."""
    everyone = together()
    if prescale != 1.0:
        tensor.mul_(prescale)
    if everyone is not None:
        held = tensor.cpu().contiguous()
        everyone.all_reduce(held, op.reduction)
        if held.data_ptr() != tensor.data_ptr():
            tensor.copy_(held)
    if op is Average and tensor.is_floating_point():
        tensor.div_(size())
    elif op is Average:
        tensor.floor_divide_(size())  # as Horovod does: whole numbers stay whole
    if postscale != 1.0:
        tensor.mul_(postscale)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> torch.Tensor:
    """The average (or sum, …) over all instances, in place."""
    with torch.no_grad():
        _reduce(tensor, _operation(average, op), prescale_factor, postscale_factor)
    return tensor


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: object = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> torch.Tensor:
    """The average (or sum, …) over all instances, as a new tensor without a gradient."""
    copied = tensor.detach().clone()
    return allreduce_(copied, average, name, op, prescale_factor, postscale_factor)


def grouped_allreduce_(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> list[torch.Tensor]:
    """`allreduce_` of many tensors: those of one type travel together."""
    with torch.no_grad():
        for flat, alike in _flattened(tensors):
            allreduce_(flat, average, name, op, prescale_factor, postscale_factor)
            _spread(flat, alike)
    return list(tensors)


def grouped_allreduce(
    tensors: Sequence[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: object = Compression.none,
    op: ReduceOp | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: object = None,
) -> list[torch.Tensor]:
    """`allreduce` of many tensors: those of one type travel together."""
    copies = [tensor.detach().clone() for tensor in tensors]
    return grouped_allreduce_(copies, average, name, op, prescale_factor, postscale_factor)


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: object = None
) -> torch.Tensor:
    """The tensors of all instances, joined along the first dimension, which may differ."""
    everyone = together()
    held = tensor.detach().cpu().contiguous()
    if held.dim() == 0:
        held = held.unsqueeze(0)
    if everyone is None:
        return held.clone().to(tensor.device)
    return torch.cat(everyone.all_gather_ragged(held)).to(tensor.device)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: object = None
) -> torch.Tensor:
    """The tensor of one instance, in place."""
    everyone = together()
    if everyone is not None:
        with torch.no_grad():
            held = tensor.detach().cpu().contiguous()
            everyone.broadcast(held, root_rank)
            tensor.copy_(held)
    return tensor


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: object = None
) -> torch.Tensor:
    """The tensor of one instance, as a new tensor."""
    return broadcast_(tensor.detach().clone(), root_rank)


def broadcast_parameters(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]], root_rank: int, prefix: object = None
) -> None:
    """All instances get the parameters (a `state_dict()` or `named_parameters()`) of one."""
    pairs = params.items() if isinstance(params, Mapping) else list(params)
    tensors = [value.data for _, value in sorted(pairs) if isinstance(value, torch.Tensor)]
    for flat, alike in _flattened(tensors):
        broadcast_(flat, root_rank)
        _spread(flat, alike)


def _flattened(
    tensors: Sequence[torch.Tensor],
) -> Iterable[tuple[torch.Tensor, list[torch.Tensor]]]:
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    for alike in kinds.values():
        yield torch.cat([tensor.reshape(-1).cpu() for tensor in alike]), alike


def _spread(flat: torch.Tensor, tensors: Sequence[torch.Tensor]) -> None:
    """The parts of a flattened list back into its tensors."""
    start = 0
    for tensor in tensors:
        tensor.copy_(flat[start : start + tensor.numel()].view(tensor.shape))
        start += tensor.numel()


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer, root_rank: int, prefix: object = None
) -> None:
    """All instances get the state and the settings of one instance's optimizer."""
    state = optimizer.state_dict() if rank() == root_rank else None
    received = broadcast_object(state, root_rank)
    if rank() != root_rank:
        optimizer.load_state_dict(received)


def broadcast_object(
    obj: Any, root_rank: int = 0, name: str | None = None, process_set: object = None
) -> Any:
    """Any object of one instance that can be pickled."""
    everyone = together()
    if everyone is None:
        return obj
    content = _pickled(obj) if rank() == root_rank else b""
    received = everyone.broadcast_bytes(content, root_rank)
    return obj if rank() == root_rank else pickle.loads(received)


def allgather_object(obj: Any, name: str | None = None, process_set: object = None) -> list[Any]:
    """The objects of all instances, in order."""
    everyone = together()
    if everyone is None:
        return [obj]
    return [pickle.loads(content) for content in everyone.all_gather_bytes(_pickled(obj))]


def _pickled(obj: Any) -> bytes:
    written = io.BytesIO()
    pickle.dump(obj, written)
    return written.getvalue()


def barrier(process_set: object = None) -> None:
    """Returns when all instances have come here."""
    everyone = together()
    if everyone is not None:
        everyone.barrier()


def join(device: int = -1) -> int:
    """A barrier: instances that have no more data wait for the others here; returns the last."""
    barrier()
    return size() - 1


def allreduce_async(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Handle:
    """`allreduce`, done at once."""
    return Handle(allreduce(tensor, *args, **kwargs))


def allreduce_async_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Handle:
    """`allreduce_`, done at once."""
    return Handle(allreduce_(tensor, *args, **kwargs))


def grouped_allreduce_async(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Handle:
    """`grouped_allreduce`, done at once."""
    return Handle(grouped_allreduce(tensors, *args, **kwargs))


def grouped_allreduce_async_(tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> Handle:
    """`grouped_allreduce_`, done at once."""
    return Handle(grouped_allreduce_(tensors, *args, **kwargs))


def allgather_async(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Handle:
    """`allgather`, done at once."""
    return Handle(allgather(tensor, *args, **kwargs))


def broadcast_async(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Handle:
    """`broadcast`, done at once."""
    return Handle(broadcast(tensor, *args, **kwargs))


def broadcast_async_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> Handle:
    """`broadcast_`, done at once."""
    return Handle(broadcast_(tensor, *args, **kwargs))


def poll(handle: Handle) -> bool:
    """Whether the result of an asynchronous call is there."""
    return isinstance(handle, Handle)


def synchronize(handle: Handle) -> Any:
    """The result of an asynchronous call."""
    if not isinstance(handle, Handle):
        raise HorovodMisuse(f"{handle!r} is no handle of an asynchronous hvd call.")
    return handle.value


def DistributedOptimizer(*_args: Any, **_kwargs: Any) -> Any:
    """Raises: PopTorch reduces gradients itself."""
    raise HorovodMisuse(
        "hvd.DistributedOptimizer is not there.",
        remedy="PopTorch reduces gradients itself: train with popdist.poptorch.Options and one of "
        "poptorch.optim's optimizers.",
    )
