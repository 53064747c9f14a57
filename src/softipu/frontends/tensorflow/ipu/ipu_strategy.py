"""The distribution strategy under which programs place their work on IPUs.

Replicas are not devices of TensorFlow: a function that runs under the strategy is traced once and
runs as many times as the configured IPUs allow (see replicas.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util, distribute_lib, input_lib, reduce_util
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import concrete_function, polymorphic_function
from tensorflow.python.framework import device as tf_device
from tensorflow.python.framework import ops
from tensorflow.python.trackable import base as trackable

from softipu.frontends.tensorflow import replicas, traced_already

from . import keras_extensions
from .ops import cross_replica_ops

_UNSUPPORTED = (tf.float64,)
_GRAPHS = (polymorphic_function.Function, concrete_function.ConcreteFunction)


class IPUStrategyV1(distribute_lib.StrategyV1, keras_extensions.KerasExtensions):
    """Runs functions and Keras models on the IPUs of one system."""

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        cpu_device: str = "/device:CPU:0",
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        super().__init__(IPUExtendedV1(self, ipu_device, cpu_device))
        keras_extensions.KerasExtensions.__init__(
            self, enable_dataset_iterators, enable_keras_extensions
        )
        from softipu.frontends.tensorflow import patches

        patches.extend_keras()

    def run(self, fn: Any, args: Any = (), kwargs: Any = None, options: Any = None) -> Any:
        """Runs a `tf.function` on the IPUs and returns what its first replica returned."""
        if context.executing_eagerly() and not isinstance(fn, _GRAPHS):
            raise ValueError(
                "IPUStrategyV1.run(fn, ...) does not support eager execution. Either convert `fn` "
                "into a tf.function or consider calling strategy.run inside a tf.function."
            )
        if isinstance(fn, concrete_function.ConcreteFunction):
            fn, args, kwargs = traced_already.traceable(fn, args, kwargs or {})
        if not context.executing_eagerly() or not isinstance(args, list | tuple):
            return super().run(fn, args, kwargs, options)
        with self.scope():
            # Not through `super`: autograph wraps some functions, which then don't look like any.
            return self.extended.call_for_each_replica(fn, args=args, kwargs=kwargs)

    def experimental_run_v2(self, *_args: Any, **_kwargs: Any) -> Any:
        raise RuntimeError("`experimental_run_v2` has been deleted. Use `run` instead.")

    @property
    def _device_ordinal(self) -> int:
        device = self.extended.non_slot_devices(None)
        return int(tf_device.DeviceSpec.from_string(device).device_index or 0)

    @property
    def supports_loss_scaling(self) -> bool:
        return True


class IPUExtendedV1(distribute_lib.StrategyExtendedV1):
    """Where variables are made, how functions are called, what reductions mean."""

    #: Whether the values of variables are known without asking other instances.
    _sole_instance = True

    def __init__(self, container: Any, ipu_device: str, cpu_device: str) -> None:
        super().__init__(container)
        self._ipu_device = ipu_device
        self._cpu_device = cpu_device
        self._input_workers = input_lib.InputWorkers([("", [cpu_device])])

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        kwargs["initial_value"] = self._initial_value_on_host(**kwargs)
        with ops.device(self._ipu_device):
            return next_creator(**kwargs)

    def _initial_value_on_host(self, **kwargs: Any) -> Callable[[], Any]:
        def initial_value() -> Any:
            with ops.device(self._cpu_device):
                value = kwargs["initial_value"]
                value = value() if callable(value) else value
                if isinstance(value, trackable.CheckpointInitialValue):
                    value = value.wrapped_value
                return tf.convert_to_tensor(value, dtype=kwargs.get("dtype"))

        return initial_value

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        from . import _run

        context_of_replica = distribute_lib.ReplicaContext(
            self._container_strategy(), replica_id_in_sync_group=0
        )
        with context_of_replica, ops.device(self._ipu_device):
            # Keras sends small functions of its own here, which need no IPU.
            in_graph = replicas.tracing() is not None or not context.executing_eagerly()
            if in_graph or not isinstance(fn, polymorphic_function.Function):
                return fn(*args, **kwargs)
            _check_types(fn, args, kwargs)
            return _run.run_replicated(fn, args, kwargs)

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        del destinations, options
        if not _current_device_is_ipu():
            return value
        if reduce_op == reduce_util.ReduceOp.MEAN:
            return cross_replica_ops.cross_replica_mean(value)
        if reduce_op == reduce_util.ReduceOp.SUM:
            return cross_replica_ops.cross_replica_sum(value)
        raise ValueError(f"Unsupported reduce op: {reduce_op}")

    def _batch_reduce_to(self, reduce_op: Any, pairs: Any, options: Any) -> Any:
        """Many small gradients travel as one message for each type.

        Those of lookups become dense also where nothing is to be added up: optimisers then update
        all rows of a table, not only those that were looked up.
        """
        values = [value for value, _ in pairs]
        if replicas.total() == 1:
            return [_dense(value) for value in values] if _current_device_is_ipu() else values
        return replicas.in_one_message(
            values, lambda value: self._reduce_to(reduce_op, value, None, options)
        )

    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        return self._update_non_slot(var, fn, (var, *args), kwargs, group)

    def _update_non_slot(
        self, colocate_with: Any, fn: Any, args: Any, kwargs: Any, group: bool
    ) -> Any:
        with distribute_lib.UpdateContext(colocate_with):
            result = fn(*args, **kwargs)
            return result if group else tf.nest.map_structure(self._local_results, result)

    def _get_local_replica_id(self, replica_id_in_sync_group: int) -> int:
        return replica_id_in_sync_group

    def _local_results(self, value: Any) -> Any:
        return (value,)

    def value_container(self, value: Any) -> Any:
        return value

    @property
    def _num_replicas_in_sync(self) -> int:
        return 1

    def _in_multi_worker_mode(self) -> bool:
        return False

    def _global_batch_size(self) -> bool:
        return True

    def _make_input_fn_iterator(self, input_fn: Any, replication_mode: Any = None) -> Any:
        del replication_mode
        inputs = [distribute_lib.InputContext()]
        return input_lib.InputFunctionIterator(
            input_fn, self._input_workers, inputs, self._container_strategy()
        )

    def _experimental_distribute_dataset(self, dataset: Any, options: Any) -> Any:
        del options
        return dataset

    def _distribute_datasets_from_function(self, dataset_fn: Any, options: Any) -> Any:
        del options
        return dataset_fn(distribute_lib.InputContext())

    @property
    def worker_devices(self) -> tuple[str, ...]:
        return (self._ipu_device,)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        return (self._ipu_device,)

    def non_slot_devices(self, var_list: Any) -> str:
        del var_list
        return self._ipu_device


def _current_device_is_ipu() -> bool:
    device = tf_device.DeviceSpec.from_string(device_util.current())
    return bool(device.device_type == "IPU")


def _dense(value: Any) -> Any:
    return tf.convert_to_tensor(value) if isinstance(value, tf.IndexedSlices) else value


def _check_types(fn: Any, args: Any, kwargs: Any) -> None:
    """Types that the IPU has not are refused when the function is built."""
    traced = fn.get_concrete_function(*args, **kwargs)
    for tensors, name in ((traced.inputs, "input"), (traced.outputs, "output")):
        for tensor in tensors:
            if tensor.dtype in _UNSUPPORTED:
                raise TypeError(f"Unsupported data type for {name}: {tensor.dtype.name}")


IPUStrategy = IPUStrategyV1
