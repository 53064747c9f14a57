"""`paddle.inference` with IPUs: `Config.enable_ipu` and its kin.

Programs that never call them keep Paddle's own classes and methods as they are: what predictors
and tensors need is put in place when a Config first asks for IPUs.
"""

from __future__ import annotations

import operator
import threading
import weakref
from collections.abc import Callable
from typing import Any

from softipu.errors import InferenceOptionType, InferenceOptionValue, InferenceUnsupported

from .inference_options import OPTIONS, SETTERS, IpuOptions

#: Config -> what it says about IPUs.
_options: weakref.WeakKeyDictionary[Any, IpuOptions] = weakref.WeakKeyDictionary()
#: Configs for the plugin's device.
_on_plugin: weakref.WeakSet[Any] = weakref.WeakSet()
#: Config -> the program and the weights that `set_model_buffer` gave it.
_buffers: weakref.WeakKeyDictionary[Any, tuple[bytes, bytes]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()
#: What was put in place already.
_done: set[Callable[[Any], None]] = set()


def install(paddle: Any) -> None:
    """Put the IPU methods on `Config`; called once, after Paddle was imported."""
    core = paddle.base.core
    config = core.AnalysisConfig
    for name, row in OPTIONS.items():
        setattr(config, name, _getter(name, row.effect))
    config.use_ipu = lambda self: _options_of(self).enabled
    config.use_ipu.__doc__ = "Whether the model runs on IPUs."
    for method, names in SETTERS.items():
        setattr(config, method, _setter(core, method, names))
    config.load_ipu_config = _loader
    config.set_model_buffer = _remember_buffers(config.set_model_buffer)
    config.enable_custom_device = _check_plugin(core, config.enable_custom_device)
    create = _creator(core, core.create_predictor)
    for module in (core, core.libpaddle, paddle.inference):
        module.create_predictor = create


def options_of(config: Any) -> IpuOptions | None:
    """What a Config says about IPUs, if it asks for any."""
    found = _options.get(config)
    return found if found is not None and found.enabled else None


def without_ipus(config: Any) -> Any:
    """The Config, which from now on asks for none."""
    _options.pop(config, None)
    return config


def is_for_the_plugin(config: Any) -> bool:
    """Whether a Config asks for the plugin's device, by `enable_custom_device`."""
    return config in _on_plugin


def buffers_of(config: Any) -> tuple[bytes, bytes] | None:
    return _buffers.get(config)


def _options_of(config: Any) -> IpuOptions:
    return _options.setdefault(config, IpuOptions())


def _getter(name: str, effect: str | None) -> Callable[[Any], Any]:
    def get(self: Any) -> Any:
        return _options_of(self)[name]

    get.__name__ = name
    get.__doc__ = f"The option {name}: {effect or 'recorded, without effect'}."
    return get


def _setter(core: Any, method: str, names: tuple[str, ...]) -> Callable[..., None]:
    from inspect import Parameter, Signature  # Paddle has imported it already

    parameters = [
        Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=OPTIONS[name].default)
        for name in names
    ]
    signature = Signature(parameters)

    def set_options(self: Any, *arguments: Any, **named: Any) -> None:
        try:
            bound = signature.bind(*arguments, **named)
        except TypeError as error:
            raise TypeError(f"Config.{method}(): {error}") from None
        bound.apply_defaults()
        options = _options_of(self)
        options.set_all(bound.arguments)
        if method == "enable_ipu":
            options.enabled = True
            _prepare_predictors(core)

    set_options.__name__ = method
    set_options.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters]
    )
    set_options.__doc__ = f"Set {', '.join(names)}."
    return set_options


def _loader(self: Any, config_path: str) -> None:
    """Set options from a file with lines `option,value`."""
    _options_of(self).load(config_path)


def _remember_buffers(native: Callable[..., None]) -> Callable[..., None]:
    def set_model_buffer(
        self: Any, prog_buffer: Any, prog_size: int, params_buffer: Any, params_size: int
    ) -> None:
        native(self, prog_buffer, prog_size, params_buffer, params_size)
        if isinstance(prog_buffer, bytes) and isinstance(params_buffer, bytes):
            _buffers[self] = (prog_buffer[:prog_size], params_buffer[:params_size])

    return set_model_buffer


