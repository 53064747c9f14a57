"""How a Keras model under an IPUStrategy gets its IPU behaviour.

A model made in the strategy's scope becomes an instance of its own class and an extension. Methods
of stock Keras that behave differently on IPUs ask the extension first: for a method `m` these are
`_m_supported`, which says whether the extension wants the call, and `_m_delegate`. The delegate
reaches the original by passing `__extension_delegate=False`.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

_SWITCH = "__extension_delegate"
_INSTALLED = "_softipu_action"


class KerasExtension:
    """Base of all extensions."""


def extension_delegate(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method that lets the extension of its object act in its place."""
    name = function.__name__
    prefix = name if name.startswith("_") else f"_{name}"

    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not kwargs.pop(_SWITCH, True):
            with _plain_calls_of(self, name):
                return function(self, *args, **kwargs)
        if (id(self), name) not in _plain.calls:
            holder = _extension_of(self, name)
            supported = getattr(holder, f"{prefix}_supported", None)
            delegate = getattr(holder, f"{prefix}_delegate", None)
            if supported is not None and delegate is not None:
                supported = getattr(supported, "__func__", supported)
                delegate = getattr(delegate, "__func__", delegate)
                if supported(self, *args, **kwargs):
                    return delegate(self, *args, **kwargs)
        return function(self, *args, **kwargs)

    method.__original_func__ = function  # type: ignore[attr-defined]
    return method


class _PlainCalls(threading.local):
    """Methods that run without the extension, with all they call of their own name."""

    def __init__(self) -> None:
        self.calls: set[tuple[int, str]] = set()


_plain = _PlainCalls()


@contextlib.contextmanager
def _plain_calls_of(owner: Any, name: str) -> Iterator[None]:
    key = (id(owner), name)
    outermost = key not in _plain.calls
    _plain.calls.add(key)
    try:
        yield
    finally:
        if outermost:
            _plain.calls.discard(key)


def _extension_of(owner: Any, method: str) -> Any:
    """The extension of an object, or of a class whose class method is called."""
    if not isinstance(owner, type):
        return owner if isinstance(owner, KerasExtension) else None
    strategy = tf.distribute.get_strategy()
    find = getattr(strategy, "_get_keras_extension", None)
    is_class_method = any(isinstance(vars(cls).get(method), classmethod) for cls in owner.__mro__)
    if find is None or not is_class_method:
        return None
    found = (find(cls, KerasExtension) for cls in owner.__mro__)
    return next((extension for extension in found if extension is not None), None)


def extension_delegate_if_exists(name: str, owner: Any, *args: Any, **kwargs: Any) -> Any:
    """Calls the extension's `_name_delegate`, where there is one that wants the call."""
    if check_if_extension_delegate_exists(name, owner):
        prefix = name if name.startswith("_") else f"_{name}"
        if getattr(owner, f"{prefix}_supported")(*args, **kwargs):
            return getattr(owner, f"{prefix}_delegate")(*args, **kwargs)
    return None


def check_if_extension_delegate_exists(name: str, owner: Any) -> bool:
    prefix = name if name.startswith("_") else f"_{name}"
    return isinstance(owner, KerasExtension) and all(
        hasattr(owner, f"{prefix}_{part}") for part in ("supported", "delegate")
    )


#: Methods of stock Keras that ask the extension first, by class.
_ASKED = {
    "Model": (
        "build", "fit", "evaluate", "predict", "make_train_function", "make_test_function",
        "make_predict_function", "get_config", "_reset_compile_cache", "_assert_weights_created",
        "_validate_and_get_metrics_result",
    ),
    "Functional": ("get_config",),
    "Sequential": ("add", "pop", "get_config"),
}  # fmt: skip


