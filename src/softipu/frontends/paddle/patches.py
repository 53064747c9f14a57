"""All that changes in stock Paddle after it is imported.

Each replacement does what Paddle's own function does until the program uses the IPU API.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import numbers
import sys
from collections.abc import Callable
from typing import Any

from softipu.errors import InvalidIpuOption, InvalidIpuPlacement

from . import devices, launcher, legacy_fluid, places, run_check, usage


def install(paddle: Any) -> None:
    core = paddle.base.core
    core.is_compiled_with_ipu = _compiled_with_ipu
    core.get_ipu_device_count = devices.ipu_count
    core.__getattr__ = _late_names(core)
    for module in (core, paddle, paddle.device, paddle.base, paddle.framework):
        module.IPUPlace = places.IPUPlace
    for module in (paddle, paddle.device):
        module.is_compiled_with_ipu = is_compiled_with_ipu
    _patch_devices(paddle)
    _patch_classes(paddle)
    _patch_static_mode(paddle)
    _patch_executor(paddle)
    _patch_tracing(paddle.base.compiler.IpuDynamicPatcher)
    _patch_graph_breaks()
    launcher.install(importlib.import_module("paddle.distributed.launch.context"))
    paddle.utils.run_check = run_check.replacement(paddle, paddle.utils.run_check)
    sys.meta_path.append(legacy_fluid.Finder())


def _late_names(core: Any) -> Callable[[str], Any]:
    """`core.IpuStrategy` and `core.IpuBackend`, loaded when a program asks for them."""

    def find(name: str) -> Any:
        if name == "IpuBackend":
            from .backend import IpuBackend as found
        elif name == "IpuStrategy":
            from .strategy import IpuStrategy as found  # type: ignore[assignment]
        else:
            raise AttributeError(f"module {core.__name__!r} has no attribute {name!r}")
        setattr(core, name, found)
        return found

    return find


def is_compiled_with_ipu() -> bool:
    """Whether programs can use the IPU API: with softipu they can."""
    return True


def _compiled_with_ipu() -> bool:
    """Asked by Paddle's own code, which behaves differently then; by programs for the answer."""
    caller = sys._getframe(1).f_globals.get("__name__", "")
    return usage.in_use() or not caller.startswith("paddle.")


def _patch_devices(paddle: Any) -> None:
    module = paddle.device
    expected = paddle.base.framework._current_expected_place_
    # paddle.device is a copy of the module in which its functions look for each other.
    inner = module._convert_to_place.__globals__
    for name, replacement in {
        "_convert_to_place": places.convert_to_place(module._convert_to_place),
        "set_device": places.set_device(module.set_device),
        "get_device": places.get_device(module.get_device, expected),
        "get_device_module": places.get_device_module(module.get_device_module, expected),
    }.items():
        inner[name] = _like(inner[name])(replacement)
        setattr(module, name, inner[name])
    for name in ("set_device", "get_device", "get_device_module"):
        setattr(paddle, name, inner[name])
    original: Callable[..., Any] = paddle.base.framework._get_paddle_place
    _replace_everywhere(original, _like(original)(places.paddle_place(original)))
    if usage.has_plugin():
        module.Device._SUPPORTED_TYPES.add(usage.DEVICE)
        module.Device._to_place = places.place_of_device(module.Device._to_place)


