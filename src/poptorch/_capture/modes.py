"""The rules that hold while a model's `forward` is captured, as one torch function mode.

Devices named "ipu" are the captured device, losses are marked, half and float32 may meet, and each
recorded node learns which block, scope and module it came from.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensor
from torch.fx import Graph, Node
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import _disable_current_modes

from .._context import Capture, unwrapped
from .explain import this_line
from .halves import as_float, mixed, tensors_in
from .norms import NORMS, STRIDED, batch_norm, mixed_norm, strided_group_norm
from .replaced import (
    INDEXED,
    LOOKUPS,
    REPLACED,
    SPARSE,
    require_wide_indices,
    with_dense_gradients,
    with_wide_indices,
)

LOSSES = frozenset(
    {
        "binary_cross_entropy",
        "binary_cross_entropy_with_logits",
        "cosine_embedding_loss",
        "cross_entropy",
        "ctc_loss",
        "gaussian_nll_loss",
        "hinge_embedding_loss",
        "huber_loss",
        "kl_div",
        "l1_loss",
        "margin_ranking_loss",
        "mse_loss",
        "multi_margin_loss",
        "multilabel_margin_loss",
        "multilabel_soft_margin_loss",
        "nll_loss",
        "nll_loss_nd",
        "poisson_nll_loss",
        "smooth_l1_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "triplet_margin_with_distance_loss",
    }
)
DEVICES = ("ipu", "xla", "cpu")
#: Functions that hand a tensor's values to the host, beyond those that torch itself objects to.
VALUE_READERS = frozenset({"numpy", "__array__"})
#: Functions that want one floating type, and whose fake versions don't complain about two.
ONE_TYPE = frozenset(
    {
        "addbmm",
        "addmm",
        "addmv",
        "baddbmm",
        "bilinear",
        "bmm",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "dot",
        "einsum",
        "gru",
        "linear",
        "lstm",
        "matmul",
        "mm",
        "multi_head_attention_forward",
        "mv",
        "rnn_relu",
        "rnn_tanh",
        "scaled_dot_product_attention",
        "__matmul__",
        "__rmatmul__",
    }
)


class Stamper:
    """Writes the current place on every node that was recorded since it last looked."""

    def __init__(self, graph: Graph, capture: Capture) -> None:
        self._graph = graph
        self._capture = capture
        self._last: Node = graph._root.prev

    def stamp(self, *, backward: bool = False) -> None:
        place = self._capture.place
        facts: dict[str, Any] = {
            key: value
            for key, value in (
                ("block", place.block),
                ("stage", place.stage),
                ("phase", place.phase),
                ("ipu", place.ipu),
                ("path", "/".join(self._capture.scopes) or None),
                ("backward", backward or None),
            )
            if value is not None
        }
        node = self._last.next
        while node.op != "root":
            node.meta.setdefault("softipu", facts)
            if node.op == "get_attr":
                self._capture.lines[node.name] = this_line(self._capture.options)
            self._last = node
            node = node.next

    def state(self) -> tuple[Any, list[str]]:
        return self._capture.place, list(self._capture.scopes)

    def restore(self, state: tuple[Any, list[str]]) -> None:
        """Called as the backward pass of a function begins: its nodes belong where it ran."""
        self.stamp(backward=True)
        place, scopes = state
        self._capture.places[-1] = place
        self._capture.scopes[:] = scopes


def _on(device: torch.device, value: Any) -> Any:
    """The captured device in the place of the IPU and of the host."""
    named = isinstance(value, str) and value.split(":")[0] in DEVICES
    if named or (isinstance(value, torch.device) and value.type in DEVICES):
        return device
    return value


def _moved(device: torch.device, value: Any) -> Any:
    """Tensors of the host that meet tensors of the model become constants on its device."""
    if isinstance(value, torch.Tensor):
        outside = not isinstance(value, FakeTensor) and value.device != device
        return value.to(device) if outside and value.dim() else value
    if type(value) in (list, tuple):
        return type(value)(_moved(device, item) for item in value)
    return value


RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})


def _on_host(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a function sees only tensors that exist outside the model."""
    tensors = tensors_in(args, kwargs)
    return bool(tensors) and not any(isinstance(unwrapped(t), FakeTensor) for t in tensors)