def install() -> None:
    """Lets stock Keras ask extensions, and tells the strategy of each new layer."""
    from tf_keras.src.engine import base_layer, data_adapter, functional, sequential, training

    if hasattr(base_layer, "KerasExtension"):
        return
    base_layer.KerasExtension = KerasExtension
    base_layer.extension_delegate = extension_delegate
    base_layer.extension_delegate_if_exists = extension_delegate_if_exists
    base_layer.check_if_extension_delegate_exists = check_if_extension_delegate_exists
    classes = {
        "Model": training.Model,
        "Functional": functional.Functional,
        "Sequential": sequential.Sequential,
    }
    for class_name, methods in _ASKED.items():
        for method in methods:
            original = vars(classes[class_name])[method]
            setattr(classes[class_name], method, extension_delegate(original))
    after(base_layer.Layer, "__init__", _tell_strategy)
    _after_functional(functional.Functional)
    for cls in (sequential.Sequential, training.Model):
        _restoring_extensions(cls)
    _own_data_handlers(data_adapter)
    _allow_loss_scaling()
    _whole_steps_per_execution(training.Model)


def after(kind: Any, name: str, action: Callable[[Any], object]) -> None:
    """Has `action` see each object right after its method `name`; asked twice, installed once."""
    original = vars(kind)[name]
    if getattr(original, _INSTALLED, None) is action:
        return

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        action(self)
        return result

    # Keras reads the parameters of constructors, and does not look through wrappers for that.
    method.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
    setattr(method, _INSTALLED, action)
    setattr(kind, name, method)


def _tell_strategy(layer: Any) -> None:
    strategy = tf.distribute.get_strategy()
    if hasattr(strategy, "_patch_keras_extension"):
        strategy._patch_keras_extension(layer)


def _after_functional(cls: Any) -> None:
    """A functional model takes its stages from the nodes it is made of."""
    after(
        cls,
        "_init_graph_network",
        lambda model: extension_delegate_if_exists("get_pipelining_from_nodes", model),
    )


def _restoring_extensions(cls: Any) -> None:
    """A model made from a configuration gets its extension's settings from there too."""
    original = vars(cls)["from_config"].__func__

    @functools.wraps(original)
    def from_config(kind: Any, config: Any, custom_objects: Any = None) -> Any:
        from .extensions import extensions_base

        plain = extensions_base.without_extension_settings(config)
        model = original(kind, plain, custom_objects)
        extension_delegate_if_exists("deserialize_from_config", model, config)
        return model

    cls.from_config = classmethod(from_config)


def _own_data_handlers(data_adapter: Any) -> None:
    """Data for a model on IPUs is checked for what IPUs need."""
    original = data_adapter.get_data_handler

    @functools.wraps(original)
    def get_data_handler(*args: Any, **kwargs: Any) -> Any:
        model = kwargs.get("model")
        if isinstance(model, KerasExtension) and hasattr(model, "_make_data_handler"):
            return model._make_data_handler(*args, **kwargs)
        return original(*args, **kwargs)

    data_adapter.get_data_handler = get_data_handler


def _allow_loss_scaling() -> None:
    """Keras lists the strategies for mixed precision by class; ours says so itself."""
    from tf_keras.src.mixed_precision import loss_scale_optimizer

    original = loss_scale_optimizer.strategy_supports_loss_scaling

    @functools.wraps(original)
    def supports() -> bool:
        strategy = tf.distribute.get_strategy()
        return bool(getattr(strategy, "supports_loss_scaling", False) or original())

    loss_scale_optimizer.strategy_supports_loss_scaling = supports


def _whole_steps_per_execution(cls: Any) -> None:
    """`compile` takes the number of steps as a tensor too, such as a data set's cardinality."""
    original = cls.compile

    @functools.wraps(original)
    def compile(self: Any, *args: Any, **kwargs: Any) -> Any:
        steps: Any = kwargs.get("steps_per_execution")
        if tf.is_tensor(steps):
            kwargs["steps_per_execution"] = int(steps)
        return original(self, *args, **kwargs)

    cls.compile = compile


@contextlib.contextmanager
def applying(optimizer: Any, apply_gradients: Any) -> Iterator[None]:
    """`optimizer.apply_gradients` is another function inside, and what it was before afterwards."""
    previous = vars(optimizer).get("apply_gradients")
    vars(optimizer)["apply_gradients"] = apply_gradients
    try:
        yield
    finally:
        del vars(optimizer)["apply_gradients"]
        if previous is not None:
            vars(optimizer)["apply_gradients"] = previous
