"""Functions of stock TensorFlow that mean something else for an IPU than for the CPU.

Each is wrapped: what is placed on an IPU, or traced for one, computes as it does there; all else
goes to TensorFlow's own function.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import threading
import weakref
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import tensorflow as tf
from tensorflow.python.compiler.xla import xla
from tensorflow.python.distribute import device_util
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.ops import gen_math_ops, gen_nn_ops

from . import layouts, replicas, system, traced_already

_HALVES = (tf.float16, tf.bfloat16)


def on_ipu() -> bool:
    """Whether what is built or run now belongs to an IPU."""
    device = device_util.current()
    return "device:IPU:" in device or ("device:" not in device and replicas.tracing() is not None)


def install() -> None:
    """Idempotent."""
    for module, name, on_device in (
        (gen_math_ops, "mean", _in_single_precision),
        (gen_math_ops, "_sum", _in_single_precision),
        (gen_nn_ops, "avg_pool", _pool_of_halves),
        (gen_nn_ops, "avg_pool3d", _pool_of_halves),
        (gen_nn_ops, "conv2d", _convolution_of_halves),
        (gen_nn_ops, "conv2d_backprop_input", _as_it_is),
        (gen_nn_ops, "conv3d", _as_it_is),
        (gen_nn_ops, "conv3d_backprop_input_v2", _as_it_is),
        (gen_nn_ops, "depthwise_conv2d_native", _as_it_is),
        (gen_nn_ops, "fused_batch_norm_grad_v2", _batch_norm_gradient),
        (gen_nn_ops, "fused_batch_norm_v3", _batch_norm),
        (gen_nn_ops, "max_pool", _pool_of_halves),
        (gen_nn_ops, "max_pool3d", _as_it_is),
        (gen_nn_ops, "sparse_softmax_cross_entropy_with_logits", _with_any_label),
    ):
        stock = getattr(module, name)
        if not hasattr(stock, "_softipu_stock"):
            setattr(module, name, _switched(stock, on_device))
    _compile_for_ipus()
    _run_compiled_functions_on_all_replicas()
    _remember_what_was_traced()


def _switched(stock: Callable[..., Any], on_device: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(stock)

    @functools.wraps(stock)
    def function(*args: Any, **kwargs: Any) -> Any:
        if not on_ipu():
            return stock(*args, **kwargs)
        bound = parameters.bind(*args, **kwargs)
        bound.apply_defaults()
        return on_device(layouts.on_any_cpu(stock), **bound.arguments)

    function._softipu_stock = stock  # type: ignore[attr-defined]
    return function


def _in_single_precision(stock: Callable[..., Any], input: Any, **rest: Any) -> Any:
    """Sums of halves are kept in single precision: they neither overflow nor swallow addends."""
    value = tf.convert_to_tensor(input)
    if value.dtype not in _HALVES:
        return stock(value, **rest)
    return tf.cast(stock(tf.cast(value, tf.float32), **rest), value.dtype)


def _convolution_of_halves(stock: Callable[..., Any], input: Any, filter: Any, **rest: Any) -> Any:
    """Products are added up in single precision, which a CPU does many times faster as well."""
    value = tf.convert_to_tensor(input)
    if value.dtype not in _HALVES:
        return stock(input=value, filter=filter, **rest)
    single = {"input": tf.cast(value, tf.float32), "filter": tf.cast(filter, tf.float32)}
    return tf.cast(stock(**single, **rest), value.dtype)


def _as_it_is(stock: Callable[..., Any], **arguments: Any) -> Any:
    """Only the CPU's kernels are fewer; see layouts."""
    return stock(**arguments)


def _with_any_label(stock: Callable[..., Any], features: Any, labels: Any, name: Any) -> Any:
    """A label out of range makes its own loss and gradient NaN, and is no error."""
    features, labels = tf.convert_to_tensor(features), tf.convert_to_tensor(labels)
    classes = tf.cast(tf.shape(features)[1], labels.dtype)
    in_range = tf.math.floormod(labels, classes)  # few operations: small models feel each of them
    loss, gradient = stock(features, in_range, name=name)
    # The factor reaches the gradient too, and costs one number for each label.
    one = tf.constant(1, loss.dtype)
    return loss * tf.where(tf.equal(in_range, labels), one, _nan(loss.dtype)), gradient


def _nan(dtype: tf.DType) -> tf.Tensor:
    return tf.constant(float("nan"), dtype)


def _pool_of_halves(stock: Callable[..., Any], **arguments: Any) -> Any:
    """The CPU has few pools of halves: they are computed in single precision."""
    data = next(name for name in ("input", "value") if name in arguments)
    value = tf.convert_to_tensor(arguments[data])
    if value.dtype not in _HALVES:
        return stock(**arguments)
    kind, single = value.dtype, tf.cast(value, tf.float32)
    return tf.cast(stock(**{**arguments, data: single}), kind)


