"""Tensors of any names, strides and dtypes as safetensors and JSON, and back.

Memory is written once, however many tensors view it, and what shared memory does so again. Values
only: no Python object of a tensor, hook or history is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors

from softipu.errors import ExecutableCorrupt, ExecutableForeign, NotPortable

from ._graph_values import (
    DTYPES,
    device_named,
    fail,
    name_of,
    one_of,
    shown,
    sizes,
)

#: What gives the bytes of a part of a file by its name: `Container.blob`.
Read = Callable[[str], bytes]
#: Written as they are; tensors of other dtypes, or several in one memory, are written as bytes.
_PLAIN_DTYPES = {
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool, torch.uint8,
    torch.int64, torch.int32, torch.int16, torch.int8,
}  # fmt: skip
_ROW_KEYS = {
    "name", "storage", "dtype", "shape", "stride", "offset", "device", "parameter", "requires_grad",
}  # fmt: skip
#: No element is larger, so bytes that begin at a multiple of it suit every dtype.
_LARGEST_ITEM = 16


def to_text(data: bytes) -> str:
    try:
        return data.decode("ascii")
    except UnicodeDecodeError:
        raise ExecutableCorrupt("The description of a graph or of tensors is not text.") from None


def to_bytes(storages: dict[str, torch.Tensor]) -> bytes:
    return safetensors.save(storages)


def from_bytes(data: bytes) -> dict[str, torch.Tensor]:
    try:
        return safetensors.load(data)
    except (SafetensorError, KeyError, ValueError, RuntimeError, AssertionError) as error:
        raise ExecutableCorrupt(f"The tensors cannot be read: {shown(str(error))}.") from error


# --- writing --------------------------------------------------------------------------------------


def dump_tensors(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    """Rows that describe the tensors as views, and the stretches of memory that they view."""
    groups: dict[int, dict[str, torch.Tensor]] = {}
    for name, tensor in tensors.items():
        plain = _checked(name, tensor)
        groups.setdefault(plain.untyped_storage()._cdata, {})[name] = plain
    rows: dict[str, dict[str, Any]] = {}
    storages: dict[str, torch.Tensor] = {}
    for number, group in enumerate(groups.values()):
        start, storages[f"storage{number}"] = _stretch(list(group.values()))
        for name, tensor in group.items():
            rows[name] = {
                "name": name,
                "storage": f"storage{number}",
                "dtype": name_of(tensor.dtype),
                "shape": list(tensor.shape),
                "stride": list(tensor.stride()),
                "offset": int(tensor.storage_offset()) - start // tensor.itemsize,
                "device": str(tensor.device),
                "parameter": isinstance(tensors[name], torch.nn.Parameter),
                "requires_grad": tensors[name].requires_grad,
            }
    return [rows[name] for name in tensors], storages


def _checked(name: str, tensor: torch.Tensor) -> torch.Tensor:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if not plain or tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
        kind = type(tensor).__name__
        raise NotPortable(f"The tensor {name} ({kind}) is not a plain one with its own values.")
    return tensor.detach().resolve_conj().resolve_neg()


def _stretch(views: Sequence[torch.Tensor]) -> tuple[int, torch.Tensor]:
    """The memory that the views cover, as a flat tensor on the CPU, and at which byte it begins."""
    bounds = [_bounds(view) for view in views]
    first, last = min(low for low, _ in bounds), max(high for _, high in bounds)
    dtypes = {view.dtype for view in views}
    dtype = views[0].dtype if len(dtypes) == 1 and dtypes <= _PLAIN_DTYPES else torch.uint8
    if dtype not in dtypes:
        first -= first % _LARGEST_ITEM
    flat = torch.empty(0, dtype=dtype, device=views[0].device)
    count = (last - first) // dtype.itemsize
    flat.set_(views[0].untyped_storage(), first // dtype.itemsize, (count,), (1,))
    if dtype in dtypes:
        return first, flat.cpu()
    rest = torch.zeros(-count % _LARGEST_ITEM, dtype=torch.uint8)
    return first, torch.cat([flat.cpu(), rest])


def _bounds(view: torch.Tensor) -> tuple[int, int]:
    """The first byte of its memory that a view uses, and the one behind the last."""
    offset = int(view.storage_offset())
    return offset * view.itemsize, (offset + _reach(view.shape, view.stride())) * view.itemsize


def _reach(shape: Sequence[int], stride: Sequence[int]) -> int:
    """How many elements lie from the first to the last of a view, both included."""
    if 0 in shape:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))


# --- reading --------------------------------------------------------------------------------------


def load_tensors(rows: Any, storages: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    if not isinstance(rows, list):
        fail("the tensors are not a list")
    result: dict[str, torch.Tensor] = {}
    for row in rows:
        if not isinstance(row, dict) or set(row) != _ROW_KEYS or not isinstance(row["name"], str):
            fail("a tensor lacks parts, or has unknown ones")
        if row["name"] in result:
            fail(f"two tensors are named {shown(row['name'])}")
        result[row["name"]] = _with_flags(row, _load_tensor(row, storages))
    if {row["storage"] for row in rows} != set(storages):
        fail("some memory belongs to no tensor")
    return result


def _load_tensor(row: dict[str, Any], storages: Mapping[str, torch.Tensor]) -> torch.Tensor:
    base, dtype = one_of(storages, row["storage"]), one_of(DTYPES, row["dtype"])
    shape, stride, [offset] = sizes(row["shape"]), sizes(row["stride"]), sizes([row["offset"]])
    if base.dim() != 1 or not base.is_contiguous() or len(shape) != len(stride):
        fail(f"the tensor {shown(row['name'])} does not fit its memory")
    if base.dtype is not dtype:
        base = _seen_as(base, dtype, row["name"])
    if offset + _reach(shape, stride) > base.numel():
        fail(f"the tensor {shown(row['name'])} reaches beyond its memory")
    tensor = torch.empty(0, dtype=dtype)
    tensor.set_(base.untyped_storage(), int(base.storage_offset()) + offset, shape, stride)
    return _moved(tensor, device_named(row["device"]), row["name"])


def _moved(tensor: torch.Tensor, device: torch.device, name: str) -> torch.Tensor:
    try:
        return tensor.to(device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ExecutableForeign(
            f"The tensor {shown(name)} belongs on {device}: {shown(str(error))}.",
            cause="The file was made on a machine with a device that this one does not have.",
            remedy="Load it on a machine like that, or compile and save the program here.",
        ) from error


def _seen_as(base: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    suits = base.dtype is torch.uint8 and base.numel() % _LARGEST_ITEM == 0
    try:
        if suits and base.storage_offset() % _LARGEST_ITEM == 0:
            return base.view(dtype)
    except RuntimeError as error:  # a dtype of which there are no tensors, as of 4-bit numbers
        fail(f"the tensor {shown(name)} cannot be read: {shown(str(error))}")
    return fail(f"the tensor {shown(name)} does not fit its memory")


def _with_flags(row: dict[str, Any], tensor: torch.Tensor) -> torch.Tensor:
    parameter, grad = row["parameter"], row["requires_grad"]
    if type(parameter) is not bool or type(grad) is not bool:
        fail(f"the tensor {shown(row['name'])} has flags that are none")
    if grad and not (tensor.is_floating_point() or tensor.is_complex()):
        fail(f"the tensor {shown(row['name'])} cannot have a gradient")
    return torch.nn.Parameter(tensor, grad) if parameter else tensor.requires_grad_(grad)
