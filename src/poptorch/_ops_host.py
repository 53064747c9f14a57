"""`poptorch.CPU`: a Python function of the user that runs on the host in the middle of a graph.

The function runs once during capture, on zeros, to learn its outputs; then once per micro-batch.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils._python_dispatch import _disable_current_modes

from . import _context
from ._errors import createPoptorchError
from ._ops_control import branch_condition
from ._ops_library import declare

_numbers = itertools.count()
_functions: weakref.WeakValueDictionary[str, CPU] = weakref.WeakValueDictionary()


class CPU:
    """Calls `layer_to_call` on the host, wherever the rest of the model runs. Inference only.

    Takes tensors by position and returns what the function returns: a tensor, or a list of them.
    """

    def __init__(self, layer_to_call: Callable[..., Any], ID: str) -> None:
        if isinstance(layer_to_call, torch.nn.Module):
            layer_to_call.requires_grad_(False)
        self._layer_to_call = layer_to_call
        self._ID = ID
        self._key = ""
        self.in_shapes: list[torch.Size] | None = None
        self.out_shapes: list[torch.Size] | None = None
        self.inputs: list[Tensor] | None = None
        self.outputs: list[Tensor] | None = None

    def __call__(self, *input: Tensor, **kwargs: Any) -> Any:
        """Call the function now, or put the call into the graph that is being captured."""
        for value in (*input, *kwargs.values()):
            if kwargs or not isinstance(value, Tensor):
                raise createPoptorchError(
                    f"poptorch.CPU {self._ID!r} takes tensors by position only, not "
                    f"{'keyword arguments' if kwargs else type(value)}. Bind other values with "
                    "functools.partial or a lambda."
                )
        capture = _context.current()
        if capture is None:
            example = self._layer_to_call(*input)
            outputs = self._checked(example)
        else:
            example = self._on_zeros(input)
            results = _described(self._checked(example))
            outputs = _host_call(list(input), self._registered(), results, branch_condition())
            for output in outputs:
                capture.note(output, "host_call", self._ID)
                # The graph knows the function by name only, and this note keeps it alive.
                capture.note(output, "keep_alive", self)
        self.in_shapes = [tensor.shape for tensor in input]
        self.out_shapes = [tensor.shape for tensor in outputs]
        return outputs if isinstance(example, list | tuple) else outputs[0]

    def registerPersistentData(self) -> None:
        """Allocate `inputs` and `outputs` for the shapes of the last call."""
        self.inputs = [torch.zeros(shape) for shape in self.in_shapes or ()]
        self.outputs = [torch.zeros(shape) for shape in self.out_shapes or ()]

    def execute(self) -> None:
        """Run the function from `inputs` to `outputs`."""
        if self.inputs is None or self.outputs is None:
            raise createPoptorchError(
                f"poptorch.CPU {self._ID!r}: call registerPersistentData() before execute()."
            )
        results = self._checked(self._layer_to_call(*self.inputs))
        for persistent, result in zip(self.outputs, results, strict=True):
            persistent.copy_(result)

    def __deepcopy__(self, memo: dict[int, Any]) -> CPU:
        # A copied model has a function of its own, so its graph needs a name of its own.
        return CPU(copy.deepcopy(self._layer_to_call, memo), self._ID)

    def _registered(self) -> str:
        if not self._key:
            self._key = f"{self._ID}#{next(_numbers)}"
            _functions[self._key] = self
        return self._key

    def _on_zeros(self, input: Sequence[Tensor]) -> Any:
        with _outside_capture():
            zeros = [torch.zeros(tensor.shape, dtype=tensor.dtype) for tensor in input]
            with _real_weights(self._layer_to_call):
                return self._layer_to_call(*zeros)

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """The function on real tensors, as the executing graph calls it."""
        with _outside_capture(), torch.no_grad():
            return self._checked(self._layer_to_call(*(tensor.detach().cpu() for tensor in inputs)))

    def _checked(self, result: Any) -> list[Tensor]:
        outputs = list(result) if isinstance(result, list | tuple) else [result]
        if not outputs or not all(isinstance(output, Tensor) for output in outputs):
            raise createPoptorchError(
                f"poptorch.CPU {self._ID!r} must return a tensor or a list of tensors, not "
                f"{type(result)}."
            )
        return outputs


@contextlib.contextmanager
def _outside_capture() -> Iterator[None]:
    """Plain PyTorch, though a capture may be under way: host functions are no part of the graph."""
    with _context.suspended(), _disable_current_modes(), torch._C.DisableTorchFunction():
        yield


@contextlib.contextmanager
def _real_weights(function: Any) -> Iterator[None]:
    """Zeros for the weights that are fake during capture, if `function` belongs to a module."""
    owner = (
        function if isinstance(function, torch.nn.Module) else getattr(function, "__self__", None)
    )
    if not isinstance(owner, torch.nn.Module):
        yield
        return
    named = itertools.chain(owner.named_parameters(), owner.named_buffers())
    zeros = {
        name: torch.zeros(tensor.shape, dtype=tensor.dtype)
        for name, tensor in named
        if isinstance(tensor, FakeTensor) or isinstance(tensor.data, FakeTensor)
    }
    with _reparametrize_module(owner, zeros) if zeros else contextlib.nullcontext():
        yield


def _described(outputs: Sequence[Tensor]) -> str:
    """Types and shapes as text: part of the graph, so that it knows its shapes without the user."""
    return ";".join(
        f"{str(tensor.dtype).removeprefix('torch.')}:{','.join(map(str, tensor.shape))}"
        for tensor in outputs
    )


def _empty_outputs(description: str, device: torch.device) -> list[Tensor]:
    outputs = []
    for part in description.split(";"):
        kind, _, sizes = part.partition(":")
        shape = [int(size) for size in sizes.split(",") if size]
        outputs.append(torch.zeros(shape, dtype=getattr(torch, kind), device=device))
    return outputs


def _device(inputs: Sequence[Tensor]) -> torch.device:
    return inputs[0].device if inputs else torch.device("cpu")


def _run(inputs: Sequence[Tensor], key: str, results: str, when: Tensor | None) -> list[Tensor]:
    outputs = _empty_outputs(results, _device(inputs))
    if when is not None and not bool(when):
        return outputs
    function = _functions.get(key)
    if function is None:
        raise createPoptorchError(
            f"The host function {key.rpartition('#')[0]!r} of this graph no longer exists in this "
            "process. Keep the poptorch.CPU object in the model; a model that calls one can't be "
            "loaded from an executable of another process."
        )
    actual = function.run(inputs)
    if len(actual) != len(outputs):
        raise _changed(function, f"{len(actual)} outputs", f"{len(outputs)}")
    for target, source in zip(outputs, actual, strict=True):
        if target.shape != source.shape:
            raise _changed(function, f"shape {tuple(source.shape)}", f"{tuple(target.shape)}")
        target.copy_(source)
    return outputs


def _changed(function: CPU, now: str, before: str) -> Exception:
    return createPoptorchError(
        f"poptorch.CPU {function._ID!r} returned {now}, but {before} when the model was compiled. "
        "The outputs of a host function may not depend on the values of its inputs in number or "
        "shape."
    )


def _shapes(inputs: Sequence[Tensor], key: str, results: str, when: Tensor | None) -> list[Tensor]:
    return _empty_outputs(results, _device(inputs))


_host_call = declare(
    "host_call",
    "(Tensor[] inputs, str function, str results, Tensor? when) -> Tensor[]",
    _run,
    _shapes,
)


def _no_gradient(ctx: Any, *gradients: Any) -> Any:
    raise createPoptorchError(
        f"poptorch.CPU {ctx.function!r} has no gradient: CPU ops are only supported in inference "
        "graphs. Detach its result, or replace it by torch operations."
    )


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.function = inputs[1].rpartition("#")[0]


_host_call.register_autograd(_no_gradient, setup_context=_remember)