def _batch_norm(stock: Callable[..., Any], x: Any, **arguments: Any) -> Any:
    """Its scale, offset and statistics may be halves, its statistics those of several replicas."""
    kind = tf.convert_to_tensor(arguments["scale"]).dtype
    norm = import_module("tensorflow.python.ipu.ops.distributed_norm")
    alone = not arguments["is_training"] or norm.group_size() == 1
    if alone and kind not in _HALVES:
        return stock(x, **arguments)
    for name in ("scale", "offset", "mean", "variance"):
        arguments[name] = tf.cast(arguments[name], tf.float32)
    if not alone:
        given = {name: arguments[name] for name in ("scale", "offset", "epsilon", "data_format")}
        y, mean, variance = norm.normalised(tf.convert_to_tensor(x), **given)
        share = arguments["exponential_avg_factor"]
        if share is not None and share != 1:  # without one, the statistics are the batch's own
            mean = mean * share + arguments["mean"] * (1 - share)
            variance = variance * share + arguments["variance"] * (1 - share)
        reserved = [mean, variance, tf.constant([])]
    else:
        y, mean, variance, *reserved = stock(x, **arguments)
    return y, tf.cast(mean, kind), tf.cast(variance, kind), *reserved


def _batch_norm_gradient(stock: Callable[..., Any], y_backprop: Any, x: Any, **rest: Any) -> Any:
    kind = tf.convert_to_tensor(rest["scale"]).dtype
    scale, mean, variance = (
        tf.cast(rest[name], tf.float32) for name in ("scale", "reserve_space_1", "reserve_space_2")
    )
    norm = import_module("tensorflow.python.ipu.ops.distributed_norm")
    if rest["is_training"] and norm.group_size() > 1:
        given = {name: rest[name] for name in ("epsilon", "data_format")}
        of_x, *others = norm.gradients(y_backprop, x, scale, mean, variance, **given)
        reserved = [tf.constant([]), tf.constant([])]
    else:
        rest.update(scale=scale, reserve_space_1=mean, reserve_space_2=variance)
        of_x, *others = stock(y_backprop, x, **rest)
        others, reserved = others[:2], others[2:]
    return of_x, *(tf.cast(value, kind) for value in others), *reserved


def _compile_for_ipus() -> None:
    """`xla.compile` under an IPU device is what `ipu_compiler.compile` is."""
    stock = xla.compile
    if hasattr(stock, "_softipu_stock"):
        return

    @functools.wraps(stock)
    def compile(computation: Callable[..., Any], inputs: Any = None) -> Any:
        if not on_ipu():
            return stock(computation, inputs)
        compiler = import_module("tensorflow.python.ipu.ipu_compiler")
        return compiler.compile(computation, inputs)

    compile._softipu_stock = stock  # type: ignore[attr-defined]
    for module in (xla, tf.xla.experimental, tf.compat.v1.xla.experimental):
        module.compile = compile


def _run_compiled_functions_on_all_replicas() -> None:
    """A function compiled for an IPU device, and called there, is a program for all its IPUs; one
    that a program calls is a part of it, which XLA can't compile: queues and feeds are in it."""
    stock = polymorphic_function.Function.__call__
    if hasattr(stock, "_softipu_stock"):
        return

    @functools.wraps(stock)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _symbolic.kind is not None and _any_of(_symbolic.kind, args, kwargs):
            return self.python_function(*args, **kwargs)
        current = replicas.tracing()
        if current is not None and _replicated(current):
            return stock(_copy_for(current, self), *args, **kwargs)
        if not self._jit_compile:
            return stock(self, *args, **kwargs)
        run = import_module("tensorflow.python.ipu._run")
        if replicas.tracing() is not None or run.being_compiled():
            return stock(_without_xla(self), *args, **kwargs)
        if "device:IPU:" not in device_util.current():
            return stock(self, *args, **kwargs)
        if not tf.executing_eagerly() and not tf.inside_function():  # a graph of TensorFlow 1
            return stock(_without_xla(self), *args, **kwargs)
        return run.run_replicated(self, args, kwargs)

    __call__._softipu_stock = stock  # type: ignore[attr-defined]
    polymorphic_function.Function.__call__ = __call__


def _remember_what_was_traced() -> None:
    """A program may trace a function itself and hand over the trace."""
    stock = polymorphic_function.Function.get_concrete_function
    if hasattr(stock, "_softipu_stock"):
        return

    @functools.wraps(stock)
    def get_concrete_function(self: Any, *args: Any, **kwargs: Any) -> Any:
        traced = stock(self, *args, **kwargs)
        traced_already.remember(traced, self)
        return traced

    get_concrete_function._softipu_stock = stock  # type: ignore[attr-defined]
    polymorphic_function.Function.get_concrete_function = get_concrete_function


class _Symbolic(threading.local):
    #: What no `tf.function` takes, but the Python function behind it does.
    kind: type | None = None


_symbolic = _Symbolic()


@contextlib.contextmanager
def functions_taking(kind: type) -> Iterator[None]:
    """Inside, in this thread, functions run as Python where an argument is a `kind`."""
    before, _symbolic.kind = _symbolic.kind, kind
    try:
        yield
    finally:
        _symbolic.kind = before


def _any_of(kind: type, *arguments: Any) -> bool:
    return any(isinstance(value, kind) for value in tf.nest.flatten(arguments))


def _replicated(current: replicas.Tracing) -> bool:
    """Whether what is traced knows of other replicas; also where their number is not known yet."""
    return current.count != 1 or system.instance()[1] > 1


def _copy_for(current: replicas.Tracing, function: Any) -> Any:
    """A function keeps what it has traced, and its collectives are those of one program."""
    copies = vars(current).setdefault("copies", {})
    if id(function) not in copies:
        copy = function._clone(None)
        copy._jit_compile = None
        copies[id(function)] = function, copy
    return copies[id(function)][1]


_clones: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def _without_xla(function: Any) -> Any:
    if function not in _clones:
        clone = _clones[function] = function._clone(None)
        clone._jit_compile = None
    return _clones[function]
