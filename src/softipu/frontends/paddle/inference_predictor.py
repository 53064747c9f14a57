"""Predictors on IPUs: Paddle's own predictor on its CPU engine, with what an IPU adds.

An IPU adds a lease, fixed shapes, micro-batches and replicas within a run, and half precision. A
`Session` has that side of a predictor; methods of Paddle's classes ask for it and, where there is
none, are what they always were.
"""

from __future__ import annotations

import os
import tempfile
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from softipu import settings
from softipu.errors import InferenceUnsupported

from . import devices, inference_model, modelled
from .inference import buffers_of, is_for_the_plugin, options_of, without_ipus
from .inference_session import Gate, NativeTensor, Port, Session

_pools: weakref.WeakKeyDictionary[Any, Family] = weakref.WeakKeyDictionary()
_ports: weakref.WeakKeyDictionary[Any, Port] = weakref.WeakKeyDictionary()


def install(core: Any) -> None:
    """Let Paddle's classes know IPUs; once, when a Config first asks for them."""
    native_tensor = _install_tensor(core)
    IpuPredictor.looks_like = core.PaddleInferPredictor

    def create(config: Any) -> IpuPredictor:
        engines: list[Any] = []
        session = _new_session(
            core, native_tensor, config, lambda engine: engines.append(_native(core, engine))
        )
        return IpuPredictor(Family(engines), engines[0], session)

    IpuPredictor.create = create
    _forbid_direct_construction(core)
    _install_pool(core, native_tensor)


def _native(core: Any, config: Any) -> Any:
    return core.PaddleInferPredictor(config)


class Family:
    """Paddle's predictors that share weights.

    In Paddle 3.3 the weights of all of them are lost when one is destroyed: so none is before all
    are, and those that nobody uses any more wait for the next call of `clone`.
    """

    def __init__(self, members: list[Any]) -> None:
        self.members = members
        self.sessions: list[Session] = []
        self._idle: list[Any] = []

    def another(self, like: Any, gate: Gate) -> Any:
        with gate.cloning():
            if self._idle:
                return self._idle.pop()
            member = like.clone()
            self.members.append(member)
        return member

    def give_back(self, member: Any) -> None:
        self._idle.append(member)


class IpuPredictor:
    """A predictor on IPUs; `isinstance` and programs take it for one of Paddle's."""

    looks_like: Any
    create: Callable[[Any], IpuPredictor]

    def __init__(self, family: Family, engine: Any, session: Session, owner: Any = None) -> None:
        self._family = family
        self._engine = engine
        self.session = session
        #: A pool, which owns the engine and must live as long.
        self._owner = owner

    @property  # type: ignore[misc]  # only to be read
    def __class__(self) -> Any:
        return self.looks_like

    def __del__(self) -> None:
        if self._owner is None:
            self._family.give_back(self._engine)

    def run(self, inputs: Any = None) -> Any:
        if inputs is None:
            return self.session.run(self._engine)
        return self.session.run_on(self._engine, inputs)

    def clone(self) -> IpuPredictor:
        engine = self._family.another(self._engine, self.session.gate)
        return IpuPredictor(self._family, engine, self.session.twin())

    def get_input_names(self) -> list[str]:
        return list(self._engine.get_input_names())

    def get_output_names(self) -> list[str]:
        return list(self._engine.get_output_names())

    def get_input_handle(self, name: str) -> Any:
        port = self.session.input_port(name, self)
        handle = self._engine.get_input_handle(name)
        _ports[handle] = port
        return handle

    def get_output_handle(self, name: str) -> Any:
        port = self.session.output_port(name, self, self.get_output_names())
        handle = self._engine.get_output_handle(name)
        _ports[handle] = port
        return handle

    def clear_intermediate_tensor(self) -> None:
        self._engine.clear_intermediate_tensor()

    def try_shrink_memory(self) -> int:
        return int(self._engine.try_shrink_memory())

    def register_output_hook(self, hook: Any) -> None:
        self._engine.register_output_hook(hook)

    def register_input_hook(self, hook: Any) -> None:
        self._engine.register_input_hook(hook)


def _forbid_direct_construction(core: Any) -> None:
    construct = core.PaddleInferPredictor.__init__

    def __init__(self: Any, config: Any) -> None:
        if options_of(config) is not None:
            raise InferenceUnsupported(
                "Predictor(config) with a Config for IPUs.",
                cause="The class is of Paddle's predictors on a CPU.",
                remedy="Use paddle.inference.create_predictor(config).",
            )
        construct(self, config)

    core.PaddleInferPredictor.__init__ = __init__


def _install_pool(core: Any, native_tensor: NativeTensor) -> None:
    kind = core.PredictorPool
    construct, retrieve = kind.__init__, kind.retrieve

    def __init__(self: Any, config: Any, size: int = 1) -> None:
        if options_of(config) is None:
            construct(self, config, size)
            return
        if not isinstance(size, int) or size < 1:
            raise InferenceUnsupported(f"PredictorPool: {size!r} is no number of predictors.")
        first = _new_session(
            core, native_tensor, config, lambda engine: construct(self, engine, size)
        )
        family = Family([retrieve(self, index) for index in range(size)])
        family.sessions = [first, *(first.twin() for _ in range(size - 1))]
        _pools[self] = family

    def retrieved(self: Any, index: int) -> Any:
        family = _pools.get(self)
        if family is None:
            return retrieve(self, index)
        if not isinstance(index, int) or not 0 <= index < len(family.sessions):
            raise InferenceUnsupported(
                f"PredictorPool.retrieve({index!r}): the pool has {len(family.sessions)} "
                "predictors, counted from 0."
            )
        return IpuPredictor(family, family.members[index], family.sessions[index], self)

    kind.__init__ = __init__
    kind.retrieve = retrieved


