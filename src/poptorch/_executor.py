"""`PoplarExecutor`: what `trainingModel` and `inferenceModel` return, and its many small promises.

Weights, optimiser state and random state live on the device while it is attached; this class
decides when they travel. Compiling is `_compiler`'s work, running `_executable`'s.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar

import torch

from softipu.errors import CompiledHalfNotThere, SoftIPUError
from softipu.estimating.modelled import Modelled
from softipu.machine import Estimate

from . import _impl, _latency, _printing, _weights, optim, profiling
from ._attachment import clock
from ._compiler import Job, write_hypers
from ._environment import warn_about_ignored
from ._errors import createPoptorchError, failure
from ._executable import Executable
from ._executables import ExecutableFiles
from ._executor_modes import outside_inference_mode
from ._executor_options import own_options
from ._inputs import Arguments, Signature, warn_about_dicts
from ._loaded import LoadedModel
from ._logging import logger, native
from ._modelled import as_users_catch_it, modelled
from ._options_validate import _validateOptions
from ._replicas import GroupedParameter
from ._threads import one_at_a_time, tracing
from .enums import ConnectionType
from .optim import _attributes, _rules
from .options import Options

_NOT_COMPILED = "Model has not been compiled or has been destroyed."
_WRAPPED = (
    "Model has already been wrapped in 'poptorch.trainingModel'. Call model.destroy() on the model "
    "to unwrap before wrapping again."
)
_TRACED = ("copyWeightsToHost", "copyWeightsToDevice", "setOptimizer", "compile", "destroy")


class PoplarExecutor(ExecutableFiles):
    """A model on virtual IPUs. Made by `trainingModel`, `inferenceModel` and `load` only."""

    _precompile_hooks: ClassVar[OrderedDict[int, Callable[[], Any]]] = OrderedDict()
    _postcompile_hooks: ClassVar[OrderedDict[int, Callable[[], Any]]] = OrderedDict()

    def __init__(
        self,
        model: Any,
        options: Options | None,
        training: bool,
        poptorch_version: str,
        optimizer: torch.optim.Optimizer | None = None,
        user_model: Any = None,
    ) -> None:
        self._executable: Executable | None = None
        self._turn = threading.RLock()
        self._tensors: tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]] = {}, {}
        if isinstance(model, type) and issubclass(model, torch.nn.Module):
            raise TypeError(
                f"{'trainingModel' if training else 'inferenceModel'} needs a model, and was given "
                f"the class {model.__qualname__}. Make a model of it first: {model.__name__}(…)"
            )
        if training and not isinstance(model, torch.nn.Module):
            raise TypeError(
                f"trainingModel needs a torch.nn.Module, which has weights to train (got {model!r})"
            )
        self._user_model = user_model if user_model is not None else model
        self._model = model
        self._training = training
        self._poptorch_version = poptorch_version
        self._options = own_options(options, training)
        self._signature = Signature(model)
        self._optimizer: torch.optim.Optimizer | None = None
        self._description: _attributes.Description | None = None
        self._optimizer_changed = False
        self._shown_attributes: dict[str, torch.Tensor] = {}
        self._anchors: dict[str, torch.Tensor] = {}
        self._dirty_host_weights = False
        self._fetching = False
        self._host_weights_version = 0
        self._seen_weights_version: int | None = 0
        self._rng_is_newer_on_device = False
        self._rng: list[int] | None = None
        self._compile_seconds = 0.0
        self.per_replica_params: dict[str, tuple[Any, ...]] = {}
        if self._options.exists("random_seed"):
            self._rng = [self._options.random_seed]
        kind = "trainingModel" if training else "inferenceModel"
        self._profiling = profiling.Channel(f"poptorch.{kind}")
        self._profiling.instrument(self, *_TRACED)
        if training:
            self._tracker = _attributes.AttributeTracker(self._options)
            default = None if optimizer else optim.SGD(self._user_model.parameters(), lr=0.01)
            self.setOptimizer(optimizer or default)
        else:
            assert not optimizer, "Optimizer should be None for inference"
        self._options._freeze()
        self._wrap()

    def __del__(self) -> None:
        # Whoever looks at the module next expects what was trained, executor or not.
        if "_options" in self.__dict__ and not sys.is_finalizing():
            self.destroy()

    # --- the module behind it -------------------------------------------------------------------

    @property
    def model(self) -> Any:
        """The wrapped PyTorch model."""
        return self._user_model

    @property
    def options(self) -> Options:
        """The options in use; they are frozen."""
        return self._options

    def __repr__(self) -> str:
        return _printing.module_repr(self._user_model)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copies and pickles are of models not compiled yet: what is on a device stays there."""
        if self.__dict__.get("_executable") is None:
            return super().__reduce_ex__(protocol)
        raise TypeError(
            "What poptorch.trainingModel and inferenceModel return can't be copied or pickled once "
            "it is compiled: it holds IPUs. Copy or save the PyTorch model itself "
            "(copy.deepcopy(executor.model), torch.save(executor.model.state_dict(), FILE)), or "
            "call executor.save(FILE)."
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_turn"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _turn=threading.RLock())

    def __getattr__(self, attr: str) -> Any:
        if attr.startswith("__") or "_user_model" not in self.__dict__:
            raise AttributeError(attr)
        value = getattr(self._user_model, attr)
        return GroupedParameter(self, attr, value) if _is_parameter(value) else value

    @one_at_a_time
    def load_state_dict(self, state_dict: dict[str, torch.Tensor], strict: bool = True) -> Any:
        """Loads the state into the model and, when attached, onto the device."""
        result = self._user_model.load_state_dict(state_dict, strict)
        if self.isAttachedToDevice():
            logger.debug("load_state_dict: implicit copyWeightsToDevice()")
            self.copyWeightsToDevice()
        return result

    def _wrap(self) -> None:
        _impl.register_live(self)
        if not self._training:
            return
        if _weights.is_wrapped(self._user_model):
            if _weights.owner_of(self._user_model) is not self:
                raise RuntimeError(_WRAPPED)
            return
        _weights.wrap(self._user_model, self)

    def _named(self) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """All parameters and all buffers of the module."""
        if not isinstance(self._model, torch.nn.Module):
            return {}, {}
        parameters, buffers = self._tensors
        # While another thread captures the same module, it has other tensors.
        self._tensors = (
            _weights.real(dict(self._model.named_parameters()), parameters),
            _weights.real(dict(self._model.named_buffers()), buffers),
        )
        return self._tensors

    # --- weights --------------------------------------------------------------------------------

    def copyWeightsToHostIfNeeded(self) -> bool:
        """Fetches the weights if training changed them since; True if it did."""
        if not (self._dirty_host_weights or self._fetching):
            return False
        with self._turn:
            if not self._dirty_host_weights:
                return False  # another thread has fetched them, or this one is at it
            logger.debug("Implicit copyWeightsToHost()")
            self.copyWeightsToHost()
        return True

    @one_at_a_time
    def copyWeightsToHost(self) -> None:
        """Writes the weights on the device into the model's parameters and buffers."""
        executable = self._compiled()
        self._fetching, self._dirty_host_weights = True, False
        try:
            parameters, buffers = self._named()
            executable.download({**parameters, **buffers})
        finally:
            self._fetching = False
        self._host_weights_version += 1

    @one_at_a_time
    @outside_inference_mode
    def copyWeightsToDevice(self) -> None:
        """Writes the model's parameters and buffers to the device."""
        executable = self._compiled()
        self._dirty_host_weights = False
        if self._optimizer is not None:
            self._optimizer.state_dict()
        executable.upload(*self._named())

    @one_at_a_time
    def copyNamedBuffersToDevice(self) -> None:
        """Writes the buffers that Options.updatableNamedBuffers named to the device."""
        executable = self._compiled()
        names = self._options._Popart.options.get("updatableNamedBuffers")
        if names is None:
            raise createPoptorchError(
                "No named buffers marked as updatable via updatableNamedBuffers option"
            )
        self._dirty_host_weights = False
        _, buffers = self._named()
        executable.upload_buffers({name: buffers[name] for name in names})

    def _refresh_from_trainer(self) -> None:
        """An inference model follows the training model that wrapped the same module."""
        trainer = _weights.owner_of(self._user_model)
        if trainer is None or trainer is self:
            return
        with trainer._turn:
            trainer.copyWeightsToHostIfNeeded()
            if trainer._host_weights_version != self._seen_weights_version:
                logger.debug("Implicit copyWeightsToDevice()")
                self.copyWeightsToDevice()
                self._seen_weights_version = trainer._host_weights_version

    # --- optimiser ------------------------------------------------------------------------------

    @one_at_a_time
    def setOptimizer(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Uses this optimiser, or the changed values of the present one, from the next call on."""
        if not self._training:
            raise createPoptorchError(
                "setOptimizer() is for training models: this one infers",
                remedy="Call it on what poptorch.trainingModel returned.",
            )
        if optimizer is None:
            raise createPoptorchError(
                "setOptimizer() needs an optimizer, not None",
                remedy="Pass an optimizer of poptorch.optim or torch.optim.",
            )
        if self._executable is not None and optimizer is not self._optimizer:
            self._retire_optimizer()
            if isinstance(optimizer, optim.Optimizer):
                optimizer.ipu_state_is_dirty = True
        if isinstance(optimizer, optim.Optimizer):
            optimizer.state_dict = _state_from(self, optimizer)  # type: ignore[method-assign]
        self._optimizer = optimizer
        description = _attributes.describe(
            optimizer, self._tracker, self._options, self._executable is not None
        )
        if description != self._description:
            self._description = description
            self._optimizer_changed = True
            self._shown_attributes = {}
        if self.isAttachedToDevice():
            self._send_optimizer()
            self._write_optimizer_state()

    def _retire_optimizer(self) -> None:
        """The old optimiser keeps the state it reached, and no longer reads from the device."""
        old = self._optimizer
        if isinstance(old, optim.Optimizer):
            self._read_optimizer_state()
            old.state_dict = old.get_state_dict  # type: ignore[method-assign]

    def _send_optimizer(self) -> None:
        if self._optimizer_changed and self._description is not None:
            write_hypers(self._compiled(), self._description)
            self._optimizer_changed = False

    @one_at_a_time
    def _optimizer_state(self) -> dict[str, Any]:
        assert isinstance(self._optimizer, optim.Optimizer)
        self._read_optimizer_state()
        state: dict[str, Any] = self._optimizer.get_state_dict()
        return state

    def _read_optimizer_state(self) -> None:
        optimizer = self._optimizer
        if not isinstance(optimizer, optim.Optimizer):
            return
        if not optimizer.host_state_is_dirty:
            logger.debug("Using cached optimiser state dict")
            return
        executable = self._compiled()
        assert self._description is not None
        exported = _rules.export_state(
            self._description,
            executable.memory.state,
            groups=executable.program.groups,
            shown=self._shown_attributes,
            copies=executable.plan.copies,
        )
        optimizer.set_state_dict({**exported, **torch.optim.Optimizer.state_dict(optimizer)})
        optimizer.ipu_state_is_dirty = False

    def _write_optimizer_state(self) -> None:
        optimizer = self._optimizer
        if not isinstance(optimizer, optim.Optimizer) or not optimizer.ipu_state_is_dirty:
            return
        if optimizer.has_state():
            self.copyWeightsToHostIfNeeded()
            assert self._description is not None
            executable = self._compiled()
            self._shown_attributes = _rules.import_state(
                self._description,
                executable.memory.state,
                optimizer.get_state_dict(),
                groups=executable.program.groups,
            )
            executable.memory.written = True
        optimizer.ipu_state_is_dirty = False

    # --- compiling ------------------------------------------------------------------------------

    @outside_inference_mode
    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Captures and compiles the model for these arguments, without running it."""
        bound = self._signature.bind(args, kwargs)
        if not self._compile(bound):
            logger.warning("Call to compile() ignored: the executable is already compiled")

    def _compile(self, bound: Arguments) -> bool:
        """False if it is compiled already, perhaps by another thread in the meantime."""
        with tracing(), self._turn:
            if self._executable is not None:
                return False
            self._compile_alone(bound)
        with self._turn:
            if self._executable is not None and not self._offline:
                try:
                    self._attach_once()
                except BaseException:
                    self._executable = None
                    raise
        return True

    @property
    def _offline(self) -> bool:
        return bool(self._options.connection_type == ConnectionType.Never.value)

    def _compile_alone(self, bound: Arguments) -> None:
        warn_about_dicts(bound)
        if self._training:
            _weights.warn_about_hooks(self._named()[0])
        self._wrap()  # destroy() unwrapped the module, and this is the next compilation
        _validateOptions(self._options.toDict())
        warn_about_ignored()
        start = clock()
        progress = self._options._progress_bar
        with self._profiling.tracepoint("modelCompilation"):
            self._report(progress, 0)
            for hook in list(self._precompile_hooks.values()):
                hook()
            try:
                self._executable = self._cached_or_compiled(bound)
                mode = self._options._Popart.options.get("syntheticDataMode", 0)
                self._executable.synthetic = bool(int(mode))
            finally:
                for hook in list(self._postcompile_hooks.values()):
                    hook()
            self._report(progress, 100)
        self._compile_seconds = clock() - start
        self._ask_the_model()

    def _ask_the_model(self) -> None:
        """Warn about, or refuse, what has no room on the real IPU; write the report asked for."""
        try:
            estimate = self._modelled()
            estimate.check()
            kind = "training" if self._training else "inference"
            named = self._options.model_name if self._options.exists("model_name") else ""
            asked = self._options._Popart.options.get("engineOptions")
            written = estimate.report(asked, folder=named or kind)
            if written is not None:
                native.info("Report written to %s", written)
        except BaseException:
            self._executable = None
            raise

    def _report(self, progress: Callable[[int, int], None] | None, done: int) -> None:
        if progress is not None and self._options._show_compilation_progress_bar:
            progress(done, 100)

    def _job(self) -> Job:
        parameters, buffers = self._named()
        updatable = self._options._Popart.options.get("updatableNamedBuffers", ())
        for name in updatable:
            if name not in buffers:
                raise createPoptorchError(
                    f"Buffer {name} is marked as updatable via updatableNamedBuffers but is not a "
                    "buffer of the model"
                )
        return Job(
            self._model,
            self._options,
            self._training,
            parameters,
            buffers,
            self._description,
            self._optimiser_groups(parameters),
            self.per_replica_params,
            self._user_model,
        )

    def _optimiser_groups(self, named: dict[str, torch.Tensor]) -> tuple[tuple[str, ...], ...]:
        if self._optimizer is None:
            return ()
        names = {id(value): name for name, value in named.items()}
        return tuple(
            tuple(names[id(p)] for p in group["params"] if id(p) in names)
            for group in self._optimizer.param_groups
        )

    def _compiled(self) -> Executable:
        if self._executable is None:
            raise createPoptorchError(
                _NOT_COMPILED, remedy="Call the model, or compile(inputs), first."
            )
        return self._executable

    def isCompiled(self) -> bool:
        """True once compiled, until destroyed."""
        return self._executable is not None

    def compilationTime(self) -> timedelta:
        """How long compiling took, on this machine."""
        if self._executable is None:
            raise createPoptorchError("Please compile the model before obtaining compilation time.")
        if not self._options._show_compilation_progress_bar:
            raise createPoptorchError(
                "Please set showCompilationProgressBar option to obtain compilation time."
            )
        return timedelta(seconds=self._compile_seconds)

    # --- running --------------------------------------------------------------------------------

    @outside_inference_mode
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model on the IPU; the first call compiles it."""
        assert not self._offline, (
            "Trying to run a model on an offline device (ConnectionType.Never): use "
            "model.compile(inputs) instead of model(inputs)"
        )
        bound = self._signature.bind(args, kwargs)
        while True:
            with self._turn:
                if self._executable is not None and self._executable.prepared:
                    return self._run(self._executable, bound)
            self._compile(bound)
            with self._turn:
                if not self.isAttachedToDevice():
                    self.attachToDevice()
            # Locks in their order, and not that of tracing while it waits for IPUs.
            with tracing(), self._turn:
                if self.isAttachedToDevice():
                    self._compiled().prepare()

    def _run(self, executable: Executable, bound: Arguments) -> Any:
        if not executable.attachment.attached:
            self.attachToDevice()
        if not self._training:
            self._refresh_from_trainer()
        inputs = executable.arguments.check(bound)
        if self._training:
            self._write_optimizer_state()
        try:
            with self._profiling.tracepoint("modelExecution"):
                result, anchors = executable.run(inputs)
        finally:
            # Also after an exception: some of the call's steps may have been done by then.
            self._device_moved_on()
        if self._options._Popart.options.get("instrumentWithHardwareCycleCounter"):
            native.debug("Total number of IPU cycles: %d", self.cycleCount())
        self._anchors.update(zip(self._options.anchored_tensors, anchors, strict=True))
        return result

    def _device_moved_on(self) -> None:
        """What the host knows of random state, weights and optimiser state is out of date."""
        self._rng_is_newer_on_device = True
        if self._training:
            self._dirty_host_weights = True
            # Learning rate schedules warn unless the optimiser has stepped, which it has.
            self._optimizer._opt_called = True  # type: ignore[union-attr]
            if isinstance(self._optimizer, optim.Optimizer):
                self._optimizer.host_state_is_dirty = True

    def getTensorNames(self) -> list[str]:
        """The names of all tensors in the graph, as `Options.anchorTensor` takes them."""
        assert self._executable is not None, "Model must be compiled before calling getTensorNames"
        return list(self._executable.program.tensor_names) + _update_names(self._description)

    def _debugGetPopartIR(self) -> str:
        """Upstream's view of PopART's graph: an error that says what shows a graph here."""
        raise failure(
            CompiledHalfNotThere,
            "PoplarExecutor._debugGetPopartIR() has no PopART graph to show: models are captured "
            "as PyTorch's own operations.",
        )

    def getAnchoredTensor(self, short_name: str) -> torch.Tensor:
        """The value that an anchored tensor had in the last call."""
        if short_name not in self._anchors:
            asked = list(self._options.anchored_tensors)
            raise AssertionError(
                f"No tensor with name {short_name} found. "
                + (
                    "It is anchored and has no value yet: call the model first."
                    if short_name in asked
                    else f"Anchored are {', '.join(asked)}."
                    if asked
                    else "None is anchored: call Options.anchorTensor(short name, name in the "
                    "graph) before the model is made."
                )
            )
        return self._anchors[short_name]

    # --- random numbers -------------------------------------------------------------------------

    @property
    @one_at_a_time
    def rng_state(self) -> list[int]:
        """Seed and state of the device's random numbers."""
        executable = self._compiled()
        if self._rng_is_newer_on_device or self._rng is None:
            self._rng_is_newer_on_device = False
            native.debug("Reading random seed")
            native.debug("Reading RNG state")
            self._rng = executable.memory.random.as_list()
        return list(self._rng)

    @rng_state.setter
    @one_at_a_time
    def rng_state(self, state: list[int]) -> None:
        executable = self._compiled()
        if len(state) not in (1, len(executable.memory.random.as_list())):
            raise createPoptorchError(
                f"Invalid rng_state: {len(state)} numbers are no state of the random numbers. Set "
                "what rng_state returned, or [seed]."
            )
        self._rng_is_newer_on_device = False
        self._rng = list(state)
        self._send_random(executable)

    def _send_random(self, executable: Executable) -> None:
        if self._rng is None:
            return
        native.debug("Setting random seed to: %d", self._rng[0])
        if len(self._rng) > 1:
            native.debug("Setting RNG state")
        executable.memory.random.restore(self._rng)

    # --- the device -----------------------------------------------------------------------------

    def isAttachedToDevice(self) -> bool:
        """Whether IPUs are held for this model now."""
        return self._executable is not None and self._executable.attachment.attached

    @one_at_a_time
    @outside_inference_mode
    def attachToDevice(self) -> None:
        """Takes IPUs again after `detachFromDevice` and sends weights and states to them."""
        executable = self._compiled()
        assert not self._offline, "Trying to attach to an offline device (ConnectionType.Never)"
        if executable.attachment.attached:
            raise createPoptorchError(
                "Device is already attached",
                remedy="Leave attachToDevice() out, or ask isAttachedToDevice() first: compiling "
                "and calling a model attach it by themselves.",
            )
        self._attach()

    def _attach_once(self) -> None:
        """Another thread's call may have attached what this one has compiled."""
        if not self.isAttachedToDevice():
            self._attach()

    def _attach(self) -> None:
        executable = self._compiled()
        executable.attachment.attach(self._label())
        self.copyWeightsToDevice()
        executable.attachment.describe(executable.memory.bytes // executable.per_replica)
        if self._training:
            self._optimizer_changed = True
            self._send_optimizer()
        if isinstance(self._optimizer, optim.Optimizer):
            if self._optimizer.has_state():
                self._optimizer.ipu_state_is_dirty = True
                self._write_optimizer_state()
            else:
                self._optimizer.host_state_is_dirty = True
                self._optimizer.ipu_state_is_dirty = False
        self._send_random(executable)

    def _label(self) -> str:
        """What gc-monitor calls the program."""
        if self._options.exists("model_name") and self._options.model_name:
            return str(self._options.model_name)
        model = self._user_model
        return model.title if isinstance(model, LoadedModel) else _weights.name_of(model)

    @one_at_a_time
    def detachFromDevice(self) -> None:
        """Reads everything back and gives the IPUs to others; the next call attaches again."""
        executable = self._compiled()
        if not executable.attachment.attached:
            raise createPoptorchError(
                "Device is not attached",
                remedy="Leave detachFromDevice() out, or ask isAttachedToDevice() before it.",
            )
        _ = self.rng_state
        if self._training:
            self.copyWeightsToHostIfNeeded()
            self._read_optimizer_state()
        executable.attachment.detach()

    @one_at_a_time
    def destroy(self) -> None:
        """Reads the weights back, releases IPUs and executable, and unwraps the model."""
        if self._executable is not None:
            if self._training:
                self.copyWeightsToHostIfNeeded()
                if self._optimizer is not None:
                    self._optimizer.state_dict()
            self._executable.attachment.detach()
            self._executable = None
        if self._training and _weights.owner_of(self._user_model) in (self, None):
            _weights.unwrap(self._user_model)

    # --- measuring ------------------------------------------------------------------------------

    def cycleCount(self) -> int:
        """Cycles that a real IPU would take for a call, by the machine model."""
        if not self._options._Popart.options.get("instrumentWithHardwareCycleCounter"):
            raise createPoptorchError(
                "Cycle count logging is disabled. Please set option logCycleCount to True to "
                "enable."
            )
        if self._executable is None or self._executable.times.end == 0.0:
            raise createPoptorchError(
                "Please run the model at least once before obtaining cycle count."
            )
        return round(self._estimate().cycles.total)

    def _estimate(self) -> Estimate:
        """What a real IPU would do with the compiled model: made once, when first asked for."""
        try:
            return self._modelled().estimate()
        except SoftIPUError as problem:
            raise as_users_catch_it(problem) from problem

    def _modelled(self) -> Modelled:
        executable = self._compiled()
        if executable.modelled is None:
            name = _weights.name_of(self._user_model)
            executable.modelled = modelled(executable.program, self._options, name)
        return executable.modelled

    def getPerfCounters(self) -> dict[str, list[list[float]]]:
        """When inputs and outputs of the last call would move on a real IPU, in seconds: modelled,
        from the moment at which the call began."""
        return self._counters()

    def _counters(self, start: float | None = None) -> _latency.Counters:
        ran = self._executable is not None and self._executable.times.end != 0.0
        return _latency.modelled(self._executable, self._estimate() if ran else None, start)

    def _time_between(self, first: str, last: str) -> tuple[float, float, float]:
        # From 0: a day after the machine's start its clock has few digits left for microseconds.
        return _latency.between(self._counters(0.0), first, last)

    def getHostIpuLatency(self) -> tuple[float, float, float]:
        """Shortest, longest and mean time from the first input asked for to the last one sent."""
        return self._time_between("input", "input_complete")

    def getComputeLatency(self) -> tuple[float, float, float]:
        """Shortest, longest and mean time from the last input sent to the last output ready."""
        return self._time_between("input_complete", "output")

    def getIpuHostLatency(self) -> tuple[float, float, float]:
        """Shortest, longest and mean time from the first output ready to the last one received."""
        return self._time_between("output", "output_complete")

    def getLatency(self) -> tuple[float, float, float]:
        """Shortest, longest and mean time of the round trip."""
        return self._time_between("input", "output_complete")

    def _measured_latency(self) -> tuple[float, float, float]:
        """The round trip of the last call on this machine."""
        return _latency.between(_latency.measured(self._executable), "input", "output_complete")


def _state_from(
    executor: PoplarExecutor, optimizer: optim.Optimizer
) -> Callable[[], dict[str, Any]]:
    """`state_dict` of an optimiser in use: reads from the device, but doesn't keep it alive."""
    owner, reader = weakref.ref(executor), weakref.ref(optimizer)

    def state_dict() -> dict[str, Any]:
        alive, asked = owner(), reader()
        if alive is not None and asked is alive._optimizer:
            return alive._optimizer_state()
        return {} if asked is None else asked.get_state_dict()

    return state_dict


def _is_parameter(value: Any) -> bool:
    return isinstance(value, torch.nn.Parameter)


def _update_names(description: _attributes.Description | None) -> list[str]:
    """The optimiser's own scalars, by the names PopART gives them."""
    if description is None:
        return []
    groups = range(len(description.groups))
    kinds = ("scaledLearningRate0", "weightDecayScaleFactor0")
    return [f"{kind}___group{group}" for group in groups for kind in kinds]


def registerPreCompileHook(hook: Callable[[], Any]) -> Any:
    """Calls `hook` before every compilation; returns a handle to remove it."""
    return _register(PoplarExecutor._precompile_hooks, hook, "Pre-compile")


def registerPostCompileHook(hook: Callable[[], Any]) -> Any:
    """Calls `hook` after every compilation; returns a handle to remove it."""
    return _register(PoplarExecutor._postcompile_hooks, hook, "Post-compile")


def _register(hooks: OrderedDict[int, Callable[[], Any]], hook: Any, kind: str) -> Any:
    if not callable(hook):
        raise RuntimeError(f"{kind} hook must be callable")
    handle = torch.utils.hooks.RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
