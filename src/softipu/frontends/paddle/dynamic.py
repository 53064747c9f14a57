"""Layers turned to static graphs by `paddle.jit.to_static` and run as IPU programs.

Paddle's IpuDynamicPatcher compiles the traced program; what it then calls is a partial program,
which here hands the inputs to the executable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle

from . import graphs
from .backend import IpuBackend
from .executable import Executable


class CompiledLayer:
    """Called by Paddle with the arguments of `forward`."""

    training = True

    def __init__(self, executable: Executable, outputs: Any) -> None:
        self._executable = executable
        self._outputs = outputs

    def __call__(self, inputs: Any) -> Any:
        tensors = [
            value
            for value in paddle.utils.flatten(inputs)
            if isinstance(value, paddle.Tensor | np.ndarray)
        ]
        names = [feed.name for feed in self._executable.feeds]
        feed = {name: np.asarray(t) for name, t in zip(names, tensors, strict=True)}
        results = self._executable.run(feed, None, IpuBackend.get_instance())
        named = zip(self._executable.fetches, results, strict=True)
        return self._nested([paddle.to_tensor(self._plain(*pair)) for pair in named])

    def _plain(self, name: str, result: Any) -> Any:
        """Losses of layers are scalars without a dimension: people write float(loss)."""
        block = self._executable.lowered.micro_batch.global_block()
        is_scalar = not graphs.shape_of(block, name) and not self._executable.plan.leading
        return result.reshape(()) if is_scalar else result

    def _nested(self, flat: list[Any]) -> Any:
        """The results in the form that `forward` returned."""
        tensors = iter(flat)
        values = [
            next(tensors) if hasattr(value, "name") else value
            for value in paddle.utils.flatten(self._outputs)
        ]
        if len(values) == 1:
            return values[0]
        return paddle.utils.pack_sequence_as(self._outputs, values)


@contextlib.contextmanager
def weights_in_host_memory(parameters: Any) -> Iterator[None]:
    """Weights and optimiser states are shared with the program, which runs on the host.

    With the plugin they may be on its device; then they move here for good.
    """
    framework = paddle.base.framework
    place = framework._current_expected_place_()
    for parameter in parameters:
        if not parameter.place.is_cpu_place():
            copy = parameter.cpu()  # lives on its own: the tensor inside it doesn't keep it alive
            parameter.value().get_tensor()._share_data_with(copy.value().get_tensor())
    framework._set_expected_place(paddle.CPUPlace())
    try:
        yield
    finally:
        framework._set_expected_place(place)