#: Methods of tensors whose IPU side is the method of the same name of its Port.
_TENSOR_METHODS = (
    "copy_from_cpu",
    "share_external_data",
    "share_external_data_by_ptr_name",
    "reshape",
    "set_lod",
    "copy_to_cpu",
    "shape",
    "type",
)


def _install_tensor(core: Any) -> NativeTensor:
    kind = core.PaddleInferTensor
    native = NativeTensor(
        {name: getattr(kind, name) for name in _TENSOR_METHODS}, core.PaddleDType.FLOAT16
    )
    for name, method in native.methods.items():
        setattr(kind, name, _tensor_method(name, method))
    return native


def _tensor_method(name: str, native: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Any, *arguments: Any, **named: Any) -> Any:
        port = _ports.get(self)
        if port is None:
            return native(self, *arguments, **named)
        return getattr(port, name)(self, *arguments, **named)

    method.__name__ = name
    method.__doc__ = native.__doc__
    return method


# --- from a Config to a session --------------------------------------------------------------

_warned: set[str] = set()
_LEAST_WEIGHTS_FOR_THREADS = 1 << 20


def _new_session(
    core: Any, native_tensor: NativeTensor, config: Any, construct: Callable[[Any], None]
) -> Session:
    """Checks, leases, has `construct` make the engine, and returns what belongs to it."""
    asked = options_of(config)
    assert asked is not None
    options = asked.copy()
    options.check()
    _refuse_other_devices(config)
    _warn_without_effect(options.without_effect())
    buffers = buffers_of(config)
    files = inference_model.files_of(config)
    model = inference_model.of_config(config, buffers, core)
    call = modelled.ask_about_model(model, options).call
    attachment = devices.attach(options.ipus, what=model.name)
    attachment.describe(memory_bytes=model.weight_bytes // options["ipu_device_num"])
    engine = _engine_config(core, config, is_json=files is not None and files.is_json)
    if config.cpu_math_library_num_threads() == 1:  # Paddle's default
        engine.set_cpu_math_library_num_threads(_threads(model.weight_bytes))
    with tempfile.TemporaryDirectory(prefix="softipu-half-") as folder:
        if options["ipu_enable_fp16"]:
            _use_rounded_weights(engine, files, buffers, Path(folder))
        construct(engine)
    return Session(native_tensor, options, model, attachment, call)


def _refuse_other_devices(config: Any) -> None:
    asked = (
        ("a GPU", config.use_gpu()),
        ("an XPU", config.use_xpu()),
        ("the device of the plugin, by enable_custom_device", is_for_the_plugin(config)),
    )
    for what, used in asked:
        if used:
            raise InferenceUnsupported(f"The Config asks for IPUs and for {what}.")


def _warn_without_effect(names: Sequence[str]) -> None:
    fresh = [name for name in names if name not in _warned]
    if fresh:
        _warned.update(fresh)
        warnings.warn(
            f"softipu: no effect here: {', '.join(fresh)} (PopART's compiler is not at work).",
            stacklevel=5,
        )


def _engine_config(core: Any, config: Any, *, is_json: bool) -> Any:
    """How Paddle's CPU engine runs the model: oneDNN, all fusions."""
    engine = without_ipus(core.AnalysisConfig(config))
    engine.switch_ir_optim(True)
    engine.enable_onednn()
    if is_json:
        # Without these, Paddle refuses to reuse memory for models in the JSON format.
        engine.enable_new_ir(True)
        engine.enable_new_executor(True)
    engine.enable_memory_optim()
    return engine


def _threads(weight_bytes: int) -> int:
    """All cores, but one for small models, which are done before other threads have woken up."""
    wanted: int = settings.get("SOFTIPU_PADDLE_THREADS")
    is_small = weight_bytes < _LEAST_WEIGHTS_FOR_THREADS
    return wanted or (1 if is_small else len(os.sched_getaffinity(0)))


def _use_rounded_weights(
    engine: Any,
    files: inference_model.Files | None,
    buffers: tuple[bytes, bytes] | None,
    folder: Path,
) -> None:
    if files is None:
        assert buffers is not None
        weights = bytearray(buffers[1])
        inference_model.round_to_half(weights, "the weights in memory")
        engine.set_model_buffer(buffers[0], len(buffers[0]), bytes(weights), len(weights))
    elif files.folder is not None:
        for path in files.folder.iterdir():
            content = bytearray(path.read_bytes())
            if path != files.program:
                inference_model.round_to_half(content, str(path))
            (folder / path.name).write_bytes(content)
        engine.set_model(str(folder))
    elif files.weights is not None:
        content = bytearray(files.weights.read_bytes())
        inference_model.round_to_half(content, str(files.weights))
        rounded = folder / files.weights.name
        rounded.write_bytes(content)
        engine.set_params_file(str(rounded))