def _check_plugin(core: Any, native: Callable[..., None]) -> Callable[..., None]:
    def enable_custom_device(
        self: Any, device_type: str, device_id: int = 0, *precision: Any, **named: Any
    ) -> None:
        # Paddle itself finds out when it makes the predictor, and ends the process then.
        if isinstance(device_type, str):
            device_id = _existing_device(core, device_type, device_id)
        native(self, device_type, device_id, *precision, **named)
        if device_type == "ipu":
            _on_plugin.add(self)
            _once(_inherit, core)
            _once(_check_constructors, core)

    enable_custom_device.__doc__ = native.__doc__
    return enable_custom_device


def _existing_device(core: Any, device_type: str, device_id: Any) -> int:
    known = core.get_all_custom_device_type()
    if device_type not in known:
        raise _no_such_device(device_type, known)
    try:
        index = operator.index(device_id)  # NumPy's whole numbers too
    except TypeError:
        raise InferenceOptionType(
            f"enable_custom_device({device_type!r}, {device_id!r}): the number of a device is a "
            f"whole number, not {type(device_id).__name__}."
        ) from None
    count = core.get_custom_device_count(device_type)
    if not 0 <= index < count:
        raise InferenceOptionValue(
            f"enable_custom_device({device_type!r}, {index}): there are {count} "
            f"{'IPUs' if device_type == 'ipu' else 'of them'}, counted from 0."
        )
    return index


def _no_such_device(device_type: str, known: list[str]) -> InferenceUnsupported:
    cause = f"Plugins brought these: {', '.join(known)}." if known else "No plugin was loaded."
    remedy = "Say one of them, or install the plugin of the device."
    if device_type == "ipu":
        cause = "The plugin paddle-custom-ipu is not installed, or was not loaded."
        remedy = "Install it (docs/paddle-plugin.md), or call enable_ipu() instead."
    what = f"enable_custom_device({device_type!r}): Paddle has no such device."
    return InferenceUnsupported(what, cause=cause, remedy=remedy)


def _creator(core: Any, native: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def create_predictor(config: Any) -> Any:
        """A predictor for the model of a Config; on IPUs if it asks for them."""
        if options_of(config) is None:
            _check_model(core, config)
            return native(config)
        from .inference_predictor import IpuPredictor

        return IpuPredictor.create(config)

    return create_predictor


def _check_model(core: Any, config: Any) -> None:
    """For the plugin's device; where IPUs of ours are asked for, a session reads the model anyway.

    Paddle ends the process at damaged programs and weights, or computes with what is in memory.
    """
    if config in _on_plugin:
        from . import inference_model

        inference_model.of_config(config, buffers_of(config), core)


def _check_constructors(core: Any) -> None:
    """Predictors are also made without `create_predictor`, by the classes themselves."""
    for kind in (core.PaddleInferPredictor, core.PredictorPool):
        kind.__init__ = _checking_model(core, kind.__init__)


def _checking_model(core: Any, construct: Callable[..., None]) -> Callable[..., None]:
    def __init__(self: Any, config: Any, *arguments: Any) -> None:
        if options_of(config) is None:
            _check_model(core, config)
        construct(self, config, *arguments)

    return __init__


def _prepare_predictors(core: Any) -> None:
    _once(_inherit, core)
    _once(_install_predictors, core)


def _install_predictors(core: Any) -> None:
    from . import inference_predictor

    inference_predictor.install(core)


def _once(step: Callable[[Any], None], core: Any) -> None:
    with _lock:
        if step not in _done:
            step(core)
            _done.add(step)


def _inherit(core: Any) -> None:
    """A copy of a Config says about IPUs what the original says."""
    config_class = core.AnalysisConfig
    native = config_class.__init__

    def __init__(self: Any, *arguments: Any) -> None:
        native(self, *arguments)
        if len(arguments) == 1 and isinstance(arguments[0], config_class):
            original = arguments[0]
            if original in _options:
                _options[self] = _options[original].copy()
            if original in _buffers:
                _buffers[self] = _buffers[original]
            if original in _on_plugin:
                _on_plugin.add(self)

    config_class.__init__ = __init__
