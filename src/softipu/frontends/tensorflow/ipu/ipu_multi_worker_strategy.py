"""One IPU system for each worker of a TensorFlow cluster; gradients are reduced between hosts.

The workers talk through TensorFlow's own collectives; this adds where variables live and what runs
on which device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import (
    collective_all_reduce_strategy,
    collective_util,
    distribute_lib,
    distribute_utils,
    numpy_dataset,
    values,
)
from tensorflow.python.framework import device as tf_device
from tensorflow.python.framework import ops
from tensorflow.python.ops import collective_ops
from tensorflow.python.trackable import base as trackable

_ON_WRITE = tf.VariableSynchronization.ON_WRITE
_ON_READ = tf.VariableSynchronization.ON_READ


class IPUMultiWorkerStrategyV1(distribute_lib.StrategyV1):
    """Synchronous data parallelism over the workers of a cluster."""

    #: Changed by programs that build several strategies, so that their collectives don't meet.
    _collective_key_base = 0

    def __init__(
        self,
        cluster_resolver: Any,
        ipu_device: str = "/device:IPU:0",
        variables_on_host: bool = False,
    ) -> None:
        super().__init__(
            IPUMultiWorkerExtendedV1(self, cluster_resolver, ipu_device, variables_on_host)
        )


IPUMultiWorkerStrategy = IPUMultiWorkerStrategyV1


class IPUDistributedVariable(values.DistributedVariable):
    pass


class IPUMirroredVariable(values.MirroredVariable):
    pass


class IPUSyncOnReadVariable(values.SyncOnReadVariable):
    pass


class IPUOnWritePolicy(values.OnWritePolicy):
    pass


class IPUOnReadPolicy(values.OnReadPolicy):
    pass


IPU_VARIABLE_CLASS_MAPPING = {
    "VariableClass": IPUDistributedVariable,
    _ON_WRITE: IPUMirroredVariable,
    _ON_READ: IPUSyncOnReadVariable,
}
IPU_VARIABLE_POLICY_MAPPING = {_ON_WRITE: IPUOnWritePolicy, _ON_READ: IPUOnReadPolicy}


class IPUMultiWorkerExtendedV1(collective_all_reduce_strategy.CollectiveAllReduceExtended):
    """Where variables are made, how functions are called, what reductions mean."""

    def __init__(
        self, container: Any, cluster_resolver: Any, ipu_device: str, variables_on_host: bool
    ) -> None:
        ring = collective_util.Options(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        super().__init__(container, cluster_resolver=cluster_resolver, communication_options=ring)
        if len(self._devices) != 1:
            raise ValueError("Expected one host device per worker")
        self._host_device = self._devices[0]
        self._ipu_device = _on_worker(ipu_device, self._host_device)
        self._variables_on_host = variables_on_host
        self._variable_device = self._host_device if variables_on_host else self._ipu_device
        self._retrace_functions_for_each_device = True  # else devices are lost in functions

    def _update_config_proto(self, config_proto: Any) -> Any:
        updated = super()._update_config_proto(config_proto)
        updated.allow_soft_placement = True  # IPU devices are virtual; the CPU does their work
        return updated

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        colocate_with = kwargs.pop("colocate_with", None)
        if isinstance(colocate_with, numpy_dataset.SingleDevice):
            with ops.device(colocate_with.device):
                return next_creator(**kwargs)

        def real_creator(**kwargs: Any) -> list[Any]:
            kwargs["initial_value"] = self._chiefs_initial_value(kwargs)
            # What each worker writes for itself stays with the worker's IPU.
            on_host = self._variables_on_host and kwargs.get("synchronization") != _ON_READ
            if on_host and not tf.executing_eagerly():
                kwargs["caching_device"] = self._ipu_device
            with ops.device(self._host_device if on_host else self._ipu_device):
                return [next_creator(**kwargs)]

        return distribute_utils.create_mirrored_variable(
            self._container_strategy(),
            real_creator,
            IPU_VARIABLE_CLASS_MAPPING,
            IPU_VARIABLE_POLICY_MAPPING,
            **kwargs,
        )

    def _chiefs_initial_value(self, kwargs: dict[str, Any]) -> Callable[[], Any]:
        given, dtype = kwargs["initial_value"], kwargs.get("dtype")

        def initial_value() -> Any:
            with ops.device(self._host_device):
                value = given() if callable(given) else given
                if isinstance(value, trackable.CheckpointInitialValue):
                    value = value.wrapped_value
                return self._broadcast_from_chief(tf.convert_to_tensor(value, dtype=dtype))

        return initial_value

    def _broadcast_from_chief(self, value: Any) -> Any:
        if self._num_workers <= 1:
            return value
        group = self._collective_keys.get_group_key([self._host_device])
        instance = self._collective_keys.get_instance_key(group, self._host_device)
        tag = (value.shape, value.dtype, self._num_workers, group, instance)
        if not self._is_chief:
            return collective_ops.broadcast_recv(*tag)
        with tf.control_dependencies([collective_ops.broadcast_send(value, *tag)]):
            return tf.identity(value)

    def read_var(self, var: Any) -> Any:
        return var.read_value()

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        value = self._on_host(_single(value))
        return super()._reduce_to(reduce_op, value, destinations, options)

    def _batch_reduce_to(self, reduce_op: Any, value_destination_pairs: Any, options: Any) -> Any:
        pairs = [(self._on_host(_single(v)), d) for v, d in value_destination_pairs]
        return super()._batch_reduce_to(reduce_op, pairs, options)

    def _on_host(self, value: Any) -> Any:
        with ops.device(self._host_device):
            return tf.identity(value)

    def _call_for_each_replica(self, fn: Any, args: Any, kwargs: Any) -> Any:
        context = distribute_lib.ReplicaContext(
            self._container_strategy(), replica_id_in_sync_group=0
        )
        with context, ops.device(self._ipu_device):
            return fn(*args, **kwargs)

    def _validate_colocate_with_variable(self, colocate_with_variable: Any) -> None:
        if colocate_with_variable.device != self._variable_device:
            raise ValueError(
                f"Unexpected colocated variable device: {colocate_with_variable.device}"
            )


def _single(value: Any) -> Any:
    if isinstance(value, values.DistributedValues):
        (value,) = value.values
    return value


def _on_worker(ipu_device: str, host_device: str) -> str:
    """The IPU device of the worker that the host device belongs to."""
    ipu = tf_device.DeviceSpec.from_string(ipu_device)
    host = tf_device.DeviceSpec.from_string(host_device)
    return str(host.replace(device_type=ipu.device_type, device_index=ipu.device_index).to_string())
