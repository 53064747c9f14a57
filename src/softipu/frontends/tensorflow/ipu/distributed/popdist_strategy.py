"""The strategy for programs that poprun starts: replicas on the IPUs of all instances.

Unlike IPUStrategy it tells Keras how many replicas there are, so that losses are scaled by it;
variables begin with the values of instance 0, and metrics are those of all replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util, distribute_lib, distribute_utils, values
from tensorflow.python.framework import device as tf_device
from tensorflow.python.framework import ops

from softipu.frontends.tensorflow import between_instances, descriptions, replicas, system
from softipu.instances import environment

from .. import ipu_strategy
from ..ipu_multi_worker_strategy import (
    IPU_VARIABLE_POLICY_MAPPING,
    IPUOnReadPolicy,
    IPUOnWritePolicy,
)
from . import host_collective_ops

__all__ = [
    "IPU_VARIABLE_CLASS_MAPPING",
    "IPU_VARIABLE_POLICY_MAPPING",
    "IPUDistributedVariable",
    "IPUMirroredVariable",
    "IPUOnReadPolicy",
    "IPUOnWritePolicy",
    "IPUSyncOnReadVariable",
    "PopDistExtendedV1",
    "PopDistStrategy",
]

_HOST = "/device:CPU:0"


class _OnIpu:
    """Variables say that they are on the IPU; the host does its work."""

    _distribute_strategy: Any

    @property
    def device(self) -> str:
        where = self._distribute_strategy.extended.non_slot_devices(None)
        return str(device_util.canonicalize(where))


class IPUDistributedVariable(_OnIpu, values.DistributedVariable):
    pass


class IPUSyncOnReadVariable(_OnIpu, values.SyncOnReadVariable):
    pass


class IPUMirroredVariable(_OnIpu, values.MirroredVariable):
    pass


IPU_VARIABLE_CLASS_MAPPING = {
    "VariableClass": IPUDistributedVariable,
    tf.VariableSynchronization.ON_WRITE: IPUMirroredVariable,
    tf.VariableSynchronization.ON_READ: IPUSyncOnReadVariable,
}


class PopDistStrategy(ipu_strategy.IPUStrategyV1):
    """Synchronous data parallelism over the replicas of all instances."""

    _collective_key_base = 0

    def __init__(
        self,
        ipu_device: str = "/device:IPU:0",
        add_ipu_cross_replica_reductions: bool = True,
        enable_dataset_iterators: bool = True,
        enable_keras_extensions: bool = True,
    ) -> None:
        between_instances.connect()
        super().__init__(
            ipu_device,
            enable_dataset_iterators=enable_dataset_iterators,
            enable_keras_extensions=enable_keras_extensions,
        )
        extended = PopDistExtendedV1(self, ipu_device, add_ipu_cross_replica_reductions)
        distribute_lib.StrategyV1.__init__(self, extended)

    def update_ipu_config(self, config: Any) -> None:
        """Tells the configuration which of the instances this is."""
        distribution = config.experimental.multi_replica_distribution
        instance = environment.read()
        distribution.process_count = instance.count
        distribution.process_index = instance.index


class PopDistExtendedV1(ipu_strategy.IPUExtendedV1):
    """Where variables are made, and what reductions mean on IPUs and on hosts."""

    _sole_instance = False

    def __init__(self, container: Any, ipu_device: str, add_reductions: bool) -> None:
        super().__init__(container, ipu_device, _HOST)
        self._add_ipu_cross_replica_reductions = add_reductions

    @property
    def _num_replicas_in_sync(self) -> int:
        if environment.is_launched():
            return environment.read().total_replicas
        return replicas.total() if replicas.tracing() is not None else system.ipus()

    def _create_variable(self, next_creator: Callable[..., Any], **kwargs: Any) -> Any:
        kwargs.pop("colocate_with", None)  # there is one device for all

        def real_creator(**kwargs: Any) -> list[Any]:
            kwargs["initial_value"] = self._initial_value_of_first_instance(kwargs)
            with ops.device(self._ipu_device):
                return [next_creator(**kwargs)]

        return distribute_utils.create_mirrored_variable(
            self._container_strategy(),
            real_creator,
            IPU_VARIABLE_CLASS_MAPPING,
            IPU_VARIABLE_POLICY_MAPPING,
            **kwargs,
        )

    def _initial_value_of_first_instance(self, kwargs: dict[str, Any]) -> Callable[[], Any]:
        own = self._initial_value_on_host(**kwargs)

        def initial_value() -> Any:
            with ops.device(_HOST):
                return host_collective_ops.broadcast(own())

        return initial_value

    def read_var(self, var: Any) -> Any:
        return var.read_value()

    def _reduce_to(self, reduce_op: Any, value: Any, destinations: Any, options: Any) -> Any:
        if isinstance(value, values.DistributedValues):
            (value,) = value.values
        if descriptions.is_of_one_replica():
            return value
        if not self._on_ipu():
            return host_collective_ops.allreduce(value, reduce_op)
        if not self._add_ipu_cross_replica_reductions:
            return value
        return super()._reduce_to(reduce_op, value, destinations, options)

    def _batch_reduce_to(self, reduce_op: Any, pairs: Any, options: Any) -> Any:
        if self._on_ipu() and self._add_ipu_cross_replica_reductions:
            return super()._batch_reduce_to(reduce_op, pairs, options)
        return [self._reduce_to(reduce_op, value, to, options) for value, to in pairs]

    @staticmethod
    def _on_ipu() -> bool:
        current = tf_device.DeviceSpec.from_string(device_util.current())
        return bool(current.device_type == "IPU")

    def _update(self, var: Any, fn: Any, args: Any, kwargs: Any, group: bool) -> Any:
        # The variable itself: what holds it would ask which replica it should be.
        own = var.values[0] if isinstance(var, values.DistributedVariable) else var
        args = tf.nest.map_structure(_single, args)
        return super()._update(own, fn, args, kwargs, group)

    def _broadcast_to(self, tensor: Any, destinations: Any) -> Any:
        """What counts for one replica only: each keeps its own, which began equal."""
        del destinations
        return tensor

    @property
    def should_checkpoint(self) -> bool:
        return True

    @property
    def should_save_summary(self) -> bool:
        return True

    def _validate_colocate_with_variable(self, colocate_with_variable: Any) -> None:
        del colocate_with_variable  # there is one device for all


def _single(value: Any) -> Any:
    return value.values[0] if isinstance(value, values.DistributedValues) else value
