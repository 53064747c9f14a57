"""Collectives between instances, on tensors and numpy arrays in the host's memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from softipu import instances
from softipu.instances import group

if TYPE_CHECKING:
    import torch

#: The only communicator: all instances.
defaultCommunicatorId = "popdist.default"


def allReduceSum(value: Any) -> Any:
    """The sum over all instances, as a new tensor or array."""
    tensor, back = _copied(value)
    if instances.read().count > 1:
        group.current().all_reduce(tensor)
    return back(tensor)


def broadcast(value: Any, root: int = 0) -> Any:
    """The value of one instance, as a new tensor or array."""
    tensor, back = _copied(value)
    if instances.read().count > 1:
        group.current().broadcast(tensor, root)
    return back(tensor)


def allGather(value: Any) -> Any:
    """The values of all instances, joined along a new first dimension."""
    import torch

    tensor, back = _copied(value)
    parts = group.current().all_gather(tensor) if instances.read().count > 1 else [tensor]
    return back(torch.stack(parts))


def _copied(value: Any) -> tuple[torch.Tensor, Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return value.detach().clone().contiguous(), lambda tensor: tensor
    return torch.as_tensor(value).clone().contiguous(), lambda tensor: tensor.numpy()
