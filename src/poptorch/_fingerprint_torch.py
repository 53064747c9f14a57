"""The torch side of a fingerprint: tensors as types or as content, and torch's own global state.

Nothing here calls a tensor subclass or a module of the user: attributes are read through
`torch.Tensor` and dictionaries.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from ._fingerprint_origin import NotFingerprintable, full_name
from ._weights import Hooked

_AUTOCAST_DEVICES = ("cpu", "cuda")
#: Tensors of these classes are no more than their type and content.
PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_OPERATOR_LIBRARIES = (
    "aten",
    "higher_order",
    "prim",
    "prims",
    "poptorch",
    "quantized",
    "torchvision",
)


def class_of(value: Any) -> type:
    """The class of a value; for what `trainingModel` wrapped, the class it had before."""
    kind = type(value)
    while Hooked in kind.__mro__:
        kind = vars(kind)["_original"]
    return kind


class TensorTypes:
    """Describes tensors without their values, remembering which share memory."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[int, int]] = {}
        self._tensors: dict[int, int] = {}
        self._kept: list[Any] = []

    def describe(self, tensor: torch.Tensor) -> str:
        parts = [_get(tensor, name) for name in ("dtype", "device", "requires_grad", "layout")]
        parts.append(list(_get(tensor, "shape")))
        if parts[3] == torch.strided:
            parts += [list(torch.Tensor.stride(tensor)), *self._storage(tensor)]
        return f"tensor {parts}"

    def identity(self, tensor: torch.Tensor) -> str:
        """The same text for the same tensor under another name."""
        self._kept.append(tensor)
        return str(self._tensors.setdefault(id(tensor), len(self._tensors)))

    def _storage(self, tensor: torch.Tensor) -> tuple[int, int]:
        """The number of the memory, and the offset from where it was first seen.

        The offset alone depends on the data set that an input was sliced from.
        """
        storage, offset = torch.Tensor.untyped_storage(tensor), torch.Tensor.storage_offset(tensor)
        number, first = self._storages.setdefault(
            storage._cdata, (len(self._storages), int(offset))
        )
        self._kept.append(storage)
        return number, int(offset) - first


def _get(tensor: torch.Tensor, name: str) -> Any:
    return getattr(torch.Tensor, name).__get__(tensor)


def content_digest(tensor: torch.Tensor, path: str) -> str:
    """The values of a tensor that becomes a constant of the graph."""
    kind: Any = class_of(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ and kind not in PLAIN_TENSORS:
        raise NotFingerprintable(f"{path}: {full_name(kind)} has its values elsewhere")
    if _get(tensor, "layout") != torch.strided:
        raise NotFingerprintable(f"{path}: a tensor of layout {_get(tensor, 'layout')}")
    if _get(tensor, "device").type == "meta":
        return "meta"
    plain = torch.Tensor.detach(tensor)
    with torch.no_grad():
        if plain.is_quantized:
            raise NotFingerprintable(f"{path}: a quantised tensor")
        plain = plain.resolve_conj().resolve_neg().cpu().contiguous()
    size = plain.numel() * plain.element_size()
    # Straight from memory: numpy lacks some types and may not be installed.
    memory = (ctypes.c_char * size).from_address(plain.data_ptr()) if size else b""
    return hashlib.sha256(memory).hexdigest()


def slot_tables(model: Any) -> frozenset[int]:
    """The ids of a module tree's tables of parameters and buffers: what the graph takes as inputs.

    Tensors anywhere else, in modules that a plain list holds too, are constants of the graph.
    """
    if torch.nn.Module not in type(model).__mro__:
        return frozenset()
    found: set[int] = set()
    todo, seen = [model], set()
    while todo:
        module = todo.pop()
        if module is None or id(module) in seen:
            continue
        seen.add(id(module))
        state = object.__getattribute__(module, "__dict__")
        if torch.jit.ScriptModule in type(module).__mro__:
            raise NotFingerprintable(f"{full_name(type(module))} is TorchScript")
        if "_modules" not in state:
            raise NotFingerprintable(f"{full_name(type(module))} has not been initialised")
        found |= {id(state["_parameters"]), id(state["_buffers"])}
        todo += state["_modules"].values()
    return frozenset(found)


def is_known_operator_library(name: str) -> bool:
    return name in _OPERATOR_LIBRARIES


def global_state() -> Iterator[str]:
    """What torch is set to that changes the graph which the same code gives."""
    for mode in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]
        if type(mode) is not DeviceContext:
            raise NotFingerprintable(
                f"{full_name(type(mode))} is active and may change any operation"
            )
        yield f"in device {mode.device}"
    for mode in _get_current_dispatch_mode_stack():
        raise NotFingerprintable(f"{full_name(type(mode))} is active and may change any operation")
    if torch._C._functorch.peek_interpreter_stack() is not None:
        raise NotFingerprintable("a torch.func transformation is active")
    backends: Any = torch.backends
    settings: dict[str, Any] = {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": [
            (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
            for device in _AUTOCAST_DEVICES
        ],
        "autocast cache": torch.is_autocast_cache_enabled(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "fill": torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
        "precision": torch.get_float32_matmul_precision(),
        "attention": [
            backends.cuda.flash_sdp_enabled(),
            backends.cuda.mem_efficient_sdp_enabled(),
            backends.cuda.math_sdp_enabled(),
            backends.cuda.cudnn_sdp_enabled(),
            torch._C._get_sdp_priority_order(),
            backends.mha.get_fastpath_enabled(),
        ],
        "libraries": [
            torch._C._get_mkldnn_enabled(),
            torch._C._get_cudnn_enabled(),
            torch._C._get_nnpack_enabled(),
            backends.quantized.engine,
        ],
        "einsum": [
            backends.opt_einsum.is_available(),
            backends.opt_einsum.enabled,
            backends.opt_einsum.strategy,
        ],
        "parametrize": torch.nn.utils.parametrize._cache_enabled,
        "cpu": backends.cpu.get_cpu_capability(),
    }
    yield from (f"{name} {value}" for name, value in settings.items())