class ForwardRules(TorchFunctionMode):
    """Applies the rules to each torch function that `forward` calls."""

    def __init__(
        self, capture: Capture, stamper: Stamper, device: torch.device, strided_groups: bool = False
    ) -> None:
        super().__init__()
        self._strided_groups = strided_groups
        self._device = device
        self._capture = capture
        self._stamper = stamper
        self.switched_gradients = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name == "_set_grad_enabled":
            self.switched_gradients = True
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _on(self._device, kwargs["device"])}
        if name == "to":
            args = (args[0], *(_on(self._device, value) for value in args[1:]))
        if name == "cpu" and isinstance(unwrapped(args[0]), FakeTensor):
            return args[0]
        if _on_host(args, kwargs):
            # Tensors of the host are constants of the graph: computed now, as their values may be
            # needed for indices and sizes.
            with _disable_current_modes():
                return func(*args, **kwargs)
        if name in VALUE_READERS:
            raise DataDependentOutputException(func)  # type: ignore[arg-type]
        if self._device.type != "cpu":
            args = tuple(_moved(self._device, value) for value in args)
            kwargs = {key: _moved(self._device, value) for key, value in kwargs.items()}
        if name == "group_norm" and self._strided_groups:
            return self._with_strided_groups(*args, **kwargs)
        return self._recorded(func, args, kwargs)

    def _with_strided_groups(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self._stamper.stamp()
        self._capture.scopes.append(STRIDED)
        try:
            # Which library computes it, torch's last argument, decides nothing here.
            result: torch.Tensor = self._recorded(strided_group_norm, args[:5], kwargs)
            return result
        finally:
            self._capture.scopes.pop()

    def _recorded(
        self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call whose nodes are told where they belong, as are those of its gradient."""
        name = getattr(func, "__name__", "")
        self._stamper.stamp()
        result = self._call(func, args, kwargs)
        if name in LOSSES and isinstance(result, torch.Tensor) and unwrapped(result) is result:
            # One inside of torch.func.grad or vmap is not what the model is trained for.
            self._capture.mark_loss(result)
        if isinstance(result, torch.Tensor) and result.grad_fn is not None:
            self._follow(result.grad_fn)
        self._stamper.stamp()
        return result

    def _call(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The function itself; half and float32 that torch refuses to mix meet in float32."""
        name = getattr(func, "__name__", "")
        if name == "batch_norm":
            # cuDNN's own operator hides that it writes the running statistics.
            with torch.backends.cudnn.flags(enabled=False):
                if func is torch.nn.functional.batch_norm:
                    return batch_norm(*args, **kwargs)
                return func(*args, **kwargs)
        if name in NORMS and mixed(args, kwargs):
            return mixed_norm(func, args, kwargs)
        if lookup := LOOKUPS.get(func) or LOOKUPS.get(name):
            require_wide_indices(func, lookup, args, kwargs)
        if func in SPARSE:
            args, kwargs = with_dense_gradients(func, args, kwargs)
        if name in INDEXED:
            args, kwargs = with_wide_indices(name, args, kwargs)
        if name in RECURRENT:
            # The CPU library's fused layers keep a hidden workspace, which a graph can't carry.
            with torch.backends.mkldnn.flags(enabled=False):
                return func(*args, **kwargs)
        if name not in ONE_TYPE or not mixed(args, kwargs):
            try:
                return REPLACED.get(name, func)(*args, **kwargs)
            except RuntimeError:
                if not mixed(args, kwargs):
                    raise
        wide = tuple(as_float(value) for value in args)
        result = func(*wide, **{key: as_float(value) for key, value in kwargs.items()})
        if name.startswith(("linear", "conv")):
            # Layers answer in the type of their activations, whatever their weights are.
            return result.to(args[0].dtype)
        return result

    def _follow(self, function: Any) -> None:
        state = self._stamper.state()
        stamper = self._stamper
        function.register_prehook(lambda _gradients: stamper.restore(state))


class ModuleScopes:
    """Keeps `capture.scopes` equal to the path of the module whose forward runs."""

    def __init__(self, model: Any, capture: Capture, enabled: bool) -> None:
        self._capture = capture
        self._enabled = enabled and isinstance(model, torch.nn.Module)
        self._names = (
            {id(module): name for name, module in model.named_modules() if name}
            if self._enabled
            else {}
        )
        self._handles: list[Any] = []
        self._thread = threading.get_ident()

    def __enter__(self) -> ModuleScopes:
        if self._enabled:
            hooks = torch.nn.modules.module
            self._handles = [
                hooks.register_module_forward_pre_hook(self._enter),
                hooks.register_module_forward_hook(self._leave, always_call=True),
            ]
        return self

    def __exit__(self, *_exception: object) -> None:
        for handle in self._handles:
            handle.remove()

    def _enter(self, module: torch.nn.Module, _args: Any) -> None:
        name = self._names.get(id(module))
        if name is not None and threading.get_ident() == self._thread:
            self._capture.scopes.append(name.rpartition(".")[2])

    def _leave(self, module: torch.nn.Module, _args: Any, _result: Any) -> None:
        mine = id(module) in self._names and threading.get_ident() == self._thread
        if mine and self._capture.scopes:
            self._capture.scopes.pop()
