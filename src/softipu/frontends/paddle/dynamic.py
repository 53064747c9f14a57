"""Layers turned to static graphs by `paddle.jit.to_static` and run as IPU programs.

Paddle's IpuDynamicPatcher compiles the traced program; what it then calls is a partial program,
which here hands the inputs to the executable.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
from paddle.jit.dy2static.program_translator import ProgramCache

from softipu.errors import PaddleTrainingInvalid

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
        return nested(self._outputs, [paddle.to_tensor(self._plain(*pair)) for pair in named])

    def _plain(self, name: str, result: Any) -> Any:
        """Losses of layers are scalars without a dimension: people write float(loss)."""
        block = self._executable.lowered.micro_batch.global_block()
        is_scalar = not graphs.shape_of(block, name) and not self._executable.plan.leading
        return result.reshape(()) if is_scalar else result


def nested(outputs: Any, results: list[Any]) -> Any:
    """The results in the form that `forward` returned; what is no tensor is as it was traced."""
    if outputs is None:
        return None
    tensors = iter(results)
    values = [
        next(tensors) if _is_tensor(value) else value for value in paddle.utils.flatten(outputs)
    ]
    found = paddle.utils.pack_sequence_as(outputs, values)
    return found[0] if len(found) == 1 else found  # Paddle has put a single one into a list


def check_training(concrete_program: Any, strategy: Any) -> None:
    """A layer to be trained needs an optimizer, and one of its results is the loss."""
    if not strategy.is_training:
        return
    if getattr(strategy, "_optimizer", None) is None:  # set_optimizer makes the attribute
        raise PaddleTrainingInvalid(
            "The layer is to be trained, but there is no optimizer.",
            cause="IpuStrategy says is_training=True, which is its default.",
            remedy="Call strategy.set_optimizer(optimizer) first, or "
            "strategy.set_graph_config(is_training=False).",
        )
    if not _marks_loss(concrete_program.main_program):
        _check_last(concrete_program.outputs)


@contextlib.contextmanager
def tensors_alone(concrete_program: Any, class_instance: Any) -> Iterator[None]:
    """Around a compilation, in which Paddle takes every argument and every result for a tensor.

    Others are part of the traced program: Paddle traces again when an argument of them changes.
    """
    before = concrete_program.inputs, concrete_program.outputs
    arguments = _tensors_in(before[0])
    # Paddle leaves out what comes first: the layer.
    concrete_program.inputs = [class_instance, *arguments] if class_instance else arguments
    concrete_program.outputs = _tensors_in(before[1])
    try:
        yield
    finally:
        concrete_program.inputs, concrete_program.outputs = before


def _marks_loss(program: Any) -> bool:
    return any(op.type == "identity_loss" for op in program.global_block().ops)


def _check_last(outputs: Any) -> None:
    """The last result is the loss; a dictionary has no last one."""
    while not _is_tensor(outputs):
        is_dictionary = isinstance(outputs, dict)
        parts = list(outputs.values() if is_dictionary else outputs or ())
        parts = [part for part in parts if _tensors_in(part)]
        if not parts:
            return
        if is_dictionary and len(parts) > 1:
            raise PaddleTrainingInvalid(
                f"The layer returns a dictionary ({', '.join(map(str, outputs))}), which does not "
                "say what the loss is.",
                cause="Without a mark the last result is the loss; a dictionary has no last one.",
                remedy="Mark the loss with paddle.incubate.identity_loss, or return it last, "
                "beside the dictionary.",
            )
        outputs = parts[-1]


def _tensors_in(values: Any) -> list[Any]:
    return [value for value in paddle.utils.flatten(values) if _is_tensor(value)]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, paddle.base.framework.Variable)


class _Untouched(ProgramCache):
    """Traces what is asked for, whatever a layer's own cache holds and whoever patches it."""

    def __init__(self, cache: Any) -> None:
        super().__init__()
        self._recent_cache_key = cache._recent_cache_key
        self._programs = len(cache)

    def __len__(self) -> int:
        return self._programs

    def __getitem__(self, key: Any) -> Any:
        return self._build_once(key)


@contextlib.contextmanager
def traced_anew(function: Any) -> Iterator[None]:
    """Around a look at the program of a traced function, which stays compiled for the IPU."""
    cache = function._program_cache
    function._program_cache = _Untouched(cache)
    try:
        yield
    finally:
        function._program_cache = cache


@contextlib.contextmanager
def weights_in_host_memory(parameters: Any) -> Iterator[None]:
    """Weights and optimiser states are shared with the program, which runs on the host.

    With the plugin they may be on its device; then they move here for good.
    """
    framework = paddle.base.framework
    place = framework._current_expected_place_()
    for parameter in parameters:
        _in_host_memory(parameter)
    framework._set_expected_place(paddle.CPUPlace())
    try:
        yield
    finally:
        framework._set_expected_place(place)


@contextlib.contextmanager
def optimizer_states_kept(strategy: Any) -> Iterator[None]:
    """Around a compilation, in which Paddle makes the states of the optimizer anew, as zeros.

    States that the optimizer has stay, and all programs of a layer share them; those that
    `set_state_dict` brought are taken over.
    """
    optimizer = getattr(strategy, "_optimizer", None)  # set_optimizer makes the attribute
    if optimizer is None:
        yield
        return
    before = optimizer._accumulators, optimizer._already_create_accumulator
    # With states from an earlier program, which are tensors, Paddle would not build another one.
    optimizer._accumulators = collections.defaultdict(dict)
    optimizer._already_create_accumulator = set()
    # Copies: names come again, and the new program starts what has such a name with zeros.
    values = {
        kind: {parameter: np.array(_in_host_memory(old)) for parameter, old in states.items()}
        for kind, states in before[0].items()
    }
    made: Any = {}
    try:
        yield
        made = optimizer._accumulators
    finally:
        if not made:  # inference, or an error
            optimizer._accumulators, optimizer._already_create_accumulator = before
    restarts = strategy.get_option("use_no_bias_optimizer")
    for kind, states in made.items():
        for parameter, state in states.items():
            value = values.get(kind, {}).get(parameter)
            if value is None:
                _take_restored(optimizer, state)
                continue
            old = before[0][kind][parameter]
            is_new = kind.endswith(_POWER) and (restarts or not value.any())
            _share(old, state, None if is_new else value)
            states[parameter] = old


#: Powers of Adam's decay rates: 0 stands for none, and a compilation says which is wanted.
_POWER = "_pow_acc"


def _take_restored(optimizer: Any, state: Any) -> None:
    value = optimizer._accumulators_holder.pop(state.name, None)
    if value is not None:
        array = np.array(value)
        tensor = graphs.tensor_of(paddle.static.global_scope(), state.name)
        tensor.set(array.reshape(tensor.shape()), paddle.CPUPlace())


def _share(old: Any, new: Any, value: Any) -> None:
    """Have the program that knows a state as `new` read and write `old`; None: its new value."""
    tensor = graphs.tensor_of(paddle.static.global_scope(), new.name)
    memory = _in_host_memory(old)
    memory.set(np.array(tensor) if value is None else value, paddle.CPUPlace())
    tensor._share_data_with(memory)


def _in_host_memory(tensor: Any) -> Any:
    if not tensor.place.is_cpu_place():
        copy = tensor.cpu()  # lives on its own: the tensor inside it doesn't keep it alive
        tensor.value().get_tensor()._share_data_with(copy.value().get_tensor())
    return tensor.value().get_tensor()