def _replace_everywhere(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Also where Paddle's modules have imported the function by its name."""
    for module in list(sys.modules.values()):
        if getattr(module, "__dict__", {}).get(original.__name__) is original:
            setattr(module, original.__name__, replacement)


def _like(original: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return functools.wraps(original)


def _patch_classes(paddle: Any) -> None:
    """Using the API is the sign that this program is for the IPU."""
    compiler, framework = paddle.base.compiler, paddle.base.framework
    compiler.IpuStrategy.__init__ = _activating(compiler.IpuStrategy.__init__)
    compiler.IpuStrategy.set_optimizer = _taking(paddle, compiler.IpuStrategy.set_optimizer)
    _patch_compiled_program(compiler)
    for name in ("ipu_shard_guard", "set_ipu_shard"):
        placing = _placing(getattr(framework, name))
        for module in (framework, paddle.base, paddle.static):
            setattr(module, name, placing)


def _patch_compiled_program(compiler: Any) -> None:
    owner = compiler.IpuCompiledProgram
    original = owner.__init__

    @functools.wraps(original)
    def init(self: Any, program: Any = None, scope: Any = None, ipu_strategy: Any = None) -> None:
        from . import backend

        usage.activate()
        backend.check_program(program)
        if ipu_strategy is None:  # Paddle's own code for a missing one fails
            ipu_strategy = compiler.IpuStrategy()
        elif not isinstance(ipu_strategy, compiler.IpuStrategy):
            raise TypeError(
                f"ipu_strategy is a paddle.static.IpuStrategy, not {ipu_strategy!r} "
                f"({type(ipu_strategy).__name__})."
            )
        original(self, program, scope, ipu_strategy)

    owner.__init__ = init
    owner.compile = _like(owner.compile)(_compile)


def _compile(self: Any, feed_list: Any, fetch_list: Any) -> Any:
    from . import backend

    return backend.compile_program(self, feed_list, fetch_list)


def _activating(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        usage.activate()
        return original(*args, **kwargs)

    return function


def _taking(paddle: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_optimizer(self: Any, optimizer: Any) -> None:
        if not isinstance(optimizer, paddle.optimizer.Optimizer):
            raise InvalidIpuOption(
                f"set_optimizer takes a paddle.optimizer.Optimizer, not {optimizer!r} "
                f"({type(optimizer).__name__}).",
                cause="A layer is trained by an optimizer of Paddle's.",
                remedy="Make one with the parameters of the layer.",
            )
        original(self, optimizer)

    return set_optimizer


def _placing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Wrong numbers are refused where they are given: Paddle looks at them for each operation."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def function(*args: Any, **kwargs: Any) -> Any:
        usage.activate()
        given = signature.bind(*args, **kwargs).arguments
        for name in ("index", "stage"):
            number = given.get(name, -1)
            if not isinstance(number, numbers.Integral) or isinstance(number, bool):
                raise InvalidIpuPlacement(
                    f"{original.__name__}: {name} is a whole number, not {number!r} "
                    f"({type(number).__name__}).",
                    cause="IPUs and stages are counted from 0; -1 stands for none.",
                    remedy=f"Correct {name}.",
                )
        return original(*args, **kwargs)

    return function


def _patch_static_mode(paddle: Any) -> None:
    """By the time of enable_static() all files of a program are usually loaded."""
    original = paddle.enable_static

    @functools.wraps(original)
    def enable_static() -> None:
        usage.activate_if_meant()
        original()

    paddle.enable_static = enable_static


def _patch_executor(paddle: Any) -> None:
    executor = paddle.base.executor.Executor
    original = executor.run

    @functools.wraps(original)
    def run(self: Any, program: Any = None, feed: Any = None, fetch_list: Any = None,
            *args: Any, **kwargs: Any) -> Any:  # fmt: skip
        executable = getattr(program, usage.EXECUTABLE, None)
        if executable is None:
            return original(self, program, feed, fetch_list, *args, **kwargs)
        # Further arguments: feed_var_name, fetch_var_name, scope, return_numpy.
        numpy = kwargs.get("return_numpy", args[3] if len(args) > 3 else True)
        return executable.fetched(feed, fetch_list, numpy)

    executor.run = run


def _patch_tracing(patcher: Any) -> None:
    """Layers traced for the IPU are compiled and then called by Paddle as partial programs."""
    convert = patcher.convert_concrete_program

    @functools.wraps(convert)
    def convert_concrete_program(
        strategy: Any, concrete_program: Any, class_instance: Any = None
    ) -> Any:
        from . import dynamic

        dynamic.check_training(concrete_program, strategy)
        with (
            dynamic.tensors_alone(concrete_program, class_instance),
            dynamic.weights_in_host_memory(concrete_program.parameters),
            dynamic.optimizer_states_kept(strategy),
        ):
            return convert(strategy, concrete_program, class_instance)

    patcher.convert_concrete_program = staticmethod(convert_concrete_program)
    from paddle.jit.dy2static import partial_program

    original = partial_program.partial_program_from

    @functools.wraps(original)
    def partial_program_from(concrete_program: Any, *args: Any, **kwargs: Any) -> Any:
        executable = getattr(concrete_program.main_program, usage.EXECUTABLE, None)
        if executable is None:
            return original(concrete_program, *args, **kwargs)
        from .dynamic import CompiledLayer

        return CompiledLayer(executable, concrete_program.outputs)

    partial_program.partial_program_from = partial_program_from
    _patch_saving(patcher)


def _patch_saving(patcher: Any) -> None:
    """What `paddle.jit.save` writes is the layer as it is, not what was compiled for the IPU."""
    from paddle import in_dynamic_mode
    from paddle.jit.dy2static.program_translator import ASTStaticFunction, ProgramCache

    patch = patcher.patch_program_cache

    @functools.wraps(patch)
    def patch_program_cache(strategy: Any) -> None:
        patch(strategy)
        find = ProgramCache.__getitem__

        def remembering(self: Any, key: Any) -> Any:
            self._recent_cache_key = key  # Paddle's own does, its patch for IPUs does not
            return find(self, key)

        ProgramCache.__getitem__ = remembering

    patcher.patch_program_cache = staticmethod(patch_program_cache)
    specify = ASTStaticFunction.concrete_program_specify_input_spec

    @functools.wraps(specify)
    def concrete_program_specify_input_spec(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not usage.in_use() or in_dynamic_mode():  # a program asks for what is compiled
            return specify(self, *args, **kwargs)
        from .dynamic import traced_anew

        with traced_anew(self):
            return specify(self, *args, **kwargs)

    ASTStaticFunction.concrete_program_specify_input_spec = concrete_program_specify_input_spec


def _patch_graph_breaks() -> None:
    """IPU programs are whole: a function is not cut where Python interferes, but traced at once.

    It is what `to_static` did when these programs were written, and Paddle refuses to cut in the
    representation that they need.
    """
    from paddle.jit.dy2static import program_translator

    whole, cut = program_translator.ASTStaticFunction, program_translator.SymbolicStaticFunction
    original = cut._perform_call

    @functools.wraps(original)
    def perform_call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not usage.in_use():
            return original(self, *args, **kwargs)
        self.__class__ = whole  # the same state, for good
        return self._perform_call(*args, **kwargs)

    cut._perform_call = perform_call
